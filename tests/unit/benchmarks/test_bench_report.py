"""The table, the JSON document and the command line."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks import cli, report
from benchmarks.measure import Result, Scale, Workload
from benchmarks.micro.registry import REGISTRY, measure, micro
from benchmarks.runner import OURS, PEER, Comparison, Side
from benchmarks.servers import Server, ServerError, command_line
from benchmarks.workloads import WORKLOADS, many_filters, subscriptions


def comparison(
    ours: list[dict[str, float]],
    peer: list[dict[str, float]],
    share: float = 0.5,
    wall_s: float = 1.0,
) -> Comparison:
    notes = {"generator_cpu_share": share, "other_cpu_share": 0.1, "wall_s": wall_s}
    sides = {
        OURS: Side([Result(figures, dict(notes)) for figures in ours], version="1"),
        PEER: Side([Result(figures, dict(notes)) for figures in peer], version="2"),
    }
    return Comparison(Workload("load", "a load", lambda server, scale: Result()), sides)


THREE_ROUNDS = comparison(
    [{"wall": 100, "p50_us": 30}, {"wall": 900, "p50_us": 10}, {"wall": 300, "p50_us": 20}],
    [{"wall": 100, "p50_us": 40}, {"wall": 150, "p50_us": 40}, {"wall": 200, "p50_us": 40}],
)


def test_rows_hold_medians_ratios_and_spreads() -> None:
    assert report.rows(THREE_ROUNDS) == [
        ("load", "messages per s", "300", "150", "2.00x", "267% / 67%"),
        ("", "p50 us", "20.0", "40.0", "2.00x", "100% / 0%"),
    ]


def test_failed_server_has_no_figures_even_if_a_round_succeeded() -> None:
    failed = comparison([{"wall": 1}], [{"wall": 2}])
    failed.sides[OURS].failure = "lost a message"
    assert report.rows(failed) == [("load", "messages per s", "n/a", "2.00", "n/a", "n/a / n/a")]


def test_workload_that_both_failed_is_one_row() -> None:
    both = comparison([], [])
    both.sides[OURS].failure = both.sides[PEER].failure = "x"
    assert report.rows(both) == [("load", "", "n/a", "n/a", "n/a", "")]


def test_figure_that_a_round_lacks_is_left_out() -> None:
    assert comparison([{"wall": 1}, {}], [{"wall": 1}, {"wall": 1}]).ratio("wall") is None


def test_busy_generator_marks_the_wall_rate() -> None:
    busy = comparison([{"wall": 1, "per_cpu": 1}], [{"wall": 1, "per_cpu": 1}], share=0.95)
    assert [row[1] for row in report.rows(busy)] == ["messages per CPU s", "messages per s*"]


def test_noise_is_the_largest_share_of_others() -> None:
    assert report.noise([THREE_ROUNDS]) == 0.1
    assert report.noise([comparison([], [])]) is None


def test_noise_of_a_run_too_short_for_ticks_is_unknown() -> None:
    assert report.noise([comparison([{"wall": 1}], [{"wall": 1}], wall_s=0.05)]) is None


def test_text_table_aligns_names_left_and_values_right() -> None:
    text = report.text_table([("a", "bb", "1"), ("", "c", "22")], (3, 3, 4))
    assert text == "a    bb      1\n     c      22"


def test_markdown_table_has_one_line_per_figure() -> None:
    lines = report.markdown_table([THREE_ROUNDS]).splitlines()
    assert lines[0].startswith("| workload | figure | ours |")
    assert lines[2] == "| load | messages per s | 300 | 150 | 2.00x | 267% / 67% |"
    assert len(lines) == 4


def test_document_keeps_every_round_and_can_be_written_as_json() -> None:
    saved = report.document([THREE_ROUNDS], {"cores": 2}, {"rounds": 3})
    load = json.loads(json.dumps(saved))["workloads"]["load"]
    assert load["ours"]["median"] == {"wall": 300, "p50_us": 20}
    assert [entry["wall"] for entry in load["peer"]["rounds"]] == [100, 150, 200]
    assert load["ratio"] == {"wall": 2, "p50_us": 2}
    assert load["ours"]["failure"] is None


def test_unknown_workload_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--only", "pubsub-128,typo"]) == 2
    assert "no workload named 'typo'" in capsys.readouterr().err


def test_workloads_are_chosen_in_their_own_order() -> None:
    names = [workload.name for workload in cli.choose("queue-8, pubsub-128")]
    assert names == ["pubsub-128", "queue-8"]


def test_command_without_a_place_for_the_config_file_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["--ours", sys.executable]) == 2
    assert "--ours must be a command with {conf} in it" in capsys.readouterr().err


def test_missing_server_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--ours", "no-such-server {conf}"]) == 2
    assert "no executable 'no-such-server'" in capsys.readouterr().err


def test_list_names_every_workload_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [workload.name for workload in WORKLOADS]
    assert len(set(listed)) == len(listed)


def test_command_line_keeps_quoted_words_together() -> None:
    words = command_line("'my server' -c {conf} --name=x", Path("/a b/c.conf"))
    assert words == ["my server", "-c", "/a b/c.conf", "--name=x"]


def test_server_that_ends_at_once_is_reported_with_its_last_words() -> None:
    template = f"{sys.executable} -c 'import sys; sys.exit(sys.argv[1][-11:])' {{conf}}"
    with pytest.raises(ServerError, match=r"ended with code 1: server\.conf"), Server(template):
        pass


def test_failure_of_ours_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    broken = f"{sys.executable} -c 'raise SystemExit(3)' {{conf}}"
    arguments = ["--ours", broken, "--peer", broken, "--only", "pubsub-16", "--quick"]
    assert cli.main(arguments) == 1
    captured = capsys.readouterr()
    assert "pubsub-16: ours failed in round 1" in captured.err
    assert "n/a" in captured.out


def test_quick_is_a_tenth() -> None:
    assert Scale(quick=True).count(1000) == 100
    assert Scale().count(1000) == 1000


def test_subscription_lines_are_numbered_from_one() -> None:
    assert subscriptions([b"a", b"b"]) == b"SUB a 1\r\nSUB b 2\r\n"
    assert subscriptions([b"a"], b"group") == b"SUB a group 1\r\n"


def matches(pattern: bytes, subject: bytes) -> bool:
    wanted, given = pattern.split(b"."), subject.split(b".")
    if wanted[-1] == b">":
        return len(given) >= len(wanted) and all(
            a in (b"*", b) for a, b in zip(wanted[:-1], given, strict=False)
        )
    return len(given) == len(wanted) and all(
        a in (b"*", b) for a, b in zip(wanted, given, strict=True)
    )


def test_each_of_many_subjects_matches_only_its_own_filter() -> None:
    filters, subjects = many_filters(40)
    assert len(set(filters)) == 40
    for index, subject in enumerate(subjects):
        assert [i for i, pattern in enumerate(filters) if matches(pattern, subject)] == [index]


def test_micro_timing_is_per_operation() -> None:
    now_ns = 0

    def operation(repetitions: int) -> int:
        nonlocal now_ns
        now_ns += repetitions * 10 * 25
        return repetitions * 10

    timing = measure(operation, sample_s=1e-3, clock_ns=lambda: now_ns)
    assert (timing.ns_per_operation, timing.spread) == (25, 0)


def test_two_micro_benchmarks_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.micro.registry.REGISTRY", {"taken": None})
    with pytest.raises(ValueError, match="two micro benchmarks are named 'taken'"):
        micro("taken", "a second one")(lambda: lambda repetitions: repetitions)
    assert "taken" not in REGISTRY
