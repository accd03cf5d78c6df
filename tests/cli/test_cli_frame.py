"""The frame of the command line: flags, environment, contexts, errors, exit codes, start-up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_outcome import Cli
from harness import ServerProcess
from tradewind.cli.commands import COMMANDS, CommandEntry
from tradewind.cli.frame import reporting
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address where nobody listens, and nobody else can either."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("NATS_URL", url)
        yield url


def test_without_arguments_the_commands_are_listed(offline: Cli) -> None:
    outcome = offline().ok()
    for entry in COMMANDS:
        assert entry.name in outcome.out
    assert "--server" in outcome.out


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_can_be_loaded_and_has_help(entry: CommandEntry, offline: Cli) -> None:
    assert "Usage: tradewind" in offline(entry.name, "--help").ok().out


def test_aliases_name_one_command_each() -> None:
    names = [name for entry in COMMANDS for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))


def test_version_is_shown(offline: Cli) -> None:
    assert offline("--version").ok().out.startswith("tradewind ")


def test_unknown_command_gets_a_hint(offline: Cli) -> None:
    outcome = offline("acount", "info")
    assert outcome.code == EXIT_USAGE
    assert outcome.err.startswith("tradewind: error: command 'acount' does not exist")
    assert "did you mean 'account'?" in outcome.err


def test_unknown_flag_gets_a_hint(offline: Cli) -> None:
    outcome = offline("account", "info", "--serber", "x")
    assert outcome.code == EXIT_USAGE
    assert "--server" in outcome.err
    assert "see: tradewind account info --help" in outcome.err


def test_no_server_says_how_to_start_one(offline: Cli, no_server: str) -> None:
    outcome = offline("account", "info")
    assert outcome.code == EXIT_FAILED
    assert no_server.removeprefix("nats://") in outcome.err
    assert "tradewind server run" in outcome.err
    assert "Traceback" not in outcome.err


def test_flag_wins_over_environment(cli: Cli, js_server: ServerProcess, no_server: str) -> None:
    url = f"nats://127.0.0.1:{js_server.port}"
    assert cli("account", "info").code == EXIT_FAILED
    cli("account", "info", "--server", url).ok()
    cli("-s", url, "account", "info").ok()
    cli("account", "-s", url, "info").ok()


def test_environment_wins_over_the_selected_context(
    cli: Cli, js_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "config" / "nats" / "context"
    folder.mkdir(parents=True)
    good = {"url": f"nats://127.0.0.1:{js_server.port}"}
    (folder / "good.json").write_text(json.dumps(good))
    (folder / "bad.json").write_text(json.dumps({"url": "nats://127.0.0.1:1"}))
    (folder.parent / "context.txt").write_text("bad")
    cli("account", "info").ok()
    monkeypatch.delenv("NATS_URL")
    assert cli("account", "info").code == EXIT_FAILED
    cli("account", "info", "--context", "good").ok()
    unknown = cli("account", "info", "--context", "godo")
    assert unknown.code == EXIT_FAILED
    assert "available: bad, good" in unknown.err


def test_logins_by_flag_environment_and_context(
    offline: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "server.conf"
    config.write_text("authorization { users = [ { user: ann, password: secret1 } ] }")
    server = ServerProcess("tradewind", ["-a", "127.0.0.1", "-p", "-1", "-c", str(config)])
    try:
        url = f"nats://127.0.0.1:{server.wait_ready().port}"
        monkeypatch.setenv("NATS_URL", url)
        refused = offline("account", "info", "--user", "ann", "--password", "wrong1")
        assert refused.code == EXIT_FAILED
        assert "--creds" in refused.err
        assert "wrong1" not in refused.err
        assert (
            "User: ann" in offline("a", "info", "--user", "ann", "--password", "secret1").ok().out
        )
        assert "--user" in offline("account", "info", "--password", "secret1").err
        folder = tmp_path / "config" / "nats" / "context"
        folder.mkdir(parents=True)
        (folder / "ann.json").write_text(json.dumps({"user": "ann", "password": "secret1"}))
        offline("account", "info", "--context", "ann").ok()
        monkeypatch.setenv("NATS_CONTEXT", "ann")
        offline("account", "info").ok()
        assert offline("account", "info", "--no-context").code == EXIT_FAILED
        monkeypatch.setenv("NATS_USER", "ann")
        monkeypatch.setenv("NATS_PASSWORD", "secret1")
        offline("account", "info", "--no-context").ok()
    finally:
        server.stop()


def test_what_the_permissions_forbid_is_said_once(offline: Cli, tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        "authorization { users = [ { user: ann, password: pw, permissions: { publish: { deny: "
        f'["$JS.API.STREAM.>"] }} }} }} ] }}\njetstream {{ store_dir: "{tmp_path}/store" }}'
    )
    server = ServerProcess("tradewind", ["-a", "127.0.0.1", "-p", "-1", "-c", str(config)])
    try:
        url = f"nats://127.0.0.1:{server.wait_ready().port}"
        refused = offline("stream", "ls", "-s", url, "--user", "ann", "--password", "pw")
    finally:
        server.stop()
    assert refused.code == EXIT_FAILED
    assert refused.err.count("Permissions Violation") == 1
    assert "$JS.API.STREAM.LIST" in refused.err


def test_an_output_without_these_letters_is_no_reason_to_fail(cli: Cli, process: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    shown = process("stream", "ls", env={"PYTHONIOENCODING": "ascii"}).ok()
    assert "? A " in shown.out


def test_trace_shows_requests_and_leaves_the_output_clean(cli: Cli) -> None:
    outcome = cli("account", "info", "--json", "--trace").ok()
    assert outcome.json["server"]["version"]
    assert ">>> $JS.API.INFO" in outcome.err
    assert "<<< {" in outcome.err


@pytest.mark.parametrize("text", ["5", "5 parsecs", "s", "0s", "-2s"])
def test_wrong_timeout_is_named(offline: Cli, text: str) -> None:
    outcome = offline("account", "info", f"--timeout={text}")
    assert outcome.code in (EXIT_FAILED, EXIT_USAGE)
    assert "--timeout" in outcome.err


def test_a_defect_is_one_line(
    offline: Cli, monkeypatch: pytest.MonkeyPatch, no_server: str
) -> None:
    def broken() -> None:
        raise RuntimeError("wheel came off")

    monkeypatch.setattr("tradewind.cli.servers.account_commands.connect", broken)
    outcome = offline("account", "info")
    assert outcome.code == EXIT_FAILED
    assert "RuntimeError: wheel came off" in outcome.err
    assert "Traceback" not in outcome.err
    monkeypatch.setenv(reporting.DEBUG_VARIABLE, "1")
    assert "Traceback" in offline("account", "info").err


def test_hints_follow_the_error(offline: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise CommandError("it is gone", "look elsewhere", exit_code=3)

    monkeypatch.setattr("tradewind.cli.servers.account_commands.connect", broken)
    outcome = offline("account", "info")
    assert outcome == type(outcome)(3, "", "tradewind: error: it is gone\n  look elsewhere\n")


def test_a_reader_that_left_is_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "tradewind.cli", "--help"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(write_end)
    assert done.stderr == b""


def test_no_codes_are_written_to_a_pipe(cli: Cli, process: Cli) -> None:
    outcome = process("account", "info").ok()
    assert "\x1b" not in outcome.out + outcome.err
    assert "JetStream Account Information" in outcome.out


def test_account_without_jetstream_says_so(offline: Cli) -> None:
    server = ServerProcess("tradewind", ["-a", "127.0.0.1", "-p", "-1"])
    try:
        url = f"nats://127.0.0.1:{server.wait_ready().port}"
        assert "JetStream is not enabled" in offline("account", "info", "-s", url).ok().out
    finally:
        server.stop()


def test_start_up_is_quick(process: Cli, no_server: str) -> None:
    """0.4 s on an idle machine: CPU time does not depend on what else runs."""
    assert process("account", "info").code == EXIT_FAILED  # the files are in the cache now
    started = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli", "account", "info"], stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode == EXIT_FAILED
    assert used.ru_utime + used.ru_stime < 1.0


def test_help_imports_neither_the_client_nor_rich() -> None:
    program = (
        "import sys; from tradewind.cli.main import run; run(['--help']); "
        "print([name for name in ('rich.console', 'asyncio', 'tradewind.client.connection') "
        "if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("noun", "command", "other"),
    [
        ("stream", "backup", "tradewind.cli.streams.stream_backup"),
        ("consumer", "find", "tradewind.cli.consumers.consumer_find"),
    ],
)
def test_command_imports_no_other_part_of_its_noun(noun: str, command: str, other: str) -> None:
    program = (
        f"import sys; from tradewind.cli.main import run; run(['{noun}', 'ls', '--help']); "
        f"print({other!r} in sys.modules); run(['{noun}', '{command}', '--help']); "
        f"print({other!r} in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert [line for line in done.stdout.splitlines() if line in ("True", "False")] == [
        "False",
        "True",
    ]


def test_completion_offers_commands(process: Cli) -> None:
    outcome = process(
        env={
            "_TRADEWIND_COMPLETE": "complete_bash",
            "COMP_WORDS": "tradewind acc",
            "COMP_CWORD": "1",
            "_TYPER_COMPLETE_ARGS": "tradewind acc",
        }
    )
    assert "account" in outcome.out.split()
