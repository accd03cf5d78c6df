"""Timers: pings, stale connections, logins that take too long and sockets that take nothing."""

from __future__ import annotations

from tradewind.options import AuthorizationOptions, ServerOptions
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate
from tradewind.wire import ops

SECOND_NS = 1_000_000_000
QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
EVERY_SECOND = ServerOptions(ping_interval_ns=SECOND_NS, ping_max=2)


def second_by_second(
    server: InProcessServer, client: FakeConnection, count: int, sent: bytes = b""
) -> list[bytes]:
    """What arrives in each of the next seconds; `sent` is sent just before each ends."""
    result = []
    for _ in range(count):
        server.advance(0.9)
        if sent and client.is_open:
            client.send(sent)
        server.advance(0.1)
        result.append(client.take())
    return result


def test_a_silent_client_is_pinged_twice_and_then_given_up() -> None:
    server = InProcessServer(EVERY_SECOND)
    client = server.connect(QUIET)
    ping, stale = b"PING\r\n", b"-ERR 'Stale Connection'\r\n"
    assert second_by_second(server, client, 4) == [ping, ping, stale, b""]
    assert not client.is_open
    assert client.session.close_reason == ops.CLOSED_STALE
    assert server.broker.totals.stale_connections == 1


def test_a_client_that_never_connects_is_given_up_the_same_way() -> None:
    server = InProcessServer(EVERY_SECOND)
    client = server.connect()
    assert second_by_second(server, client, 3)[-1] == b"-ERR 'Stale Connection'\r\n"


def test_a_client_that_answers_is_pinged_for_ever() -> None:
    server = InProcessServer(EVERY_SECOND)
    client = server.connect(QUIET)
    for _ in range(10):
        server.advance(1)
        assert client.take() == b"PING\r\n"
        client.send(b"PONG\r\n")
    assert client.is_open


def test_a_busy_client_is_pinged_once_and_need_not_answer() -> None:
    server = InProcessServer(EVERY_SECOND)
    client = server.connect(QUIET)
    assert second_by_second(server, client, 6, b"PUB a 0\r\n\r\n") == [b"PING\r\n", *[b""] * 5]
    assert client.is_open


def test_pongs_alone_do_not_count_as_activity() -> None:
    server = InProcessServer(EVERY_SECOND)
    client = server.connect(QUIET)
    assert second_by_second(server, client, 4, b"PONG\r\n") == [b"PING\r\n"] * 4


def test_the_round_trip_time_is_measured_by_the_first_ping() -> None:
    server = InProcessServer(EVERY_SECOND)
    client = server.connect(QUIET)
    server.advance(1)
    server.clock.advance_ns(7_000_000)
    client.send(b"PONG\r\n")
    assert client.session.rtt_ns == 7_000_000


def test_with_a_long_interval_the_first_ping_comes_after_two_seconds() -> None:
    server = InProcessServer()
    client = server.connect(QUIET)
    server.advance(1.9)
    assert client.take() == b""
    server.advance(1)
    assert client.take() == b"PING\r\n"


def test_first_pings_of_connections_that_open_together_are_spread_over_few_times() -> None:
    server = InProcessServer()
    opened_ns = server.broker.monotonic_ns()
    for _ in range(500):
        server.connect(QUIET)
    due = server.broker.deadlines.take_due(opened_ns + 2 * SECOND_NS - 1, 500)
    assert due == []
    times, now_ns = 0, opened_ns + 2 * SECOND_NS
    while len(server.broker.deadlines):
        times += bool(server.broker.deadlines.take_due(now_ns, 500))
        now_ns = server.broker.next_deadline_ns() or now_ns
    assert now_ns <= opened_ns + 2.4 * SECOND_NS
    assert 10 <= times <= 22


def test_a_login_that_takes_too_long_is_refused() -> None:
    options = ServerOptions(authorization=AuthorizationOptions(timeout_ns=3 * SECOND_NS))
    server = InProcessServer(options, gate=UserGate([User("alice", "pw")]))
    client, other = server.connect(), server.connect(b'CONNECT {"user":"alice","pass":"pw"}\r\n')
    client.send(b"CONNECT {")
    server.advance(2.9)
    assert client.is_open
    server.advance(0.1)
    assert client.take().endswith(b"-ERR 'Authentication Timeout'\r\n")
    assert not client.is_open
    assert client.session.close_reason == ops.CLOSED_AUTHENTICATION_TIMEOUT
    assert other.is_open


def test_a_password_check_that_takes_too_long_is_refused() -> None:
    gate = UserGate([User("alice", "pw")], deferred=True)
    server = InProcessServer(gate=gate)
    client = server.connect(b'CONNECT {"user":"alice","pass":"pw"}\r\nSUB a 1\r\n')
    server.advance(2)
    assert client.take().endswith(b"-ERR 'Authentication Timeout'\r\n")
    server.run_deferred()
    assert server.broker.accounts["$G"].session_count == 0


def test_a_socket_that_takes_nothing_until_the_deadline_is_given_up() -> None:
    server = InProcessServer(ServerOptions(write_deadline_ns=5 * SECOND_NS))
    client = server.connect(QUIET + b"SUB a 1\r\n")
    client.stop_reading()
    server.connect(QUIET).send(b"PUB a 2\r\nhi\r\n")
    server.advance(4.9)
    assert client.is_open
    server.advance(0.1)
    assert not client.is_open
    assert client.take() == b""
    assert client.session.close_reason == ops.CLOSED_SLOW_DEADLINE
    assert server.broker.totals.slow_consumers == 1


def test_a_socket_that_takes_bytes_again_gets_a_new_deadline() -> None:
    server = InProcessServer(ServerOptions(write_deadline_ns=5 * SECOND_NS))
    client = server.connect(QUIET)
    client.stop_reading()
    server.advance(4)
    client.resume_reading()
    client.stop_reading()
    server.advance(4)
    assert client.is_open
    server.advance(1)
    assert not client.is_open


def test_timers_of_closed_connections_do_nothing_and_go_away() -> None:
    server = InProcessServer(EVERY_SECOND)
    for _ in range(100):
        client = server.connect(QUIET)
        client.stop_reading()
        client.close()
    server.advance(60)
    assert len(server.broker.deadlines) == 0


def test_deadlines_of_many_connections_are_handled_in_parts() -> None:
    server = InProcessServer()
    clients = [server.connect(b'CONNECT {"verbose":false}\r\n') for _ in range(2000)]
    server.clock.advance_ns(60 * SECOND_NS)
    pinged = []
    while sum(pinged) < len(clients):
        server.broker.tick()
        server.run_until_idle()
        pinged.append(sum(b"PING\r\n" in client.take() for client in clients))
        assert 0 < pinged[-1] < len(clients) // 2
    assert len(pinged) >= 4
