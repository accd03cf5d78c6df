"""What flows through an established TLS connection: in order, within bounds, to an orderly end."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from tls_link_kit import (
    CONNECT,
    Connection,
    Ground,
    MemoryTransport,
    Peer,
    RecordingLog,
    until,
)

from certificates import Authority
from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.session import BLOCKED_STALL_FLAG
from tradewind.options import MIB, ServerOptions
from tradewind.server.links.tls_link import late_pipe
from tradewind.server.tls.tls_pipe import AREA_BYTES, CONTROL_BYTES_MAX
from tradewind.wire import ops


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return Ground(authority, authority.server(), authority.client(subject="CN=client"))


@pytest.fixture
def ground(certified: Ground) -> Iterator[Ground]:
    yield certified
    certified.close()


async def established(
    ground: Ground, first: bytes = b"", options: ServerOptions | None = None
) -> Connection:
    """A connection that has said CONNECT and `first`."""
    connection = ground.connect(ground.settings(), options=options)
    connection.take_sent()
    connection.shake_hands()
    await connection.say(CONNECT + first + b"PING\r\n")
    return connection


# Plaintext in and out


async def test_large_messages_come_back_unchanged(ground: Ground) -> None:
    options = ServerOptions(max_payload_bytes=8 * MIB)
    connection = await established(ground, b"SUB big 1\r\n", options)
    body = random.Random(1).randbytes(5 * MIB)
    line = b"MSG big 1 %d\r\n" % len(body)
    assert await connection.say(b"PUB big %d\r\n%b\r\n" % (len(body), body)) == (
        line + body + b"\r\n"
    )
    assert connection.transport.largest_read_bytes == AREA_BYTES


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000, 16_407, 70_000])
async def test_ciphertext_may_come_in_pieces(ground: Ground, chunk_bytes: int) -> None:
    connection = await established(ground, b"SUB a 1\r\n")
    count = 3 if chunk_bytes == 1 else 2000
    data = connection.peer.encrypt(b"PUB a 3\r\nabc\r\n" * count)
    for start in range(0, len(data), chunk_bytes):
        connection.transport.receive(data[start : start + chunk_bytes])
    connection.turns.turn_now()
    plain, is_over = connection.peer.decrypt(connection.take_sent())
    assert plain == b"MSG a 1 3\r\nabc\r\n" * count
    assert not is_over


async def test_many_small_records_in_one_read_are_all_run(ground: Ground) -> None:
    connection = await established(ground, b"SUB a 1\r\n")
    records = b"".join(connection.peer.encrypt(b"PUB a 1\r\nx\r\n") for _ in range(3000))
    connection.transport.receive(records)
    connection.turns.turn_now()
    assert connection.peer.decrypt(connection.take_sent())[0] == b"MSG a 1 1\r\nx\r\n" * 3000


async def test_rest_of_a_record_that_did_not_fit_is_still_input(ground: Ground) -> None:
    connection = await established(ground)
    codec = connection.pipe.codec
    codec.feed(memoryview(connection.peer.encrypt(b"0123456789abc")))
    view = memoryview(bytearray(5))
    pieces = []
    while codec.has_input():
        pieces.append(bytes(view[: codec.decrypt_into(view)]))
    assert pieces == [b"01234", b"56789", b"abc"]
    assert not codec.is_over


# A session that can take no more


async def test_blocked_session_stops_reading_and_goes_on_later(ground: Ground) -> None:
    connection = await established(ground, b"SUB a 1\r\n")
    session = connection.session
    messages = b"".join(b"PUB a 5\r\n%05d\r\n" % number for number in range(18000))
    records = b"".join(
        connection.peer.encrypt(messages[start : start + 1000])
        for start in range(0, len(messages), 1000)
    )
    session.block(BLOCKED_STALL_FLAG)
    connection.transport.receive(records + connection.peer.encrypt(b"PING\r\n"))
    assert connection.transport.is_paused
    assert connection.transport.waiting, "the rest stays in the socket"
    assert 0 < session.input_pending_bytes < len(messages)
    assert not connection.pipe.is_reading()
    assert connection.take_sent() == b""
    session.unblock(BLOCKED_STALL_FLAG)
    connection.turns.turn_now()
    expected = b"".join(b"MSG a 1 5\r\n%05d\r\n" % number for number in range(18000)) + b"PONG\r\n"
    heard = b""
    while len(heard) < len(expected):
        await until(lambda: bool(connection.transport.sent))
        heard += connection.peer.decrypt(connection.take_sent())[0]
    assert heard == expected
    await until(lambda: not connection.transport.is_paused)


async def test_session_that_is_blocked_again_while_it_resumes_loses_nothing(ground: Ground) -> None:
    connection = await established(ground, b"SUB a 1\r\n")
    session = connection.session
    heard = b""
    for number in range(50):
        session.block(BLOCKED_STALL_FLAG)
        connection.turns.turn_now()
        connection.transport.receive(connection.peer.encrypt(b"PUB a 4\r\n%04d\r\n" % number))
        session.unblock(BLOCKED_STALL_FLAG)
        connection.turns.turn_now()
        if number % 3:
            session.block(BLOCKED_STALL_FLAG)
            connection.turns.turn_now()
            session.unblock(BLOCKED_STALL_FLAG)
            connection.turns.turn_now()
        await until(lambda: bool(connection.transport.sent))
        heard += connection.peer.decrypt(connection.take_sent())[0]
    assert heard == b"".join(b"MSG a 1 4\r\n%04d\r\n" % number for number in range(50))


async def test_blocked_connection_holds_one_read_at_most(ground: Ground) -> None:
    connection = await established(ground)
    connection.session.block(BLOCKED_STALL_FLAG)
    record = connection.peer.encrypt(b"PUB a 10000\r\n" + bytes(10_000) + b"\r\n")
    connection.transport.receive(record + bytes(2 * AREA_BYTES))
    assert len(connection.transport.waiting) >= AREA_BYTES


async def test_connection_that_ends_while_blocked_is_gone(ground: Ground) -> None:
    connection = await established(ground)
    connection.session.block(BLOCKED_STALL_FLAG)
    connection.transport.receive(connection.peer.encrypt(b"PING\r\n" * 10_000))
    connection.session.unblock(BLOCKED_STALL_FLAG)
    connection.turns.turn_now()
    connection.transport.lose()
    await connection.gone()


# A peer that does not read


async def test_slow_socket_leaves_output_in_the_session(ground: Ground) -> None:
    connection = await established(ground)
    connection.pipe.pause_writing()
    connection.session.write(b"PING\r\n")
    connection.turns.turn_now()
    assert connection.take_sent() == b""
    assert connection.session.pending_bytes == 6
    assert connection.session.write_blocked_ns
    connection.pipe.resume_writing()
    assert await connection.hear() == b"PING\r\n"
    assert not connection.session.write_blocked_ns


async def test_answers_of_tls_itself_are_sent_at_once(ground: Ground) -> None:
    connection = await established(ground)
    connection.pipe.codec._outgoing.write(b"an answer")
    connection.transport.receive(connection.peer.encrypt(b"SUB a 1\r\n"))
    assert connection.take_sent() == b"an answer"


async def test_answers_of_tls_itself_wait_for_a_slow_socket(ground: Ground) -> None:
    connection = await established(ground)
    connection.pipe.pause_writing()
    connection.pipe.codec._outgoing.write(b"an answer")
    connection.transport.receive(connection.peer.encrypt(b"SUB a 1\r\n"))
    assert connection.take_sent() == b""
    connection.pipe.resume_writing()
    assert connection.take_sent() == b"an answer"


async def test_peer_that_asks_tls_for_answers_and_reads_none_is_cut_off(ground: Ground) -> None:
    connection = await established(ground)
    connection.pipe.pause_writing()
    connection.pipe.codec._outgoing.write(bytes(CONTROL_BYTES_MAX + 1))
    connection.transport.receive(connection.peer.encrypt(b"SUB a 1\r\n"))
    assert connection.transport.is_aborted
    await connection.gone()


# The end


async def test_closed_session_says_goodbye_behind_its_last_words(ground: Ground) -> None:
    connection = await established(ground)
    connection.transport.receive(connection.peer.encrypt(b"FOO\r\n"))
    await connection.gone()
    plain, is_over = connection.peer.decrypt(connection.take_sent())
    assert plain == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert is_over


async def test_goodbye_of_the_peer_is_answered_and_ends_the_session(ground: Ground) -> None:
    connection = await established(ground, b"SUB a 1\r\n")
    with pytest.raises(ssl.SSLWantReadError):
        connection.peer.tls.unwrap()
    connection.transport.receive(connection.peer.take())
    await connection.gone()
    connection.peer.incoming.write(connection.take_sent())
    connection.peer.tls.unwrap()
    assert connection.turns.broker.closed[0].reason == ops.CLOSED_BY_CLIENT


async def test_operations_in_front_of_the_goodbye_are_run(ground: Ground) -> None:
    connection = await established(ground)
    last = connection.peer.encrypt(b"PUB a 0\r\n\r\n")
    with pytest.raises(ssl.SSLWantReadError):
        connection.peer.tls.unwrap()
    connection.transport.receive(last + connection.peer.take())
    await connection.gone()
    assert connection.turns.broker.closed[0].in_msgs == 1


async def test_end_of_the_socket_without_goodbye_ends_the_session(ground: Ground) -> None:
    connection = await established(ground)
    connection.transport.receive_eof()
    await connection.gone()
    assert connection.peer.decrypt(connection.take_sent()) == (b"", True)
    assert connection.turns.broker.closed[0].reason == ops.CLOSED_BY_CLIENT


async def test_forged_record_ends_the_session_behind_what_was_good(ground: Ground) -> None:
    connection = await established(ground)
    good = connection.peer.encrypt(b"PUB a 0\r\n\r\n")
    forged = bytearray(connection.peer.encrypt(b"PUB b 0\r\n\r\n"))
    forged[-1] ^= 1
    connection.transport.receive(good + bytes(forged))
    await connection.gone()
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        connection.peer.decrypt(connection.take_sent())
    closed = connection.turns.broker.closed[0]
    assert closed.reason == ops.CLOSED_READ_ERROR
    assert closed.in_msgs == 1
    assert connection.log.about_handshake() == []


async def test_peer_that_does_not_take_the_last_words_is_cut_off(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.server.tls.tls_pipe.LINGER_SECONDS", 0.02)
    connection = await established(ground)
    connection.transport.unsent_bytes = 100
    connection.transport.receive_eof()
    await until(lambda: connection.transport.is_aborted)
    await connection.gone()


async def test_wait_for_the_last_words_ends_with_the_connection(ground: Ground) -> None:
    connection = await established(ground)
    connection.transport.unsent_bytes = 100
    connection.session.close(ops.CLOSED_KICKED)
    connection.turns.turn_now()
    assert connection.transport.is_closed
    assert not connection.link.linger.cancelled()
    connection.transport.lose()
    await connection.gone()
    assert connection.link.linger.cancelled()


async def test_slow_consumer_is_aborted_without_goodbye(ground: Ground) -> None:
    connection = await established(ground)
    connection.session.close(ops.CLOSED_SLOW_PENDING)
    connection.turns.turn_now()
    assert connection.take_sent() == b""
    assert connection.transport.is_aborted
    await connection.gone()


async def test_fault_of_openssl_when_writing_ends_only_that_connection(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await established(ground)

    def write(self: ssl.SSLObject, data: memoryview) -> int:
        raise ssl.SSLError(1, "internal error")

    monkeypatch.setattr(ssl.SSLObject, "write", write)
    connection.session.write(b"PING\r\n")
    connection.turns.turn_now()
    await connection.gone()
    assert connection.turns.broker.closed[0].reason == ops.CLOSED_READ_ERROR


async def test_calls_after_the_end_do_nothing(ground: Ground) -> None:
    connection = await established(ground)
    connection.transport.lose()
    await connection.gone()
    connection.pipe.write(b"x")
    connection.pipe.close()
    connection.pipe.pause_reading()
    connection.pipe.resume_reading()
    assert connection.take_sent() == b""
    assert connection.pipe.is_closing()


# Protocols that begin after the handshake


class Upgrade(asyncio.Protocol):
    """Stands for a WebSocket link: answers each piece of input in capitals."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received: list[bytes] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        self.transport.write(data.upper())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


def late(ground: Ground) -> tuple[Upgrade, RecordingLog, MemoryTransport, Peer]:
    protocol, log = Upgrade(), RecordingLog()
    remote = RemoteAddress("192.0.2.1", 4711)
    pipe = late_pipe(protocol, log, remote, ground.settings(handshake_first_ns=0))
    transport = MemoryTransport(pipe)
    pipe.connection_made(transport)
    return protocol, log, transport, Peer(ground.authority.client_context())


async def test_late_protocol_begins_when_tls_is_up(ground: Ground) -> None:
    protocol, log, transport, peer = late(ground)
    peer.handshake()
    transport.receive(peer.take())
    assert protocol.transport is None
    assert peer.handshake(bytes(transport.sent))
    transport.sent.clear()
    data = random.Random(2).randbytes(300_000).lower()
    transport.receive(peer.take() + peer.encrypt(data))
    assert b"".join(protocol.received) == data
    assert peer.decrypt(bytes(transport.sent)) == (data.upper(), False)
    assert protocol.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert protocol.transport.get_extra_info("peername") == ("192.0.2.1", 4711)
    protocol.transport.close()
    await until(lambda: protocol.lost == [None])
    assert log.lines == []


async def test_late_protocol_never_begins_when_the_handshake_fails(ground: Ground) -> None:
    protocol, log, transport, _ = late(ground)
    transport.receive(b"\x16\x03\x01\x00\x05hello")
    transport.receive_eof()
    await until(lambda: transport.is_lost)
    assert protocol.transport is None
    assert log.lines == [("error", "192.0.2.1:4711 - TLS handshake error: unexpected message")]


async def test_plain_request_to_a_late_protocol_is_refused(ground: Ground) -> None:
    protocol, log, transport, _ = late(ground)
    transport.receive(b"GET / HTTP/1.1\r\n\r\n")
    transport.receive_eof()
    await until(lambda: transport.is_lost)
    assert protocol.transport is None
    assert [level for level, _ in log.lines] == ["debug"]
