"""Atomic batches: what open ones may take of memory and time, and both ways to commit one."""

from __future__ import annotations

import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.stream.message_ids import MessageIds
from tradewind.stream.staging import BatchLimits
from tradewind.stream.stream import Stream
from unit.stream.stream_kit import SECOND_NS, StreamKit, close, frame

BODY = bytes(1_000_000)
# A field that no stream knows: a batch with it is looked at by the code that knows all cases.
UNUSUAL = "Nats-Other: x"


def part(number: int, *more: str, batch: str = "b", commit: str = "") -> bytes:
    lines = [f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {number}", *more]
    if commit:
        lines.append(f"Nats-Batch-Commit: {commit}")
    return "\r\n".join(lines).encode()


def code_of(answer: bytes) -> int:
    return int(json.loads(answer)["error"]["err_code"]) if b'"error"' in answer else 0


# ---------------------------------------------------------------- both ways

# More fields of a message, by what they are about.
FIELDS = st.sampled_from(
    [
        (),
        (),
        ("A: b",),
        ("Nats-Msg-Id: a",),
        ("Nats-Msg-Id: b",),
        ("Nats-Msg-Id: known",),
        ("Nats-Msg-Id: a", "A: b"),
        ("Nats-Expected-Stream: S",),
        ("Nats-Expected-Stream: SX",),
        ("Nats-Expected-Last-Sequence: 3",),
        ("Nats-Expected-Last-Sequence: 03",),
        ("Nats-Expected-Last-Sequence: 4",),
        ("Nats-Expected-Last-Subject-Sequence: 0",),
        ("Nats-Expected-Last-Subject-Sequence: 1",),
        ("Nats-Expected-Last-Subject-Sequence:  2",),
        (
            "Nats-Expected-Last-Subject-Sequence: 2",
            "Nats-Expected-Last-Subject-Sequence-Subject: s.1",
        ),
        (
            "Nats-Expected-Last-Subject-Sequence: 3",
            "Nats-Expected-Last-Subject-Sequence-Subject: s.>",
        ),
        ("Nats-Expected-Last-Subject-Sequence-Subject: s.1",),
        ("Nats-Rollup: sub",),
        ("Nats-Expected-Last-Sequence: 3", "Nats-Expected-Last-Sequence: 9"),
    ]
)
MESSAGES = st.lists(st.tuples(st.integers(0, 3), FIELDS, st.binary(max_size=9)), max_size=6)
SETTINGS = st.sampled_from(
    [
        {},
        {"max_msgs": 5},
        {"discard": "new", "max_msgs": 5},
        {"discard": "new", "max_bytes": 400},
        {"max_msgs_per_subject": 1},
        {"discard": "new", "max_msgs_per_subject": 2, "discard_new_per_subject": True},
        {"duplicate_window": 0},
    ]
)


def outcome(
    settings: dict[str, object],
    messages: list[tuple[int, tuple[str, ...], bytes]],
    end: str,
    *more: str,
) -> tuple[object, ...]:
    """What becomes of a batch whose messages have these fields more."""
    kit = StreamKit()
    stream = kit.create(allow_atomic=True, allow_rollup_hdrs=True, **settings)
    kit.publish("s.0", b"", b"Nats-Msg-Id: known")
    kit.publish("s.1")
    kit.publish("s.2")
    answers = []
    last = len(messages) if end == "1" else 0
    for number, (key, fields, payload) in enumerate(messages, 1):
        commit = end if number == last else ""
        header = part(number, *fields, *more, commit=commit)
        answers.append(kit.publish(f"s.{key}", payload, header))
    if end == "eob":
        answers.append(kit.publish("s.9", b"", part(len(messages) + 1, *more, commit=end)))
    stored = [stream.store.get(seq) for seq in range(1, 20) if stream.store.is_live(seq)]
    found = [
        (one.seq, one.subject, one.header.replace(b"\r\n" + UNUSUAL.encode(), b""), one.payload)
        for one in stored
    ]
    assert kit.context.batches.bytes == 0 or not end
    return answers, found, [item[:2] for item in stream.ids.items()], stream.ingest.last_id


@pytest.mark.slow
@given(SETTINGS, MESSAGES, st.sampled_from(["1", "eob", ""]))
def test_quick_commit_does_what_the_careful_one_does(
    settings: dict[str, object], messages: list[tuple[int, tuple[str, ...], bytes]], end: str
) -> None:
    # The sizes of the messages are limits, too, so the unusual field makes up for a usual one.
    careful = outcome(settings, messages, end, UNUSUAL)
    quick = outcome(settings, messages, end, "Some-Other: x"[: len(UNUSUAL)])
    usual = [
        (seq, subject, header.replace(b"\r\nSome-Other: x", b""), payload)
        for seq, subject, header, payload in quick[1]
    ]
    assert (quick[0], usual, *quick[2:]) == careful


def open_batch(kit: StreamKit, count: int, *more: str) -> None:
    for number in range(1, count):
        kit.peer.send(frame(f"s.{number}", b"x", part(number, *more), ""))


@pytest.mark.parametrize("unusual", [True, False])
def test_store_that_fails_in_the_middle_keeps_nothing(unusual: bool) -> None:
    kit = StreamKit()
    stream = kit.create(allow_atomic=True, storage="file")
    kit.publish("s.0", b"before")
    open_batch(kit, 3, *([UNUSUAL] if unusual else []))
    kit.disk.fail("*", error=errno.ENOSPC, times=1000)
    assert code_of(kit.publish("s.3", b"", part(3, "Nats-Msg-Id: a", commit="1"))) == 10077
    kit.disk.clear_faults()
    assert stream.visible_seq <= 1
    assert kit.context.batches.open_count == 0


def test_ids_that_do_not_fit_any_more_refuse_the_batch() -> None:
    kit = StreamKit()
    stream = kit.create(allow_atomic=True)
    stream.checks.ids = MessageIds(120 * SECOND_NS, 1, bytes_max=64)
    open_batch(kit, 2)
    answer = kit.publish("s.2", b"", part(2, "Nats-Msg-Id: " + "a" * 99, UNUSUAL, commit="1"))
    assert code_of(answer) == 10167
    assert stream.store.last_seq == 0


# ---------------------------------------------------------------- limits


def fill(kit: StreamKit, batch: str, count: int) -> bytes:
    """Messages of a megabyte each; gives the answer to the last one."""
    answer = b""
    for number in range(1, count + 1):
        answer = kit.publish("s.1", BODY, part(number, batch=batch))
    return answer


def test_open_batches_of_a_stream_are_bounded_in_memory() -> None:
    told: list[tuple[str, str, str]] = []
    kit = StreamKit(abandoned=lambda *event: told.append(event))
    kit.create(allow_atomic=True)
    assert fill(kit, "a", 20) == b""
    assert code_of(fill(kit, "b", 14)) == 10210
    assert told == [("S", "b", "large")]
    assert 20 * len(BODY) <= kit.context.batches.bytes <= 20 * len(BODY) + 20 * 200
    assert code_of(kit.publish("s.1", b"", part(15, batch="b"))) == 10176


def test_open_batches_of_all_streams_are_bounded_in_memory() -> None:
    limits = BatchLimits(bytes_max=3 * len(BODY))
    kit = StreamKit(batches=limits)
    kit.create(allow_atomic=True)
    kit.create("T", allow_atomic=True)
    assert fill(kit, "a", 2) == b""
    assert code_of(kit.publish("t.1", BODY, part(1))) == 10210
    assert limits.open_count == 1
    assert code_of(kit.publish("s.1", b"", part(3, batch="a", commit="1"))) == 0
    assert limits.bytes == 0
    assert kit.publish("t.1", BODY, part(1)) == b""


def test_end_of_a_stream_gives_back_what_its_batches_hold() -> None:
    kit = StreamKit()
    stream = kit.create(allow_atomic=True)
    for number in range(20):
        kit.publish("s.1", b"x" * 100, part(1, batch=f"b{number}"))
    assert kit.context.batches.open_count == 20
    close(stream)
    assert (kit.context.batches.open_count, kit.context.batches.bytes) == (0, 0)


def rest(kit: StreamKit, stream: Stream, seconds: int) -> None:
    kit.pass_ns(seconds * SECOND_NS)
    stream.tick()


def test_batch_rests_from_its_last_message_on() -> None:
    told: list[tuple[str, str, str]] = []
    kit = StreamKit(abandoned=lambda *event: told.append(event))
    stream = kit.create(allow_atomic=True)
    assert stream.next_deadline_ns == 0
    kit.publish("s.1", b"", part(1))
    begin_ns = kit.turn.monotonic_ns
    assert stream.next_deadline_ns == begin_ns + 10 * SECOND_NS
    kit.pass_ns(6 * SECOND_NS)
    kit.publish("s.1", b"", part(2))
    kit.publish("s.1", b"", part(1, batch="c"))
    rest(kit, stream, 4)
    assert told == []
    assert stream.next_deadline_ns == begin_ns + 16 * SECOND_NS
    rest(kit, stream, 6)
    assert told == [("S", "b", "timeout"), ("S", "c", "timeout")]
    assert stream.next_deadline_ns == 0
