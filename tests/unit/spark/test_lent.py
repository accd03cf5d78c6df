"""Connections of tasks: kept from one to the next, for one at a time, and never past their use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness import ServerProcess
from tradewind.spark.connections import lent as lent_module
from tradewind.spark.connections.lent import KEPT_MAX, LentConnection, LentConnections
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.providers.network import ReadAddress

WAIT_SECONDS = 30.0


@pytest.fixture(scope="module", params=["official", "tradewind"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    process = ServerProcess(request.param, ["-a", "127.0.0.1", "-p", "-1"]).wait_ready()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[LentConnections]:
    # A server that is slow to answer has not gone.
    monkeypatch.setattr(lent_module, "PROBE_SECONDS", WAIT_SECONDS)
    made = LentConnections()
    try:
        yield made
    finally:
        made.close()


def address(url: str, **more: str) -> ReadAddress:
    return ReadAddress(parse_options({"servers": url, "stream": "S", **more}))


def wait_until(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it did not happen")


def test_a_task_gets_the_connection_of_the_one_before(
    server: ServerProcess, connections: LentConnections
) -> None:
    with connections.lent(address(server.url)) as first:
        pass
    # Which stream is read and how long is waited does not matter.
    with connections.lent(address(server.url, timeoutSeconds="7"), 7) as second:
        assert second.connection is first.connection
        second.run(second.connection.flush())
    with connections.lent(address(server.url, user="u", password="p")) as other:
        assert other.connection is not first.connection
    assert connections.count == 2


def test_nobody_else_gets_a_connection_that_is_in_use(
    server: ServerProcess, connections: LentConnections
) -> None:
    place = address(server.url)
    with ExitStack() as tasks:
        used = [tasks.enter_context(connections.lent(place)) for _ in range(KEPT_MAX + 2)]
        assert len({id(one.connection) for one in used}) == KEPT_MAX + 2
        assert connections.count == 0
    assert connections.count == KEPT_MAX
    assert sum(one.connection.is_closed for one in used) == 2


def test_after_an_error_the_connection_is_closed(
    server: ServerProcess, connections: LentConnections
) -> None:
    used: list[LentConnection] = []

    def fail() -> None:
        with connections.lent(address(server.url)) as lent:
            used.append(lent)
            raise ValueError("of the task")

    with pytest.raises(ValueError, match="of the task"):
        fail()
    assert used[0].connection.is_closed
    assert connections.count == 0


def test_a_connection_that_broke_while_it_was_kept_is_replaced(
    connections: LentConnections, tmp_path: Path
) -> None:
    process = ServerProcess("tradewind", ["-a", "127.0.0.1", "-p", "-1"]).wait_ready()
    port = process.port
    with connections.lent(address(process.url)) as first:
        pass
    process.process.kill()
    process.wait()
    process = ServerProcess("tradewind", ["-a", "127.0.0.1", "-p", str(port)]).wait_ready()
    try:
        with connections.lent(address(process.url), WAIT_SECONDS) as second:
            second.run(second.connection.flush())
        # Either it has come back by itself, or there is another one.
        assert first.connection.is_closed or second.connection is first.connection
        assert connections.count == 1
    finally:
        process.stop()


def test_idle_connections_are_closed(server: ServerProcess) -> None:
    connections = LentConnections(idle_seconds_max=0.1)
    with connections.lent(address(server.url)) as first:
        pass
    with connections.lent(address(server.url, user="u", password="p")) as second:
        pass
    wait_until(lambda: first.connection.is_closed and second.connection.is_closed)
    assert connections.count == 0


def test_a_forked_process_leaves_the_connections_of_its_parent_alone(
    server: ServerProcess, connections: LentConnections
) -> None:
    place = address(server.url)
    with connections.lent(place) as kept:
        pass
    ours = kept.connection.info.client_id
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            with connections.lent(place) as lent:
                os.write(writer, b"%d" % lent.connection.info.client_id)
            connections.close()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        theirs = answer.read()
    os.waitpid(child, 0)
    assert theirs not in ("", str(ours))
    with connections.lent(place) as again:
        assert again.connection is kept.connection
        again.run(again.connection.flush())
        assert again.connection.info.client_id == ours


def test_a_kept_connection_does_not_keep_the_process(server: ServerProcess) -> None:
    program = (
        "import sys\n"
        "from tradewind.spark.connections.lent import CONNECTIONS\n"
        "from tradewind.spark.providers.network import ReadAddress\n"
        "from tradewind.spark.options.source_options import parse_options\n"
        "place = ReadAddress(parse_options({'servers': sys.argv[1], 'stream': 'S'}))\n"
        "with CONNECTIONS.lent(place): pass\n"
        "assert CONNECTIONS.count == 1\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, server.url],
        capture_output=True,
        timeout=WAIT_SECONDS,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
