"""Commands that ask: what is missing, which one, and whether really."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli_outcome import Cli, Types
from tradewind.cli.frame.failures import EXIT_FAILED
from tradewind.cli.frame.settings import begin, current


def config_of(cli: Cli, *names: str) -> dict[str, Any]:
    noun = "stream" if len(names) == 1 else "consumer"
    config: dict[str, Any] = cli(noun, "info", *names, "--json").ok().json["config"]
    return config


def test_stream_add_asks_for_everything(cli: Cli, types: Types) -> None:
    types(
        *("ORDERS", "orders.* refunds.*", "memory", "1", "limits", "new", "100", "10"),
        *("1MB", "1h", "1KB", "30s", "y", "n", ""),
    )
    asked = cli("stream", "add").ok()
    for question in (
        *("Stream Name", "Subjects", "Storage", "Replication", "Retention Policy"),
        *("Discard Policy", "Stream Messages Limit", "Per Subject Messages Limit"),
        *("Total Stream Size", "Message TTL", "Max Message Size"),
        *("Duplicate tracking time window", "Allow message Roll-ups", "Allow message deletion"),
        "Allow purging subjects or the entire stream",
    ):
        assert f"? {question} " in asked.err
    config = config_of(cli, "ORDERS")
    expected = {
        "subjects": ["orders.*", "refunds.*"],
        "storage": "memory",
        "discard": "new",
        "max_msgs": 100,
        "max_msgs_per_subject": 10,
        "max_bytes": 1 << 20,
        "max_age": 3_600_000_000_000,
        "max_msg_size": 1024,
        "duplicate_window": 30_000_000_000,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "deny_purge": False,
    }
    assert {name: config[name] for name in expected} == expected


def test_enter_takes_the_defaults_of_a_stream(cli: Cli, types: Types) -> None:
    types(*[""] * 13)
    cli("stream", "add", "A", "--subjects", "a", "--ask").ok()
    types()
    cli("stream", "add", "B", "--subjects", "b", "--defaults").ok()
    one, other = config_of(cli, "A"), config_of(cli, "B")
    assert one == {**other, "name": "A", "subjects": ["a"]}


def test_flags_are_not_asked_for(cli: Cli, types: Types) -> None:
    types(*[""] * 13)
    asked = cli(
        *("stream", "add", "A", "--subjects", "a", "--max-age", "1h", "--storage", "file", "--ask")
    )
    assert "Message TTL" not in asked.ok().err
    assert "Storage" not in asked.err


def test_a_wrong_answer_is_asked_for_again(cli: Cli, types: Types) -> None:
    types(*("", "seven", "1", "", "", "", "", "lots", "1MB", *[""] * 6))
    asked = cli("stream", "add", "A", "--subjects", "a", "--ask").ok()
    assert "--replicas must be from 1 to 5, not 'seven'" in asked.err
    assert "--max-bytes must be a size such as 512" in asked.err
    assert config_of(cli, "A")["max_bytes"] == 1 << 20


def test_consumer_add_asks_for_everything(cli: Cli, types: Types) -> None:
    cli("stream", "add", "ORDERS", "--subjects", "orders.*", "--defaults").ok()
    types("packer", "", "last", "all", "original", "orders.us", "5", "7", "y", "y")
    asked = cli("consumer", "add", "ORDERS").ok()
    for question in (
        *("Consumer name", "Delivery target (empty for Pull Consumers)", "Start policy"),
        *("Acknowledgment policy", "Replay policy", "Filter Stream by subjects"),
        *("Maximum Allowed Deliveries", "Maximum Acknowledgments Pending"),
        *("Deliver headers only without bodies", "Add a Retry Backoff Policy"),
    ):
        assert f"? {question}" in asked.err
    config = config_of(cli, "ORDERS", "packer")
    expected = {
        "durable_name": "packer",
        "deliver_policy": "last",
        "ack_policy": "all",
        "replay_policy": "original",
        "filter_subject": "orders.us",
        "max_deliver": 5,
        "max_ack_pending": 7,
        "headers_only": True,
    }
    assert {name: config[name] for name in expected} == expected
    assert len(config["backoff"]) == 4


def test_a_stream_and_a_consumer_can_be_chosen(cli: Cli, types: Types) -> None:
    for name in ("A", "B"):
        cli("stream", "add", name, "--subjects", name, "--defaults").ok()
    cli("consumer", "add", "B", "reader", "--pull", "--defaults").ok()
    types("2")
    chosen = cli("stream", "info").ok()
    assert "  1) A\n  2) B\n" in chosen.err
    assert "Information for Stream B" in chosen.out
    types("B", "")
    assert "Consumer B > reader" in cli("consumer", "info").ok().out


def test_really_is_asked_and_no_changes_nothing(cli: Cli, types: Types) -> None:
    cli("stream", "add", "A", "--subjects", "a", "--defaults").ok()
    before = config_of(cli, "A")
    for command in (
        ("stream", "rm", "A"),
        ("stream", "purge", "A"),
        ("stream", "seal", "A"),
        ("stream", "edit", "A", "--max-msgs", "7"),
    ):
        types("n")
        refused = cli(*command)
        assert refused.code == EXIT_FAILED
        assert "? Really " in refused.err
        assert "nothing was changed" in refused.err
    assert config_of(cli, "A") == before
    types("yes")
    edited = cli("stream", "edit", "A", "--max-msgs", "7").ok()
    assert "? Really edit Stream A (y/N)" in edited.err
    types("y")
    cli("stream", "rm", "A").ok()
    assert cli("stream", "ls", "-n").ok().out == ""


def test_a_real_terminal_is_asked_and_gets_colours(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli", "stream", "edit", "A", "--max-msgs", "7"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # Linux reports the end of a terminal like this
    os.close(ours)
    assert process.wait(60) == 0
    text = shown.decode()
    assert "\x1b[31m-       max_msgs:" in text
    assert "\x1b[32m+       max_msgs:" in text
    assert "? Really edit Stream A (y/N)" in text
    assert config_of(cli, "A")["max_msgs"] == 7


def test_nothing_is_asked_if_name_and_subjects_are_given(cli: Cli, types: Types) -> None:
    types()
    asked = cli("stream", "add", "A", "--subjects", "a").ok()
    assert "? " not in asked.err
    assert "? " not in cli("consumer", "add", "A", "packer").ok().err


def test_a_stream_that_exists_is_named_with_what_differs(cli: Cli) -> None:
    flags = ("stream", "add", "A", "--subjects", "a.*", "--max-age", "1h")
    assert cli(*flags).ok().out.startswith("Stream A was created\n")
    assert cli(*flags).ok().out.startswith("Stream A exists already\n")
    other = cli("stream", "add", "A", "--subjects", "a.*", "--max-age", "2h", "--max-msgs", "5")
    assert other.code == EXIT_FAILED
    assert "max_msgs: is -1, not 5; max_age: is" in other.err
    assert '"1h0m0s", not "2h0m0s"' in other.err


def test_a_filter_that_can_never_match_is_refused(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a.*").ok()
    refused = cli("consumer", "add", "A", "c", "--filter", "b.1")
    assert refused.code != 0
    assert "'b.1' matches no subject of Stream A: a.*" in refused.err
    cli("consumer", "add", "A", "c", "--filter", "*.1").ok()


def test_wildcards_cannot_be_published_to(cli: Cli) -> None:
    refused = cli("pub", "orders.*", "x")
    assert refused.code != 0
    assert "without the wildcards" in refused.err


def test_bad_json_is_reported_by_line_and_column(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    path.write_text('{\n  "name": "A",\n  "subjects": [x]\n}\n')
    refused = cli("stream", "add", "--config", str(path))
    assert "stream.json: not JSON: line 3, column 16" in refused.err


def test_a_login_on_the_command_line_counts_more_than_one_in_a_url() -> None:
    begin()
    current().given |= {"server": "nats://a:b@one:1,c@two:2,three:3", "user": "x"}
    assert current().servers == "nats://one:1,two:2,three:3"
    begin()
    current().given |= {"server": "nats://a:b@one:1"}
    assert current().servers == "nats://a:b@one:1"
