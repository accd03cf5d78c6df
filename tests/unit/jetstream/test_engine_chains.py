"""Tamper-proof streams in a server: metadata, entries for all that happens, checkpoints, proofs."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from backup_kit import BackupPeer
from engine_kit import Peer

from chain_kit import root_of
from tradewind.chain import checkpoints, merkle
from tradewind.chain.chain_entries import (
    KINDS,
    MESSAGE,
    REASONS,
    ChainRecord,
    decode_removal,
    digest_of,
    first_link,
    link_of,
    message_body,
    read_records,
)
from tradewind.chain.checkpoints import Checkpoint
from tradewind.monitor.health import HealthRegistry
from tradewind.monitor.jsz import JetStreamMonitor
from tradewind.monitor.page_options import HealthzOptions, JszOptions
from tradewind.monitor.stepping import at_once
from tradewind.store.table.chain_links import ChainLinks
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

SECOND = 1_000_000_000
CHAIN = {"tradewind.chain": "sha256"}
LINKS = "jetstream/$G/streams/S/chain/0000000000000000.links"


class ChainWorld:
    """A server with the chained stream S."""

    def __init__(
        self, disk: SimulatedDisk | None = None, metadata: dict[str, str] = CHAIN, **config: Any
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.server = InProcessServer(disk=self.disk)
        self.peer = Peer(self.server)
        self.answer: dict[str, Any] = {}
        if disk is None:
            self.answer = self.peer.create("S", metadata=metadata, **config)

    def stop(self) -> None:
        """The server ends in order."""
        server = self.server
        server.engine.begin_stop()
        server.run_until_idle()
        server.syncer.begin_drain(server.clock.monotonic_ns())
        server.syncer.run_all()
        server.engine.close()
        assert server.engine.root is not None
        server.engine.root.close()

    def own(self, name: str, body: dict[str, Any] | None = None, stream: str = "S") -> Any:
        answers = self.peer.ask(f"$TW.API.STREAM.{name}.{stream}", body or b"")
        (answer,) = [json.loads(data) for subject, _, data in answers if "inbox" in subject]
        return answer

    def chain(self, name: str, **body: Any) -> Any:
        return self.own(f"CHAIN.{name}", body)

    def fill(self, count: int = 5, first: int = 0) -> None:
        for number in range(first, first + count):
            assert "error" not in (self.peer.publish(f"S.{number % 3}", b"%d" % number) or {})

    def records(self) -> tuple[bytes, list[ChainRecord]]:
        """All that the API gives, page by page."""
        found: list[ChainRecord] = []
        first = b""
        while True:
            page = self.chain("ENTRIES", index=len(found), count=7)
            first = first or bytes.fromhex(page["before"])
            data = base64.b64decode(page["records"])
            if not data:
                assert page["size"] == len(found)
                return first, found
            records, end = read_records(data)
            assert end == len(data)
            assert len(records) <= 7
            if found:
                assert page["before"] == found[-1].link.hex()
            found += records

    def verify(self, algorithm: str = "sha256") -> list[str]:
        """Assert that the entries explain the messages; gives what they are."""
        digest = digest_of(algorithm)
        link, records = self.records()
        info = self.peer.api("STREAM.INFO.S")
        assert link == first_link(digest, "S", info["created"])
        names, live = [], set()
        for record in records:
            body = record.body
            if record.kind == MESSAGE:
                names.append(f"message {record.sequence}")
                live.add(record.sequence)
                body = self.body(record.sequence)
            else:
                removal = decode_removal(body)
                names.append(f"{KINDS[record.kind]} {REASONS[removal.reason]} {removal.ranges}")
                for low, high in removal.ranges:
                    touched = set(range(low, high + 1))
                    live = live - touched if KINDS[record.kind] == "removal" else live | touched
            if body:
                assert link_of(digest, link, record.kind, body) == record.link
            link = record.link
        state = info["state"]
        stored = {seq for seq in range(state["first_seq"], state["last_seq"] + 1) if self.body(seq)}
        assert live == stored
        chain = self.chain("INFO")
        assert (chain["size"], chain["link"]) == (len(records), link.hex())
        return names

    def body(self, seq: int) -> bytes:
        server = self.server.engine.accounts["$G"].streams["S"].stream.store
        if not server.is_live(seq):
            return b""
        copy = server.get(seq)
        return message_body(seq, copy.timestamp_ns, copy.subject, copy.header, copy.payload)

    def checkpoint(self) -> Checkpoint:
        answer = self.chain("CHECKPOINT")
        point = checkpoints.decode(json.dumps(answer["checkpoint"], separators=(",", ":")).encode())
        assert checkpoints.is_signed(point)
        return point

    def links(self) -> list[bytes]:
        return [record.link for record in self.records()[1]]


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"tradewind.chain": "md5"}, 'tradewind.chain: "sha256" or "blake3", not \'md5\''),
        ({"tradewind.chain": ""}, 'tradewind.chain: "sha256" or "blake3", not \'\''),
        ({"tradewind.chain.messages": "5"}, "requires tradewind.chain"),
        (CHAIN | {"tradewind.chain.messages": "0"}, "a number from 1 to 10000000, not '0'"),
        (CHAIN | {"tradewind.chain.messages": "10000001"}, "a number from 1 to 10000000"),
        (CHAIN | {"tradewind.chain.messages": "9" * 5000}, "a number from 1 to 10000000"),
        (CHAIN | {"tradewind.chain.seconds": "86401"}, "a number from 1 to 86400, not '86401'"),
        (CHAIN | {"tradewind.chain.seconds": "-1"}, "a number from 1 to 86400, not '-1'"),
        (CHAIN | {"tradewind.chain.seconds": "1s"}, "a number from 1 to 86400, not '1s'"),
        (CHAIN | {"tradewind.chain.minutes": "1"}, "tradewind.chain.minutes: unknown key"),
    ],
)
def test_metadata_that_cannot_be_are_refused_with_what_would_be_right(
    metadata: dict[str, str], text: str
) -> None:
    error = ChainWorld(metadata=metadata).answer["error"]
    assert error["err_code"] == 20202
    assert text in error["description"]


def test_keys_that_only_begin_alike_are_not_ours() -> None:
    world = ChainWorld(metadata={"tradewind.chains": "x"})
    assert "error" not in world.answer
    assert world.chain("INFO")["error"]["err_code"] == 20201


def test_chain_of_a_stream_in_memory_is_refused() -> None:
    error = ChainWorld(storage="memory").answer["error"]
    assert error["description"] == (
        "stream metadata tradewind.chain: only for streams with file storage"
    )


def update(world: ChainWorld, metadata: dict[str, str]) -> str:
    body = {"name": "S", "subjects": ["S.>"], "metadata": metadata}
    answer = world.peer.api("STREAM.UPDATE.S", body)
    return str(answer.get("error", {}).get("description", ""))


def test_chain_is_added_to_a_stream_without_messages_only() -> None:
    world = ChainWorld(metadata={})
    assert update(world, CHAIN) == ""
    world.fill()
    assert world.verify() == [f"message {seq}" for seq in range(1, 6)]
    late = ChainWorld(metadata={})
    late.fill()
    assert "only while the stream has no messages" in update(late, CHAIN)
    late.peer.api("STREAM.PURGE.S")
    assert update(late, CHAIN) == ""
    late.fill()
    assert late.verify() == [f"message {seq}" for seq in range(6, 11)]


def test_chain_with_entries_is_neither_removed_nor_changed_but_its_times_are() -> None:
    world = ChainWorld()
    assert update(world, {"tradewind.chain": "blake3"}) == ""
    assert update(world, CHAIN) == ""
    world.fill()
    for metadata in ({}, {"tradewind.chain": "blake3"}):
        assert "cannot be changed or removed" in update(world, metadata)
    world.peer.api("STREAM.PURGE.S")
    assert "cannot be changed or removed" in update(world, {})
    assert update(world, CHAIN | {"tradewind.chain.messages": "3"}) == ""
    world.fill(3)
    assert world.chain("INFO")["checkpoint"]["size"] == 9


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
def test_all_that_happens_has_its_entry_in_the_order_in_which_it_happened(algorithm: str) -> None:
    world = ChainWorld(metadata={"tradewind.chain": algorithm}, max_msgs_per_subject=3)
    world.fill(6)
    world.peer.api("STREAM.MSG.DELETE.S", {"seq": 2})
    world.peer.api("STREAM.PURGE.S", {"filter": "S.0"})
    world.fill(1, first=5)
    world.fill(2, first=2)
    world.own("TRUNCATE", {"newest": 1})
    world.peer.api("STREAM.PURGE.S")
    world.fill(1)
    assert world.verify(algorithm) == [
        *(f"message {seq}" for seq in range(1, 7)),
        "removal deleted ((2, 2),)",
        "removal purged ((1, 1), (4, 4))",
        "message 7",
        "message 8",
        "removal expired ((3, 3),)",
        "message 9",
        "removal purged ((9, 9),)",
        "removal purged ((5, 9),)",
        "message 10",
    ]


def test_acknowledged_message_of_a_work_queue_leaves_its_entry() -> None:
    world = ChainWorld(retention="workqueue")
    config = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    world.peer.api("CONSUMER.DURABLE.CREATE.S.C", config)
    world.fill(2)
    world.peer.connection.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C inbox.n 0\r\n\r\n")
    text = world.peer.connection.take().decode()
    reply = next(word for word in text.split() if word.startswith("$JS.ACK"))
    world.peer.connection.send(f"PUB {reply} 0\r\n\r\n".encode())
    assert world.verify()[-1] == "removal acknowledged ((1, 1),)"


def test_checkpoint_that_is_asked_for_covers_all_and_is_signed() -> None:
    world = ChainWorld()
    assert world.chain("CHECKPOINT").get("checkpoint") is None
    world.fill()
    world.peer.api("STREAM.MSG.DELETE.S", {"seq": 5})
    point = world.checkpoint()
    links = world.links()
    assert (point.size, point.first_seq, point.last_seq, point.messages) == (6, 1, 5, 4)
    assert point.root == root_of(digest_of("sha256"), links).hex()
    assert world.checkpoint() == point, "nothing is new"
    info = world.chain("INFO")
    assert info["key"] == point.key
    assert info["checkpoint"]["signature"] == point.signature
    world.fill()
    assert world.checkpoint().previous == checkpoints.digest(checkpoints.encode(point))


def test_checkpoints_come_after_so_many_entries_and_after_so_long() -> None:
    world = ChainWorld(
        metadata=CHAIN | {"tradewind.chain.messages": "4", "tradewind.chain.seconds": "10"}
    )
    world.fill(3)
    assert world.chain("INFO").get("checkpoint") is None
    world.fill(1)
    assert world.chain("INFO")["checkpoint"]["size"] == 4
    world.fill(1)
    world.server.advance(9.0)
    assert world.chain("INFO")["checkpoint"]["size"] == 4
    world.server.advance(2.0)
    assert world.chain("INFO")["checkpoint"]["size"] == 5
    world.server.advance(100.0)
    assert world.chain("INFO")["checkpoint"]["size"] == 5


def test_every_message_and_every_head_is_proved() -> None:
    world = ChainWorld()
    world.fill(13)
    size, links = world.checkpoint().size, world.links()
    digest = digest_of("sha256")
    for index in range(size):
        found = world.chain("PROOF", index=index)
        path = [bytes.fromhex(node) for node in found["path"]]
        root = bytes.fromhex(found["root"])
        assert found["link"] == links[index].hex()
        assert merkle.is_included(digest, index, size, links[index], path, root)
        assert world.chain("PROOF", seq=index + 1)["index"] == index
    for first_size in range(1, size + 1):
        found = world.chain("PROOF", first_size=first_size, size=size)
        assert merkle.is_consistent(
            digest,
            first_size,
            size,
            root_of(digest, links[:first_size]),
            root_of(digest, links),
            [bytes.fromhex(node) for node in found.get("path", ())],
        )


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("PROOF", {"size": 1}, "specify exactly one of seq, index and first_size"),
        ("PROOF", {"seq": 1, "index": 1}, "specify exactly one of"),
        ("PROOF", {"index": 5}, "index must be from 0 to 4, not 5"),
        ("PROOF", {"index": 2**64 - 1}, "index must be from 0 to 4"),
        ("PROOF", {"index": 0, "size": 6}, "size must be from 1 to 5 entries, not 6"),
        ("PROOF", {"first_size": 4, "size": 3}, "first_size must be from 1 to 3, not 4"),
        ("PROOF", {"seq": 77}, "seq: there is no entry of message 77"),
        ("ENTRIES", {"index": 6}, "index must be from 0 to 5, not 6"),
        ("ENTRIES", {"count": 10001}, "count must be at most 10000, not 10001"),
    ],
)
def test_requests_that_cannot_be_answered_say_why(
    name: str, body: dict[str, Any], text: str
) -> None:
    world = ChainWorld()
    world.fill()
    error = world.chain(name, **body)["error"]
    assert error["err_code"] == 20203
    assert text in error["description"]


def test_streams_without_a_chain_say_so() -> None:
    world = ChainWorld(metadata={})
    for name in ("INFO", "CHECKPOINT", "ENTRIES"):
        assert world.chain(name)["error"]["err_code"] == 20201
    assert world.own("CHAIN.INFO", stream="NONE")["error"]["err_code"] == 10059


def test_chain_goes_on_after_a_restart_and_after_a_power_failure() -> None:
    world = ChainWorld()
    world.fill()
    point = world.checkpoint()
    world.fill()
    links = world.links()
    world.stop()
    again = ChainWorld(world.disk)
    again.fill()
    assert again.links()[:10] == links
    crashed = ChainWorld(again.disk.crash_losing_unsynced())
    crashed.fill(1)
    assert len(crashed.verify()) == 16
    assert crashed.links()[:10] == links
    assert crashed.checkpoint().previous == checkpoints.digest(checkpoints.encode(point))
    assert crashed.chain("INFO")["key"] == point.key


def changed_link(world: ChainWorld, offset: int) -> SimulatedDisk:
    """The disk after somebody has changed a byte of the links while the server was stopped."""
    world.stop()
    disk = world.disk.crash_keeping_unsynced()
    path = f"{disk.root}/{LINKS}"
    content = bytearray(disk.read_file(path))
    content[offset] ^= 1
    disk.put_durable_file(path, bytes(content))
    return disk


def test_changed_link_breaks_the_chain_for_good_and_the_stream_goes_on() -> None:
    world = ChainWorld()
    world.fill()
    world = ChainWorld(changed_link(world, 64 + 2 * 41 + 20))
    for _ in range(2):
        info = world.chain("INFO")
        assert info["is_broken"] is True
        assert info["broken_index"] == 2
        assert "message 3 is not the one that was chained" in info["broken_reason"]
        world.fill(2)
        world.checkpoint()
        world.stop()
        world = ChainWorld(world.disk)


def test_broken_chain_is_told_to_whoever_listens_and_is_a_warning_of_the_health_check() -> None:
    world = ChainWorld()
    world.fill()
    world = ChainWorld(changed_link(world, 64 + 20))
    listener = Peer(world.server, inbox="$TW.EVENT.ADVISORY")
    world.fill(1)
    world.checkpoint()
    ((subject, _, data),) = listener.take()
    assert subject == "$TW.EVENT.ADVISORY.STREAM.CHAIN_BROKEN.S"
    event = json.loads(data)
    assert (event["stream"], event["index"]) == ("S", 0)
    monitor = JetStreamMonitor(world.server.engine)
    registry = HealthRegistry()
    registry.add(monitor.health)
    status, health = registry.report(HealthzOptions())
    assert (status, health.status) == (200, "ok")
    assert "the chain is broken at entry 0" in (health.error or "")
    assert [one["stream"] for one in at_once(monitor.jsz(JszOptions()))["problems"]] == ["S"]


def test_chain_that_is_gone_is_noticed() -> None:
    world = ChainWorld()
    world.fill()
    world.stop()
    world.disk.remove_tree(f"{world.disk.root}/jetstream/$G/streams/S/chain")
    again = ChainWorld(world.disk)
    info = again.chain("INFO")
    assert info["is_broken"] is True
    assert "is missing" in info["broken_reason"]


def test_undo_says_what_is_back() -> None:
    world = ChainWorld()
    world.fill(6)
    world.own("TRUNCATE", {"newest": 3, "keep_for": 3600 * SECOND})
    world.own("UNDO")
    assert world.verify()[-2:] == ["removal purged ((4, 6),)", "return purged ((4, 6),)"]
    world.stop()
    assert len(ChainWorld(world.disk).verify()) == 8


def test_undo_that_pushes_out_other_messages_says_so() -> None:
    world = ChainWorld(max_msgs=6)
    world.fill(6)
    world.own("TRUNCATE", {"newest": 3, "keep_for": 3600 * SECOND})
    world.fill(2)
    world.own("UNDO")
    assert world.verify()[-4:] == [
        "message 7",
        "message 8",
        "return purged ((4, 6),)",
        "removal expired ((1, 2),)",
    ]


def test_undo_that_fails_removes_nothing_from_the_chain() -> None:
    world = ChainWorld(max_msgs=6)
    world.fill(6)
    world.own("TRUNCATE", {"newest": 3, "keep_for": 3600 * SECOND})
    world.fill(2)
    before = world.verify()
    fault = world.disk.fail("rename", "*/snap-*/msgs")
    assert "the messages are not restored" in world.own("UNDO")["error"]["description"]
    assert fault.hits
    assert world.verify() == before
    world.stop()
    again = ChainWorld(world.disk)
    assert again.verify() == before
    again.own("UNDO")
    assert again.verify()[-2:] == ["return purged ((4, 6),)", "removal expired ((1, 2),)"]


def test_restored_backup_begins_a_chain_of_its_own() -> None:
    world = ChainWorld()
    world.fill(6)
    world.peer.api("STREAM.MSG.DELETE.S", {"seq": 2})
    peer = BackupPeer(world.server)
    archive = peer.backup("S")
    world.peer.take()
    world.peer.api("STREAM.DELETE.S")
    answer = peer.upload(peer.begin_restore("S", metadata=CHAIN), archive)
    assert "error" not in answer, answer
    world.peer.take()
    assert world.verify() == [f"message {seq}" for seq in (1, 3, 4, 5, 6)]
    assert world.chain("INFO")["is_broken"] is False
    world.stop()
    assert ChainWorld(world.disk).chain("INFO")["is_broken"] is False


def test_full_disk_at_the_links_promises_nothing_and_the_stream_goes_on_with_room() -> None:
    world = ChainWorld()
    world.peer.create("T")
    world.fill()
    fault = world.disk.fail("write", "*.links", error=28, times=1000)
    answer = world.peer.publish("S.1", b"refused")
    assert fault.hits
    assert answer is not None
    assert answer["error"]["err_code"] == 10077
    assert "error" not in (world.peer.publish("T.1") or {"error": ""})
    assert "error" in world.chain("CHECKPOINT")
    world.disk.clear_faults()
    world.server.advance(10.0)
    world.server.syncer.tick(world.server.clock.monotonic_ns())
    world.server.run_until_idle()
    world.fill(2)
    assert world.chain("INFO")["is_broken"] is False
    assert len(world.verify()) == 8


def test_failing_sync_of_the_links_makes_the_stream_read_only_and_no_other() -> None:
    world = ChainWorld()
    world.peer.create("T")
    world.fill()
    world.disk.fail("sync", "*.links", error=5)
    answer = world.peer.publish("S.1", b"refused")
    assert answer is not None
    assert answer["error"]["err_code"] == 10077
    assert "error" not in (world.peer.publish("T.1") or {"error": ""})
    assert world.chain("INFO")["size"] == 5


def test_checkpoint_that_cannot_be_written_is_tried_again() -> None:
    world = ChainWorld(metadata=CHAIN | {"tradewind.chain.messages": "2"})
    world.disk.fail("write", "*/checkpoints", error=28, times=1000)
    world.fill(4)
    assert world.chain("INFO").get("checkpoint") is None
    world.disk.clear_faults()
    world.server.advance(11.0)
    assert world.chain("INFO")["checkpoint"]["size"] == 4
    world.fill(2)
    assert world.chain("INFO")["checkpoint"]["size"] == 6


def test_key_that_cannot_be_read_is_named() -> None:
    world = ChainWorld()
    world.fill()
    world.disk.put_durable_file(f"{world.disk.root}/chain.nk", b"nonsense\n")
    error = world.chain("CHECKPOINT")["error"]
    assert error["err_code"] == 20204
    assert "chain.nk" in error["description"]
    assert "nonsense" not in error["description"]


def chain_on_disk(world: ChainWorld) -> int:
    tree = world.disk.snapshot_tree()
    return sum(
        len(data or b"")
        for path, data in tree.items()
        if "/S/chain/" in path and path.endswith((".links", "/checkpoints"))
    )


@pytest.mark.parametrize("segment_entries", [7, 1_000_000])
def test_chain_counts_in_the_storage_of_the_account(
    monkeypatch: pytest.MonkeyPatch, segment_entries: int
) -> None:
    """It only grows: a stream that holds one message has entries for all that it ever had."""
    monkeypatch.setattr(
        "tradewind.store.folder.stream_chain.ChainSettings.new_links",
        lambda self: ChainLinks(self.number, self.first_link, self.clock, segment_entries),
    )
    world = ChainWorld(max_msgs=1)
    world.fill(30)
    world.chain("CHECKPOINT")
    world.fill(3, 30)
    size = world.peer.api("STREAM.INFO.S")["state"]["bytes"]
    assert chain_on_disk(world) > 30 * size
    assert world.peer.api("INFO")["storage"] == size + chain_on_disk(world)
    again = ChainWorld(world.disk.crash_keeping_unsynced())
    assert again.peer.api("INFO")["storage"] == size + chain_on_disk(again)
    again.peer.api("STREAM.DELETE.S")
    assert again.peer.api("INFO")["storage"] == 0


def test_account_is_full_of_its_chains() -> None:
    world = ChainWorld(max_msgs=1)
    assert world.server.engine is not None
    tenant = world.server.engine.accounts["$G"]
    tenant.limits = type(tenant.limits)(max_storage=10_000)
    answers = [world.peer.publish("S.a", b"x") for _ in range(300)]
    assert "error" not in (answers[50] or {})
    assert (answers[-1] or {})["error"]["err_code"] == 10002
    assert chain_on_disk(world) < 11_000
