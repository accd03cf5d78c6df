"""The queue that pull requests fill, against a naive server and reader; no network."""

from __future__ import annotations

from collections import deque

import pytest
from client_probe import Probe
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tradewind.client.message import Msg
from tradewind.client.streams.pull import PullCore

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


class Queue(PullCore):
    """A queue that notes what it asks for."""

    def __init__(self, limit: int, threshold: int) -> None:
        super().__init__("inbox", "", **LIMITS)
        self.limit = limit
        self.requests: deque[int] = deque()
        self.gaps = 0
        self.statuses: list[int] = []
        self.served = 0
        self._set_refill(threshold, 0)

    def _refill(self) -> None:
        count = self.limit - self.wanted_messages - self.pending_messages
        self.requests.append(count)
        self._request(count, 0)

    def _on_status(self, message: Msg) -> None:
        self.statuses.append(message.status)
        self._returned(int(message.headers.get("Nats-Pending-Messages", "0")), 0)
        if self._wants_more():
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
        self.queue = Queue(self.limit, 3)
        self.sid = self.probe._register(self.queue)
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
            self.probe._feed(delivery(self.sid, self.sent))
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
            self.probe._feed(status(self.sid, "408 Request Timeout", Messages=left, Bytes=0))

    @rule()
    def heartbeat(self) -> None:
        self.probe._feed(status(self.sid, "100 Idle Heartbeat"))

    @rule()
    def take(self) -> None:
        message = self.queue.take()
        if message is None:
            assert self.read == self.sent
            # Whoever waits is going to get something: a request is open.
            assert self.queue.wanted_messages > 0
        else:
            self.read += 1
            assert message.data == b"%d" % self.read

    @precondition(lambda self: self.queue.pending_messages)
    @rule()
    def read_all(self) -> None:
        while self.queue.pending_messages:
            self.take()

    @invariant()
    def counts_agree(self) -> None:
        self.take_requests()
        assert self.queue.wanted_messages == sum(self.open)
        assert self.queue.pending_messages == self.sent - self.read
        assert self.queue.wanted_messages + self.queue.pending_messages <= self.limit
        assert self.queue.received_messages == self.sent


PullMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestPullMachine = PullMachine.TestCase


@pytest.mark.slow
@given(st.lists(st.integers(0, 6), max_size=20))
def test_an_ordered_queue_stops_at_the_first_gap(skips: list[int]) -> None:
    probe = Probe()
    queue = Queue(100, 0)
    sid = probe._register(queue)
    queue._expect_from_start()
    expected: list[bytes] = []
    consumer_sequence = 0
    is_broken = False
    for sequence, skip in enumerate(skips, 1):
        lost = skip == 0
        consumer_sequence += 2 if lost else 1
        is_broken |= lost
        probe._feed(delivery(sid, sequence, consumer_sequence))
        if not is_broken:
            expected.append(b"%d" % sequence)
    assert queue.gaps == (1 if is_broken else 0)
    assert queue.last_sequence == len(expected)
    queue._expect_from_start()
    probe._feed(delivery(sid, 1000, 1))
    expected.append(b"1000")
    taken = []
    while (message := queue.take()) is not None:
        taken.append(message.data)
    assert taken == expected
    assert not probe.errors


def test_reply_subjects_of_both_versions_are_understood() -> None:
    probe = Probe()
    queue = Queue(100, 0)
    sid = probe._register(queue)
    queue._expect_from_start()
    long = b"$JS.ACK._.hash.S.c.1.41.1.1700000000000000000.0.extra"
    probe._feed(b"MSG s %d %s 0\r\n\r\n" % (sid, long))
    assert (queue.pending_messages, queue.last_sequence) == (1, 41)
    for wrong in (b"short.reply", b"$JS.ACK.S.c.1.x.2.3.0"):
        probe._feed(b"MSG s %d %s 0\r\n\r\n" % (sid, wrong))
    assert (queue.pending_messages, queue.gaps) == (1, 0)
    assert not probe.errors


def test_a_queue_with_a_bound_drops_and_tells_so_once() -> None:
    probe = Probe()
    queue = PullCore("inbox", "", **{**LIMITS, "pending_messages_max": 2})
    sid = probe._register(queue)
    for sequence in range(1, 6):
        probe._feed(delivery(sid, sequence))
    assert (queue.pending_messages, queue.dropped_count) == (2, 3)
    assert probe.slow == [queue]


def test_a_batch_is_served_when_everything_has_come() -> None:
    probe = Probe()
    queue = Queue(100, -1)
    sid = probe._register(queue)
    queue._set_batch()
    queue._request(2, 0)
    probe._feed(delivery(sid, 1))
    assert queue.served == 0
    probe._feed(delivery(sid, 2))
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
    plain, packing = Queue(9, 4), Queue(9, 4)
    packing_sid, plain_sid = probe._register(packing), probe._register(plain)
    for queue in (plain, packing):
        queue._expect_from_start()
        queue._refill()
    packing._start_packing()
    sequence = consumer_sequence = 0
    for what, number in steps:
        if what in ("message", "lost"):
            sequence += number
            consumer_sequence += 2 if what == "lost" else 1
        for sid in (plain_sid, packing_sid):
            if what in ("message", "lost"):
                probe._feed(delivery(sid, sequence, consumer_sequence))
            elif what == "beat":
                probe._feed(status(sid, "100 Idle Heartbeat"))
            elif what == "expired":
                probe._feed(status(sid, "408 Request Timeout", Messages=number, Bytes=0))
            elif what == "foreign":
                probe._feed(b"MSG s %d 0\r\n\r\nHMSG s %d x 0 0\r\n\r\n" % (sid, sid))
        assert packing.pending_messages == plain.pending_messages
        assert packing.pending_bytes == plain.pending_bytes
        if what == "take":
            taken = []
            while (message := plain.take()) is not None:
                taken.append(message)
            packed = packing.take_packed()
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
    for name in ("gaps", "statuses", "last_sequence", "received_messages", "arrivals"):
        assert getattr(packing, name) == getattr(plain, name), name
    assert packing.take() is None
    assert not probe.errors


def test_a_queue_that_packs_asks_for_more_when_it_is_taken_from() -> None:
    probe = Probe()
    queue = Queue(8, 4)
    sid = probe._register(queue)
    queue._expect_from_start()
    queue._start_packing()
    queue._refill()
    for sequence in range(1, 7):
        probe._feed(delivery(sid, sequence))
    assert list(queue.requests) == [8]
    packed = queue.take_packed()
    assert packed is not None
    assert len(packed) == 6
    assert list(queue.requests) == [8, 6]
    assert queue.take_packed() is None
