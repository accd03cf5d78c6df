"""Runs commands in-process and as real processes, against both servers.

`cli` gives a function that runs a command line on `js_server` and returns what it printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_outcome import Cli, Keyboard, Outcome, Spawn, Types
from harness import ServerProcess
from jetstream_servers import keep_streams_folder
from tradewind.cli.main import run

COMMAND_SECONDS = 60


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No context or variable of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith("NATS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NATS_TIMEOUT", "60s")  # a busy machine is not a failure


@pytest.fixture(scope="module", params=["official", "tradewind"])
def js_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """One server with JetStream for all tests of a module."""
    folder = tmp_path_factory.mktemp("jetstream")
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    process = ServerProcess(str(request.param), flags)
    try:
        process.wait_ready()
        keep_streams_folder(folder)
        yield process
    finally:
        process.stop()


@pytest.fixture
def offline(capsys: pytest.CaptureFixture[str]) -> Cli:
    """offline("stream", "ls") runs a command line in this process."""

    def call(*args: str) -> Outcome:
        capsys.readouterr()
        code = run(args)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


@pytest.fixture
def cli(js_server: ServerProcess, offline: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The same with the server's address; when the test is over no stream is left."""
    monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{js_server.port}")
    yield offline
    from tradewind.sync import connect

    with connect(js_server.url, timeout=COMMAND_SECONDS) as connection:
        streams = connection.jetstream_manager().streams
        for name in streams.names().all():
            streams.delete(name)


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Types:
    """types("yes", "ORDERS") gives the answers to the next questions."""

    def _types(*lines: str) -> None:
        monkeypatch.setattr("sys.stdin", Keyboard("".join(f"{line}\n" for line in lines)))

    return _types


@pytest.fixture
def process() -> Cli:
    """process("stream", "ls", input="...") runs the executable as a process of its own."""

    def call(*args: str, stdin: str = "", env: dict[str, str] | None = None) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "tradewind.cli", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env={**os.environ, **(env or {})},
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def spawn(cli: Cli) -> Iterator[Spawn]:
    """spawn("sub", "x", until="Subscribing") starts a process and waits for a line of its notes."""
    started: list[subprocess.Popen[str]] = []

    def call(*args: str, until: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tradewind.cli", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if until in line:
                return process
        raise AssertionError(f"{args} ended before {until!r}: exit code {process.wait()}")

    yield call
    for process in started:
        process.kill()
        process.communicate()
