"""`tradewind consumer` on both servers: what it makes, shows, reads, changes and removes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli_outcome import Cli
from harness import ServerProcess, wait_for
from tradewind.api.consumer_types import ConsumerInfo
from tradewind.cli.consumers.consumer_details import show_consumer
from tradewind.cli.consumers.consumer_flags import linear_backoff
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.text_formats import parse_moment_ns
from tradewind.durations import HOUR_NS, MINUTE_NS, SECOND_NS
from tradewind.sync import connect


@pytest.fixture
def orders(cli: Cli, js_server: ServerProcess) -> Cli:
    """A stream ORDERS with five messages."""
    cli("stream", "add", "ORDERS", "--subjects", "orders.*").ok()
    with connect(f"nats://127.0.0.1:{js_server.port}") as connection:
        for number in range(1, 6):
            subject = "orders.us" if number % 2 else "orders.eu"
            connection.jetstream().publish(subject, f"order {number}", headers={"N": str(number)})
    return cli


def config_of(cli: Cli, name: str) -> dict[str, Any]:
    config: dict[str, Any] = cli("consumer", "info", "ORDERS", name, "-j").ok().json["config"]
    return config


def test_a_pull_consumer_is_made_listed_and_removed(orders: Cli) -> None:
    made = orders("consumer", "add", "ORDERS", "packer").ok().out
    assert "Consumer ORDERS > packer was created" in made
    assert "Pull Mode: true" in made
    assert "Unprocessed Messages: 5" in made
    config = config_of(orders, "packer")
    assert config["durable_name"] == "packer"
    assert config["ack_policy"] == "explicit"
    assert "│ packer │" in orders("consumers", "ls", "ORDERS").ok().out
    assert orders("con", "ls", "ORDERS", "-n").ok().out == "packer\n"
    orders("consumer", "rm", "ORDERS", "packer", "-f").ok()
    assert orders("con", "ls", "ORDERS").ok().out == "No Consumers defined\n"


def test_the_configuration_of_document_002_makes_a_consumer(orders: Cli, tmp_path: Path) -> None:
    document = {
        "durable_name": "SomeConsumer",
        "deliver_subject": "pull",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 2000000000,
        "max_deliver": -1,
        "filter_subject": "orders.us",
        "replay_policy": "instant",
    }
    path = tmp_path / "jetstream-consumer.json"
    path.write_text(json.dumps(document))
    shown = orders("con", "add", "ORDERS", f"--config={path}").ok().out
    assert "Delivery Subject: pull" in shown
    config = config_of(orders, "SomeConsumer")
    assert {name: config[name] for name in document} == document


def test_info_can_be_given_back_as_configuration(orders: Cli, tmp_path: Path) -> None:
    orders("con", "add", "ORDERS", "A", "--filter", "orders.us", "--wait", "5s").ok()
    path = tmp_path / "A.json"
    path.write_text(orders("con", "info", "ORDERS", "A", "-j").ok().out)
    before = config_of(orders, "A")
    orders("con", "rm", "ORDERS", "A", "-f").ok()
    orders("consumer", "create", "--config", str(path)).ok()
    assert config_of(orders, "A") == before


def test_a_file_keeps_a_consumer_ephemeral(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(
        '{"name": "passing", "ack_policy": "explicit", "inactive_threshold": 60000000000}'
    )
    orders("con", "add", "ORDERS", "--config", str(path)).ok()
    assert "durable_name" not in config_of(orders, "passing")
    orders("con", "add", "ORDERS", "other", "--config", str(path)).ok()
    assert "durable_name" not in config_of(orders, "other")


def test_a_file_that_leaves_out_the_wait_does_not_change_it(orders: Cli, tmp_path: Path) -> None:
    orders("con", "add", "ORDERS", "A", "--wait", "5s").ok()
    path = tmp_path / "short.json"
    path.write_text('{"durable_name": "A", "ack_policy": "explicit", "description": "new"}')
    orders("con", "edit", "ORDERS", "A", "--config", str(path), "-f").ok()
    config = config_of(orders, "A")
    assert (config["description"], config["ack_wait"]) == ("new", 5 * SECOND_NS)


def test_names_can_be_completed(orders: Cli, process: Cli) -> None:
    orders("consumer", "add", "ORDERS", "packer").ok()
    orders("consumer", "add", "ORDERS", "sender").ok()
    outcome = process(
        env={
            "_TRADEWIND_COMPLETE": "complete_bash",
            "COMP_WORDS": "tradewind consumer info ORDERS pa",
            "COMP_CWORD": "4",
        }
    )
    assert outcome.out.split() == ["packer"]


def test_every_flag_has_its_member(offline: Cli, tmp_path: Path) -> None:
    path = tmp_path / "consumer.json"
    offline(
        *("con", "add", "S", "C", "--ack", "all", "--bps", "1000", "--backoff", "linear"),
        *("--backoff-steps", "3", "--backoff-min", "1s", "--backoff-max", "3s", "--deliver", "7"),
        *("--deliver-group", "g", "--description", "d", "--filter", "a,b", "--flow-control"),
        *("--heartbeat", "5s", "--headers-only", "--max-deliver", "9", "--max-pending", "10"),
        *("--replay", "original", "--sample", "50", "--target", "t", "--wait", "1m"),
        *("--inactive-threshold", "1h", "--memory", "--replicas", "1", "--metadata", "k=v"),
        *("--max-waiting", "3", "--max-pull-batch", "4", "--max-pull-expire", "9s"),
        *("--max-pull-bytes", "1KB", "--pinned-groups", "x", "--pinned-ttl", "1m"),
        *("--nak-delay", "1s,5s", "--nak-delay-for", "busy=9s jitter 10%"),
        *("--order-by", "token:2", "--order-in-flight", "3"),
        *("--output", str(path)),
    ).ok()
    expected = {
        "durable_name": "C",
        "name": "C",
        "ack_policy": "all",
        "rate_limit_bps": 1000,
        "backoff": [SECOND_NS, 2 * SECOND_NS, 3 * SECOND_NS],
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 7,
        "deliver_group": "g",
        "description": "d",
        "filter_subjects": ["a", "b"],
        "flow_control": True,
        "idle_heartbeat": 5 * SECOND_NS,
        "headers_only": True,
        "max_deliver": 9,
        "max_ack_pending": 10,
        "replay_policy": "original",
        "sample_freq": "50%",
        "deliver_subject": "t",
        "ack_wait": MINUTE_NS,
        "inactive_threshold": HOUR_NS,
        "mem_storage": True,
        "num_replicas": 1,
        "metadata": {
            "k": "v",
            "tradewind.nak.delay": "1s,5s",
            "tradewind.nak.delay.busy": "9s jitter 10%",
            "tradewind.order_by": "token:2",
            "tradewind.order_in_flight": "3",
        },
        "max_waiting": 3,
        "max_batch": 4,
        "max_expires": 9 * SECOND_NS,
        "max_bytes": 1024,
        "priority_groups": ["x"],
        "priority_policy": "pinned_client",
        "priority_timeout": MINUTE_NS,
    }
    assert json.loads(path.read_text()) == expected


@pytest.mark.parametrize(
    ("text", "policy"),
    [("all", "all"), ("new", "new"), ("last", "last"), ("subject", "last_per_subject")],
)
def test_starts_have_names(offline: Cli, tmp_path: Path, text: str, policy: str) -> None:
    path = tmp_path / "consumer.json"
    offline("con", "add", "S", "C", "--deliver", text, "--output", str(path)).ok()
    assert json.loads(path.read_text())["deliver_policy"] == policy


def test_a_start_may_be_a_time(offline: Cli, tmp_path: Path) -> None:
    path = tmp_path / "consumer.json"
    offline("con", "add", "S", "C", "--deliver", "2026-01-31T12:00:00Z", "--output", str(path)).ok()
    document = json.loads(path.read_text())
    assert document["deliver_policy"] == "by_start_time"
    assert document["opt_start_time"] == "2026-01-31T12:00:00Z"
    before = time.time_ns()
    assert before - HOUR_NS <= parse_moment_ns("1h", "--deliver", ago=True) <= time.time_ns()
    assert before + HOUR_NS <= parse_moment_ns("1h", "--pause")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--deliver", "sometimes"], "--deliver: all, new, last"),
        (["--backoff", "cubic"], "--backoff must be one of linear, none"),
        (
            ["--order-by", "token:x"],
            "--order-by: tradewind.order_by: a token from 1 to 256, not 'x'",
        ),
        (["--order-in-flight", "0"], "order-in-flight"),
        (["--nak-delay", "soon"], "tradewind.nak.delay must be "),
        (["--nak-delay-for", "busy"], "--nak-delay-for: CLASS=RULE as in busy=10s, not 'busy'"),
        (["--backoff", "linear", "--backoff-min", "1h"], "--backoff-min: must be more than 0"),
        (["--pull", "--target", "x"], "--pull and --target: use only one"),
        (["--pinned-groups", "a", "--overflow-groups", "b"], "use only one of them"),
        (["--ack", "maybe"], "must be one of none, all, explicit, flow_control, not 'maybe'"),
        (["--pause", "later"], "--pause must be a duration such as"),
    ],
)
def test_a_wrong_flag_is_named(offline: Cli, flags: list[str], text: str) -> None:
    outcome = offline("consumer", "add", "S", "C", *flags)
    assert outcome.code in (EXIT_FAILED, EXIT_USAGE)
    assert text in outcome.err


def test_a_consumer_without_name_is_an_error_without_a_terminal(offline: Cli) -> None:
    assert "--ephemeral" in offline("consumer", "add", "S").err


def test_an_ephemeral_consumer_gets_a_name_from_the_server(orders: Cli) -> None:
    made = orders("consumer", "add", "ORDERS", "--ephemeral", "--json").ok().json
    assert made["name"]
    assert "durable_name" not in made["config"]


def test_unknown_names_get_near_names(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "packer").ok()
    for command in ("info", "next", "sub", "state"):
        assert "did you mean 'packer'?" in orders("con", command, "ORDERS", "packr").err
    assert "did you mean 'ORDERS'?" in orders("con", "info", "ORDRS", "packer").err
    assert "available: packer" in orders("con", "info", "ORDERS").err
    orders("consumer", "rm", "ORDERS", "packer", "-f").ok()
    none = orders("con", "info", "ORDERS", "packer")
    assert none.code == EXIT_FAILED
    assert "tradewind consumer add ORDERS packer" in none.err


def test_next_shows_and_acknowledges(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "packer", "--filter", "orders.us").ok()
    shown = orders("con", "next", "ORDERS", "packer").ok().out
    assert "] subj: orders.us / tries: 1 / cons seq: 1 / str seq: 1 / pending: 2\n" in shown
    assert shown.endswith("\n\n  N: 1\n\norder 1\n\nAcknowledged message\n\n")
    assert orders("con", "next", "ORDERS", "packer", "--nak", "-r").ok().out == "order 3\n"
    again = orders("con", "next", "ORDERS", "packer", "--term", "--count", "2").ok().out
    assert "tries: 2" in again
    assert again.count("Terminated message") == 2

    def state() -> tuple[int, int]:
        found = orders("con", "state", "ORDERS", "packer", "-j").ok().json
        return found["ack_floor"]["stream_seq"], found["num_pending"]

    # Nobody confirms that a message is terminated; nats-server does it a little later.
    wait_for(lambda: state() == (5, 0), state)
    empty = orders("con", "next", "ORDERS", "packer", "--wait", "100ms")
    assert empty.code == EXIT_FAILED
    assert "no message arrived within 0.1 s" in empty.err


def test_messages_can_be_read_as_json(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "packer").ok()
    lines = orders("con", "next", "ORDERS", "packer", "--json", "--count", "2").ok().out
    first, second = map(json.loads, lines.splitlines())
    assert (first["subject"], first["seq"], first["tries"]) == ("orders.us", 1, 1)
    assert (second["consumer_seq"], second["pending"]) == (2, 3)
    rest = orders("con", "sub", "ORDERS", "packer", "--json", "--count", "3").ok().out
    assert [json.loads(line)["seq"] for line in rest.splitlines()] == [3, 4, 5]


def test_next_without_ack_leaves_the_message_pending(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "packer").ok()
    orders("con", "next", "ORDERS", "packer", "--no-ack", "--raw").ok()
    assert orders("con", "state", "ORDERS", "packer", "-j").ok().json["num_ack_pending"] == 1


def test_sub_reads_pull_and_push_consumers(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "pull").ok()
    bodies = "".join(f"order {number}\n" for number in range(1, 6))
    assert orders("con", "sub", "ORDERS", "pull", "--raw", "--count", "5").ok().out == bodies
    state = orders("con", "state", "ORDERS", "pull", "-j").ok().json
    assert state["ack_floor"]["stream_seq"] == 5
    orders("consumer", "add", "ORDERS", "push", "--target", "out", "--ack", "none").ok()
    assert orders("con", "sub", "ORDERS", "push", "--raw", "--count", "5").ok().out == bodies
    refused = orders("con", "next", "ORDERS", "push")
    assert refused.code == EXIT_FAILED
    assert "tradewind consumer sub ORDERS push" in refused.err


def test_sub_ends_well_with_an_interrupt(orders: Cli, js_server: ServerProcess) -> None:
    orders("consumer", "add", "ORDERS", "packer").ok()
    command = [sys.executable, "-m", "tradewind.cli", "con", "sub", "ORDERS", "packer", "--raw"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(5)][-1] == "order 5\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_edit_shows_the_difference(orders: Cli, tmp_path: Path) -> None:
    orders("consumer", "add", "ORDERS", "packer", "--filter", "orders.us").ok()
    before = config_of(orders, "packer")
    edited = orders(
        "con", "edit", "ORDERS", "packer", "--max-pending", "7", "--filter", "orders.*", "-f"
    ).ok()
    assert "-       max_ack_pending: 1000,\n+       max_ack_pending: 7," in edited.out
    assert "Consumer ORDERS > packer was updated" in edited.out
    after = config_of(orders, "packer")
    assert after == {**before, "max_ack_pending": 7, "filter_subject": "orders.*"}
    path = tmp_path / "same.json"
    path.write_text(json.dumps(after))
    same = orders("con", "edit", "ORDERS", "packer", "--config", str(path)).ok().out
    assert same == "No difference in configuration\n"
    dry = orders("con", "edit", "ORDERS", "packer", "--wait", "9s", "--dry-run").ok().out
    assert '+       ack_wait:       "9s",' in dry
    assert config_of(orders, "packer") == after


def test_copy_takes_the_configuration(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "one", "--max-pending", "7", "--metadata", "k=v").ok()
    orders("con", "cp", "ORDERS", "one", "two", "--wait", "9s").ok()
    config = config_of(orders, "two")
    assert (config["max_ack_pending"], config["ack_wait"]) == (7, 9 * SECOND_NS)
    assert config["metadata"]["k"] == "v"


def test_pause_and_resume(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "packer").ok()
    assert (
        "Paused ORDERS > packer until"
        in orders("con", "pause", "ORDERS", "packer", "1h", "-f").ok().out
    )
    assert "remaining)" in orders("con", "info", "ORDERS", "packer").ok().out
    assert orders("con", "state", "ORDERS", "packer", "-j").ok().json["paused"] is True
    assert "was resumed" in orders("con", "resume", "ORDERS", "packer", "-f").ok().out
    assert "is not paused" in orders("con", "resume", "ORDERS", "packer", "-f").ok().out
    past = orders("con", "pause", "ORDERS", "packer", "2020-01-01 00:00:00", "-f")
    assert past.code == EXIT_FAILED
    assert "has passed" in past.err
    assert orders("con", "pause", "ORDERS", "packer").code == EXIT_USAGE


def test_report_compares_consumers(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "pull").ok()
    orders("consumer", "add", "ORDERS", "push", "--target", "out").ok()
    shown = orders("con", "report", "ORDERS").ok().out
    assert "Consumer report for ORDERS with 2 consumers" in shown
    assert "5 / 100 %" in shown
    names = [info["name"] for info in orders("con", "report", "ORDERS", "-j").ok().json]
    assert names == ["pull", "push"]


def test_consumers_are_found(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "pull").ok()
    orders("consumer", "add", "ORDERS", "push", "--target", "out").ok()
    orders("con", "next", "ORDERS", "pull", "--count", "3", "--no-ack", "--raw").ok()
    # nats-server counts what is pending a moment later.
    pending = ("con", "find", "ORDERS", "-n", "--pending", "3")
    wait_for(lambda: orders(*pending).ok().out == "pull\n")
    for flags, names in (
        (["--pull"], "pull\n"),
        (["--push"], "push\n"),
        (["--pull", "--invert"], "push\n"),
        (["--pending", "3"], "pull\n"),
        (["--ack-pending", "3"], "push\n"),
        (["--waiting", "1"], "pull\n"),
        (["--created", "1h"], ""),
        (["--idle", "1h"], ""),
        (["--bound"], ""),
        (["--pinned"], ""),
        ([], "pull\npush\n"),
    ):
        assert orders("con", "find", "ORDERS", "-n", *flags).ok().out == names, flags
    assert orders("con", "find", "ORDERS", "--bound").ok().out == "No Consumers match\n"


def test_reset_starts_again(orders: Cli) -> None:
    orders("consumer", "add", "ORDERS", "packer").ok()
    orders("con", "next", "ORDERS", "packer", "--count", "5", "--raw").ok()
    orders("con", "reset", "ORDERS", "packer", "--sequence", "4", "-f").ok()
    assert orders("con", "next", "ORDERS", "packer", "--raw").ok().out == "order 4\n"


def test_backoff_grows_evenly() -> None:
    assert linear_backoff(4, 1, 10) == [1, 4, 7, 10]
    assert linear_backoff(1, 5, 10) == [5]
    with pytest.raises(CommandError):
        linear_backoff(3, 0, 10)


def test_rare_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    info = msgspec.convert(
        {
            "stream_name": "S",
            "name": "C",
            "config": {
                "deliver_subject": "out",
                "deliver_group": "g",
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": 7,
                "filter_subjects": ["a", "b"],
                "ack_policy": "flow_control",
                "rate_limit_bps": 1000,
                "priority_groups": ["x"],
                "priority_policy": "pinned_client",
            },
            "push_bound": True,
            "priority_groups": [{"group": "x", "pinned_client_id": "me"}],
        },
        ConsumerInfo,
    )
    show_consumer(info)
    shown = capsys.readouterr().out
    for text in (
        "Delivery Subject: out",
        "Deliver Queue Group: g",
        "Deliver Policy: From Sequence 7",
        "Filter Subjects: a, b",
        "Ack Policy: Flow Control",
        "Rate Limit: 1,000 b/s",
        "Active Interest: Active using Queue Group g",
        "Group x: me since never",
    ):
        assert text in shown


def test_a_nak_policy_is_shown_and_taken_away(orders: Cli) -> None:
    orders("con", "add", "ORDERS", "A", "--nak-delay", "5s", "--nak-delay-for", "busy=1s").ok()
    assert "NAK Delay: 5s; busy: 1s" in orders("con", "info", "ORDERS", "A").ok().out
    orders("con", "edit", "ORDERS", "A", "--metadata", "owner=none", "-f").ok()
    orders("con", "edit", "ORDERS", "A", "--nak-delay", "none", "-f").ok()
    assert "NAK Delay: busy: 1s" in orders("con", "info", "ORDERS", "A").ok().out
    kept = orders("con", "info", "ORDERS", "A", "--json").ok().json["config"]["metadata"]
    assert kept["owner"] == "none"
