"""`rtt`, `latency`, `events`, `top` and `cheat`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweeps import sweep

from cli_outcome import Cli, Spawn
from harness import ServerProcess
from tradewind.cli.main import make_root
from tradewind.cli.reference.cheat import CHEATS
from tradewind.cli.servers.top import make_screen

WAIT_SECONDS = 60


# ------------------------------------------------------------------ rtt and latency


def test_rtt_measures_each_address(cli: Cli, js_server: ServerProcess) -> None:
    url = f"nats://127.0.0.1:{js_server.port}"
    outcome = cli("rtt", "3").ok()
    assert re.fullmatch(rf"{url}:\n\n   {url}: [\d.]+(ns|µs|ms|s)\n\n", outcome.out)
    document = cli("rtt", "-s", f"nats://localhost:{js_server.port}", "--json").ok().json
    assert document[0]["url"] == f"nats://localhost:{js_server.port}"
    assert url in [each["address"] for each in document[0]["results"]]


def test_rtt_of_a_server_that_is_not_there_fails(offline: Cli) -> None:
    outcome = offline("rtt", "-s", "nats://127.0.0.1:1")
    assert outcome.code == 1
    assert "nats://127.0.0.1:1: failed: " in outcome.out
    assert offline("rtt", "0").code == 2


def test_latency_of_messages(cli: Cli, js_server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "raw"
    short = ("--duration", "100ms", "--rate", "500")
    outcome = cli("latency", *short, "--histogram", str(file)).ok()
    for text in ("Pub Server RTT: ", "Percentiles:", "Latency: min "):
        assert text in outcome.out
    assert len(file.read_text().splitlines()) == 50
    url = f"nats://127.0.0.1:{js_server.port}"
    document = cli("latency", *short, "--server-b", url, "--json").ok().json
    assert (document["messages"], document["latency"]["count"]) == (50, 50)
    small = cli("latency", "--size", "4")
    assert small.code == 2
    assert "--size" in small.err


# ------------------------------------------------------------------ events


def test_events_of_jetstream_are_shown(cli: Cli, spawn: Spawn) -> None:
    args = ("events", "--js-advisory", "--filter", "stream_action", "--count", "1")
    until = "Listening for Advisories on $JS.EVENT.ADVISORY.>"
    processes = [spawn(*args, *more, until=until) for more in ((), ("--short",), ("--json",))]
    cli("kv", "add", "EVENTS", "--storage", "memory").ok()
    outs = [process.communicate(timeout=WAIT_SECONDS)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert re.match(r"\[.+\] \[.+\] JetStream Advisory Stream Action\n\n", outs[0])
    assert "Action: create" in outs[0]
    assert "Stream: KV_EVENTS" in outs[0]
    assert "JetStream Advisory Stream Action - " in outs[1]
    assert outs[1].count("\n") == 1
    assert '"type":"io.nats.jetstream.advisory.v1.stream_action"' in outs[2]


def test_events_out_of_a_stream(cli: Cli) -> None:
    cli(
        *("stream", "add", "ADV", "--subjects", "$JS.EVENT.ADVISORY.STREAM.>", "--defaults"),
        *("--storage", "memory"),
    ).ok()
    cli("kv", "add", "B", "--storage", "memory").ok()
    outcome = cli(
        "events", "--stream", "ADV", "--since", "1h", "--filter", "KV_B", "--count", "1", "--short"
    ).ok()
    assert "stream: KV_B" in outcome.out


def test_events_explain_wrong_flags(offline: Cli) -> None:
    assert "--stream" in offline("events", "--since", "1h").err
    assert "--filter" in offline("events", "--filter", "(").err


# ------------------------------------------------------------------ top


@pytest.fixture(params=["official", "tradewind"])
def admin(request: pytest.FixtureRequest, tmp_path: Path, offline: Cli) -> Iterator[Cli]:
    """Commands of a user of the system account."""
    config = tmp_path / "server.conf"
    config.write_text(
        'server_name: one\nlisten: "127.0.0.1:-1"\n'
        "accounts { SYS { users: [{user: sys, password: s}] } }\nsystem_account: SYS\n"
    )
    process = ServerProcess(str(request.param), ["-c", str(config)])
    try:
        process.wait_ready()
        url = f"nats://sys:s@127.0.0.1:{process.port}"
        yield lambda *args: offline(*args, "-s", url)
    finally:
        process.stop()


def test_top_prints_one_screen_in_a_pipe(admin: Cli) -> None:
    outcome = admin("top").ok()
    assert re.match(r"NATS server one version 2\.15\.\d+ \(uptime: ", outcome.out)
    assert outcome.out.count("NATS server") == 1
    assert "tradewind CLI" in outcome.out
    assert "\x1b" not in outcome.out
    again = admin("top", "one", "--count", "2", "--delay", "1ms", "--sort", "subs").ok()
    assert again.out.count("NATS server") == 1
    assert admin("top", "--json").ok().json["varz"]["server_name"] == "one"
    assert admin("top", "--sort", "beauty").code == 2


def test_top_screen_has_rates_since_the_last_one() -> None:
    before: dict[str, Any] = {"in_msgs": 100, "in_bytes": 1000, "out_msgs": 0, "out_bytes": 0}
    now = {**before, "in_msgs": 300, "in_bytes": 3048, "server_name": "s", "mem": 2048}
    lines = make_screen(now, {"connections": [], "total": 0}, before, 2.0)
    assert "Msgs: 300 (100.0/s)   Bytes: 3.0 KiB (1.0 KiB/s)" in lines[3]
    assert "(0.0/s)" in lines[4]


def test_top_on_a_terminal_ends_well_by_an_interruption(admin: Cli) -> None:
    outcome = admin("server", "info", "--json").ok()
    port = outcome.json["port"]
    primary, secondary = os.openpty()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tradewind.cli", "top", "--delay", "20ms"),
            *("-s", f"nats://sys:s@127.0.0.1:{port}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=secondary,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"},
    )
    os.close(secondary)
    shown = b""
    try:
        while shown.count(b"NATS server one") < 3:
            shown += os.read(primary, 65536)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                more = os.read(primary, 65536)
            except OSError:  # the terminal is closed
                break
            if not more:
                break
        _, err = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, err) == (0, b"")
    finally:
        process.kill()
        process.communicate()
        os.close(primary)


# ------------------------------------------------------------------ cheat


def test_cheats_are_shown_by_topic(offline: Cli) -> None:
    assert offline("cheat", "--sections").ok().out.split() == sorted(CHEATS)
    assert offline("cheat", "kv").ok().out == CHEATS["kv"] + "\n"
    everything = offline("cheat").ok().out
    assert all(text in everything for text in CHEATS.values())
    assert "did you mean 'stream'?" in offline("cheat", "steram").err


def commands_of(text: str) -> list[list[str]]:
    """The words of each `tradewind` command in an example."""
    found = []
    for line in text.splitlines():
        words = [] if line.startswith("#") else shlex.split(line)
        if "tradewind" in words:
            found.append(words[words.index("tradewind") + 1 :])
    return found


@sweep(
    "words",
    [words for text in CHEATS.values() for words in commands_of(text)],
    ids=lambda words: " ".join(words)[:60],
)
def test_every_example_can_be_parsed(words: list[str]) -> None:
    from tradewind.cli.frame.settings import begin

    begin()
    command: Any = make_root()
    context = None
    rest = list(words)
    while hasattr(command, "resolve_command"):
        context = command.make_context(rest[0], list(rest), parent=context, resilient_parsing=False)
        rest = [*context._protected_args, *context.args]
        _, command, rest = command.resolve_command(context, rest)
    command.make_context(command.name, list(rest), parent=context)
