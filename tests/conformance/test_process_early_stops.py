"""INT and TERM while a server starts: it ends at once, in order, and without a traceback.

A server that has not come far enough to catch signals is ended by them like any other process; then
its exit code is the signal's. From there on the code is 0.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_js import INBOX, JETSTREAM_KINDS, ApiClient

from harness import ServerProcess, wait_for

LOOPBACK = ["-a", "127.0.0.1", "-p", "-1"]
MOMENTS = 8
STREAMS = 60
BOTH = [signal.SIGINT, signal.SIGTERM]


def catches(server: ServerProcess, number: signal.Signals) -> bool:
    """Whether the process has a handler for a signal, or has ended."""
    try:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
    except FileNotFoundError:
        return True
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def assert_clean(server: ServerProcess, codes: set[int]) -> None:
    assert server.wait(30) in codes, server.log
    for word in ("Traceback", "KeyboardInterrupt", "Exception", "Fatal Python"):
        assert word not in server.log, server.log


def time_to_start(kind: str, flags: list[str]) -> float:
    began = time.monotonic()
    server = ServerProcess(kind, flags, fresh=True)
    try:
        server.wait_ready()
        return time.monotonic() - began
    finally:
        server.stop()


def interrupt_at_random(
    kind: str, flags: list[str], number: signal.Signals, chance: random.Random
) -> None:
    """Send a signal at moments that are spread over the time of a start."""
    span = time_to_start(kind, flags)
    for index in range(MOMENTS):
        server = ServerProcess(kind, flags, fresh=True)
        try:
            codes = {0, -number}
            if kind == "tradewind" and number == signal.SIGINT:
                # Python's interpreter has a traceback of its own until our first line runs.
                wait_for(lambda server=server: catches(server, signal.SIGTERM), "the first line")
                codes = {0}
            server.process.poll()
            delay = span * (index + chance.random()) / MOMENTS
            # The moment itself is what is tried here, so there is no condition to wait for.
            time.sleep(delay)
            server.signal(number)
            assert_clean(server, codes)
        finally:
            server.stop()


@pytest.mark.parametrize("number", BOTH)
def test_signal_at_any_moment_of_a_start(kind: str, number: signal.Signals) -> None:
    interrupt_at_random(kind, LOOPBACK, number, random.Random(int(number)))


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("line", ["Starting nats-server", "Listening for client connections"])
def test_signal_as_soon_as_a_line_is_logged(kind: str, number: signal.Signals, line: str) -> None:
    server = ServerProcess(kind, LOOPBACK, fresh=True)
    try:
        server.wait_for_log(line)
        server.signal(number)
        assert_clean(server, {0})
        assert server.lines[-1].endswith("[INF] Server Exiting..")
    finally:
        server.stop()


@pytest.fixture(scope="module", params=JETSTREAM_KINDS)
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A folder with streams of a server that was killed, so that the next one has to recover."""
    kind = str(request.param)
    folder = tmp_path_factory.mktemp("stored")
    server = ServerProcess(kind, [*LOOPBACK, "-js", "-sd", str(folder)], fresh=True).wait_ready()
    try:
        with ApiClient(server) as client:
            for index in range(STREAMS):
                config = {"name": f"S{index}", "subjects": [f"s{index}"], "storage": "file"}
                client.done(f"STREAM.CREATE.S{index}", config)
                client.raw.send(f"PUB s{index} {INBOX} 4\r\nkept\r\n")
                assert b'"seq":1' in client.raw.read_message()[2]
    finally:
        server.process.kill()
        server.wait()
    yield kind, folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("number", BOTH)
def test_signal_at_any_moment_of_a_recovery(
    stored: tuple[str, Path], number: signal.Signals
) -> None:
    kind, folder = stored
    flags = [*LOOPBACK, "-js", "-sd", str(folder)]
    interrupt_at_random(kind, flags, number, random.Random(int(number)))
    server = ServerProcess(kind, flags, fresh=True)
    try:
        server.wait_for_log("Starting JetStream")
        server.signal(number)
        assert_clean(server, {0})
    finally:
        server.stop()
    after = ServerProcess(kind, flags, fresh=True)
    try:
        with ApiClient(after.wait_ready()) as client:
            streams = client.done("STREAM.LIST")["streams"]
        assert len(streams) == STREAMS
        assert all(stream["state"]["messages"] == 1 for stream in streams)
    finally:
        after.stop()


def test_reload_that_comes_too_early_waits(kind: str, tmp_path: Path) -> None:
    """HUP before the server can do anything with it neither ends it nor is forgotten."""
    path = tmp_path / "server.conf"
    path.write_text("max_payload: 1000\n")
    server = ServerProcess(kind, [*LOOPBACK, "-c", str(path)], fresh=True)
    try:
        server.wait_for_log("Starting nats-server")
        server.signal(signal.SIGHUP)
        server.wait_ready()
        server.wait_for_log(r"Reloaded server configuration")
    finally:
        server.stop()
