"""The queue that pull requests fill, against a naive server and reader; no network."""

from __future__ import annotations

from collections import deque

import pytest
from client_probe import Probe
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tradewind.client.core.message import Msg
from tradewind.client.streams.inbox_owners import PullOwner
from tradewind.client.streams.pull_inbox import PullInbox

LIMITS = {"pending_messages_max": 0, "pending_bytes_max": 0, "messages_max": 0}


def delivery(sid: int, sequence: int, consumer_sequence: int | None = None) -> bytes:
    """A message of a consumer as the server sends it."""
    body = b"%d" % sequence
    reply = b"$JS.ACK.S.c.1.%d.%d.1700000000000000000.0" % (
        sequence,
        sequence if consumer_sequence is None else consumer_sequence,
    )
    return b"MSG s %d %s %d\r\n%s\r\n" % (sid, reply, len(body), body)


def status(sid: int, text: str, **headers: int) -> bytes:
    """A status of the server."""
    lines = "".join(f"Nats-Pending-{name}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0 {text}\r\n{lines}\r\n".encode()
    return b"HMSG _INBOX.x %d %d %d\r\n%s\r\n" % (sid, len(block), len(block), block)


class Reader(PullOwner):
    """Notes what its inbox asks for."""

    def __init__(self, limit: int, threshold: int) -> None:
        self.inbox = PullInbox("inbox", "", **LIMITS, owner=self)
        self.limit = limit
        self.requests: deque[int] = deque()
        self.gaps = 0
        self.statuses: list[int] = []
        self.served = 0
        self.inbox.set_refill(threshold, 0)

    def _refill(self) -> None:
        count = self.limit - self.inbox.wanted_messages - self.inbox.pending_messages
        self.requests.append(count)
        self.inbox.requested(count, 0)

    def _on_status(self, message: Msg) -> None:
        self.statuses.append(message.status)
        self.inbox.returned(int(message.headers.get("Nats-Pending-Messages", "0")), 0)
        if self.inbox.wants_more():
            self._refill()

    def _on_gap(self) -> None:
        self.gaps += 1

    def _on_served(self) -> None:
        self.served += 1


class PullMachine(RuleBasedStateMachine):
    """A server that delivers, splits and expires requests as it likes, and a reader."""

    def __init__(self) -> None:
        super().__init__()
        self.probe = Probe()
        self.limit = 7
        self.queue = Reader(self.limit, 3)
        self.sid = self.probe.wire.register(self.queue.inbox)
        self.queue._refill()
        self.open: deque[int] = deque()  # what the server still owes per request
        self.sent = 0
        self.read = 0

    def take_requests(self) -> None:
        while self.queue.requests:
            self.open.append(self.queue.requests.popleft())

    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        self.take_requests()
        for _ in range(count):
            if not self.open:
                return
            self.sent += 1
            self.probe.wire.feed(delivery(self.sid, self.sent))
            self.open[0] -= 1
            if not self.open[0]:
                self.open.popleft()
            else:
                self.open.rotate(-1)  # requests take turns

    @rule()
    def expire(self) -> None:
        self.take_requests()
        if self.open:
            left = self.open.popleft()
            self.probe.wire.feed(status(self.sid, "408 Request Timeout", Messages=left, Bytes=0))

    @rule()
    def heartbeat(self) -> None:
        self.probe.wire.feed(status(self.sid, "100 Idle Heartbeat"))

    @rule()
    def take(self) -> None:
        message = self.queue.inbox.take()
        if message is None:
            assert self.read == self.sent
            # Whoever waits is going to get something: a request is open.
            assert self.queue.inbox.wanted_messages > 0
        else:
            self.read += 1
            assert message.data == b"%d" % self.read

    @precondition(lambda self: self.queue.inbox.pending_messages)
    @rule()
    def read_all(self) -> None:
        while self.queue.inbox.pending_messages:
            self.take()

    @invariant()
    def counts_agree(self) -> None:
        self.take_requests()
        assert self.queue.inbox.wanted_messages == sum(self.open)
        assert self.queue.inbox.pending_messages == self.sent - self.read
        assert self.queue.inbox.wanted_messages + self.queue.inbox.pending_messages <= self.limit
        assert self.queue.inbox.received_messages == self.sent


PullMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestPullMachine = PullMachine.TestCase


@pytest.mark.slow
@given(st.lists(st.integers(0, 6), max_size=20))
def test_an_ordered_queue_stops_at_the_first_gap(skips: list[int]) -> None:
    probe = Probe()
    queue = Reader(100, 0)
    sid = probe.wire.register(queue.inbox)
    queue.inbox.expect_from_start()
    expected: list[bytes] = []
    consumer_sequence = 0
    is_broken = False
    for sequence, skip in enumerate(skips, 1):
        lost = skip == 0
        consumer_sequence += 2 if lost else 1
        is_broken |= lost
        probe.wire.feed(delivery(sid, sequence, consumer_sequence))
        if not is_broken:
            expected.append(b"%d" % sequence)
    assert queue.gaps == (1 if is_broken else 0)
    assert queue.inbox.last_sequence == len(expected)
    queue.inbox.expect_from_start()
    probe.wire.feed(delivery(sid, 1000, 1))
    expected.append(b"1000")
    taken = []
    while (message := queue.inbox.take()) is not None:
        taken.append(message.data)
    assert taken == expected
    assert not probe.errors


def test_reply_subjects_of_both_versions_are_understood() -> None:
    probe = Probe()
    queue = Reader(100, 0)
    sid = probe.wire.register(queue.inbox)
    queue.inbox.expect_from_start()
    long = b"$JS.ACK._.hash.S.c.1.41.1.1700000000000000000.0.extra"
    probe.wire.feed(b"MSG s %d %s 0\r\n\r\n" % (sid, long))
    assert (queue.inbox.pending_messages, queue.inbox.last_sequence) == (1, 41)
    for wrong in (b"short.reply", b"$JS.ACK.S.c.1.x.2.3.0"):
        probe.wire.feed(b"MSG s %d %s 0\r\n\r\n" % (sid, wrong))
    assert (queue.inbox.pending_messages, queue.gaps) == (1, 0)
    assert not probe.errors


def test_a_queue_with_a_bound_drops_and_tells_so_once() -> None:
    probe = Probe()
    queue = PullInbox("inbox", "", **{**LIMITS, "pending_messages_max": 2})
    sid = probe.wire.register(queue)
    for sequence in range(1, 6):
        probe.wire.feed(delivery(sid, sequence))
    assert (queue.pending_messages, queue.dropped_count) == (2, 3)
    assert probe.slow == [queue]


def test_a_batch_is_served_when_everything_has_come() -> None:
    probe = Probe()
    queue = Reader(100, -1)
    sid = probe.wire.register(queue.inbox)
    queue.inbox.set_batch()
    queue.inbox.requested(2, 0)
    probe.wire.feed(delivery(sid, 1))
    assert queue.served == 0
    probe.wire.feed(delivery(sid, 2))
    assert queue.served == 1
    assert not queue.requests


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("message"), st.integers(1, 3)),
            st.sampled_from([("lost", 1), ("beat", 0), ("expired", 2), ("foreign", 0)]),
            st.tuples(st.just("take"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_a_queue_that_packs_has_and_asks_for_the_same_as_one_that_does_not(
    steps: list[tuple[str, int]],
) -> None:
    probe = Probe()
    plain, packing = Reader(9, 4), Reader(9, 4)
    packing_sid, plain_sid = probe.wire.register(packing.inbox), probe.wire.register(plain.inbox)
    for queue in (plain, packing):
        queue.inbox.expect_from_start()
        queue._refill()
    packing.inbox.start_packing()
    sequence = consumer_sequence = 0
    for what, number in steps:
        if what in ("message", "lost"):
            sequence += number
            consumer_sequence += 2 if what == "lost" else 1
        for sid in (plain_sid, packing_sid):
            if what in ("message", "lost"):
                probe.wire.feed(delivery(sid, sequence, consumer_sequence))
            elif what == "beat":
                probe.wire.feed(status(sid, "100 Idle Heartbeat"))
            elif what == "expired":
                probe.wire.feed(status(sid, "408 Request Timeout", Messages=number, Bytes=0))
            elif what == "foreign":
                probe.wire.feed(b"MSG s %d 0\r\n\r\nHMSG s %d x 0 0\r\n\r\n" % (sid, sid))
        assert packing.inbox.pending_messages == plain.inbox.pending_messages
        assert packing.inbox.pending_bytes == plain.inbox.pending_bytes
        if what == "take":
            taken = []
            while (message := plain.inbox.take()) is not None:
                taken.append(message)
            packed = packing.inbox.take_packed()
            assert (packed is None) == (not taken)
            if packed is not None:
                assert len(packed) == len(taken)
                first, last = taken[0].metadata, taken[-1].metadata
                assert (packed.first_seq, packed.last_seq) == (
                    first.stream_sequence,
                    last.stream_sequence,
                )
                assert packed.pending_count == last.pending_count
                assert packed.size == sum(len(message.data) for message in taken)
    assert (packing.gaps, packing.statuses) == (plain.gaps, plain.statuses)
    for name in ("last_sequence", "received_messages", "arrivals"):
        assert getattr(packing.inbox, name) == getattr(plain.inbox, name), name
    assert packing.inbox.take() is None
    assert not probe.errors


def test_a_queue_that_packs_asks_for_more_when_it_is_taken_from() -> None:
    probe = Probe()
    queue = Reader(8, 4)
    sid = probe.wire.register(queue.inbox)
    queue.inbox.expect_from_start()
    queue.inbox.start_packing()
    queue._refill()
    for sequence in range(1, 7):
        probe.wire.feed(delivery(sid, sequence))
    assert list(queue.requests) == [8]
    packed = queue.inbox.take_packed()
    assert packed is not None
    assert len(packed) == 6
    assert list(queue.requests) == [8, 6]
    assert queue.inbox.take_packed() is None
