"""Messages that look like parts of an atomic batch, and are none, survive every start."""

from __future__ import annotations

import pytest

from tradewind.stream.stream import Stream
from unit.stream.stream_kit import StreamKit, close, frame


def fast(kit: StreamKit, number: int) -> None:
    """A message of a fast batch with the header of an atomic one; nats-server takes it, too."""
    header = f"Nats-Batch-Id: zz\r\nNats-Batch-Sequence: {number}".encode()
    operation = 0 if number == 1 else 1
    kit.peer.send(frame("s.1", b"kept", header, f"inbox.zz.1.ok.{number}.{operation}.$FI"))


def atomic(kit: StreamKit, batch: str, numbers: range, count: int) -> None:
    for number in numbers:
        commit = "\r\nNats-Batch-Commit: 1" if number == count else ""
        header = f"Nats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {number}{commit}".encode()
        kit.peer.send(frame("s.2", b"atomic", header))


def make(**context: bool) -> tuple[StreamKit, Stream]:
    kit = StreamKit(**context)
    return kit, kit.create(storage="file", allow_batched=True, allow_atomic=True)


def payloads(stream: Stream) -> list[bytes]:
    seqs = range(1, stream.store.last_seq + 1)
    return [stream.store.get(seq).payload for seq in seqs if stream.store.is_live(seq)]


def kill(kit: StreamKit, stream: Stream) -> Stream:
    """The process ends in this moment, and is started again; the machine runs on."""
    assert stream.files is not None
    stream.files.flush()
    stream.deactivate()
    kit.disk = kit.disk.crash_keeping_unsynced()
    return kit.reopen()


def test_clean_restart_keeps_what_looks_like_half_a_batch() -> None:
    kit, stream = make()
    for number in (1, 2):
        fast(kit, number)
    assert b'"seq":2' in kit.replies()[-1]
    close(stream)
    assert payloads(kit.reopen()) == [b"kept"] * 2


@pytest.mark.parametrize("syncs", [True, False])
def test_kill_keeps_what_looks_like_half_a_batch(syncs: bool) -> None:
    """Without syncs it was acknowledged already; the process is killed, the machine runs on."""
    kit, stream = make(syncs=syncs)
    kit.publish("s.0", b"before")
    kit.engine.auto_sync = False
    for number in (1, 2):
        fast(kit, number)
    assert any(b'"type":"ack","seq":2' in reply for reply in kit.replies()) is not syncs
    atomic(kit, "b", range(1, 4), 3)
    assert payloads(kill(kit, stream)) == [b"before", b"kept", b"kept", *[b"atomic"] * 3]


def test_half_a_batch_behind_what_looks_like_one_goes_alone() -> None:
    kit, stream = make(syncs=False)
    kit.publish("s.0", b"before")
    kit.engine.auto_sync = False
    for number in (1, 2):
        fast(kit, number)
    atomic(kit, "b", range(1, 4), 3)
    assert stream.files is not None
    stream.files.flush()
    path = stream.store.last.path
    content = kit.disk.content_of(path)
    kit.disk.put_durable_file(path, content[: content.rindex(b"s.2") + 20])
    stream.deactivate()
    kit.disk = kit.disk.crash_keeping_unsynced()
    again = kit.reopen()
    assert payloads(again) == [b"before", b"kept", b"kept"]
    # What comes next is not taken for the rest of that batch, either.
    kit.peer.send(frame("s.0", b"after", reply=""))
    assert payloads(kill(kit, again)) == [b"before", b"kept", b"kept", b"after"]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_messages_behind_a_batch_that_never_came_are_their_own(left: int) -> None:
    """A kill leaves the beginning of a batch, and the next start is killed before any sync."""
    kit, stream = make(syncs=False)
    kit.publish("s.0", b"before")
    kit.engine.auto_sync = False
    atomic(kit, "b", range(1, 4), 3)
    assert stream.files is not None
    stream.files.flush()
    path = stream.store.last.path
    content = kit.disk.content_of(path)
    end = content.index(b"s.2") - 22
    for _ in range(left):
        end = content.index(b"s.2", end + 30) - 22
    kit.disk.put_durable_file(path, content[:end])
    stream.deactivate()
    kit.disk = kit.disk.crash_keeping_unsynced()
    again = kit.reopen()
    expected = [b"before"]
    for start in range(3):
        assert payloads(again) == expected
        kit.peer.send(frame("s.0", b"%d" % start, reply=""))
        expected.append(b"%d" % start)
        again = kill(kit, again)


def test_half_batch_of_nats_server_goes_only_beside_its_copy() -> None:
    """nats-server keeps a copy of a batch until all of it is stored: that tells which is one."""
    for has_copy in (True, False):
        kit = StreamKit()
        stream = kit.made(storage="file", allow_batched=True, allow_atomic=True)
        for number in (1, 2):
            header = f"NATS/1.0\r\nNats-Batch-Id: B1\r\nNats-Batch-Sequence: {number}\r\n\r\n"
            stream.ingest.append(b"s.1", header.encode(), b"kept")
        close(stream)
        folder = kit.folder("S").path
        if has_copy:
            kit.disk.make_directory(f"{folder}/batches", sync=True)
            kit.disk.make_directory(f"{folder}/batches/TPEvOT1J", sync=True)
        assert payloads(kit.reopen()) == ([] if has_copy else [b"kept"] * 2)
        assert not kit.disk.exists(f"{folder}/batches")
