"""How bytes get into a session: any path, any chunking, blocked or not, nothing lost."""

from __future__ import annotations

import pytest

from tradewind.broker.session import BLOCKED_SERVICE_FLAG, BLOCKED_STALL_FLAG
from tradewind.options import ServerOptions
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
MIB = 1024 * 1024


def subscriber_and_publisher(
    server: InProcessServer, *, through_buffer: bool = True
) -> tuple[FakeConnection, FakeConnection]:
    subscriber = server.connect(QUIET + b"SUB > 1\r\n")
    return subscriber, server.connect(QUIET, through_buffer=through_buffer)


@pytest.mark.parametrize("through_buffer", [True, False])
@pytest.mark.parametrize("chunk_bytes", [None, 1000, 65_536, 65_537, 262_144, 300_001])
@pytest.mark.parametrize("size", [65_530, 262_144, MIB])
def test_large_payloads_arrive_whole_across_reads(
    through_buffer: bool, chunk_bytes: int | None, size: int
) -> None:
    subscriber, publisher = subscriber_and_publisher(
        InProcessServer(), through_buffer=through_buffer
    )
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    operation = b"PUB a %d\r\n%b\r\n" % (size, payload)
    publisher.send(operation * 3, chunk_bytes)
    assert subscriber.take() == b"MSG a 1 %d\r\n%b\r\n" % (size, payload) * 3
    assert publisher.session.input_pending_bytes == 0


@pytest.mark.parametrize("through_buffer", [True, False])
def test_one_byte_at_a_time_changes_nothing(through_buffer: bool) -> None:
    subscriber, publisher = subscriber_and_publisher(
        InProcessServer(), through_buffer=through_buffer
    )
    publisher.send(b"PUB a 2\r\nhi\r\nPING\r\nHPUB b r 3 5\r\nH\r\nhi\r\nPING\r\n", 1)
    assert subscriber.take() == b"MSG a 1 2\r\nhi\r\nHMSG b 1 r 3 5\r\nH\r\nhi\r\n"
    assert publisher.take() == b"PONG\r\nPONG\r\n"


@pytest.mark.parametrize("through_buffer", [True, False])
@pytest.mark.parametrize("size", [10, 200_000])
def test_a_blocked_session_runs_nothing_and_loses_nothing(through_buffer: bool, size: int) -> None:
    server = InProcessServer()
    subscriber, publisher = subscriber_and_publisher(server, through_buffer=through_buffer)
    operation = b"PUB a %d\r\n%b\r\n" % (size, b"x" * size)
    publisher.send(operation + operation[:-5])
    publisher.session.block(BLOCKED_STALL_FLAG)
    publisher.session.block(BLOCKED_SERVICE_FLAG)
    publisher.send(operation[-5:] + operation)
    delivered = b"MSG a 1 %d\r\n%b\r\n" % (size, b"x" * size)
    assert subscriber.take() == delivered
    publisher.session.unblock(BLOCKED_STALL_FLAG)
    server.run_until_idle()
    assert subscriber.take() == b""
    publisher.session.unblock(BLOCKED_SERVICE_FLAG)
    server.run_until_idle()
    assert subscriber.take() == delivered * 2


def test_feeding_a_blocked_session_keeps_the_order() -> None:
    """A WebSocket frame may still be on its way when the session is blocked."""
    server = InProcessServer()
    subscriber, publisher = subscriber_and_publisher(server)
    session = publisher.session
    session.block(BLOCKED_STALL_FLAG)
    for number in range(50):
        session.feed(b"PUB a 2\r\n%02d\r\n" % number, 0)
    assert session.input_pending_bytes == 50 * 13
    session.unblock(BLOCKED_STALL_FLAG)
    server.run_until_idle()
    expected = b"".join(b"MSG a 1 2\r\n%02d\r\n" % number for number in range(50))
    assert subscriber.take() == expected


def test_unblocking_what_is_not_blocked_does_nothing() -> None:
    server = InProcessServer()
    _, publisher = subscriber_and_publisher(server)
    publisher.send(b"PUB a 5\r\nhe")
    publisher.session.unblock(BLOCKED_STALL_FLAG)
    assert publisher.session.input_pending_bytes == 11


def test_more_bytes_than_the_offered_buffer_are_refused() -> None:
    session = InProcessServer().connect().session
    view = session.read_buffer()
    with pytest.raises(ValueError, match="bytes were read into a buffer of"):
        session.received(len(view) + 1, 0)


def test_bytes_without_an_offered_buffer_are_refused() -> None:
    session = InProcessServer().connect().session
    with pytest.raises(ValueError, match="bytes were read into a buffer of 0"):
        session.received(1, 0)


def test_an_unanswered_password_check_holds_everything_behind_it() -> None:
    gate = UserGate([User("alice", "pw")], deferred=True)
    server = InProcessServer(gate=gate)
    alice = server.connect(b'CONNECT {"user":"alice","pass":"pw"}\r\nPING\r\n')
    assert alice.take() == b""
    assert server.run_deferred() == 1
    assert alice.take() == b"+OK\r\nPONG\r\n"


def test_a_connection_that_is_gone_when_its_password_check_ends_stays_gone() -> None:
    gate = UserGate([User("alice", "pw")], deferred=True)
    server = InProcessServer(gate=gate)
    alice = server.connect(b'CONNECT {"user":"alice","pass":"pw"}\r\nSUB a 1\r\n')
    check = server.broker.deferred.take()
    assert check is not None
    alice.close()
    server.broker.authenticated(check, check.decide())
    server.run_until_idle()
    assert server.run_deferred() == 0
    assert server.broker.accounts["$G"].session_count == 0
    assert server.broker.accounts["$G"].subscription_count == 0


def test_a_closed_session_ignores_input() -> None:
    server = InProcessServer()
    subscriber, publisher = subscriber_and_publisher(server)
    publisher.close()
    publisher.session.feed(b"PUB a 2\r\nhi\r\n", 0)
    view = publisher.session.read_buffer()
    view[:11] = b"PUB a 0\r\n\r\n"
    publisher.session.received(11, 0)
    server.run_until_idle()
    assert subscriber.take() == b""
    assert publisher.session.input_pending_bytes == 0


def test_idle_connections_hold_no_input() -> None:
    server = InProcessServer()
    _, publisher = subscriber_and_publisher(server)
    publisher.send(b"PUB a 100000\r\n" + b"x" * 100_000 + b"\r\nPUB b 3\r\na")
    assert publisher.session.input_pending_bytes == len(b"PUB b 3\r\na")
    publisher.send(b"bc\r\n")
    assert publisher.session.input_pending_bytes == 0


def test_a_payload_above_the_limit_is_refused_before_it_is_kept() -> None:
    server = InProcessServer(ServerOptions(max_payload_bytes=1000))
    _, publisher = subscriber_and_publisher(server)
    assert publisher.ask(b"PUB a 1001\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"
    assert not publisher.is_open
