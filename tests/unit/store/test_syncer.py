"""Group commit of several stores on a simulated disk, step by step."""

from __future__ import annotations

import errno

import pytest

from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.commits.syncer import (
    ASYNC_BYTES_MIN,
    ASYNC_WAIT_NS,
    RETRY_NS,
    SyncEntry,
    Syncer,
    SyncJob,
    SyncMode,
)
from tradewind.store.files.disk import DiskFull
from tradewind.store.folder.consumer_states import ConsumerFiles, ConsumerStates
from tradewind.store.folder.filestore import FileStore, ReadOnlyError
from tradewind.store.folder.recover import open_store
from tradewind.store.format.consumer_file import ConsumerState, encode_consumer_state
from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.fake_disk import SimulatedDisk
from tradewind.testing.fake_syncer import SteppedSyncer

INTERVAL_NS = 60_000_000_000


class Kit:
    """A syncer with stores, and everything that it said."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = FakeClock()
        self.syncer = SteppedSyncer(self.clock, interval_ns=INTERVAL_NS)
        self.names: dict[int, str] = {}
        self.entries: dict[int, SyncEntry] = {}
        self.said: list[tuple[str, object]] = []

    def open(self, name: str, mode: SyncMode = SyncMode.ALWAYS) -> FileStore:
        folder = f"{self.disk.root}/{name}"
        self.disk.make_directory(folder, sync=True)
        store, _ = open_store(self.disk, folder, name, now_ns=0, block_bytes_max=4096)
        store.commit()
        self.names[id(store)] = name
        self.attach(store, mode)
        return store

    def attach(self, target: SyncTarget, mode: SyncMode = SyncMode.ALWAYS) -> None:
        self.entries[id(target)] = self.syncer.attach(
            target,
            mode=mode,
            on_synced=lambda target, number: self.say(target, number),
            on_failure=lambda target, error: self.say(target, error),
            on_resumed=lambda target: self.say(target, "resumed"),
        )

    def say(self, target: SyncTarget, what: object) -> None:
        self.said.append((self.names.get(id(target), "?"), what))

    def put(self, store: FileStore, payload: bytes = b"x") -> int:
        store.table.store(b"s", b"", payload, 1)
        return self.syncer.mark_dirty(store, self.clock.monotonic_ns())

    def change(self, store: FileStore) -> None:
        self.syncer.changed(self.entries[id(store)], self.clock.monotonic_ns())

    def end_turn(self) -> None:
        self.syncer.end_turn(self.clock.monotonic_ns())

    def later(self, duration_ns: int) -> None:
        self.clock.advance_ns(duration_ns)
        self.syncer.tick(self.clock.monotonic_ns())

    def kept_after_power_cut(self, name: str) -> int:
        disk = self.disk.crash_losing_unsynced()
        store, report = open_store(disk, f"{disk.root}/{name}", name, now_ns=0)
        assert report.is_clean
        return store.table.last_seq


@pytest.fixture
def kit() -> Kit:
    return Kit()


def test_round_is_kept_only_after_its_sync(kit: Kit) -> None:
    store = kit.open("A")
    assert kit.put(store) == 1
    kit.end_turn()
    assert kit.said == []
    assert kit.kept_after_power_cut("A") == 0
    kit.syncer.run_next()
    assert kit.said == []
    kit.syncer.complete_next()
    assert kit.said == [("A", 1)]
    assert kit.kept_after_power_cut("A") == 1


def test_all_changes_during_a_sync_share_the_next(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    assert [kit.put(store) for _ in range(3)] == [2, 2, 2]
    kit.end_turn()
    assert kit.put(store) == 2
    kit.end_turn()
    assert len(kit.syncer.waiting) == 1
    kit.syncer.run_all()
    assert kit.said == [("A", 1), ("A", 2)]
    assert (kit.syncer.statistics.commits, store.table.synced_seq) == (2, 5)


def test_stores_are_synced_in_any_order(kit: Kit) -> None:
    stores = [kit.open(name) for name in "ABC"]
    for store in stores:
        kit.put(store)
    kit.end_turn()
    kit.syncer.run_next(2)
    kit.syncer.run_next(0)
    kit.syncer.complete_next(1)
    kit.syncer.complete_next(0)
    kit.syncer.run_all()
    assert kit.said == [("A", 1), ("C", 1), ("B", 1)]


def test_mark_without_a_change_is_kept_at_once(kit: Kit) -> None:
    store = kit.open("A")
    kit.syncer.mark_dirty(store, kit.clock.monotonic_ns())
    kit.end_turn()
    assert kit.said == [("A", 1)]
    assert kit.syncer.is_idle


def test_failed_sync_is_told_once_and_leaves_other_stores_alone(kit: Kit) -> None:
    bad, good = kit.open("BAD"), kit.open("GOOD")
    kit.disk.fail("sync", "*/BAD/*")
    for store in (bad, good):
        kit.put(store)
    kit.end_turn()
    kit.syncer.run_all()
    (name, error), *rest = kit.said
    assert name == "BAD"
    assert isinstance(error, StoreError)
    assert rest == [("GOOD", 1)]
    with pytest.raises(ReadOnlyError):
        kit.put(bad)
    # A failed sync is never tried again: nobody knows what is on the disk.
    for _ in range(3):
        kit.later(RETRY_NS)
    kit.put(good)
    kit.end_turn()
    kit.syncer.run_all()
    assert kit.said[2:] == [("GOOD", 2)]
    assert (kit.syncer.statistics.failures, kit.syncer.statistics.read_only) == (1, 1)


def test_full_disk_is_tried_again_until_there_is_room(kit: Kit) -> None:
    store = kit.open("A")
    fault = kit.disk.fail("write", "*/A/*", error=errno.ENOSPC, times=3)
    assert kit.put(store) == 1
    kit.end_turn()
    assert [type(what).__name__ for _, what in kit.said] == ["DiskFull"]
    kit.later(RETRY_NS)
    kit.later(RETRY_NS)
    assert (fault.hits, len(kit.said)) == (3, 1)
    kit.later(RETRY_NS)
    assert kit.said[1:] == [("A", "resumed")]
    # What had been taken before the disk was full is promised now, under the round it was given.
    kit.syncer.run_all()
    assert kit.said[2:] == [("A", 1)]
    assert kit.kept_after_power_cut("A") == 1
    assert kit.syncer.statistics.read_only == 0


def test_store_that_failed_while_it_was_changed_is_noticed_at_the_end_of_the_turn(kit: Kit) -> None:
    store = kit.open("A")
    kit.disk.fail("create", "*/A/*", error=errno.ENOSPC)
    for _ in range(3):
        kit.put(store, b"x" * 1000)
    with pytest.raises(DiskFull):
        kit.put(store, b"x" * 1000)
    kit.end_turn()
    kit.syncer.run_all()
    assert type(kit.said[0][1]).__name__ == "DiskFull"
    kit.later(RETRY_NS)
    kit.syncer.run_all()
    assert kit.said[1:] == [("A", "resumed"), ("A", 1)]
    assert store.table.synced_seq == store.table.last_seq


def test_interval_store_is_acknowledged_when_written_and_synced_later(kit: Kit) -> None:
    store = kit.open("A", SyncMode.INTERVAL)
    kit.put(store)
    kit.end_turn()
    assert kit.said == [("A", 1)]
    assert store.unwritten_bytes == 0
    assert (kit.syncer.waiting, kit.kept_after_power_cut("A")) == ([], 0)
    kit.later(INTERVAL_NS - 1)
    assert kit.syncer.waiting == []
    kit.later(1)
    kit.syncer.run_all()
    assert kit.kept_after_power_cut("A") == 1
    assert kit.said == [("A", 1)]


def test_async_store_is_acknowledged_before_it_is_written(kit: Kit) -> None:
    store = kit.open("A", SyncMode.ASYNC)
    kit.put(store)
    kit.end_turn()
    assert kit.said == [("A", 1)]
    assert store.unwritten_bytes > 0
    kit.later(ASYNC_WAIT_NS)
    assert store.unwritten_bytes == 0
    kit.later(INTERVAL_NS)
    kit.syncer.run_all()
    assert kit.kept_after_power_cut("A") == 1


def test_async_store_is_written_at_once_when_enough_has_come_together(kit: Kit) -> None:
    store = kit.open("A", SyncMode.ASYNC)
    kit.put(store, b"x" * ASYNC_BYTES_MIN)
    kit.end_turn()
    assert store.unwritten_bytes == 0


def test_blocks_of_an_interval_store_do_not_wait_for_the_interval_to_be_removed(kit: Kit) -> None:
    store = kit.open("A", SyncMode.INTERVAL)
    for _ in range(400):
        kit.put(store, b"x" * 100)
    kit.end_turn()
    before = len(kit.disk.list_directory(f"{kit.disk.root}/A/msgs"))
    store.table.purge()
    kit.syncer.mark_dirty(store, kit.clock.monotonic_ns())
    kit.end_turn()
    kit.syncer.run_all()
    assert before > 10
    assert len(kit.disk.list_directory(f"{kit.disk.root}/A/msgs")) == 1


def test_interval_store_that_fails_at_its_sync_says_so(kit: Kit) -> None:
    store = kit.open("A", SyncMode.INTERVAL)
    kit.put(store)
    kit.end_turn()
    kit.disk.fail("sync", "*/A/*")
    kit.later(INTERVAL_NS)
    kit.syncer.run_all()
    assert kit.said[0] == ("A", 1)
    assert isinstance(kit.said[1][1], StoreError)
    assert store.failure is not None


def test_deleted_store_is_free_only_when_its_commit_has_ended(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    kit.put(store)
    kit.put(other)
    kit.end_turn()
    kit.put(store)

    def free() -> None:
        store.abandon()
        kit.disk.remove_tree(f"{kit.disk.root}/A")
        kit.said.append(("A", "free"))

    kit.syncer.detach(store, free)
    kit.end_turn()
    assert kit.said == []
    kit.syncer.run_all()
    assert kit.said == [("A", "free"), ("B", 1)]
    kit.later(INTERVAL_NS)
    assert kit.syncer.is_idle
    other.close()
    assert kit.disk.open_files == 0


def test_store_without_a_commit_is_free_at_once(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.syncer.detach(store, lambda: kit.said.append(("A", "free")))
    kit.end_turn()
    assert kit.said == [("A", "free")]
    assert kit.syncer.waiting == []


def test_drain_brings_every_mode_to_disk(kit: Kit) -> None:
    stores = [kit.open(mode.value, mode) for mode in SyncMode]
    for store in stores:
        kit.put(store)
    kit.end_turn()
    kit.syncer.begin_drain(kit.clock.monotonic_ns())
    assert not kit.syncer.is_idle
    kit.syncer.run_all()
    assert kit.syncer.is_idle
    assert kit.syncer.unsafe_targets() == []
    assert [kit.kept_after_power_cut(mode.value) for mode in SyncMode] == [1, 1, 1]


def test_quiet_store_writes_down_how_far_it_is(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    kit.syncer.run_all()
    assert store.unwritten_bytes > 0
    kit.later(RETRY_NS)
    assert store.unwritten_bytes == 0
    assert kit.syncer.next_deadline_ns() is None


def test_consumer_states_are_committed_until_their_names_are_durable(kit: Kit) -> None:
    kit.disk.make_directory(f"{kit.disk.root}/obs/C", sync=True)
    states = ConsumerStates(kit.disk, f"{kit.disk.root}/obs")
    files = ConsumerFiles(states, kit.clock.wall_ns)
    kit.attach(files)
    ticket = states.mark("C", ConsumerState())
    kit.syncer.mark_dirty(files, kit.clock.monotonic_ns())
    kit.end_turn()
    kit.syncer.run_all()
    assert states.kept_ticket("C") == ticket
    assert kit.disk.crash_losing_unsynced().exists(f"{kit.disk.root}/obs/C/o.dat")


class Acknowledged:
    """A state with changes that never end."""

    entry_count = 1

    def encode_whole(self, now_ns: int) -> bytes:
        return encode_consumer_state(ConsumerState(), now_ns)

    def take_changes(self) -> bytes | None:
        return bytes(5)


def test_records_that_only_the_system_has_to_have_cause_no_sync_of_their_own(kit: Kit) -> None:
    """They are synced with the next save of a state; a sync for each would never end."""
    kit.disk.make_directory(f"{kit.disk.root}/obs/C", sync=True)
    states = ConsumerStates(kit.disk, f"{kit.disk.root}/obs")
    files = ConsumerFiles(states, kit.clock.wall_ns)
    kit.attach(files)

    def save() -> None:
        states.mark("C", Acknowledged())
        kit.syncer.mark_dirty(files, kit.clock.monotonic_ns())
        kit.end_turn()

    save()
    kit.syncer.run_all()
    states.mark("C", Acknowledged(), is_urgent=True)
    assert files.write("C")
    tickets = []
    for _ in range(2):
        save()
        before = kit.syncer.statistics.commits
        for _ in range(20):
            tickets.append(states.mark("C", Acknowledged(), is_urgent=True))
            assert files.write("C")
            assert states.written_ticket("C") >= tickets[-1]
            while kit.syncer.waiting:
                kit.syncer.run_next()
                kit.syncer.complete_next()
        assert kit.syncer.statistics.commits - before <= 4
    save()
    kit.syncer.run_all()
    assert states.kept_ticket("C") >= tickets[-1]


def test_stream_is_with_the_system_before_any_state_of_its_consumers(kit: Kit) -> None:
    """A state may know of removals that a kill would take back with what caused them."""
    kit.disk.make_directory(f"{kit.disk.root}/obs/C", sync=True)
    states = ConsumerStates(kit.disk, f"{kit.disk.root}/obs")
    store = kit.open("A")
    state = f"{kit.disk.root}/obs/C/o.dat.tmp"
    seen: list[bool] = []

    def write_stream() -> None:
        seen.append(kit.disk.exists(state))
        store.flush()

    files = ConsumerFiles(states, kit.clock.wall_ns, write_stream=write_stream)
    assert files.begin_commit() is None
    assert seen == []
    states.mark("C", ConsumerState())
    store.table.store(b"a", b"", b"x", 1)
    assert store.unwritten_bytes > 0
    commit = files.begin_commit()
    assert commit is not None
    assert kit.disk.exists(state)
    assert seen == [False]
    assert store.unwritten_bytes == 0


def test_consumer_states_are_written_again_after_a_failure(kit: Kit) -> None:
    kit.disk.make_directory(f"{kit.disk.root}/obs/C", sync=True)
    states = ConsumerStates(kit.disk, f"{kit.disk.root}/obs")
    files = ConsumerFiles(states, kit.clock.wall_ns)
    kit.attach(files)
    kit.disk.fail("sync", "*/o.dat.tmp")
    ticket = states.mark("C", ConsumerState())
    kit.syncer.mark_dirty(files, kit.clock.monotonic_ns())
    kit.end_turn()
    kit.syncer.run_all()
    assert states.kept_ticket("C") < ticket
    kit.later(RETRY_NS)
    kit.syncer.run_all()
    assert states.kept_ticket("C") == ticket


def test_statistics_count_what_was_done(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    kit.clock.advance_ns(5_000_000)
    kit.syncer.run_all()
    numbers = kit.syncer.statistics
    assert (numbers.commits, numbers.syncs, numbers.rounds) == (1, 1, 1)
    assert (numbers.waiting_ns, sum(numbers.histogram), numbers.running) == (5_000_000, 1, 0)


def test_fault_of_the_program_in_a_worker_is_a_failure_of_its_store(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    kit.syncer.waiting[0].commit.files.append(None)  # type: ignore[arg-type]
    kit.syncer.run_all()
    assert "fault of the program" in str(kit.said[0][1])


def test_store_that_waits_for_the_interval_is_written_with_every_change(kit: Kit) -> None:
    store = kit.open("A", SyncMode.INTERVAL)
    for number in (1, 2):
        store.table.store(b"s", b"", b"y", 1)
        kit.change(store)
        assert (store.unwritten_bytes, kit.said[-1]) == (0, ("A", number))
    assert kit.syncer.waiting == []
    assert kit.kept_after_power_cut("A") == 0
    kit.later(INTERVAL_NS)
    kit.syncer.run_all()
    assert kit.kept_after_power_cut("A") == 2


def test_change_of_a_store_that_syncs_always_begins_its_commit(kit: Kit) -> None:
    store = kit.open("A")
    store.table.store(b"s", b"", b"y", 1)
    kit.change(store)
    assert len(kit.syncer.waiting) == 1
    store.table.store(b"s", b"", b"y", 1)
    kit.change(store)  # for the next one
    assert (len(kit.syncer.waiting), kit.said) == (1, [])
    kit.syncer.run_all()
    assert kit.said == [("A", 1), ("A", 2)]


def test_failure_of_a_write_is_told_once(kit: Kit) -> None:
    store = kit.open("A", SyncMode.INTERVAL)
    kit.put(store)
    kit.end_turn()
    kit.said.clear()
    store.table.store(b"s", b"", b"y", 1)
    kit.disk.fail("write", "*/A/*")
    kit.change(store)
    assert [name for name, _ in kit.said] == ["A"]
    assert store.failure is not None
    kit.change(store)
    assert len(kit.said) == 1


def test_store_that_only_appended_takes_the_short_way(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    assert not kit.syncer.waiting[0].commit.has_chores
    kit.put(store)
    kit.syncer.run_all()
    assert (store.table.synced_seq, kit.kept_after_power_cut("A")) == (2, 2)
    assert kit.said == [("A", 1), ("A", 2)]


def test_store_with_more_to_do_takes_the_long_way(kit: Kit) -> None:
    store = kit.open("A")
    store.table.store(b"s", b"", b"x" * 5000, 1)
    kit.put(store, b"x" * 5000)  # a new block, whose name is not durable
    kit.end_turn()
    assert kit.syncer.waiting[0].commit.has_chores
    kit.syncer.run_all()
    assert kit.kept_after_power_cut("A") == 2


def test_block_that_is_sealed_during_a_short_commit_is_synced_again(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    kit.put(store, b"x" * 5000)
    kit.put(store, b"x" * 5000)
    kit.end_turn()
    kit.syncer.run_all()
    assert kit.said == [("A", 1), ("A", 2)]
    assert kit.kept_after_power_cut("A") == 3


def test_failed_short_way_makes_the_store_read_only(kit: Kit) -> None:
    store = kit.open("A")
    kit.put(store)
    kit.disk.fail("sync", "*/A/*")
    kit.end_turn()
    assert not kit.syncer.waiting[0].commit.has_chores
    kit.syncer.run_all()
    assert store.table.synced_seq == 0
    assert [name for name, _ in kit.said] == ["A"]
    with pytest.raises(ReadOnlyError):
        store.table.store(b"s", b"", b"x", 1)


def test_sync_that_fails_after_its_store_was_given_up_leaves_no_index_file(kit: Kit) -> None:
    """A second sync could succeed, and the next start would believe that all is well."""
    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    kit.disk.fail("sync", "*/A/*")
    kit.syncer.detach(store, store.close)
    kit.syncer.run_all()
    assert store.failure is not None
    assert not kit.disk.exists(f"{store.folder}/index.db")


def test_states_of_a_commit_under_way_are_written_when_their_files_are_closed(kit: Kit) -> None:
    kit.disk.make_directory(f"{kit.disk.root}/obs/C", sync=True)
    states = ConsumerStates(kit.disk, f"{kit.disk.root}/obs")
    files = ConsumerFiles(states, lambda: 0)
    kit.attach(files)
    states.mark("C", ConsumerState())
    kit.syncer.mark_dirty(files, 0)
    kit.end_turn()
    kit.syncer.detach(files, lambda: states.commit(0))
    kit.syncer.run_all()
    assert kit.disk.crash_losing_unsynced().exists(f"{kit.disk.root}/obs/C/o.dat")


# ------------------------------------------------------------------ company


def publishes(kit: Kit, store: FileStore, waiters: int) -> None:
    """One more message; so many publishers wait now."""
    entry = kit.entries[id(store)]
    store.table.store(b"s", b"", b"x", 1)
    entry.waiters = waiters
    kit.syncer.mark_dirty(store, kit.clock.monotonic_ns())
    kit.end_turn()


def sync(kit: Kit, took_ns: int = 200_000) -> None:
    """The one commit under way ends."""
    kit.syncer.run_next()
    kit.clock.advance_ns(took_ns)
    kit.syncer.synced[0].run_ns = took_ns
    kit.syncer.complete_next()


def test_two_publishers_share_their_commits(kit: Kit) -> None:
    store = kit.open("A")
    publishes(kit, store, 1)
    publishes(kit, store, 2)  # while the commit for the first runs
    sync(kit)
    assert kit.syncer.waiting == []  # it waits for the first one to come back
    assert not kit.syncer.is_idle
    for _ in range(10):
        publishes(kit, store, 2)
        assert len(kit.syncer.waiting) == 1
        sync(kit)
        publishes(kit, store, 1)
        assert kit.syncer.waiting == []
    assert kit.syncer.statistics.commits == 11
    publishes(kit, store, 2)
    sync(kit)
    assert store.table.synced_seq == store.table.last_seq


def test_one_publisher_never_waits_for_company(kit: Kit) -> None:
    store = kit.open("A")
    for _ in range(10):
        publishes(kit, store, 1)
        assert len(kit.syncer.waiting) == 1
        sync(kit)


def test_publisher_that_does_not_come_back_is_not_waited_for_longer_than_a_sync(kit: Kit) -> None:
    store = kit.open("A")
    publishes(kit, store, 1)
    publishes(kit, store, 2)
    sync(kit)
    assert kit.syncer.next_deadline_ns() == kit.clock.monotonic_ns() + 200_000
    kit.later(199_999)
    assert kit.syncer.waiting == []
    kit.later(1)
    assert len(kit.syncer.waiting) == 1
    sync(kit)
    # It is alone from now on.
    publishes(kit, store, 1)
    assert len(kit.syncer.waiting) == 1


def test_company_that_never_comes_is_seldom_waited_for(kit: Kit) -> None:
    store = kit.open("A")
    held = 0
    for _ in range(160):
        publishes(kit, store, 1)
        publishes(kit, store, 2)
        sync(kit)
        if not kit.syncer.waiting:
            held += 1
            kit.later(200_000)
        sync(kit)
    assert 8 <= held <= 12


def test_stop_does_not_wait_for_company(kit: Kit) -> None:
    store = kit.open("A")
    publishes(kit, store, 1)
    publishes(kit, store, 2)
    sync(kit)
    assert kit.syncer.waiting == []
    kit.syncer.begin_drain(kit.clock.monotonic_ns())
    assert len(kit.syncer.waiting) == 1
    kit.syncer.run_all()
    assert kit.syncer.is_idle


def test_store_that_waits_for_company_can_be_given_up(kit: Kit) -> None:
    store = kit.open("A")
    publishes(kit, store, 1)
    publishes(kit, store, 2)
    sync(kit)
    freed: list[bool] = []
    kit.syncer.detach(store, lambda: freed.append(True))
    kit.later(1_000_000)
    assert freed == [True]
    assert kit.syncer.is_idle


def test_a_worker_that_fails_before_it_syncs_has_promised_nothing(kit: Kit) -> None:
    def no_clock() -> int:
        raise RuntimeError("no clock")

    store = kit.open("A")
    kit.put(store)
    kit.end_turn()
    job = kit.syncer.waiting.pop()
    job.run(no_clock)
    kit.syncer.complete(job, kit.clock.monotonic_ns())
    [(name, error)] = kit.said
    assert name == "A"
    assert "fault of the program" in str(error)


def test_sync_that_no_worker_takes_ends_the_promises_of_its_store(kit: Kit) -> None:
    def refuse(_job: SyncJob) -> None:
        raise RuntimeError("no threads left")

    syncer = Syncer(refuse, interval_ns=INTERVAL_NS)
    lines: list[str] = []
    syncer.faults.report = lines.append
    store = kit.open("A")
    kit.syncer.detach(store)
    said: list[object] = []
    syncer.attach(
        store,
        on_synced=lambda _target, number: said.append(number),
        on_failure=lambda _target, error: said.append(str(error)),
    )
    store.table.store(b"s", b"", b"x", 1)
    syncer.mark_dirty(store, 0)
    syncer.end_turn(0)
    assert said == ["a sync could not begin: RuntimeError('no threads left')"]
    assert (syncer.faults.total, syncer.statistics.read_only, len(lines)) == (1, 1, 1)
    with pytest.raises(ReadOnlyError):
        store.table.store(b"s", b"", b"y", 2)
    syncer.tick(RETRY_NS + 1)
    assert len(said) == 1


def test_owner_that_fails_when_it_is_told_ends_its_own_promises_and_no_others(kit: Kit) -> None:
    def fail(_target: SyncTarget, _number: int) -> None:
        raise RuntimeError("a bug of the owner")

    kit.syncer.faults.report = lambda _line: None
    one, other = kit.open("A"), kit.open("B")
    kit.syncer.detach(one)
    kit.syncer.attach(
        one, on_synced=fail, on_failure=lambda target, error: kit.say(target, str(error))
    )
    for store in (one, other):
        kit.put(store)
    kit.end_turn()
    kit.syncer.run_all()
    assert sorted(kit.said, key=str) == [("A", INTERNAL_ERROR), ("B", 1)]
    assert kit.syncer.faults.total == 1
    assert kit.kept_after_power_cut("A") == kit.kept_after_power_cut("B") == 1


@pytest.mark.parametrize("interval_ns", [0, -1])
def test_interval_that_cannot_be_is_refused(interval_ns: int) -> None:
    with pytest.raises(ValueError, match=f"interval_ns is {interval_ns}, it must be above 0"):
        SteppedSyncer(FakeClock(), interval_ns=interval_ns)
