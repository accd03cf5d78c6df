"""Files that rot: only what was hit is lost, every loss is named, nothing wrong is given out."""

from __future__ import annotations

import functools
from random import Random

import pytest

from store_damage import (
    DAMAGE,
    IN_PLACE,
    MESSAGES,
    OF_WHOLE_FILES,
    Harm,
    Store,
    append_garbage,
    check_cut_recovery,
    check_recovered,
    damage_workload,
    delete_block,
    harmed,
    hits_of,
    prepared,
    truncate,
    written_lost,
)
from store_verdict import content_of
from store_workloads import open_workload
from thoroughness import some_of
from tradewind.errors import StoreError
from tradewind.store.contract import NotFoundError
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.meta import ConsumerMeta, StreamMeta
from tradewind.testing.disk_damage import DiskDamage
from tradewind.testing.fake_disk import SimulatedDisk

# Three have all limits and block sizes of `damage_workload`.
SEEDS = some_of(range(6), range(3))
CASES = 40
every_store = pytest.mark.parametrize("seed", SEEDS)
INDEX = f"{MESSAGES}/index.db"


@functools.cache
def blocks_only(seed: int) -> Store:
    """As a crash leaves it: without index.db."""
    return prepared(damage_workload(seed), with_index=False)


@functools.cache
def with_index(seed: int) -> Store:
    """As a clean stop leaves it."""
    return prepared(damage_workload(seed), with_index=True)


# --- blocks without index.db ---------------------------------------------------------------------


@every_store
@pytest.mark.parametrize("harm", [*IN_PLACE, *OF_WHOLE_FILES], ids=lambda harm: harm.__name__)
def test_only_hit_records_are_lost_and_all_of_them_are_named(harm: Harm, seed: int) -> None:
    store = blocks_only(seed)
    for case in range(CASES):
        disk, what = harmed(store, harm, case)
        try:
            check_recovered(store, disk, hits_of(store, disk))
        except AssertionError as error:
            raise AssertionError(f"case {case}: {what}") from error


@pytest.mark.parametrize(("seed", "case"), [(7000, 14), (7000, 28), (7000, 37), (7004, 22)])
def test_damage_that_once_cost_more_than_it_had_hit(seed: int, case: int) -> None:
    """Tombstones, of which limits took messages without a word, and a skip among skips."""
    store = blocks_only(seed)
    harms = (*IN_PLACE, *OF_WHOLE_FILES)
    disk, _ = harmed(store, harms[case % len(harms)], case)  # as `damage_seed` does it
    check_recovered(store, disk, hits_of(store, disk))


@every_store
def test_every_single_bit_of_a_record_is_watched(seed: int) -> None:
    """All bits of the first, a middle and the last message of a store, one at a time."""
    store = blocks_only(seed)
    messages = [record for record in store.records if record.kind == "message"]
    for record in {messages[0], messages[len(messages) // 2], messages[-1]}:
        size = min(record.size, 60)
        for bit in range(8 * record.offset, 8 * (record.offset + size), 3):
            disk = store.copy()
            DiskDamage(disk).flip_bits(record.path, [bit])
            check_recovered(store, disk, hits_of(store, disk))


@every_store
@pytest.mark.parametrize("harm", [*IN_PLACE, *OF_WHOLE_FILES], ids=lambda harm: harm.__name__)
def test_repair_that_is_cut_off_is_done_again(harm: Harm, seed: int) -> None:
    store = blocks_only(seed)
    for case in range(3):
        disk, what = harmed(store, harm, 1000 + case)
        try:
            check_cut_recovery(store, disk)
        except AssertionError as error:
            raise AssertionError(f"case {case}: {what}") from error


@every_store
def test_garbage_behind_the_records_costs_nothing(seed: int) -> None:
    store = blocks_only(seed)
    for case in range(CASES):
        disk, _ = harmed(store, append_garbage, case)
        opened, report = open_workload(disk, store.workload, store.run.ledger.now_ns)
        assert content_of(opened) == store.live
        assert not report.lost
        assert len(report.damage) == 1
        # Whether they are surplus is known where a mark or the next block says so.
        assert report.damage[0].torn or report.damage[0].last_lost < report.damage[0].first_lost


@every_store
def test_life_goes_on_after_a_loss(seed: int) -> None:
    """The store takes messages, under new numbers, and the next start is clean."""
    store = blocks_only(seed)
    for harm in IN_PLACE:
        disk, _ = harmed(store, harm, seed)
        now_ns = store.run.ledger.now_ns
        opened, report = open_workload(disk, store.workload, now_ns)
        seq = opened.table.store(b"new", b"", b"message", now_ns)
        assert seq > max([*report.lost, *store.live])
        opened.close()
        again, second = open_workload(disk, store.workload, now_ns)
        assert second.is_clean
        assert again.table.get(seq).payload == b"message"


@every_store
def test_second_damage_leaves_the_evidence_of_the_first(seed: int) -> None:
    store = blocks_only(seed)
    record = next(r for r in store.records if r.kind == "message" and r.seq in store.live)
    disk = store.copy()
    kept: dict[str, bytes] = {}
    lost: set[int] = set()
    for _ in range(3):
        if not disk.exists(record.path):
            break  # nothing else was in that block
        DiskDamage(disk).flip_bits(record.path, [8 * record.offset + 40])
        opened, report = open_workload(disk, store.workload, store.run.ledger.now_ns)
        opened.close()
        lost.update(report.lost)
        files = disk.file_contents()
        assert kept.items() <= files.items()
        kept = {p: d for p, d in files.items() if p.startswith(DAMAGE) and p.endswith(".bin")}
    assert written_lost(disk) == lost


# --- index.db ------------------------------------------------------------------------------------


def harm_index(store: Store, disk: SimulatedDisk, random: Random) -> None:
    damage, size = DiskDamage(disk), len(disk.content_of(INDEX))
    match random.randrange(7):
        case 0 | 1:
            damage.flip_random_bits(INDEX, random.choice((1, 1, 2, 9)), random.getrandbits(32))
        case 2:
            damage.truncate(INDEX, random.randrange(size))
        case 3:
            offset = random.randrange(size)
            damage.zero(INDEX, offset, random.randint(1, size - offset))
        case 4:
            disk.put_durable_file(INDEX, disk.content_of(INDEX) + random.randbytes(20))
        case 5:
            disk.put_durable_file(INDEX, random.randbytes(random.randint(0, 300)))
        case _:
            half = random.randint(1, size // 2)
            damage.swap(INDEX, 0, half, half)


@every_store
def test_damaged_index_file_changes_nothing(seed: int) -> None:
    store = with_index(seed)
    for case in range(100):
        disk = store.copy()
        harm_index(store, disk, Random(case))
        opened, report = open_workload(disk, store.workload, store.run.ledger.now_ns)
        assert content_of(opened) == store.live
        assert opened.table.last_seq == store.run.ledger.last_seq
        assert report.is_clean
        opened.verify()
        opened.close()
        again, _ = open_workload(disk, store.workload, store.run.ledger.now_ns)
        assert content_of(again) == store.live


@every_store
def test_index_file_of_another_day_is_not_believed(seed: int) -> None:
    """Every earlier index.db of the same stream, as a restored backup might bring it back."""
    store = with_index(seed)
    for other in SEEDS:
        disk = store.copy()
        disk.put_durable_file(INDEX, with_index(other).disk.content_of(INDEX))
        opened, report = open_workload(disk, store.workload, store.run.ledger.now_ns)
        assert content_of(opened) == store.live
        assert report.is_clean


@every_store
@pytest.mark.parametrize("harm", IN_PLACE, ids=lambda harm: harm.__name__)
def test_damage_behind_a_good_index_file_is_never_given_out(harm: Harm, seed: int) -> None:
    """The blocks are not read at the start; each message is right or refused when it is read."""
    store = with_index(seed)
    for case in range(CASES // 2):
        disk, what = harmed(store, harm, case)
        hits = hits_of(store, disk)
        opened, _ = open_workload(disk, store.workload, store.run.ledger.now_ns)
        for seq, message in store.live.items():
            try:
                found = opened.table.get(seq)
            except StoreError:
                assert seq in hits.messages, f"case {case}: {what}: {seq} was not hit"
                continue
            assert found == message, f"case {case}: {what}: {seq} is another one now"


@every_store
@pytest.mark.parametrize("harm", [truncate, delete_block], ids=lambda harm: harm.__name__)
def test_index_file_knows_what_a_missing_block_held(harm: Harm, seed: int) -> None:
    """It lists every block: what is gone with one is named, and no number is given out again."""
    store = with_index(seed)
    for case in range(CASES):
        disk, what = harmed(store, harm, case)
        hits = hits_of(store, disk)
        opened, _ = open_workload(disk, store.workload, store.run.ledger.now_ns)
        assert opened.table.last_seq >= store.run.ledger.last_seq, f"case {case}: {what}"
        for seq, message in store.live.items():
            try:
                assert opened.table.get(seq) == message
            except NotFoundError:
                assert seq in hits.messages, f"case {case}: {what}: {seq} was not hit"
                lost = opened.lost
                assert lost is not None, f"case {case}: {what}: {seq} is gone without a word"
                assert seq in lost.sequences, f"case {case}: {what}: {seq} is gone without a word"


# --- configuration and consumers -----------------------------------------------------------------

NOW_NS = 1_700_000_000_000_000_000
ONE = "/disk/jetstream/$G/streams/ONE"
CONSUMER_STATE = ConsumerState(
    SequencePair(7, 9),
    SequencePair(2, 3),
    {seq: PendingDelivery(seq - 1, NOW_NS) for seq in range(4, 9)},
    {5: 2, 6: 1},
)


@functools.cache
def two_streams() -> SimulatedDisk:
    disk = SimulatedDisk()
    root = StoreRoot(disk, "/disk")
    for name in ("ONE", "TWO"):
        config = {"name": name, "subjects": [name.lower()], "retention": "limits"}
        folder = root.stream("$G", name)
        folder.create(StreamMeta({**config, "storage": "file", "num_replicas": 1}, NOW_NS))
        _, store, _ = folder.open(NOW_NS)
        for number in range(10):
            store.table.store(name.lower().encode(), b"", b"%d" % number, NOW_NS)
        store.close()
        folder.create_consumer(
            ConsumerMeta("C", {"durable_name": "C"}, NOW_NS), CONSUMER_STATE, NOW_NS
        )
    root.close()
    return disk


def contents(disk: SimulatedDisk, folder: str) -> dict[str, bytes]:
    return {path: data for path, data in disk.file_contents().items() if path.startswith(folder)}


def check_listing(disk: SimulatedDisk, *, is_readable: bool) -> None:
    """The other stream is whole, and a stream that cannot be read is named and left as it is."""
    before = contents(disk, ONE)
    root = StoreRoot(disk, "/disk")
    listing = root.streams("$G")
    names = [folder.stream for folder, _ in listing.streams]
    assert names == (["ONE", "TWO"] if is_readable else ["TWO"])
    assert [skipped.path for skipped in listing.skipped] == ([] if is_readable else [ONE])
    assert all(skipped.reason for skipped in listing.skipped)
    _, store, report = listing.streams[-1][0].open(NOW_NS)
    assert report.is_clean
    assert [message.seq for message in store.table.messages()] == list(range(1, 11))
    assert contents(disk, ONE) == before
    assert root.finish_deletions() == []
    assert contents(disk, ONE) == before


@pytest.mark.parametrize("name", ["meta.inf", "meta.sum"])
def test_damaged_configuration_never_costs_the_messages(name: str) -> None:
    path = f"{ONE}/{name}"
    size = len(two_streams().content_of(path))
    for bit in range(8 * size):
        disk = two_streams().crash_keeping_unsynced()
        DiskDamage(disk).flip_bits(path, [bit])
        check_listing(disk, is_readable=False)
    for kept in range(size):
        disk = two_streams().crash_keeping_unsynced()
        DiskDamage(disk).truncate(path, kept)
        check_listing(disk, is_readable=False)


@pytest.mark.parametrize("names", [("meta.inf",), ("meta.sum",), ("meta.inf", "meta.sum")])
def test_missing_configuration_never_costs_the_messages(names: tuple[str, ...]) -> None:
    disk = two_streams().crash_keeping_unsynced()
    for name in names:
        disk.remove(f"{ONE}/{name}")
    check_listing(disk, is_readable=False)


def test_damaged_consumer_state_is_a_state_or_an_error_and_stays() -> None:
    """No checksum covers o.dat, in the official format: some damage cannot be seen."""
    path = f"{ONE}/obs/C/o.dat"
    refused = 0
    for seed in range(2000):
        disk = two_streams().crash_keeping_unsynced()
        random = Random(seed)
        if seed % 4 == 0:
            DiskDamage(disk).truncate(path, random.randrange(len(disk.content_of(path))))
        elif seed % 4 == 1:
            disk.put_durable_file(path, b"\x16\x02" + random.randbytes(random.randint(0, 60)))
        else:
            DiskDamage(disk).flip_random_bits(path, random.choice((1, 2, 8)), seed)
        before = contents(disk, ONE)
        found, skipped = StoreRoot(disk, "/disk").stream("$G", "ONE").consumers()
        assert len(found) + len(skipped) == 1
        refused += len(skipped)
        assert contents(disk, ONE) == before
    assert refused > 200
