"""Delete markers, compared with a plain list, and after power failures."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.stream import header_fields
from tradewind.stream.stream import Stream
from tradewind.stream.stream_opening import open_stream
from unit.stream.stream_kit import SECOND_NS, StreamKit, close, frame

MARKER_SECONDS = 3
# A publish (which subject, how long it lives: 0 for ever), or seconds that pass.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, 4, 7])),
        st.integers(1, 4),
    ),
    max_size=25,
)
CONFIG = {
    "subject_delete_marker_ttl": MARKER_SECONDS * SECOND_NS,
    "allow_msg_ttl": True,
    "allow_rollup_hdrs": True,
}


@dataclass
class Kept:
    """A message that is there; `is_marker`: it tells that another one has expired."""

    subject: str
    expires_s: int | None
    is_marker: bool


class Model:
    """All messages in the order in which they came."""

    def __init__(self, age_s: int) -> None:
        self.age_s = age_s
        self.now_s = 0
        self.messages: list[Kept] = []

    def add(self, subject: str, ttl_s: int, *, is_marker: bool = False) -> None:
        if ttl_s:
            ttl_s = max(ttl_s, MARKER_SECONDS)
        ends = [self.now_s + seconds for seconds in (ttl_s, self.age_s) if seconds]
        self.messages.append(Kept(subject, min(ends, default=None), is_marker))

    def expire(self) -> None:
        for kept in list(self.messages):
            if kept.expires_s is None or kept.expires_s > self.now_s:
                continue
            self.messages.remove(kept)
            is_last = all(other.subject != kept.subject for other in self.messages)
            if is_last and not kept.is_marker:
                self.add(kept.subject, MARKER_SECONDS, is_marker=True)


def shown(stream: Stream) -> list[tuple[str, bool]]:
    return sorted(
        (message.subject.decode(), header_fields.MARKER_REASON in message.header)
        for message in stream.store.messages()
    )


def publish(kit: StreamKit, subject: str, ttl_s: int) -> None:
    kit.peer.send(frame(subject, b"x", b"Nats-TTL: %d" % ttl_s if ttl_s else b"", ""))


def pass_time(kit: StreamKit, stream: Stream, seconds: int) -> None:
    # A little more: messages of the same moment are a nanosecond apart.
    kit.clock.advance_ns(seconds * (SECOND_NS + 1000))
    kit.turn.now_ns = kit.clock.wall_ns()
    kit.turn.monotonic_ns = kit.clock.monotonic_ns()
    while 0 < stream.next_deadline_ns <= kit.turn.monotonic_ns:
        stream.tick()
        kit.engine.end_turn()


@given(STEPS, st.sampled_from([0, 5]))
def test_markers_are_where_the_model_has_them(
    steps: list[tuple[int, int] | int], age_s: int
) -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, max_age=age_s * SECOND_NS)
    model = Model(age_s)
    for step in steps:
        if isinstance(step, int):
            for _ in range(step):
                model.now_s += 1
                model.expire()
                pass_time(kit, stream, 1)
        else:
            model.add(f"s.{step[0]}", step[1])
            publish(kit, f"s.{step[0]}", step[1])
        assert shown(stream) == sorted((kept.subject, kept.is_marker) for kept in model.messages)
    stream.store.verify()


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_power_failure_leaves_message_or_marker(keys: list[int]) -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, storage="file")
    for key in keys:
        publish(kit, f"s.{key}", MARKER_SECONDS)
    kit.engine.auto_sync = False
    pass_time(kit, stream, MARKER_SECONDS)
    everything = {f"s.{key}" for key in keys}
    assert {subject for subject, is_marker in shown(stream) if is_marker} == everything
    disk = kit.disk
    for step in [0, *disk.unsynced_steps()]:
        kit.disk = disk.crash_keeping_steps(step)
        reopened, _ = open_stream(kit.context, kit.folder("S"), kit.clock.wall_ns())
        assert {subject for subject, _ in shown(reopened)} == everything
        pass_time(kit, reopened, 0)
        assert shown(reopened) == sorted((subject, True) for subject in everything)


def test_messages_that_expired_while_the_server_was_down_leave_markers() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, storage="file", max_age=5 * SECOND_NS)
    for key in range(3):
        publish(kit, f"s.{key}", 0)
    close(stream)
    kit.clock.advance_ns(100 * SECOND_NS)
    reopened = kit.reopen()
    pass_time(kit, reopened, 0)
    assert shown(reopened) == [(f"s.{key}", True) for key in range(3)]


def test_sealed_stream_keeps_the_last_message_and_does_not_spin() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, sealed=True)
    stream.ingest.append(b"s.1", b"NATS/1.0\r\nNats-TTL: 1\r\n\r\n", b"", b"", SECOND_NS)
    kit.clock.advance_ns(2 * SECOND_NS)
    kit.turn.now_ns = kit.clock.wall_ns()
    kit.turn.monotonic_ns = kit.clock.monotonic_ns()
    assert stream.next_deadline_ns == kit.turn.monotonic_ns
    stream.tick()
    assert stream.next_deadline_ns == 0
    assert shown(stream) == [("s.1", False)]


def test_many_markers_are_stored_in_steps() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, max_age=5 * SECOND_NS)
    for key in range(3000):
        stream.ingest.append(b"s.%d" % key, b"", b"")
    kit.turn.now_ns += 6 * SECOND_NS
    stream.tick()
    assert stream.store.last_seq == 4000
    for _ in range(2):
        stream.tick()
    assert (stream.store.last_seq, stream.store.msgs) == (6000, 3000)
