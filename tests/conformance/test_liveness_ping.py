"""PING and PONG: who asks, who answers, and what silence costs."""

from __future__ import annotations

import select
import time

import pytest

from harness import Connect, RawClient, ServerProcess, StartServer

STALE = "-ERR 'Stale Connection'\r\n"
INTERVAL_SECONDS = 0.2


@pytest.fixture
def impatient(start: StartServer) -> ServerProcess:
    return start('ping_interval: "200ms"\nping_max: 2\n')


def test_ping_is_answered_at_once(wire: Connect) -> None:
    client = wire()
    client.send("PING\r\n" * 100)
    client.expect_bytes("PONG\r\n" * 100)


def test_ping_is_answered_before_connect(raw: Connect) -> None:
    client = raw()
    client.send("PING\r\n")
    client.expect_bytes("PONG\r\n")


def test_pong_is_answered_by_nothing(wire: Connect) -> None:
    client = wire()
    client.send("PONG\r\n" * 100)
    client.ping()


@pytest.mark.parametrize("connect", ['CONNECT {"verbose":false}\r\n', ""])
def test_silent_client_is_pinged_then_closed(impatient: ServerProcess, connect: str) -> None:
    with RawClient(impatient.port) as client:
        client.send(connect)
        client.expect_closed("PING\r\nPING\r\n" + STALE)


def test_ping_max_sets_the_number_of_unanswered_pings(start: StartServer) -> None:
    server = start('ping_interval: "200ms"\nping_max: 1\n')
    with RawClient(server.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        client.expect_closed("PING\r\n" + STALE)


def test_client_that_answers_stays(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        for _ in range(6):
            client.expect_bytes("PING\r\n")
            client.send("PONG\r\n")
        client.ping()


def test_late_answer_to_several_pings_is_enough(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        for _ in range(2):
            client.expect_bytes("PING\r\nPING\r\n")
            client.send("PONG\r\n")
        client.expect_closed("PING\r\nPING\r\n" + STALE)


def test_pings_come_at_the_interval(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        client.expect_bytes("PING\r\n")
        client.send("PONG\r\n")
        started = time.monotonic()
        for _ in range(3):
            client.expect_bytes("PING\r\n")
            client.send("PONG\r\n")
        # Never early; how late depends on the load of the machine.
        assert time.monotonic() - started > 2.5 * INTERVAL_SECONDS


def test_active_client_is_left_alone_and_never_stale(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        answers = b""
        asked = 0
        deadline = time.monotonic() + 8 * INTERVAL_SECONDS
        while time.monotonic() < deadline:
            client.send("PING\r\n")
            asked += 1
            while select.select([client.socket], [], [], INTERVAL_SECONDS / 10)[0]:
                chunk = client.socket.recv(4096)
                assert chunk, f"closed after {answers!r}"
                answers += chunk
        # One PING tells the server the round trip time; activity postpones the others. A second
        # one is allowed for, since a busy machine may keep this test from sending for a while.
        assert 1 <= answers.count(b"PING\r\n") <= 2
        assert answers.replace(b"PING\r\n", b"") == b"PONG\r\n" * asked


def test_stale_connection_is_forgotten(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as silent, RawClient(impatient.port) as answering:
        silent.send('CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        answering.send('CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        for _ in range(5):
            answering.expect_bytes("PING\r\n")
            answering.send("PONG\r\n")
        silent.expect_closed("PING\r\nPING\r\n" + STALE)
        answering.send("PUB a 2\r\nhi\r\n")
        answering.expect_bytes("MSG a 1 2\r\nhi\r\n")
