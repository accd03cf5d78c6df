"""States of consumers on disk: whole ones, the log of acknowledgements, commits of both."""

from __future__ import annotations

import errno

import pytest
from stream_folder_kit import (
    NOW,
    ROOT,
    crash_everywhere,
    folder_on,
    made,
    made_with_consumer,
    state_at,
)

from tradewind.consumer.ack_codec import encode_whole, take_changes
from tradewind.consumer.pending import AckState
from tradewind.errors import StoreError
from tradewind.store.files.disk import DiskFull
from tradewind.store.folder import consumer_states
from tradewind.store.folder.stream_folder import (
    StreamFolder,
)
from tradewind.store.format.consumer_file import ConsumerState
from tradewind.store.format.meta import ConsumerMeta
from tradewind.testing.fake_disk import SimulatedDisk


def read_state(disk: SimulatedDisk) -> ConsumerState:
    return folder_on(disk).read_consumer("C").state


def kept_of_all(folder: StreamFolder, names: list[str]) -> int:
    """Up to here the states of all these consumers are durable."""
    return min(folder.states.kept_ticket(name) for name in names)


def test_a_state_is_the_old_or_the_new_one_and_durable_when_its_ticket_says_so() -> None:
    def act(disk: SimulatedDisk) -> None:
        states = folder_on(disk).states
        ticket = states.mark("C", state_at(7))
        assert states.kept_ticket("C") < ticket
        while commit := states.begin_commit(NOW):
            commit.run()
            states.finish_commit(commit)
            if states.kept_ticket("C") >= ticket:
                # From here on no crash may bring the old state back.
                disk.make_directory(f"{ROOT}/durable", sync=True)
        assert states.kept_ticket("C") == ticket

    def judge(disk: SimulatedDisk, is_done: bool) -> None:
        state = read_state(disk)
        assert state in (state_at(1), state_at(7))
        assert state == state_at(7) or not (is_done or disk.exists(f"{ROOT}/durable"))

    crash_everywhere(made_with_consumer, act, judge)


def test_states_marked_during_a_commit_belong_to_the_next() -> None:
    disk = made_with_consumer()
    states = folder_on(disk).states
    first = states.mark("C", state_at(2))
    commit = states.begin_commit(NOW)
    assert commit is not None
    assert states.begin_commit(NOW) is None
    second = states.mark("C", state_at(3))
    commit.run()
    states.finish_commit(commit)
    assert read_state(disk) == state_at(2)
    assert states.kept_ticket("C") < first
    states.commit(NOW)
    assert states.kept_ticket("C") == second
    assert read_state(disk.crash_losing_unsynced()) == state_at(3)
    assert not states.is_dirty
    assert disk.open_files == 0


def test_a_state_is_read_when_the_commit_begins() -> None:
    disk = made_with_consumer()
    states = folder_on(disk).states
    state = state_at(2)
    states.mark("C", state)
    state.redelivered[9] = 4
    states.commit(NOW)
    assert read_state(disk).redelivered[9] == 4


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("create", "*o.dat.tmp"),
        ("write", "*o.dat.tmp"),
        ("sync", "*o.dat.tmp"),
        ("rename", "*o.dat.tmp"),
        ("sync_directory", "*/obs/C"),
    ],
)
def test_a_failed_commit_leaves_the_state_waiting(operation: str, pattern: str) -> None:
    disk = made_with_consumer()
    folder_on(disk).create_consumer(ConsumerMeta("D", {"durable_name": "D"}), ConsumerState(), NOW)
    states = folder_on(disk).states
    states.mark("D", state_at(8))
    ticket = states.mark("C", state_at(9))
    disk.fail(operation, pattern)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        states.commit(NOW)
    assert states.kept_ticket("C") < ticket
    assert disk.open_files == 0
    assert read_state(disk) in (state_at(1), state_at(9))
    states.commit(NOW)
    assert states.kept_ticket("C") == ticket
    durable = disk.crash_losing_unsynced()
    assert read_state(durable) == state_at(9)
    assert folder_on(durable).read_consumer("D").state == state_at(8)
    assert disk.open_files == 0


class Counter:
    """A state that only counts how much was acknowledged, and notes what has changed."""

    entry_count = 0

    def __init__(self) -> None:
        self.acks = AckState("explicit")
        self.wholes = 0

    def ack_one(self) -> int:
        seq = self.acks.delivered_stream + 1
        self.acks.deliver(seq, 0)
        self.acks.acknowledge(seq, seq)
        return seq

    def encode_whole(self, now_ns: int) -> bytes:
        self.wholes += 1
        return encode_whole(self.acks, 0, now_ns)

    def take_changes(self) -> bytes | None:
        return take_changes(self.acks, 0)


def floor_on(disk: SimulatedDisk, consumer: str = "C") -> int:
    return folder_on(disk).read_consumer(consumer).state.ack_floor.stream_seq


def test_what_changes_while_a_whole_state_is_on_its_way_is_written_after_it() -> None:
    disk = made_with_consumer()
    states, source = folder_on(disk).states, Counter()
    source.ack_one()
    states.mark("C", source)
    states.commit(NOW)
    states.mark("C", source)
    commit = states.begin_commit(NOW)
    assert commit is not None
    last = source.ack_one()
    ticket = states.mark("C", source, is_urgent=True)
    assert not states.write("C", NOW)
    commit.run()
    states.finish_commit(commit)
    assert states.written_ticket("C") < ticket
    assert states.write("C", NOW)
    assert states.written_ticket("C") >= ticket > states.kept_ticket("C")
    assert floor_on(disk.crash_keeping_unsynced()) == last
    states.commit(NOW)
    assert floor_on(disk.crash_losing_unsynced()) == last


@pytest.mark.parametrize("refused", [1, 3])
def test_log_whose_beginning_was_refused_keeps_what_is_written_later(refused: int) -> None:
    """Its first writes are its header, zeros and a record: without the first nothing counts."""
    disk = made()
    folder = folder_on(disk)
    sources = {name: Counter() for name in "CD"}
    for name, source in sources.items():
        folder.create_consumer(ConsumerMeta(name, {}), ConsumerState(), NOW)
        folder.states.mark(name, source)
    folder.states.commit(NOW)
    sources["C"].ack_one()
    ticket = folder.states.mark("C", sources["C"], is_urgent=True)
    disk.fail("write", "*tradewind.acks.*", nth=refused, error=errno.ENOSPC)
    assert not folder.states.write("C", NOW)
    assert folder.states.written_ticket("C") < ticket
    last = sources["D"].ack_one()
    folder.states.mark("D", sources["D"], is_urgent=True)
    assert folder.states.write("D", NOW)
    assert floor_on(disk.crash_keeping_unsynced(), "D") == last
    assert disk.open_files <= 1  # the log itself
    folder.states.commit(NOW)
    durable = disk.crash_losing_unsynced()
    assert [floor_on(durable, name) for name in "CD"] == [1, last]


def test_record_is_kept_on_a_disk_without_room_for_the_zeros_behind_it() -> None:
    disk = made_with_consumer()
    states, source = folder_on(disk).states, Counter()
    states.mark("C", source)
    states.commit(NOW)
    for nth in (2, 1, 1):  # the first write of all is that of the header
        last = source.ack_one()
        ticket = states.mark("C", source, is_urgent=True)
        disk.fail("write", "*tradewind.acks.*", nth=nth, error=errno.ENOSPC)
        assert states.write("C", NOW)
        assert states.written_ticket("C") >= ticket
        assert floor_on(disk.crash_keeping_unsynced()) == last


def logs_of(disk: SimulatedDisk) -> dict[str, int]:
    """The size of each log by its name."""
    files = disk.snapshot_tree().items()
    return {path: len(content or b"") for path, content in files if "/tradewind.acks." in path}


def test_sync_of_an_acknowledgement_seldom_changes_the_size_of_its_log() -> None:
    """A change of size has to be synced too, which takes a file system longer than the record."""
    disk = made_with_consumer()
    states, source = folder_on(disk).states, Counter()
    states.mark("C", source)
    states.commit(NOW)
    sizes = set()
    for _ in range(200):
        source.ack_one()
        states.mark("C", source, is_urgent=True)
        states.commit(NOW)
        sizes.add(tuple(logs_of(disk).values()))
    assert len(sizes) <= 3
    assert floor_on(disk.crash_losing_unsynced()) == 200


@pytest.mark.parametrize("is_finished", [False, True])
def test_acknowledgement_need_not_wait_for_a_whole_state_on_its_way(is_finished: bool) -> None:
    """A kill before the new o.dat has its name leaves the old one, and after it the new one."""
    disk = made_with_consumer()
    states, source = folder_on(disk).states, Counter()
    states.mark("C", source)
    states.commit(NOW)
    source.ack_one()
    states.mark("C", source, is_urgent=True)
    assert states.write("C", NOW)
    source.ack_one()
    states.fold_quiet()
    ticket = states.mark("C", source)
    commit = states.begin_commit(NOW)
    assert commit is not None
    assert any(file.path.endswith("/o.dat.tmp") for file in commit.asides)
    assert states.written_ticket("C") >= ticket > states.kept_ticket("C")
    for _ in range(3):
        last = source.ack_one()
        ticket = states.mark("C", source, is_urgent=True)
        assert states.write("C", NOW)
        assert states.written_ticket("C") >= ticket > states.kept_ticket("C")
        assert floor_on(disk.crash_keeping_unsynced()) == last
    if is_finished:
        commit.run()
        states.finish_commit(commit)
        assert floor_on(disk.crash_keeping_unsynced()) == last
        last = source.ack_one()
        states.mark("C", source, is_urgent=True)
        assert states.write("C", NOW)
        assert floor_on(disk.crash_keeping_unsynced()) == last
        states.commit(NOW)
    else:
        states.drop_commit()
        assert floor_on(disk.crash_keeping_unsynced()) == last
        states.commit(NOW)
    assert floor_on(disk.crash_losing_unsynced()) == last
    states.fold_quiet()
    states.commit(NOW)
    assert not logs_of(disk)
    assert floor_on(disk.crash_losing_unsynced()) == last


def test_state_in_the_log_is_written_as_a_whole_now_and_then() -> None:
    """Each whole one is a new file with two syncs more."""
    disk = made_with_consumer()
    states, source = folder_on(disk).states, Counter()
    states.mark("C", source)
    states.commit(NOW)
    wholes = source.wholes
    for _ in range(2 * consumer_states.SAVES_PER_FOLD):
        source.ack_one()
        states.mark("C", source, is_urgent=True)
        states.commit(NOW)
        source.ack_one()
        states.mark("C", source)
        states.commit(NOW)
        assert states.kept_ticket("C") >= 1
    assert 1 <= source.wholes - wholes <= 3


def test_small_state_in_the_log_is_folded_when_nothing_changes() -> None:
    disk = made_with_consumer()
    states, source = folder_on(disk).states, Counter()
    asked: list[bool] = []
    files = consumer_states.ConsumerFiles(states, lambda: NOW, sync_soon=lambda: asked.append(True))
    states.mark("C", source)
    states.commit(NOW)
    last = source.ack_one()
    states.mark("C", source, is_urgent=True)
    states.commit(NOW)
    assert logs_of(disk)
    files.mark_idle()
    assert asked
    states.commit(NOW)
    assert not logs_of(disk)
    assert floor_on(disk.crash_losing_unsynced()) == last
    files.mark_idle()
    assert len(asked) == 1


def test_state_is_not_written_before_a_stream_that_cannot_be() -> None:
    """It may know of what limits have removed for messages that a kill would take back."""
    disk = made_with_consumer()
    folder, source = folder_on(disk), Counter()
    folder.states.mark("C", source)
    folder.states.commit(NOW)

    def refuse() -> None:
        raise DiskFull("/disk", "write", errno.ENOSPC)

    files = consumer_states.ConsumerFiles(folder.states, lambda: NOW, write_stream=refuse)
    source.ack_one()
    ticket = folder.states.mark("C", source, is_urgent=True)
    assert not files.write("C")
    with pytest.raises(DiskFull):
        files.begin_commit()
    assert folder.states.written_ticket("C") < ticket
    assert floor_on(disk.crash_keeping_unsynced()) == 0


def test_urgent_states_of_all_consumers_are_kept_by_one_sync() -> None:
    disk = made()
    folder = folder_on(disk)
    names = [f"C{number}" for number in range(50)]
    sources = {name: Counter() for name in names}
    for name in names:
        folder.create_consumer(ConsumerMeta(name, {}), ConsumerState(), NOW)
        folder.states.mark(name, sources[name])
    folder.states.commit(NOW)
    for round_number in range(1, 4):
        for name in names:
            sources[name].ack_one()
            last = folder.states.mark(name, sources[name], is_urgent=True)
        commit = folder.states.begin_commit(NOW)
        assert commit is not None
        assert len(commit.files) == 1
        assert len(commit.folders) == (1 if round_number == 1 else 0)
        commit.run()
        folder.states.finish_commit(commit)
        assert kept_of_all(folder, names) == last
        crashed = disk.crash_losing_unsynced()
        assert {floor_on(crashed, name) for name in names} == {round_number}


def test_few_states_are_written_as_a_whole_beside_urgent_ones() -> None:
    disk = made()
    folder = folder_on(disk)
    names = [f"C{number}" for number in range(50)]
    sources = {name: Counter() for name in names}
    for name in names:
        folder.create_consumer(ConsumerMeta(name, {}), ConsumerState(), NOW)
        folder.states.mark(name, sources[name])
    folder.states.commit(NOW)
    for name in names:
        sources[name].ack_one()
        folder.states.mark(name, sources[name])
    last = folder.states.mark("C7", sources["C7"], is_urgent=True)
    commit = folder.states.begin_commit(NOW)
    assert commit is not None
    assert (len(commit.files), len(commit.asides)) == (1, 1)
    commit.run()
    folder.states.finish_commit(commit)
    assert floor_on(disk.crash_losing_unsynced(), "C7") == 1
    # Others are not kept yet, though they were marked before.
    assert folder.states.kept_ticket("C7") >= last > kept_of_all(folder, names)
    folder.states.commit(NOW)
    assert kept_of_all(folder, names) == last
    assert folder.states.fold_quiet()
    folder.states.commit(NOW)
    assert all("acks" not in name for name in disk.list_directory(folder.path))


def test_a_consumer_deleted_during_a_commit_does_not_come_back() -> None:
    disk = made_with_consumer()
    folder = folder_on(disk)
    folder.states.mark("C", state_at(2))
    commit = folder.states.begin_commit(NOW)
    assert commit is not None
    folder.delete_consumer("C")
    commit.run()
    folder.states.finish_commit(commit)
    assert not folder.states.is_dirty
    assert folder.consumers() == ([], [])
    assert disk.open_files == 0


def test_a_commit_takes_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_states, "COMMIT_FILES_MAX", 4)
    disk = made()
    folder = folder_on(disk)
    names = [f"C{number}" for number in range(10)]
    for name in names:
        folder.create_consumer(ConsumerMeta(name, {}), ConsumerState(), NOW)
    for name in names:
        last = folder.states.mark(name, state_at(5))
    sizes = []
    while commit := folder.states.begin_commit(NOW):
        sizes.append(len(commit.asides))
        commit.run()
        folder.states.finish_commit(commit)
    assert sizes == [4, 4, 2, 0]
    assert kept_of_all(folder, names) == last
    durable = folder_on(disk.crash_losing_unsynced())
    assert all(durable.read_consumer(name).state == state_at(5) for name in names)


def test_a_consumer_that_is_deleted_during_a_commit_does_not_end_it_for_the_others() -> None:
    disk = made()
    folder = folder_on(disk)
    for name in ("gone", "stays"):
        folder.create_consumer(ConsumerMeta(name, {}), ConsumerState(), NOW)
        folder.states.mark(name, state_at(5))
    written = folder.states.begin_commit(NOW)
    assert written is not None
    written.run()
    folder.states.finish_commit(written)
    naming = folder.states.begin_commit(NOW)
    assert naming is not None
    assert len(naming.folders) == 2
    folder.delete_consumer("gone")
    naming.run()
    folder.states.finish_commit(naming)
    durable = folder_on(disk.crash_losing_unsynced())
    assert durable.read_consumer("stays").state == state_at(5)


def test_a_consumer_whose_folder_somebody_has_removed_is_not_durable() -> None:
    disk = made()
    folder = folder_on(disk)
    folder.create_consumer(ConsumerMeta("C", {}), ConsumerState(), NOW)
    folder.states.mark("C", state_at(5))
    written = folder.states.begin_commit(NOW)
    assert written is not None
    written.run()
    folder.states.finish_commit(written)
    naming = folder.states.begin_commit(NOW)
    assert naming is not None
    disk.remove_tree(naming.folders[0])
    naming.run()
    with pytest.raises(StoreError, match="sync_directory failed"):
        folder.states.finish_commit(naming)
