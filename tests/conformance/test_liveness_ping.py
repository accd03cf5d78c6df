"""PING and PONG: who asks, who answers, and what silence costs."""

from __future__ import annotations

import select
import time

import pytest

from harness import Connect, RawClient, ServerProcess, StartServer

STALE = "-ERR 'Stale Connection'\r\n"
INTERVAL_SECONDS = 0.1
# Many, so that who answers has two seconds for it: a busy machine may take one.
PINGS_MAX = 20
UNANSWERED = "PING\r\n" * PINGS_MAX + STALE


@pytest.fixture
def impatient(start: StartServer) -> ServerProcess:
    return start(f'ping_interval: "100ms"\nping_max: {PINGS_MAX}\n')


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
        client.expect_closed(UNANSWERED)


def test_ping_max_sets_the_number_of_unanswered_pings(start: StartServer) -> None:
    server = start('ping_interval: "1s"\nping_max: 1\n')
    with RawClient(server.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        client.expect_closed("PING\r\n" + STALE)


def test_client_that_answers_stays(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        for _ in range(PINGS_MAX + 5):
            client.expect_bytes("PING\r\n")
            client.send("PONG\r\n")
        client.ping()


def test_late_answer_to_several_pings_is_enough(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        client.expect_bytes("PING\r\n" * 5)
        client.send("PONG\r\n")
        # Those that were under way when it came do not count, and the count begins anew.
        rest = client.read_to_end().decode()
        assert rest.endswith(UNANSWERED)
        assert rest.replace("PING\r\n", "") == STALE


def test_pings_come_at_the_interval(impatient: ServerProcess) -> None:
    started = time.monotonic()
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        for _ in range(8):
            client.expect_bytes("PING\r\n")
            client.send("PONG\r\n")
        # Never early; how late depends on the load of the machine.
        assert time.monotonic() - started > 7.5 * INTERVAL_SECONDS


def test_active_client_is_left_alone_and_never_stale(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as client:
        client.send('CONNECT {"verbose":false}\r\n')
        # One PING tells the server the round trip time; activity postpones the others. More are
        # allowed for while a busy machine lets nothing through for the time of an interval.
        pings, pings_max = 0, 1
        before = time.monotonic()
        deadline = before + (PINGS_MAX + 5) * INTERVAL_SECONDS
        while before < deadline:
            sent = time.monotonic()
            client.send("PING\r\n")
            while (line := client.read_line()) != b"PONG":
                assert line == b"PING", f"{line!r} after {pings} PINGs"
                pings += 1
            pings_max += int((time.monotonic() - before) / INTERVAL_SECONDS)
            before = sent
            select.select([client.socket], [], [], INTERVAL_SECONDS / 10)
        assert 1 <= pings <= pings_max


def test_stale_connection_is_forgotten(impatient: ServerProcess) -> None:
    with RawClient(impatient.port) as silent, RawClient(impatient.port) as answering:
        silent.send('CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        answering.send('CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        for _ in range(PINGS_MAX + 5):
            answering.expect_bytes("PING\r\n")
            answering.send("PONG\r\n")
        silent.expect_closed(UNANSWERED)
        answering.send("PUB a 2\r\nhi\r\n")
        answering.expect("MSG a 1 2", "hi")
