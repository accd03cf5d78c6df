"""Atomic batches and servers that are killed: all of a batch is there, or nothing of it."""

from __future__ import annotations

import errno
import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.store.contract import NotFoundError
from tradewind.store.format.layout import short_hash
from tradewind.stream import header_fields
from tradewind.stream.half_batch import remove_half_batch
from tradewind.stream.stream import Stream
from tradewind.stream.stream_opening import open_stream
from unit.stream.stream_kit import StreamKit, close, frame

BLOCK_BYTES = 700
CHANCES = 6
# Publishes between batches, the messages of a batch, and whether the disk has come along then.
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans()), min_size=1, max_size=6
)


def part(batch: str, number: int, count: int) -> bytes:
    commit = "\r\nNats-Batch-Commit: 1" if number == count else ""
    return f"Nats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {number}{commit}".encode()


def make(kit: StreamKit, **config: int) -> Stream:
    settings = {"block_bytes_max": BLOCK_BYTES}
    made = kit.made(storage="file", settings=settings, allow_atomic=True, **config)
    return kit.started(made)


def batches_in(stream: Stream) -> dict[str, list[int]]:
    """By batch: the numbers of its messages that are there."""
    found: dict[str, list[int]] = defaultdict(list)
    for seq in range(1, stream.store.last_seq + 1):
        try:
            fields = header_fields.special_fields(stream.store.get(seq).header)
        except NotFoundError:
            continue
        if batch := fields.get(header_fields.BATCH_ID):
            found[batch.decode()].append(int(fields[header_fields.BATCH_SEQUENCE]))
    return found


@pytest.mark.slow
@given(STEPS, st.integers(0, 2**32))
def test_power_failure_leaves_whole_batches(steps: list[tuple[int, int, bool]], seed: int) -> None:
    """Whatever of the unsynced sectors and names survives, in any order."""
    kit = StreamKit()
    make(kit)
    sizes: dict[str, int] = {}
    promised: set[str] = set()
    for index, (singles, count, is_synced) in enumerate(steps):
        kit.engine.auto_sync = is_synced
        batch = f"b{index}"
        sizes[batch] = count
        for _ in range(singles):
            kit.peer.send(frame("s.0", b"single", reply=""))
        for number in range(1, count + 1):
            reply = "inbox.1" if number == count else ""
            kit.peer.send(frame(f"s.{number}", b"x" * 90, part(batch, number, count), reply))
        promised |= {json.loads(body)["batch"] for body in kit.replies()}
    disk = kit.disk
    in_order = [disk.crash_keeping_steps(step) for step in [0, *disk.unsynced_steps()]]
    for crashed in (*in_order, *(disk.crash(seed + chance) for chance in range(CHANCES))):
        kit.disk = crashed
        for _ in range(2):
            stream, _ = open_stream(kit.context, kit.folder("S"), kit.clock.wall_ns())
            found = batches_in(stream)
            for batch, numbers in found.items():
                assert numbers == list(range(1, sizes[batch] + 1))
            assert promised <= set(found)
            # At once again: what a start has shown must stay, and no half of a batch come back.
            kit.disk = kit.disk.crash(seed)


@pytest.mark.parametrize("limit", ["max_msgs", "max_msgs_per_subject"])
@pytest.mark.parametrize("kept", [1, 2])
def test_half_batch_pushes_out_no_promised_message(limit: str, kept: int) -> None:
    """It goes before the limits are applied, with the removals that were made for it."""
    kit = StreamKit()
    stream = make(kit, **{limit: 1 if limit == "max_msgs_per_subject" else 3})
    for number in (1, 2, 3):
        kit.publish(f"s.{number}", b"promised")
    kit.engine.auto_sync = False
    for number in (1, 2, 3):
        kit.peer.send(frame(f"s.{number}", b"new", part("b", number, 3)))
    block = stream.store.last
    end = kit.disk.content_of(block.path).index(b"Nats-Batch-Sequence: %d" % (kept + 1))
    kit.disk.put_durable_file(block.path, kit.disk.content_of(block.path)[:end])
    kit.disk = kit.disk.crash_keeping_unsynced()
    again, _ = open_stream(kit.context, kit.folder("S"), kit.clock.wall_ns())
    payloads = [again.store.get(seq).payload for seq in range(1, 4)]
    assert payloads == [b"promised"] * 3
    assert batches_in(again) == {}


def test_batch_with_a_message_that_was_erased_since_is_whole() -> None:
    kit = StreamKit()
    stream = make(kit)
    kit.engine.auto_sync = False
    for number in (1, 2, 3):
        kit.peer.send(frame(f"s.{number}", b"", part("b", number, 3)))
    stream.store.remove(2, erase=True)
    stream.store.remove(3, erase=True)
    assert stream.files is not None
    stream.files.flush()
    kit.disk = kit.disk.crash_keeping_unsynced()
    assert batches_in(kit.reopen()) == {"b": [1]}


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(0, 40), st.booleans())
def test_failing_disk_leaves_whole_batches(count: int, nth: int, is_for_good: bool) -> None:
    kit = StreamKit()
    stream = make(kit)
    kit.publish("s.0", b"first")
    times = 1000 if is_for_good else 1
    kit.disk.fail("*", nth=nth + 1, error=errno.ENOSPC, times=times)
    for number in range(1, count + 1):
        reply = "inbox.1" if number == count else ""
        kit.peer.send(frame(f"s.{number}", b"x" * 300, part("b", number, count), reply))
    answers = kit.replies()
    kit.disk.clear_faults()
    is_kept = bool(answers) and b'"count"' in answers[0]
    seen = [seq for seq in range(2, stream.visible_seq + 1) if _is_there(stream, seq)]
    assert len(seen) in (0, count)
    assert not is_kept or len(seen) == count
    kit.disk = kit.disk.crash_keeping_unsynced()
    found = batches_in(kit.reopen())
    assert len(found["b"]) in (0, count)
    assert not is_kept or len(found["b"]) == count


def _is_there(stream: Stream, seq: int) -> bool:
    try:
        stream.store.get(seq)
    except NotFoundError:
        return False
    return True


def test_batch_whose_last_message_was_deleted_is_no_half_one() -> None:
    kit = StreamKit()
    stream = make(kit)
    for number in (1, 2, 3):
        kit.peer.send(frame(f"s.{number}", b"", part("b", number, 3)))
    kit.replies()
    stream.delete_message(3)
    assert remove_half_batch(stream.store, [short_hash("b")]) == 0
    close(stream)
    assert batches_in(kit.reopen()) == {"b": [1, 2]}


def test_batch_behind_another_one_is_looked_at_alone() -> None:
    kit = StreamKit()
    stream = make(kit)
    for batch in ("a", "b"):
        for number in (1, 2, 3):
            kit.peer.send(frame(f"s.{number}", b"", part(batch, number, 3)))
    stream.ingest.append(b"s.1", b"NATS/1.0\r\n" + part("c", 1, 3) + b"\r\n\r\n", b"")
    stream.ingest.append(b"s.2", b"NATS/1.0\r\n" + part("c", 2, 3) + b"\r\n\r\n", b"")
    assert remove_half_batch(stream.store, [short_hash("c")]) == 2
    assert batches_in(stream) == {"a": [1, 2, 3], "b": [1, 2, 3]}
