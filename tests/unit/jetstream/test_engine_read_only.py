"""A disk that takes no changes, in one process: every way to read goes on, at once and later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.server.jetstream.unchanged_disk import ServedDisk
from tradewind.store.files.disk import DiskError, OsDisk
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

COUNT = 60
PAYLOAD = b"y" * 3000
READ_ONLY = ServerOptions(
    server_name="in-process", jetstream=JetStreamOptions(enabled=True, read_only=True)
)


def fill(peer: Peer) -> None:
    """Several blocks, and a bucket."""
    assert "error" not in peer.create("S", max_bytes=1_000_000, allow_direct=True)
    for number in range(COUNT):
        assert peer.publish(f"S.{number % 7}", b"%03d" % number + PAYLOAD) is not None
    peer.create("KV_b", subjects=["$KV.b.>"], max_msgs_per_subject=1, allow_direct=True)
    for key in range(5):
        peer.publish(f"$KV.b.{key}", b"value")
    consumer(peer, "kept", durable_name="kept")


def consumer(peer: Peer, name: str, **config: Any) -> dict[str, Any]:
    body = {"stream_name": "S", "config": {"name": name, "ack_policy": "explicit", **config}}
    return peer.api(f"CONSUMER.CREATE.S.{name}", body)


def close(server: InProcessServer) -> None:
    assert server.engine is not None
    server.engine.begin_stop()
    server.run_until_idle()
    server.engine.close()


def check_reads(peer: Peer, unseen: int) -> None:
    """`unseen`: subjects whose only message was refused; they are counted."""
    for seq in (1, COUNT // 2, COUNT):
        assert "message" in peer.api("STREAM.MSG.GET.S", {"seq": seq})
    [(_, header, body)] = peer.ask("$JS.API.DIRECT.GET.KV_b.$KV.b.3")
    assert (b"Nats-Sequence: 4" in header, body) == (True, b"value")
    # The newest of each subject, as a watch wants them.
    newest = {"deliver_policy": "last_per_subject", "filter_subjects": ["S.>"]}
    watched = consumer(peer, "watch", mem_storage=True, **newest)
    assert watched["num_pending"] == 7 + unseen
    assert len(peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.watch", {"batch": 7})) == 7
    assert len(peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.kept", {"batch": 10})) == 10
    # One that need not outlive the server.
    assert consumer(peer, "short")["config"]["mem_storage"] is True
    assert len(peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.short", {"batch": 4})) == 4
    peer.connection.send(b"SUB deliver 9\r\n")
    push = {"name": "push", "deliver_subject": "deliver", "mem_storage": True, "ack_policy": "none"}
    body = {"stream_name": "S", "config": push}
    given = peer.ask("$JS.API.CONSUMER.CREATE.S.push", body)
    assert sum(subject.startswith("S.") for subject, _, _ in given) == COUNT
    state = peer.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
    assert len(state["subjects"]) == 7 + unseen
    for name in ("watch", "short", "push"):
        assert peer.api(f"CONSUMER.DELETE.S.{name}")["success"] is True


@pytest.mark.parametrize("publishes_first", [False, True])
def test_every_way_to_read_goes_on_when_the_disk_takes_no_changes(publishes_first: bool) -> None:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    fill(Peer(server))
    close(server)
    # From here on no block has been read, and none is open.
    server = InProcessServer(disk=disk.crash_keeping_unsynced())
    peer = Peer(server)
    again = server.engine.root.disk if server.engine and server.engine.root else disk
    assert isinstance(again, SimulatedDisk)
    again.is_read_only = True
    if publishes_first:
        refused = peer.publish("S.x")
        assert refused is not None
        assert "Read-only file system" in refused["error"]["description"]
    check_reads(peer, int(publishes_first))
    for request, body in (
        ("STREAM.DELETE.S", b""),
        ("CONSUMER.DELETE.S.kept", b""),
        ("STREAM.CREATE.N", {"name": "N", "subjects": ["n"]}),
        ("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "max_bytes": 2_000_000}),
    ):
        text = peer.api(request, body)["error"]["description"]
        assert "Read-only file system" in text, (request, text)
    check_reads(peer, int(publishes_first))
    before = again.snapshot_tree()
    close(server)
    assert again.snapshot_tree() == before


def test_start_on_a_disk_that_takes_no_changes_says_so() -> None:
    disk = SimulatedDisk()
    disk.is_read_only = True
    with pytest.raises(DiskError, match="Read-only file system"):
        InProcessServer(disk=disk)


@pytest.mark.parametrize("damage", ["none", "cut", "flipped"])
def test_store_is_served_in_memory_whatever_a_start_would_repair(
    tmp_path: Path, damage: str
) -> None:
    server = InProcessServer(disk=OsDisk(str(tmp_path)))
    fill(Peer(server))
    if damage == "none":
        close(server)
    assert server.engine is not None
    assert server.engine.root is not None
    server.engine.root.close()
    block = tmp_path / "jetstream/$G/streams/S/msgs/1.blk"
    content = bytearray(block.read_bytes())
    if damage == "cut":
        block.write_bytes(content[:-10])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        block.write_bytes(content)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    served = InProcessServer(READ_ONLY, disk=ServedDisk(str(tmp_path)))
    peer = Peer(served)
    first = peer.api("STREAM.INFO.S")["state"]
    assert COUNT - 1 <= first["messages"] <= COUNT
    assert len(peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.kept", {"batch": 10})) == 10
    answer = peer.publish("S.new")
    assert answer is not None
    assert "read_only" in answer["error"]["description"]
    [(_, _, body)] = peer.ask("$TW.API.STREAM.TRUNCATE.S", {"subjects": ["S.1"]})
    assert json.loads(body)["error"]["err_code"] == 20501
    served.advance(30.0)
    assert peer.api("STREAM.INFO.S")["state"] == first
    assert not [text for text in served.log.texts("error") if "takes no messages" in text]
    close(served)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nothing_happens_by_itself_in_a_store_that_is_served(tmp_path: Path) -> None:
    """Messages do not expire, schedules do not run, and unused durable consumers stay."""
    server = InProcessServer(disk=OsDisk(str(tmp_path)))
    peer = Peer(server)
    peer.create("S", max_age=2_000_000_000, allow_msg_schedules=True)
    peer.publish("S.a")
    header = b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Target: S.t\r\n\r\n"
    peer.connection.send(b"HPUB S.every inbox.a %d %d\r\n" % (len(header), len(header)))
    peer.connection.send(header + b"\r\n")
    assert b'"seq":2' in peer.take()[0][2]
    consumer(peer, "unused", durable_name="unused", inactive_threshold=1_000_000_000)
    close(server)
    assert server.engine is not None
    assert server.engine.root is not None
    server.engine.root.close()
    served = InProcessServer(READ_ONLY, disk=ServedDisk(str(tmp_path)))
    served.advance(60.0)
    peer = Peer(served)
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 2
    assert "error" not in peer.api("CONSUMER.INFO.S.unused")
    assert served.log.texts("error") == []
