"""Slow receivers: what is kept for them, when they are given up, and who has to wait for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from tradewind.options import ServerOptions
from tradewind.server.links.link import Turns
from tradewind.server.links.link_core import SessionLink
from tradewind.testing import FakeConnection, InProcessServer
from tradewind.wire import ops

QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
NO_STALL = ServerOptions(max_pending_bytes=1000, no_fast_producer_stall=True)


class FullTransport:
    """Has taken 600 bytes, of which the socket has taken none."""

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 600


def slow_and_fast(server: InProcessServer) -> tuple[FakeConnection, FakeConnection]:
    slow = server.connect(QUIET + b"SUB a 1\r\n")
    slow.stop_reading()
    return slow, server.connect(QUIET)


def message_of(total: int) -> bytes:
    """A PUB to `a` whose MSG has this many bytes in all."""
    payload = b"x" * (total - len(b"MSG a 1 100\r\n\r\n"))
    assert 100 <= len(payload) <= 999
    return b"PUB a %d\r\n%b\r\n" % (len(payload), payload)


def test_output_up_to_the_limit_is_kept_for_a_slow_receiver() -> None:
    server = InProcessServer(NO_STALL)
    slow, fast = slow_and_fast(server)
    fast.send(message_of(500) * 2)
    assert slow.session.pending_bytes == 1000
    assert slow.is_open
    slow.resume_reading()
    assert len(slow.take()) == 1000


def test_one_byte_above_the_limit_ends_a_slow_receiver_without_a_word() -> None:
    server = InProcessServer(NO_STALL)
    slow, fast = slow_and_fast(server)
    fast.send(message_of(500) + message_of(501))
    assert not slow.is_open
    assert slow.take() == b""
    assert slow.session.close_reason == ops.CLOSED_SLOW_PENDING
    assert server.broker.totals.slow_consumers == 1
    assert server.broker.accounts["$G"].slow_consumers == 1
    assert server.broker.accounts["$G"].subscription_count == 0
    assert server.log.texts("notice") == [
        "127.0.0.1:1 - cid:1 - Slow Consumer Detected: MaxPending of 1000 Exceeded"
    ]
    # The one who sent it, and whoever comes next, notices nothing.
    assert fast.ask(b"PUB a 0\r\n\r\nPING\r\n") == b"PONG\r\n"


def test_what_the_socket_still_holds_counts_too() -> None:
    server = InProcessServer(NO_STALL)
    slow, fast = slow_and_fast(server)
    link = SessionLink(cast(Turns, SimpleNamespace(broker=server.broker)))
    link.use_transport(cast(asyncio.Transport, FullTransport()))
    link.attach(slow.session)
    link.pause_writing()
    link.flush()
    assert slow.session.pending_bytes == 600
    fast.send(message_of(401))
    assert slow.session.close_reason == ops.CLOSED_SLOW_PENDING


def test_a_doomed_receiver_gets_nothing_more_in_the_same_turn() -> None:
    server = InProcessServer(NO_STALL)
    slow, fast = slow_and_fast(server)
    fast.send(message_of(500) * 50)
    assert slow.session.out_msgs == 3


@pytest.mark.parametrize("operation", [b"PING\r\n", b"SUB a..b 2\r\n", b"PUB _GR_.a 0\r\n\r\n"])
def test_answers_count_like_messages(operation: bytes) -> None:
    server = InProcessServer(NO_STALL)
    slow, _ = slow_and_fast(server)
    slow.send(operation * 1000)
    assert not slow.is_open
    assert slow.session.close_reason == ops.CLOSED_SLOW_PENDING
    assert slow.session.pending_bytes < 1100


def test_a_queue_passes_over_a_doomed_member() -> None:
    server = InProcessServer(NO_STALL)
    slow = server.connect(QUIET + b"SUB a q 1\r\n")
    slow.stop_reading()
    fast = server.connect(QUIET + b"SUB a q 1\r\n")
    publisher = server.connect(QUIET)
    for _ in range(50):
        publisher.send(message_of(500))
    assert not slow.is_open
    assert slow.session.out_msgs + fast.session.out_msgs == 50


def test_a_producer_waits_a_moment_for_a_crowded_receiver() -> None:
    server = InProcessServer(ServerOptions(max_pending_bytes=1000))
    slow, fast = slow_and_fast(server)
    fast.send(message_of(300) * 3 + b"PING\r\n")
    assert fast.take() == b""
    assert slow.session.pending_bytes == 900
    assert fast.session.stalls == 1
    server.advance(0.1)
    assert fast.take() == b"PONG\r\n"
    assert server.broker.totals.stalled_clients == 1


def test_a_stuck_receiver_does_not_stop_its_producers_for_good() -> None:
    server = InProcessServer(ServerOptions(max_pending_bytes=1000))
    slow, fast = slow_and_fast(server)
    for _ in range(5):
        fast.send(message_of(300))
        server.advance(0.1)
    assert not slow.is_open
    assert fast.ask(b"PING\r\n") == b"PONG\r\n"


def test_a_large_outbox_asks_for_the_end_of_the_turn() -> None:
    server = InProcessServer()
    slow, fast = slow_and_fast(server)
    payload = b"x" * 300_000
    session = fast.session
    session.feed(b"PUB a 300000\r\n%b\r\n" % payload, 0)
    assert not server.broker.router.pressure
    session.feed(b"PUB a 300000\r\n%b\r\n" % payload, 0)
    assert server.broker.router.pressure
    server.run_until_idle()
    assert not server.broker.router.pressure
    slow.resume_reading()
    assert len(slow.take()) > 600_000


@pytest.mark.parametrize(
    ("receivers", "room"), [(0, 262144), (1, 262144), (2, 131072), (40, 65536)]
)
def test_less_is_read_at_a_time_where_many_receive_it(receivers: int, room: int) -> None:
    server = InProcessServer()
    others = [server.connect(QUIET + b"SUB a 1\r\n") for _ in range(receivers)]
    publisher = server.connect(QUIET + b"SUB b 1\r\n")
    publisher.send(b"PUB a 100000\r\n%b\r\n" % bytes(100_000))
    assert len(publisher.session.read_buffer()) == room
    publisher.send(b"PUB a 10\r\n0123456789\r\n")  # too little to tell
    assert len(publisher.session.read_buffer()) == room
    publisher.send(b"PUB b 100000\r\n%b\r\n" % bytes(100_000))
    assert len(publisher.session.read_buffer()) == 262144
    assert all(len(other.take()) > 100_000 for other in others)
