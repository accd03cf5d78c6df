"""Backups on a simulated disk: flow, receivers that go away, limits, power failures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from backup_kit import CHUNKS, BackupPeer, limited, note_writes

from tradewind.consumer.consumer import ServerConsumer
from tradewind.jetstream import restores, snapshots
from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.store.backup.archive import END, MAGIC, ArchiveEntry, append_entry
from tradewind.store.files.open_files import open_files
from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format import s2
from tradewind.stream.stream import Stream
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

STATE = {"messages": 1, "bytes": 100, "first_seq": 1, "last_seq": 1, "consumer_count": 0}


@pytest.fixture
def server() -> InProcessServer:
    return InProcessServer(disk=SimulatedDisk())


@pytest.fixture
def peer(server: InProcessServer) -> BackupPeer:
    return BackupPeer(server)


def fill(peer: BackupPeer, count: int = 30, size: int = 500) -> None:
    """Messages that do not compress."""
    peer.create("S")
    for index in range(count):
        peer.publish(f"S.{index}", os.urandom(size))


def state(peer: BackupPeer) -> dict[str, object]:
    (answer,) = peer.ask_plain("$JS.API.STREAM.INFO.S")
    document = json.loads(answer)
    return {} if "error" in document else dict(document["state"])


def archive(*entries: ArchiveEntry, **changes: object) -> bytes:
    target = bytearray(MAGIC)
    append_entry(target, b"state.json", 0, 0, b"", json.dumps({**STATE, **changes}).encode())
    for entry in entries:
        append_entry(target, *entry)
    return s2.compress(target)


def message(
    seq: int, subject: bytes = b"S.a", header: bytes = b"", payload: bytes = b""
) -> ArchiveEntry:
    return ArchiveEntry(subject, 1, seq, header, payload)


# ---------------------------------------------------------------- snapshots


def test_no_more_chunks_leave_than_the_window_holds(peer: BackupPeer) -> None:
    fill(peer)
    chunks = peer.begin("S", chunk_size=1024, window_size=4096)
    assert [len(chunk.payload) for chunk in chunks] == [1024] * 4
    peer.acknowledge(chunks[0])
    (chunk,), _, _ = peer.take_all()
    assert chunk.reply.endswith(".1024.5")


def test_receiver_that_does_not_answer_is_given_up(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer)
    peer.begin("S", chunk_size=1024, window_size=1024)
    server.advance(4)
    assert peer.take_all()[0] == []
    server.advance(2)
    (end,), events, _ = peer.take_all()
    assert end == ("", b"NATS/1.0 408 No Flow Response\r\n\r\n", b"")
    assert events[-1]["type"].endswith("snapshot_complete")
    assert events[-1]["error"] == "no flow response"


def test_receiver_that_goes_away_ends_the_backup(server: InProcessServer, peer: BackupPeer) -> None:
    fill(peer)
    peer.begin("S", chunk_size=1024, window_size=1024)
    peer.connection.send(b"UNSUB 2\r\n")
    server.advance(1)
    _, events, _ = peer.take_all()
    assert events[-1]["error"] == "no interest"


def test_receiver_that_comes_late_gets_all(server: InProcessServer, peer: BackupPeer) -> None:
    fill(peer, 3)
    peer.connection.send(b"UNSUB 2\r\n")
    assert peer.begin("S") == []
    server.advance(1)
    peer.connection.send(f"SUB {CHUNKS} 2\r\n".encode())
    server.advance(1)
    assert len(peer.take_all()[0]) == 2


def test_receiver_that_never_comes_is_not_waited_for(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer, 3)
    peer.connection.send(b"UNSUB 2\r\n")
    peer.begin("S")
    server.advance(3)
    assert peer.take_all()[1][-1]["error"] == "no interest"


def test_receiver_is_not_taken_for_a_bystander_with_a_pattern(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer, 3)
    bystander = server.connect(b'CONNECT {"verbose":false}\r\nSUB backup.* 1\r\n')
    bystander.take()
    peer.connection.send(b"UNSUB 2\r\n")
    assert peer.begin("S") == []
    assert bystander.take() == b""
    # Nothing but the subscription itself starts it.
    peer.connection.send(f"SUB {CHUNKS} 2\r\n".encode())
    assert len(peer.take_all()[0]) == 2


def test_receiver_that_goes_away_is_not_replaced_by_a_bystander(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer)
    server.connect(b'CONNECT {"verbose":false}\r\nSUB backup.* 1\r\n')
    peer.begin("S", chunk_size=1024, window_size=1024)
    peer.connection.send(b"UNSUB 2\r\n")
    assert peer.take_all()[1][-1]["error"] == "no interest"


def test_receiver_that_misses_the_last_chunk_makes_the_backup_a_failure(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer, 3)
    server.workers.is_held = True
    assert peer.begin("S") == []
    peer.connection.send(b"UNSUB 2\r\n")
    server.workers.is_held = False
    server.workers.run_all()
    assert peer.take_all()[1][-1]["error"] == "no interest"


def test_backup_is_complete_when_all_chunks_are_answered(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer)
    peer.take_all()
    chunks = peer.begin("S", chunk_size=1024)
    assert chunks[-1].header == b"NATS/1.0 204\r\n\r\n"
    full = [chunk for chunk in chunks if chunk.reply]
    for chunk in [*full[:-1], full[0], full[0]]:  # an answer that comes twice counts once
        peer.acknowledge(chunk)
        assert peer.take_all()[1] == []
    peer.connection.send(b"UNSUB 2\r\n")  # a receiver that has seen the end may go
    server.advance(4)
    peer.acknowledge(full[-1])
    (completed,) = peer.take_all()[1]
    assert "error" not in completed


def test_backup_whose_chunks_are_never_answered_is_a_failure(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer)
    peer.begin("S", chunk_size=1024)
    server.advance(4)
    assert peer.take_all()[1] == []
    server.advance(2)
    _, (completed,), _ = peer.take_all()
    assert completed["error"] == "no flow response"
    assert "failed after" in server.log.texts("warn")[-1]


def test_receiver_that_comes_and_goes_often_costs_one_look_per_turn(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer)
    peer.connection.send(b"UNSUB 2\r\n")
    peer.begin("S", chunk_size=1024)
    peer.connection.send(f"SUB {CHUNKS} 2\r\nUNSUB 2\r\n".encode() * 200)
    chunks, events, _ = peer.take_all()
    assert (chunks, events) == ([], [])
    peer.connection.send(f"SUB {CHUNKS} 2\r\n".encode())
    assert peer.take_all()[0]


def test_stream_that_is_deleted_ends_its_backup(server: InProcessServer, peer: BackupPeer) -> None:
    fill(peer)
    (chunk,) = peer.begin("S", chunk_size=1024, window_size=1024)
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    peer.acknowledge(chunk)
    chunks, events, _ = peer.take_all()
    assert chunks[-1].header == b"NATS/1.0 500 the stream was deleted\r\n\r\n"
    assert events[-1]["error"] == "the stream was deleted"


def test_messages_that_come_during_a_backup_are_not_in_it(peer: BackupPeer) -> None:
    fill(peer)
    before = state(peer)
    chunks = peer.begin("S", chunk_size=1024, window_size=1024)
    peer.publish("S.new", b"later")
    data = b""
    while chunks[-1].payload:
        data += chunks[-1].payload
        if chunks[-1].reply:
            peer.acknowledge(chunks[-1])
        chunks = peer.take_all()[0]
        if len(chunks) == 2:
            data += chunks[0].payload
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    peer.upload(peer.begin_restore("S"), data)
    assert state(peer) == before


def test_too_many_backups_are_refused(peer: BackupPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 1)
    fill(peer)
    peer.begin("S", chunk_size=1024, window_size=1024)
    request = {"deliver_subject": CHUNKS}
    (answer,) = peer.ask_plain("$JS.API.STREAM.SNAPSHOT.S", request)
    assert json.loads(answer)["error"]["err_code"] == 10064


def test_window_that_the_receiver_does_not_read_is_not_filled(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer, 40, 100_000)
    peer.connection.stop_reading()
    body = json.dumps({"deliver_subject": CHUNKS}).encode()
    head = f"PUB $JS.API.STREAM.SNAPSHOT.S inbox.s {len(body)}\r\n"
    peer.connection.send(head.encode() + body + b"\r\n")
    server.advance(1)
    peer.connection.resume_reading()
    waiting = sum(len(chunk.payload) for chunk in peer.take_all()[0])
    assert waiting < 2 * snapshots.RECEIVER_BYTES_MAX


def test_backup_that_finds_damage_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the damage is found, and told of, when the server starts.
    monkeypatch.setattr(Stream, "load_ids", lambda *_: None)
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = BackupPeer(server)
    peer.create("S", max_bytes=100_000)
    payloads = [os.urandom(500) for _ in range(150)]
    for index, payload in enumerate(payloads):
        peer.publish(f"S.{index}", payload)
    assert server.engine is not None
    server.engine.begin_stop()
    server.run_until_idle()
    server.engine.close()
    after = disk.crash_keeping_unsynced()
    (path,) = (path for path in after.snapshot_tree() if path.endswith("/2.blk"))
    with after.open(f"{after.root}/{path}", writes=True) as file:
        place = file.read(0, file.size).index(payloads[80])
        file.write(bytes([payloads[80][0] ^ 1]), place)
        file.sync()
    again = BackupPeer(InProcessServer(disk=after))
    chunks = again.begin("S")
    assert chunks[-1].header.startswith(b"NATS/1.0 500 the stream is damaged")


# ---------------------------------------------------------------- restores


def test_restored_stream_survives_a_power_failure_as_soon_as_it_is_answered() -> None:
    disk = SimulatedDisk()
    peer = BackupPeer(InProcessServer(disk=disk))
    fill(peer)
    consumer = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    peer.ask_plain("$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": consumer})
    data = peer.backup("S")
    before = state(peer)
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    answer = peer.upload(peer.begin_restore("S"), data)
    assert answer["state"] == before
    again = BackupPeer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert state(again) == before
    (info,) = again.ask_plain("$JS.API.CONSUMER.INFO.S.c")
    assert json.loads(info)["num_pending"] == 30


def test_restored_stream_is_read_by_a_worker_and_writes_as_any_other(
    server: InProcessServer, peer: BackupPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(peer)
    data = peer.backup("S")
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    submit, read = server.workers.submit, StreamFolder.open
    working: list[bool] = []
    readers: list[bool] = []

    def submit_noted(work: Callable[[], object], done: Callable[..., None]) -> None:
        def noted() -> None:
            working.append(True)
            try:
                work()
            finally:
                working.pop()

        submit(noted, done)

    def read_noted(self: StreamFolder, *arguments: object, **settings: object) -> object:
        readers.append(bool(working))
        return read(self, *arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(server.workers, "submit", submit_noted)
    monkeypatch.setattr(StreamFolder, "open", read_noted)
    answer = peer.upload(peer.begin_restore("S"), data)
    assert answer["state"]["messages"] == 30
    assert readers
    assert all(readers)
    # Its files are among those that all streams share now.
    assert server.engine is not None
    assert server.engine.root is not None
    shared = open_files(server.engine.root.disk)
    before = shared.count
    peer.publish("S.more")
    assert shared.count == before + 1
    assert state(peer)["messages"] == 31


def test_power_failure_at_any_step_leaves_the_whole_stream_or_nothing() -> None:
    peer = BackupPeer(InProcessServer(disk=SimulatedDisk()))
    fill(peer, 8)
    consumer = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    peer.ask_plain("$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": consumer})
    data, whole = peer.backup("S"), state(peer)
    outcomes = set()
    for step in range(1, 200):
        disk = SimulatedDisk()
        peer = BackupPeer(InProcessServer(disk=disk))
        subject = peer.begin_restore("S")
        disk.stop_at = disk.steps + step
        try:
            peer.upload(subject, data)
        except PowerLoss:
            pass
        else:
            break
        after = disk.crash(seed=step)
        again = BackupPeer(InProcessServer(disk=after))
        found = state(again)
        assert found in ({}, whole), step
        outcomes.add(bool(found))
        assert not [path for path in after.snapshot_tree() if "__snapshots__" in path]
    else:
        raise AssertionError("it never came to its end")
    assert step > 10
    assert False in outcomes


@pytest.mark.slow
def test_restore_that_fails_anywhere_leaves_nothing_and_can_be_tried_again() -> None:
    peer = BackupPeer(InProcessServer(disk=SimulatedDisk()))
    fill(peer, 8)
    data, whole = peer.backup("S"), state(peer)
    failed = 0
    for nth in count(1):
        disk = SimulatedDisk()
        peer = BackupPeer(InProcessServer(disk=disk))
        subject = peer.begin_restore("S")
        fault = disk.fail("*", nth=nth)
        answer = peer.upload(subject, data)
        if not fault.hits:
            break
        disk.clear_faults()
        if "error" in answer:
            failed += 1
            assert state(peer) == {}, f"call {nth}: {answer}"
            later = BackupPeer(InProcessServer(disk=disk.crash_keeping_unsynced()))
            assert state(later) == {}, f"call {nth}"
            assert "error" not in peer.upload(peer.begin_restore("S"), data), f"call {nth}"
        assert state(peer) == whole
    assert failed > 30


def test_stream_takes_messages_again_after_a_restore_that_failed_by_a_fault(
    server: InProcessServer, peer: BackupPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(peer, 3)
    for number in range(restores.CONSUMERS_PER_STEP + 10):
        config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
        peer.api(f"CONSUMER.CREATE.S.c{number}", {"stream_name": "S", "config": config})
    data = peer.backup("S")
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    opened = restores.open_consumer

    def fail(*arguments: Any) -> ServerConsumer:
        if arguments[2].meta.name == f"c{restores.CONSUMERS_PER_STEP + 5}":
            raise RuntimeError("as by a bug")
        return opened(*arguments)

    server.expects_faults = True
    monkeypatch.setattr(restores, "open_consumer", fail)
    assert "error" in peer.upload(peer.begin_restore("S"), data)
    (answer,) = peer.ask_plain("S.new", b"x")
    assert json.loads(answer)["seq"] == 4
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    assert b"seq" not in b"".join(peer.ask_plain("S.new", b"x"))


def test_restore_that_stalls_leaves_nothing(server: InProcessServer, peer: BackupPeer) -> None:
    fill(peer)
    data = peer.backup("S")
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    subject = peer.begin_restore("S")
    assert peer.ask_plain(subject, data[: len(data) // 2]) == [b""]
    server.advance(6)
    assert server.engine is not None
    assert server.engine.usage.storage == 0
    assert state(peer) == {}
    ((_, header, _),) = peer.ask(subject, b"more")
    assert header.startswith(b"NATS/1.0 503")


def test_upload_that_is_slow_but_goes_on_is_not_given_up(
    server: InProcessServer, peer: BackupPeer
) -> None:
    fill(peer)
    data, before = peer.backup("S"), state(peer)
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    subject = peer.begin_restore("S")
    for start in range(0, len(data), 4000):
        server.advance(4)
        assert peer.ask_plain(subject, data[start : start + 4000]) == [b""]
    server.advance(4)
    (answer,) = peer.ask_plain(subject)
    assert json.loads(answer)["state"] == before


def test_chunk_without_reply_subject_ends_the_restore(peer: BackupPeer) -> None:
    subject = peer.begin_restore("S")
    peer.connection.send(f"PUB {subject} 1\r\nx\r\n".encode())
    assert peer.take_all()[1][-1]["type"].endswith("restore_complete")
    ((_, header, _),) = peer.ask(subject, b"more")
    assert header.startswith(b"NATS/1.0 503")


def test_chunks_that_nobody_waits_for_are_limited(
    server: InProcessServer, peer: BackupPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restores, "WAITING_BYTES_MAX", 1000)
    subject = peer.begin_restore("S")
    server.workers.is_held = True
    assert peer.ask_plain(subject, bytes(900)) == []
    (answer,) = peer.ask_plain(subject, bytes(200))
    assert "unanswered" in json.loads(answer)["error"]["description"]
    server.workers.is_held = False
    server.workers.run_all()
    assert peer.ask_plain("$JS.API.STREAM.NAMES")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: archive(END, messages=5), "5 messages are more than"),
        (lambda: archive(END, first_seq=9), "messages 9 to 1 cannot be"),
        (lambda: archive(END, first_seq=-1), "first_seq must be a whole number from 0"),
        (lambda: archive(END, last_ts="noon"), "last_ts is not a time"),
        (lambda: archive(END, last_ts="2262-04-12T00:00:00Z"), "last_ts, it is too late"),
        (lambda: archive(END, consumer_count=10**6), "more than 100000 consumers"),
        (lambda: archive(END, consumer_count=1), "it has no end marker"),
        (lambda: archive(message(1)), "it has no end marker"),
        (lambda: archive(message(0), END), "expected message sequence"),
        (lambda: archive(message(2), message(2), END), "message sequence 2 out of order"),
        (lambda: archive(message(1, b"S.a b"), END), "sequence 1 has no valid subject"),
        (lambda: archive(message(1, b"S.*"), END), "sequence 1 has no valid subject"),
        (lambda: archive(message(1 << 62), END), "out of order"),
        (lambda: archive(message(1, payload=bytes(9)), END), "exceeds maximum message size"),
        (lambda: archive(message(1), END, consumer_count=1), "expected consumer, found b'S.a'"),
        (
            lambda: archive(
                message(1, header=b"NATS/1.0\r\nNats-TTL: soon\r\n\r\n", payload=b""),
                END,
            ),
            "exceeds maximum message size",
        ),
        (lambda: s2.compress(b"neither"), "the archive is empty"),
        (lambda: s2.compress(b"neither this nor that"), "neither an archive nor a tar"),
        (lambda: b"no S2 at all", "S2 identifier"),
    ],
)
def test_archive_that_is_wrong_is_refused_and_leaves_nothing(
    server: InProcessServer, peer: BackupPeer, data: Callable[[], bytes], reason: str
) -> None:
    answer = peer.upload(peer.begin_restore("S", max_msg_size=8), data())
    assert answer["error"]["err_code"] == 10062
    assert reason in answer["error"]["description"]
    assert state(peer) == {}
    assert server.engine is not None
    assert server.engine.usage.storage == 0
    assert server.engine.root is not None
    tree = server.engine.root.disk.snapshot_tree()  # type: ignore[attr-defined]
    assert not [path for path in tree if "/snap-" in path]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"config": {}}, "is missing state"),
        ({"state": {}}, "is missing config"),
        ({"config": {}, "state": {}}, "delivered must be an object"),
        ({"config": {"ack_policy": "maybe"}, "state": {"d": 1}}, "delivered"),
        ([], "it is not a JSON object"),
    ],
)
def test_consumer_that_is_wrong_is_refused(peer: BackupPeer, document: object, reason: str) -> None:
    entry = ArchiveEntry(b"consumers/c", 0, 0, b"", json.dumps(document).encode())
    data = archive(entry, message(1), END, consumer_count=1)
    answer = peer.upload(peer.begin_restore("S"), data)
    assert reason in answer["error"]["description"]
    assert state(peer) == {}


PAIR = {"consumer_seq": 0, "stream_seq": 0}


def consumer_entry(name: str, **state: object) -> ArchiveEntry:
    document = {
        "config": {"durable_name": name, "ack_policy": "explicit"},
        "state": {"delivered": PAIR, "ack_floor": PAIR, **state},
    }
    return ArchiveEntry(f"consumers/{name}".encode(), 0, 0, b"", json.dumps(document).encode())


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([consumer_entry("a.b")], "consumer name 'a.b' "),
        ([consumer_entry("c"), consumer_entry("c")], "the backup has two consumers 'c'"),
        ([consumer_entry("c", delivered={"stream_seq": 1 << 62})], "delivered: no stream has"),
        ([consumer_entry("c", pending=[])], "pending must be an object"),
        ([consumer_entry("c", pending={"x": {}})], "pending: 'x' is not a sequence"),
        ([consumer_entry("c", pending={"1": {"Timestamp": -1}})], "the time of a pending message"),
        ([consumer_entry("c", redelivered={"1": "many"})], "redelivered must be a whole number"),
        ([ArchiveEntry(b"consumers/c", 0, 0, b"", b"{")], "consumer 'c': it is not a JSON object"),
    ],
)
def test_state_of_a_consumer_that_cannot_be_is_refused_and_leaves_nothing(
    peer: BackupPeer, entries: list[ArchiveEntry], reason: str
) -> None:
    data = archive(*entries, message(1), END, consumer_count=len(entries))
    answer = peer.upload(peer.begin_restore("S"), data)
    assert reason in answer["error"]["description"]
    assert state(peer) == {}


def test_consumer_that_this_server_would_not_make_fails_the_restore(peer: BackupPeer) -> None:
    pair = {"consumer_seq": 0, "stream_seq": 0}
    document = {
        "config": {"durable_name": "c", "ack_policy": "explicit", "backoff": [-1]},
        "state": {"delivered": pair, "ack_floor": pair},
    }
    entry = ArchiveEntry(b"consumers/c", 0, 0, b"", json.dumps(document).encode())
    data = archive(entry, message(1), END, consumer_count=1)
    answer = peer.upload(peer.begin_restore("S"), data)
    assert "failed to add consumer 'c'" in answer["error"]["description"]
    assert state(peer) == {}


def test_limit_of_consumers_holds_for_restores() -> None:
    limits = {"default_max_consumers": 2}
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True, limits=limits))
    peer = BackupPeer(InProcessServer(options, disk=SimulatedDisk()))
    peer.create("S", max_consumers=3)
    for name in ("a", "b", "c"):
        config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
        peer.ask_plain(f"$JS.API.CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    data = peer.backup("S")
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    answer = peer.upload(peer.begin_restore("S"), data)
    assert "maximum consumers limit reached" in answer["error"]["description"]
    assert state(peer) == {}
    answer = peer.upload(peer.begin_restore("S", max_consumers=3), data)
    assert answer["state"]["consumer_count"] == 3


def test_more_consumers_than_the_limit_are_opened_again() -> None:
    disk = SimulatedDisk()
    peer = BackupPeer(InProcessServer(disk=disk))
    peer.create("S")
    for name in ("a", "b", "c"):
        config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
        peer.ask_plain(f"$JS.API.CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    limits = {"default_max_consumers": 2}
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True, limits=limits))
    again = BackupPeer(InProcessServer(options, disk=disk.crash_losing_unsynced()))
    assert state(again)["consumer_count"] == 3


@pytest.mark.parametrize("claimed", [100, 10**12])
def test_storage_limit_of_the_account_holds_for_restores(claimed: int) -> None:
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True))
    server = InProcessServer(options, disk=SimulatedDisk())
    assert server.engine is not None
    tenant = server.engine.accounts["$G"]
    peer = BackupPeer(server)
    fill(peer)
    data = peer.backup("S") if claimed == 100 else archive(END, bytes=claimed, messages=0)
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    subject = peer.begin_restore("S")
    tenant.limits = type(tenant.limits)(max_storage=5000)
    answer = peer.upload(subject, data)
    assert answer["error"]["err_code"] == 10047
    assert state(peer) == {}
    assert tenant.usage.storage == 0


@pytest.mark.parametrize("claimed", [1 << 62, 1 << 63, (1 << 64) - 1])
def test_backup_that_claims_too_much_takes_no_room_from_others(
    server: InProcessServer, peer: BackupPeer, claimed: int
) -> None:
    assert server.engine is not None
    peer.create("O")
    subject = peer.begin_restore("S")
    assert peer.ask_plain(subject, archive(END, bytes=claimed, messages=0)) == [b""]
    assert server.engine.usage.storage == 0
    assert peer.ask_plain("O.a", b"x") == [b'{"stream":"O","seq":1}']
    (answer,) = peer.ask_plain(subject)
    assert json.loads(answer)["error"]["err_code"] == 10047
    used = server.engine.usage.storage
    assert used == json.loads(peer.ask_plain("$JS.API.INFO")[0])["storage"] > 0


def test_small_archive_of_large_messages_is_restored(peer: BackupPeer) -> None:
    entries = [message(seq, payload=bytes(1_000_000)) for seq in range(1, 40)]
    data = archive(*entries, END, messages=39, last_seq=39)
    assert len(data) < 400_000
    subject = peer.begin_restore("S", storage="memory")
    answer = peer.upload(subject, data, 400_000)
    assert answer["state"]["messages"] == 39


def test_expired_messages_are_left_out_and_their_sequences_kept(
    server: InProcessServer, peer: BackupPeer
) -> None:
    now_ns = server.clock.wall_ns()
    old, young = now_ns - 100 * 10**9, now_ns - 10**9
    header = b"NATS/1.0\r\nNats-TTL: 60\r\n\r\n"
    entries = [ArchiveEntry(b"S.a", time, seq, header, b"") for seq, time in ((1, old), (2, young))]
    data = archive(*entries, END, messages=2, last_seq=5)
    answer = peer.upload(peer.begin_restore("S", allow_msg_ttl=True), data)
    found = answer["state"]
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (1, 2, 5)
    server.advance(61)
    assert state(peer)["messages"] == 0


def test_ttl_that_cannot_be_read_is_refused(peer: BackupPeer) -> None:
    entry = message(1, header=b"NATS/1.0\r\nNats-TTL: soon\r\n\r\n")
    data = archive(entry, END)
    answer = peer.upload(peer.begin_restore("S", allow_msg_ttl=True), data)
    assert "failed to parse message TTL" in answer["error"]["description"]


def test_name_that_was_taken_meanwhile_is_not_overwritten(peer: BackupPeer) -> None:
    subject = peer.begin_restore("S")
    fill(peer, 2)
    answer = peer.upload(subject, archive(message(1), END))
    assert answer["error"]["err_code"] == 10130
    assert state(peer)["messages"] == 2


def test_subjects_that_were_taken_meanwhile_are_refused(peer: BackupPeer) -> None:
    subject = peer.begin_restore("S")
    peer.create("T", subjects=["S.a"])
    answer = peer.upload(subject, archive(message(1), END))
    assert answer["error"]["err_code"] == 10065
    assert state(peer) == {}


def test_restore_that_is_under_way_when_the_server_ends_leaves_nothing() -> None:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = BackupPeer(server)
    fill(peer)
    data = peer.backup("S")
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    subject = peer.begin_restore("S")
    peer.ask_plain(subject, data[:9000])
    assert server.engine is not None
    server.engine.begin_stop()
    assert not [path for path in disk.snapshot_tree() if "/snap-" in path]


def test_restored_ids_are_known_again(peer: BackupPeer) -> None:
    fill(peer, 0)
    body = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    line = f"HPUB S.a inbox.p {len(body)} {len(body)}\r\n".encode() + body + b"\r\n"
    peer.connection.send(line)
    data = peer.backup("S")
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    peer.upload(peer.begin_restore("S"), data)
    peer.connection.take()
    peer.connection.send(line)
    (answer,) = peer.take_all()[2]
    assert json.loads(answer)["duplicate"] is True


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_limits_take_nothing_for_messages_that_were_deleted(peer: BackupPeer, storage: str) -> None:
    peer.create("S", max_msgs=3, storage=storage)
    for _ in range(4):
        peer.publish("S.a")
    peer.ask_plain("$JS.API.STREAM.MSG.DELETE.S", {"seq": 4})
    peer.publish("S.a")
    peer.ask_plain("$JS.API.STREAM.MSG.DELETE.S", {"seq": 5})
    data, before = peer.backup("S"), state(peer)
    assert (before["messages"], before["last_seq"]) == (2, 5)
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    answer = peer.upload(peer.begin_restore("S", max_msgs=2, storage=storage), data)
    assert answer["state"] == before


@pytest.mark.parametrize("way", ["restart", "backup"])
def test_consumer_of_new_messages_that_has_delivered_nothing_misses_nothing(way: str) -> None:
    disk = SimulatedDisk()
    peer = BackupPeer(InProcessServer(disk=disk))
    peer.create("S")
    config = {"durable_name": "c", "ack_policy": "explicit", "deliver_policy": "new"}
    peer.ask_plain("$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    for _ in range(5):
        peer.publish("S.a")
    if way == "backup":
        data = peer.backup("S")
        peer.ask_plain("$JS.API.STREAM.DELETE.S")
        peer.upload(peer.begin_restore("S"), data)
    else:
        peer = BackupPeer(InProcessServer(disk=disk.crash_losing_unsynced()))
    (info,) = peer.ask_plain("$JS.API.CONSUMER.INFO.S.c")
    assert json.loads(info)["num_pending"] == 5


@pytest.mark.slow
def test_messages_of_an_archive_are_counted_before_they_are_written(
    server: InProcessServer, peer: BackupPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = note_writes(monkeypatch)
    limited(server, 1_000_000)
    entries = [message(number, payload=bytes(900_000)) for number in range(1, 100)]
    data = archive(*entries, END, messages=99, last_seq=99)
    answer = peer.upload(peer.begin_restore("S"), data, 500_000)
    assert answer["error"]["err_code"] == 10047
    assert sum(written.values()) < 1_000_000
