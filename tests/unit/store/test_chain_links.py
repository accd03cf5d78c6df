"""Links and trees in memory, and what is read from files, against the reference in Python."""

from __future__ import annotations

from random import Random

import pytest

from chain_kit import ReferenceChain, root_of
from store_chains import chain_of, chained, checkpoint, verify_chain
from tradewind.chain import merkle
from tradewind.chain.chain_entries import (
    MESSAGE,
    ChainRecord,
    decode_removal,
    digest_of,
    link_of,
    message_body,
    read_records,
)
from tradewind.store.contract import MessageCopy
from tradewind.store.folder.chain_reading import ChainReader
from tradewind.store.format.chain_hash import use_sha_instructions
from tradewind.store.table.chain_links import ChainLinks, root_of_peaks, tree_root
from tradewind.testing.fake_disk import SimulatedDisk

ALGORITHMS = [("sha256", 1), ("blake3", 2)]
both = pytest.mark.parametrize(("name", "number"), ALGORITHMS)


@both
@pytest.mark.parametrize("size", [0, 1, 60, 128, 900, 960, 966, 967, 1024, 5000, 100_000])
def test_link_of_a_message_is_that_of_the_reference(name: str, number: int, size: int) -> None:
    links, digest = ChainLinks(number, bytes(32), lambda: 7), digest_of(name)
    chance = Random(size)
    before = bytes(32)
    for seq, header in enumerate((b"", b"NATS/1.0\r\nA: b\r\n\r\n"), 1):
        copy = MessageCopy(seq, -5 + seq, b"a.b", header, chance.randbytes(size))
        links.add_message(copy)
        body = message_body(seq, copy.timestamp_ns, copy.subject, header, copy.payload)
        before = link_of(digest, before, MESSAGE, body)
        assert links.link == before
    assert (links.size, links.last_seq, links.pending_bytes) == (2, 2, 82)


@both
def test_tree_grows_as_that_of_the_reference(name: str, number: int) -> None:
    links, frontier = ChainLinks(number, bytes(32), lambda: 7), merkle.Frontier(digest_of(name))
    everything = b""
    for seq in range(1, 140):
        links.add_message(MessageCopy(seq, seq, b"a", b"", b"%d" % seq))
        frontier.append(links.link)
        everything += links.link
        assert root_of_peaks(number, links.peaks) == frontier.root()
        assert tree_root(number, everything) == frontier.root()


@both
@pytest.mark.parametrize("sha_instructions", [True, False])
def test_tree_is_that_of_the_reference_whenever_it_is_looked_at(
    name: str, number: int, *, sha_instructions: bool
) -> None:
    chance = Random(number)
    links, frontier = ChainLinks(number, bytes(32), lambda: 7), merkle.Frontier(digest_of(name))
    use_sha_instructions(sha_instructions)
    try:
        for seq in range(1, 3000):
            kind = chance.random()
            if kind < 0.05:
                links.remove(seq, seq, 1)
                links.end_removals()
            elif kind < 0.1:
                links.add_message(MessageCopy(seq, seq, b"a", b"", bytes(5000)))
            else:
                links.add_message(MessageCopy(seq, seq, b"a", b"", b"%d" % seq))
            frontier.append(links.link)
            if chance.random() < 0.02:
                assert root_of_peaks(number, links.peaks) == frontier.root()
                before = links
                links = ChainLinks(number, bytes(32), lambda: 7)
                links.adopt(before.size, before.link, before.peaks, before.last_seq)
    finally:
        use_sha_instructions(True)
    assert root_of_peaks(number, links.peaks) == frontier.root()


def test_removals_become_sorted_ranges_that_do_not_touch_a_thousand_at_a_time() -> None:
    disk = SimulatedDisk()
    store, _ = chained(disk)
    links = chain_of(store).links
    chance, wanted = Random(4), set(range(1, 5001, 2))
    for seq in sorted(wanted, key=lambda _: chance.random()):
        links.remove(seq, seq, 1)
    links.remove(6000, 7000, 3)
    links.remove(7001, 7001, 3)
    store.commit()
    data = disk.read_file("/disk/S/chain/0000000000000000.links")
    found: list[ChainRecord] = read_records(data, 64)[0]
    removals = [decode_removal(record.body) for record in found]
    named = [seq for each in removals for low, high in each.ranges for seq in range(low, high + 1)]
    assert set(named[: len(wanted)]) == wanted
    assert removals[-1].ranges == ((6000, 7001),)
    assert [each.reason for each in removals] == [1, 1, 1, 3]


@pytest.mark.parametrize("segment", [1, 8, 16])
def test_proofs_and_pages_over_many_files_are_those_of_the_reference(segment: int) -> None:
    store, _ = chained(SimulatedDisk(), segment_entries=segment)
    for seq in range(1, 40):
        store.table.store(b"a.%d" % (seq % 3), b"", b"%d" % seq, seq)
        if seq % 5 == 0:
            store.table.remove(seq - 2)
        store.commit()
    links, chain, digest = verify_chain(store, segment_entries=segment), chain_of(store), None
    digest, reader, size = digest_of("sha256"), ChainReader(chain), len(links)
    for index in range(size):
        path, root = reader.inclusion(index, size)
        assert merkle.is_included(digest, index, size, links[index], path, root)
        assert reader.link(index) == links[index]
        before, data = reader.entries(index, 5, size, 1000)
        assert index == 0 or before == links[index - 1]
        records, end = read_records(data)
        assert end == len(data)
        assert 1 <= len(records) <= 5
        assert [each.link for each in records] == links[index : index + len(records)]
    for first in range(1, size + 1):
        path, root = reader.consistency(first, size)
        old = root_of(digest, links[:first])
        assert merkle.is_consistent(digest, first, size, old, root, path)
    for seq in range(1, 40):
        index = reader.find(seq, chain.synced)
        assert index is not None
        _, data = reader.entries(index, 1, size, 1000)
        assert read_records(data)[0][0].sequence == seq
    assert reader.find(40, chain.synced) is None


def test_start_reads_the_links_behind_the_last_checkpoint_only_unless_it_has_to() -> None:
    disk = SimulatedDisk()
    store, _ = chained(disk)
    for seq in range(1, 30):
        store.table.store(b"a", b"", b"%d" % seq, seq)
    store.commit()
    point = checkpoint(store)
    store.table.store(b"a", b"", b"last", 99)
    store.close()
    state = disk.read_file("/disk/S/chain/state")
    for content in (state, b"", b"{}", state.replace(b'"size":29', b'"size":28')):
        copy = disk.crash_keeping_unsynced()
        copy.put_durable_file("/disk/S/chain/state", content)
        again, report = chained(copy)
        assert not report.notes
        assert len(verify_chain(again)) == 30
        assert chain_of(again).checkpoint == point


def test_chain_of_the_kit_and_that_of_the_store_are_the_same() -> None:
    """The reference that others verify with has the same links for the same messages."""
    reference = ReferenceChain(stream="S", created="2026-01-02T03:04:05.678Z")
    store, _ = chained(SimulatedDisk())
    from chain_kit import stored

    for seq in range(1, 20):
        message = stored(seq)
        reference.add(message)
        store.table.store(message.subject, message.header, message.payload, message.time_ns)
    store.commit()
    assert [record.link for record in reference.records] == verify_chain(store)


def damaged(disk: SimulatedDisk, payload: bytes) -> None:
    """One byte of a stored message is another one."""
    path = "/disk/S/msgs/1.blk"
    content = disk.read_file(path)
    assert content.count(payload) == 1
    disk.put_durable_file(path, content.replace(payload, payload[:-1] + b"!"))


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("is_covered", [True, False])
def test_message_that_damage_has_cost_is_named_as_lost(has_index: bool, is_covered: bool) -> None:
    disk = SimulatedDisk()
    store, _ = chained(disk)
    for seq in range(1, 9):
        store.table.store(b"a", b"", b"payload-%d-" % seq, seq)
    store.commit()
    if is_covered:
        checkpoint(store)
    store.close()
    damaged(disk, b"payload-5-")
    if not has_index:
        disk.remove("/disk/S/msgs/index.db")
    store, _ = chained(disk)
    store.verify()
    store.commit()
    assert [message.seq for message in store.table.messages()] == [1, 2, 3, 4, 6, 7, 8]
    verify_chain(store)
    store.close()
    verify_chain(chained(disk)[0])
