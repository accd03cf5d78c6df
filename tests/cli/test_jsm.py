"""`jsm`, `nats-pub`, `nats-req` and `nats-bench`: what the walkthroughs do not show.

The tools of the preview run in this process, on a server of ours; nats-server has no preview.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_outcome import Cli, Outcome
from harness import ServerProcess
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.settings import begin, current
from tradewind.cli.legacy import dialogs, jsm, legacy_bench, tools
from tradewind.cli.legacy.program import si_bytes, take_flags
from tradewind.sync import connect

PROGRAMS = {
    "jsm": jsm.main,
    "nats-pub": tools.pub_main,
    "nats-req": tools.req_main,
    "nats-sub": tools.sub_main,
    "nats-bench": legacy_bench.main,
}
MINUTE_NS = 60 * 10**9


@pytest.fixture(scope="module")
def preview_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("preview")
    server = ServerProcess("tradewind", ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)])
    try:
        yield server.wait_ready()
    finally:
        server.stop()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """call("jsm", "ls", stdin="...") runs one of the tools."""

    def _call(program: str, *args: str, stdin: str = "") -> Outcome:
        monkeypatch.setattr("sys.argv", [program, *args])
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = PROGRAMS[program]()
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return _call


@pytest.fixture
def on_server(
    call: Cli, preview_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    """The same on a server; when the test is over no message set is left."""
    monkeypatch.setenv("NATS_URL", preview_server.url)
    yield call
    with connect(preview_server.url) as connection:
        streams = connection.jetstream_manager().streams
        for name in streams.names().all():
            streams.delete(name)


# ---------------------------------------------------------------- the form of 2020


def test_message_set_is_made_shown_and_removed_with_flags(on_server: Cli) -> None:
    assert on_server("jsm", "ms", "ls").ok().out == "No Message Sets defined\n\n"
    flags = ("--subjects", "orders.*,returns", "--storage", "file", "--max-age", "1d")
    made = on_server("jsm", "ms", "add", "ORDERS", *flags, "--max-msgs", "10").ok()
    assert made.out.startswith(
        "Message set ORDERS was created\n\nInformation for message set ORDERS\n"
    )
    assert "Subjects: orders.*, returns\n" in made.out
    assert "Maximum Age: 24h0m0s\n" in made.out
    assert "Maximum Messages: 10\n" in made.out
    assert on_server("jsm", "ms", "ls").ok().out == "Message Sets:\n\n\tORDERS\n\n"
    assert on_server("jsm", "ms", "info", "ORDERS", "-j").ok().json["config"]["max_msgs"] == 10
    assert on_server("jsm", "ms", "rm", "ORDERS", "-f").ok().out == ""
    assert on_server("jsm", "ms", "ls", "--json").ok().json == []


def test_what_flags_leave_open_is_asked_for(on_server: Cli) -> None:
    made = on_server("jsm", "ms", "add", stdin="JOBS\njobs.>\nmemory\n1h\n").ok()
    for line in ("Message Set Name: JOBS", "Subjects to consume: jobs.>", "Retention: Memory"):
        assert line in made.out
    assert "Maximum Age: 1h0m0s\n" in made.out


@pytest.mark.parametrize(("answer", "messages"), [("n", 1), ("", 1), ("y", 0)])
def test_nothing_is_removed_without_a_yes(on_server: Cli, answer: str, messages: int) -> None:
    on_server("jsm", "add", stdin="SET\nset.*\n\nfile\n").ok()
    on_server("nats-req", "set.1", "x").ok()
    asked = on_server("jsm", "ms", "purge", "SET", stdin=f"{answer}\n").ok()
    assert "Really purge message set SET? (y|N)" in asked.out
    assert on_server("jsm", "ms", "info", "SET", "-j").ok().json["stats"]["messages"] == messages


def test_messages_are_shown_and_removed_one_by_one(on_server: Cli) -> None:
    on_server("jsm", "add", stdin="SET\nset.*\n\nfile\n").ok()
    on_server("nats-req", "set.1", "first").ok()
    on_server("nats-req", "set.2", "second").ok()
    shown = on_server("jsm", "ms", "get", "SET", "2").ok()
    assert shown.out.endswith(" on Subject set.2\n\nsecond\n\n")
    assert on_server("jsm", "rm-msg", "SET", "2").ok().out == 'Received response of "+OK"\n'
    again = on_server("jsm", "rm-msg", "SET", "2")
    assert again.out == 'Received response of "-ERR sequence [2] not found"\n'
    assert again.code == EXIT_FAILED
    assert on_server("jsm", "ms", "rmm", "SET", "1", "--force").ok().out == ""
    assert on_server("jsm", "ms", "info", "SET", "-j").ok().json["stats"]["messages"] == 0


def test_observable_is_made_read_and_removed_with_flags(on_server: Cli) -> None:
    on_server("jsm", "add", stdin="SET\nset.*\n\nfile\n").ok()
    for number in (1, 2, 3):
        on_server("nats-pub", f"set.{number}", f"message {number}").ok()
    made = on_server("jsm", "obs", "add", "SET", "pull", "--pull", "--deliver", "2").ok()
    assert "Information for observable SET > pull" in made.out
    assert "Pull Mode: true" in made.out
    assert "Observable sequence: 1 Message set sequence: 2" in made.out
    first = on_server("jsm", "obs", "next", "SET", "pull").ok()
    assert first.out == "--- received on set.2\nmessage 2\n\nAcknowledged message\n"
    assert on_server("jsm", "obs", "next", "SET", "pull", "--raw", "--no-ack").ok().out == (
        "message 3\n"
    )
    state = on_server("jsm", "obs", "info", "SET", "pull", "-j").ok().json
    assert (state["AckFloor"]["ObsSeq"], list(state["Pending"])) == (1, ["3"])
    assert on_server("jsm", "obs", "ls", "SET").ok().out == (
        "Observables for message set SET:\n\n\tpull\n\n"
    )
    on_server("jsm", "obs", "rm", "SET", "pull", "-f").ok()
    assert on_server("jsm", "ls-obs", "SET").ok().out == "\nNone\n\n"


@pytest.mark.parametrize(
    ("answers", "start"),
    [
        ("n\ny\n", {"deliver_last": True}),
        ("n\n\n1h\n", {"start_time": str}),
        ("f\nn\n\n7\n", {"msg_set_seq": 7}),
        ("0\nn\n\n\n", {}),
        ("yes\n", {"deliver_all": True}),
    ],
)
def test_dialog_asks_as_much_as_it_needs_to_know_the_start(
    monkeypatch: pytest.MonkeyPatch, answers: str, start: dict[str, object]
) -> None:
    lines = iter(["SET", "name", "push", "out", *answers.splitlines(), "all", "orig"])

    class Sets:
        def sets(self) -> list[str]:
            return ["SET"]

    name, config = dialogs.ask_observable(lambda _: next(lines), Sets())  # type: ignore[arg-type]
    assert (name, config.ack_policy, config.replay_policy) == ("SET", "all", "original")
    assert config.delivery_subject == "out"
    for field in ("deliver_all", "deliver_last", "start_time", "msg_set_seq"):
        value = getattr(config, field)
        assert bool(value) == (field in start)
        assert start.get(field) in (None, str, value)


# ---------------------------------------------------------------- what can go wrong


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("foo",), "no command 'foo' with these arguments"),
        (("rm",), "no command 'rm' with these arguments"),
        (("ms", "fly"), "invalid choice: 'fly'"),
        (("ms", "add", "X", "--storge", "file"), "unrecognized arguments: --storge"),
        (("--sever", "x", "ls"), "flag '--sever' does not exist"),
        (("-s",), "flag '-s' needs a value"),
        (("-timeout", "soon", "ls"), "must be a duration such as"),
    ],
)
def test_wrong_words_are_explained_without_a_server(
    call: Cli, args: tuple[str, ...], says: str
) -> None:
    outcome = call("jsm", *args)
    assert outcome.code in (EXIT_FAILED, EXIT_USAGE)
    assert outcome.err.startswith("jsm: error: ")
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_help_needs_no_server(call: Cli) -> None:
    assert "jsm [-s server] [-creds file] [command]" in call("jsm", "-h").ok().out
    assert call("jsm").code == EXIT_FAILED
    assert "usage: jsm ms add" in call("jsm", "ms", "add", "--help").ok().out
    for name in ("nats-pub", "nats-req", "nats-sub", "nats-bench"):
        assert call(name, "-h").ok().out.startswith(f"Usage: {name}")


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        ("SET\n", "no answer to 'Subjects:': the input has ended"),
        ("SET\na b\n1 2 3 4\n", "at most three"),
        ("SET\na\nmany\n", "messages 'many': a number, or -1 for no limit"),
        ("SET\na\n1 2 3x\n", "age must be a duration such as"),
    ],
)
def test_answers_that_mean_nothing_end_the_dialog(on_server: Cli, stdin: str, says: str) -> None:
    outcome = on_server("jsm", "add", stdin=stdin)
    assert outcome.code in (EXIT_FAILED, EXIT_USAGE)
    assert says in outcome.err


def test_refusals_of_the_server_are_shown_and_fail(on_server: Cli) -> None:
    refused = on_server("jsm", "rm", "NOBODY")
    assert (refused.code, refused.out) == (
        EXIT_FAILED,
        'Received response of "-ERR msgset not found"\n',
    )
    assert on_server("jsm", "info", "NOBODY").err == "jsm: error: msgset not found\n"
    assert "No message sets available" in on_server("jsm", "add-obs").err
    on_server("jsm", "add", stdin="SET\nset.*\n\nfile\n").ok()
    other = on_server("jsm", "add-obs", stdin="SOT\n")
    assert "Not a valid message set: 'SOT'; there are SET" in other.err
    assert "has no pull observable 'o'" in on_server("jsm", "next", "SET", "o").err


def test_server_without_the_preview_is_named_as_such(
    call: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerProcess("official", ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path)])
    try:
        monkeypatch.setenv("NATS_URL", server.wait_ready().url)
        outcome = call("jsm", "ls")
        assert outcome.code == EXIT_FAILED
        assert "this server does not support the first preview" in outcome.err
        assert "tradewind-server -js" in outcome.err
        assert call("nats-pub", "foo", "hello").ok().out == "Published [foo] : 'hello'\n"
        assert "nobody is listening on 'foo'" in call("nats-req", "foo", "hello").err
    finally:
        server.stop()


def test_nobody_to_connect_to_is_one_line_with_what_to_type(call: Cli) -> None:
    outcome = call("jsm", "-s", "nats://127.0.0.1:1", "ls")
    assert outcome.code == EXIT_FAILED
    assert "tradewind server run --jetstream" in outcome.err


# ---------------------------------------------------------------- the small tools


def test_bench_sends_every_message_once_and_counts_what_arrives(on_server: Cli) -> None:
    on_server("jsm", "add", stdin="SET\nset\n\nfile\n").ok()
    done = on_server("nats-bench", "-np", "3", "-ns", "2", "-n", "1000", "-ms", "16", "set").ok()
    assert done.out.startswith(
        "Starting benchmark [msgs=1000, msgsize=16, pubs=3, subs=2]\nPub stats: "
    )
    assert done.out.count("(334 msgs)") == 1
    assert done.out.count("(333 msgs)") == 2
    assert done.out.count("(1,000 msgs)") == 2
    stats = on_server("jsm", "ms", "info", "SET", "-j").ok().json["stats"]
    assert (stats["messages"], stats["bytes"]) == (1000, 1000 * (22 + 3 + 16 + 8))


@pytest.mark.parametrize("args", [("-n", "0", "x"), ("-np", "many", "x"), (), ("a", "b")])
def test_bench_says_what_is_wrong_with_its_arguments(call: Cli, args: tuple[str, ...]) -> None:
    outcome = call("nats-bench", *args)
    assert outcome.code == EXIT_USAGE
    assert outcome.err.startswith("nats-bench: error: ")


def test_flags_are_read_as_go_reads_them() -> None:
    begin()
    flags, words = take_flags(["-s=one", "--np", "3", "-t", "--", "-x"], ("s", "np"), ("t",))
    assert (flags.values, words) == ({"s": "one", "np": "3", "t": "true"}, ["-x"])
    assert current().text("server") == "one"


def test_sizes_are_powers_of_a_thousand() -> None:
    sizes = {
        0: "0 B",
        9: "9 B",
        76: "76 B",
        180: "180 B",
        999: "999 B",
        1000: "1.0 kB",
        161_000_076: "161 MB",
        96 * 2**30: "103 GB",
        2**40: "1.1 TB",
    }
    assert {size: si_bytes(size) for size in sizes} == sizes


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", (-1, -1, 0)),
        ("5", (5, -1, 0)),
        ("-1 -1 1m", (-1, -1, MINUTE_NS)),
        ("10, 2000, 1d", (10, 2000, 24 * 60 * MINUTE_NS)),
        ("10\t2000\t1M", (10, 2000, 30 * 24 * 60 * MINUTE_NS)),
    ],
)
def test_limits_are_read_from_left_to_right(text: str, limits: tuple[int, int, int]) -> None:
    assert dialogs.parse_limits(text) == limits


def test_a_sequence_is_a_number_from_one_on() -> None:
    assert dialogs.parse_sequence("7") == 7
    for text in ("0", "-1", "x", ""):
        with pytest.raises(CommandError, match="a number from 1 on"):
            dialogs.parse_sequence(text)
