"""A disk that hinders one stream: its clients stay, others do not notice, and it goes on later."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.store.format.layout import record_bytes
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

FOR_EVER = 1 << 30
LARGE = bytes(900_000)


def started(**options: Any) -> tuple[SimulatedDisk, InProcessServer, Peer]:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk, **options)
    return disk, server, Peer(server)


def consumer(peer: Peer, stream: str, name: str = "c", **config: Any) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", **config}
    answer = peer.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    assert "error" not in answer, answer


def pull(peer: Peer, consumer_name: str, **request: Any) -> list[tuple[str, bytes, bytes]]:
    return peer.ask(f"$JS.API.CONSUMER.MSG.NEXT.{consumer_name}", {"batch": 10, **request})


def refuse_writes(disk: SimulatedDisk, peer: Peer, error: int) -> None:
    """Let the stream S notice that its disk takes nothing."""
    disk.fail("write", "*/S/msgs/*.blk", error=error, times=FOR_EVER)
    answer = peer.publish("S.a", b"refused")
    assert answer is not None
    assert answer["error"]["err_code"] == 10077


def give_room(disk: SimulatedDisk, server: InProcessServer) -> None:
    disk.clear_faults()
    for _ in range(3):
        server.advance(1.0)
        server.syncer.tick(server.clock.monotonic_ns())
        server.run_until_idle()


def state(peer: Peer, stream: str = "S") -> dict[str, Any]:
    found: dict[str, Any] = peer.api(f"STREAM.INFO.{stream}")["state"]
    return found


# ---------------------------------------------------------------- removals that are refused


def test_acknowledgement_counts_though_a_full_disk_keeps_the_message() -> None:
    disk, server, peer = started()
    peer.create("S", retention="workqueue")
    consumer(peer, "S")
    for _ in range(3):
        peer.publish("S.a")
    assert len(pull(peer, "S.c", batch=3, no_wait=True)) == 3
    refuse_writes(disk, peer, errno.ENOSPC)
    assert peer.ask("$JS.ACK.S.c.1.2.2.1.0", b"+ACK")[0][2] == b""
    assert peer.connection.is_open
    assert peer.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 2
    assert state(peer)["messages"] == 4
    give_room(disk, server)
    assert [m["seq"] for m in messages(peer)] == [1, 3, 4]
    _, again = restarted(disk)
    assert [m["seq"] for m in messages(again)] == [1, 3, 4]


def messages(peer: Peer) -> list[dict[str, Any]]:
    answers = [peer.api("STREAM.MSG.GET.S", {"seq": seq}) for seq in range(1, 10)]
    return [answer["message"] for answer in answers if "message" in answer]


def restarted(disk: SimulatedDisk) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=disk.crash_losing_unsynced())
    return server, Peer(server)


def test_message_that_another_consumer_needs_stays_when_there_is_room_again() -> None:
    disk, server, peer = started()
    peer.create("S", retention="interest")
    consumer(peer, "S", "c")
    consumer(peer, "S", "d")
    for _ in range(2):
        peer.publish("S.a")
    for name in "cd":
        assert len(pull(peer, f"S.{name}", batch=2, no_wait=True)) == 2
    refuse_writes(disk, peer, errno.ENOSPC)
    for subject in ("c.1.1.1.1.0", "d.1.1.1.1.0", "c.1.2.2.1.0"):
        assert peer.ask(f"$JS.ACK.S.{subject}", b"+ACK")[0][2] == b""
    give_room(disk, server)
    assert [m["seq"] for m in messages(peer)] == [2, 3]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_consumer_of_a_stream_that_takes_no_changes_is_deleted(error: int) -> None:
    disk, server, peer = started()
    peer.create("S", retention="interest")
    consumer(peer, "S")
    peer.publish("S.a")
    refuse_writes(disk, peer, error)
    assert peer.api("CONSUMER.DELETE.S.c")["success"]
    assert state(peer)["messages"] == 2
    give_room(disk, server)
    assert state(peer)["messages"] == (0 if error == errno.ENOSPC else 2)


def test_message_that_a_full_disk_refused_after_it_was_stored_is_not_stored_again() -> None:
    """It fits into its block, but what says that it replaces another one does not."""
    disk, server, peer = started()
    peer.create("S", max_msgs_per_subject=1)
    assert server.engine is not None
    store = server.engine.accounts["$G"].streams["S"].stream.store
    peer.publish("S.x", b"old")
    while store.block_bytes_max - store.last.size > 950_000:
        peer.publish(f"S.{store.last_seq}", LARGE)
    header = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    room = store.block_bytes_max - store.last.size - record_bytes(3, len(header), 0)
    sizes = f"{len(header)} {len(header) + room}"
    publish = f"HPUB S.x inbox.h {sizes}\r\n".encode() + header + bytes(room) + b"\r\n"
    disk.fail("create", "*/S/msgs/2.blk", error=errno.ENOSPC, times=FOR_EVER)
    peer.connection.send(publish)
    assert b'"err_code":10077' in peer.take()[0][2]
    stored = store.last_seq
    give_room(disk, server)
    peer.connection.send(publish)
    expected = b'{"stream":"S","seq":%d,"duplicate": true}' % stored
    assert [payload for _, _, payload in peer.take()] == [expected]


# ---------------------------------------------------------------- reads that fail


def unreadable(*streams: str) -> tuple[SimulatedDisk, InProcessServer, Peer]:
    """Streams of two blocks each, the first of which cannot be read in S."""
    disk, server, peer = started()
    for name in streams:
        peer.create(name)
        consumer(peer, name)
        for _ in range(10):
            peer.publish(f"{name}.a", LARGE)
    assert server.engine is not None
    for hosted in server.engine.hosted_streams():
        for block in hosted.stream.store.blocks:
            block.release()
    disk.fail("map", "*/S/msgs/1.blk", error=errno.EMFILE, times=FOR_EVER)
    peer.take()
    return disk, server, peer


def test_consumers_of_the_same_turn_get_their_messages_though_one_cannot_read() -> None:
    _, server, peer = unreadable("R", "S", "T")
    request = b'{"batch":1,"expires":900000000}'
    peer.connection.send(
        b"".join(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.%s.c inbox.%s %d\r\n%s\r\n"
            % (name, name, len(request), request)
            for name in (b"R", b"S", b"T")
        )
    )
    assert [subject for subject, _, _ in peer.take()] == ["R.a", "T.a"]
    lines = [line for line in server.log.texts("error") if "'$G > S'" in line]
    assert len(lines) == 1
    assert "1.blk: map failed" in lines[0]


def test_request_to_a_consumer_that_cannot_read_ends_in_time() -> None:
    _, server, peer = unreadable("S")
    assert pull(peer, "S.c", expires=500_000_000) == []
    server.advance(0.6)
    (answer,) = peer.take()
    assert answer[1].startswith(b"NATS/1.0 408 Request Timeout")
    server.advance(5.0)
    assert len([line for line in server.log.texts("error") if "map failed" in line]) == 1


def test_consumer_goes_on_when_it_can_read_again() -> None:
    disk, server, peer = unreadable("S")
    assert pull(peer, "S.c", batch=3, expires=10_000_000_000) == []
    disk.clear_faults()
    server.advance(1.1)
    assert [subject for subject, _, _ in peer.take()] == ["S.a"] * 3


def test_messages_that_cannot_expire_do_not_stop_the_clocks_of_others() -> None:
    disk, server, peer = started()
    peer.create("S", max_age=2_000_000_000)
    peer.create("T")
    consumer(peer, "T", ack_wait=2_000_000_000)
    peer.publish("T.a")
    for _ in range(9):
        peer.publish("S.a", LARGE)
    assert server.engine is not None
    store = server.engine.accounts["$G"].streams["S"].stream.store
    assert len(pull(peer, "T.c", batch=1, no_wait=True)) == 1
    for block in store.blocks:
        block.release()
    fault = disk.fail("map", "*/S/msgs/1.blk", error=errno.EIO, times=FOR_EVER)
    assert pull(peer, "T.c", expires=10_000_000_000) == []
    server.advance(2.5)
    assert fault.hits
    assert [subject for subject, _, _ in peer.take()] == ["T.a"]
    assert state(peer)["messages"] == 9
    disk.clear_faults()
    server.advance(1.5)
    peer.take()
    assert state(peer)["messages"] == 0
