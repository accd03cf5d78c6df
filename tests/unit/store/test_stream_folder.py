"""A stream's folder comes, changes and goes without a moment at which a crash loses anything."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from tradewind.consumer.ack_codec import encode_whole, take_changes
from tradewind.consumer.pending import AckState
from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.contract import StoreLimits
from tradewind.store.files.disk import DiskFull, FolderInUse, MissingFile
from tradewind.store.files.meta_files import write_meta
from tradewind.store.folder import consumer_states
from tradewind.store.folder.stream_folder import (
    NotReadable,
    StoreRoot,
    StreamExists,
    StreamFolder,
    limits_of,
)
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.layout import stream_key_text
from tradewind.store.format.meta import ConsumerMeta, StreamMeta, encode_stream_meta
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

ROOT = "/disk"
NOW = 1_800_000_000_000_000_000
OLD = StreamMeta({"name": "S", "subjects": ["a"]}, NOW)
NEW = StreamMeta({"name": "S", "subjects": ["a", "b"], "max_msgs": 5}, NOW)
CONSUMER = ConsumerMeta("C", {"durable_name": "C", "ack_policy": "explicit"}, NOW)
CRASHES = 30


def folder_on(disk: SimulatedDisk) -> StreamFolder:
    return StreamFolder(disk, ROOT, "$G", "S")


def made() -> SimulatedDisk:
    disk = SimulatedDisk()
    folder_on(disk).create(OLD)
    return disk


def made_with_consumer() -> SimulatedDisk:
    disk = made()
    folder_on(disk).create_consumer(CONSUMER, state_at(1), NOW)
    return disk


def state_at(seq: int) -> ConsumerState:
    at = SequencePair(seq, seq)
    pending = {number: PendingDelivery(number, NOW) for number in range(seq + 1, seq + 4)}
    return ConsumerState(SequencePair(seq + 3, seq + 3), at, pending, {seq + 1: 2})


def config_of(meta: StreamMeta) -> tuple[object, ...]:
    return (meta.config["subjects"], meta.config["max_msgs"], meta.created_ns)


Judge = Callable[[SimulatedDisk, bool], None]


def crash_everywhere(
    prepare: Callable[[], SimulatedDisk], act: Callable[[SimulatedDisk], None], judge: Judge
) -> None:
    """Cut the power before each step of `act` and after the last; judge what is left each time."""
    disk = prepare()
    before = disk.steps
    act(disk)
    total = disk.steps
    assert total > before
    for stop_at in range(before + 1, total + 2):
        disk = prepare()
        disk.stop_at = stop_at
        with suppress(PowerLoss):
            act(disk)
        for seed in range(CRASHES):
            judge(disk.crash(seed), stop_at > total)


# ------------------------------------------------------------------ creation and change


@pytest.mark.slow
def test_a_new_stream_is_there_entirely_or_not_at_all() -> None:
    def judge(disk: SimulatedDisk, is_done: bool) -> None:
        folder = folder_on(disk)
        try:
            meta = folder.read_meta()
        except MissingFile:
            assert not is_done
            folder.create(NEW)
            meta = folder.read_meta()
            assert config_of(meta)[0] == ["a", "b"]
        else:
            assert config_of(meta)[0] == ["a"]
        assert disk.list_directory(f"{folder.path}/msgs") == ["1.blk"]

    crash_everywhere(SimulatedDisk, lambda disk: folder_on(disk).create(OLD), judge)


def test_an_update_leaves_the_old_configuration_or_the_new_one() -> None:
    def judge(disk: SimulatedDisk, is_done: bool) -> None:
        folder = folder_on(disk)
        subjects = config_of(folder.read_meta())[0]
        assert subjects in (["a"], ["a", "b"])
        assert subjects == ["a", "b"] or not is_done
        # The same folder is changed again, from whatever state the crash has left.
        folder.update(NEW)
        assert config_of(folder.read_meta())[0] == ["a", "b"]
        again = disk.crash_losing_unsynced()
        assert config_of(folder_on(again).read_meta())[0] == ["a", "b"]

    crash_everywhere(made, lambda disk: folder_on(disk).update(NEW), judge)


def test_a_second_crash_during_the_repair_of_an_update_loses_nothing() -> None:
    disk = made()
    disk.stop_at = disk.steps + 9  # between the two renames
    with suppress(PowerLoss):
        folder_on(disk).update(NEW)
    cut = disk.crash_keeping_unsynced()
    names = set(cut.list_directory(folder_on(cut).path))
    assert {"meta.inf", "meta.sum", "meta.sum.tmp"} <= names

    def judge(crashed: SimulatedDisk, is_done: bool) -> None:
        assert config_of(folder_on(crashed).read_meta())[0] == ["a", "b"]

    crash_everywhere(disk.crash_keeping_unsynced, lambda disk: folder_on(disk).update(NEW), judge)


def test_a_full_disk_at_an_update_leaves_the_old_configuration() -> None:
    disk = made()
    disk.fail("write", "*meta.inf.tmp", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        folder_on(disk).update(NEW)
    assert config_of(folder_on(disk).read_meta())[0] == ["a"]
    assert not [name for name in disk.list_directory(folder_on(disk).path) if ".tmp" in name]
    folder_on(disk).update(NEW)
    assert config_of(folder_on(disk).read_meta())[0] == ["a", "b"]


def test_a_stream_is_not_created_twice() -> None:
    with pytest.raises(StreamExists, match="exists already"):
        folder_on(made()).create(NEW)


@pytest.mark.parametrize("path", ["msgs/1.blk", "__new_msgs__/1.blk", "obs/C/o.dat"])
def test_data_without_configuration_is_never_taken_over(path: str) -> None:
    disk = SimulatedDisk()
    folder = folder_on(disk)
    whole = f"{folder.path}/{path}"
    disk.make_directory(whole.rpartition("/")[0])
    disk.write_file_atomically(whole, b"precious")
    with pytest.raises(StreamExists, match=r"no meta\.sum, but there are"):
        folder.create(NEW)
    assert disk.read_file(whole) == b"precious"


def test_empty_blocks_of_a_creation_that_was_cut_off_are_no_obstacle() -> None:
    disk = SimulatedDisk()
    folder = folder_on(disk)
    disk.make_directory(f"{folder.path}/msgs")
    disk.create(f"{folder.path}/msgs/1.blk").close()
    folder.create(NEW)
    assert config_of(folder.read_meta())[0] == ["a", "b"]


def test_a_damaged_configuration_is_reported_and_left_alone() -> None:
    disk = made()
    path = f"{folder_on(disk).path}/meta.inf"
    damaged = disk.read_file(path).replace(b'"a"', b'"b"')
    disk.write_file_atomically(path, damaged)
    with pytest.raises(CorruptRecord, match=r"meta\.inf: byte 0: its hash is"):
        folder_on(disk).read_meta()
    listing = StoreRoot(disk, ROOT).streams("$G")
    assert not listing.streams
    assert listing.skipped[0].path.endswith("/S")
    assert disk.read_file(path) == damaged


def test_the_configuration_of_another_stream_is_refused() -> None:
    disk = made()
    streams = folder_on(disk).path.rpartition("/")[0]
    disk.rename(f"{streams}/S", f"{streams}/T")
    with pytest.raises(CorruptRecord, match="its hash is"):
        StreamFolder(disk, ROOT, "$G", "T").read_meta()


# ------------------------------------------------------------------ deletion


def test_deletion_takes_all_or_nothing() -> None:
    def judge(disk: SimulatedDisk, is_done: bool) -> None:
        root = StoreRoot(disk, ROOT)
        listing = root.streams("$G")
        assert not listing.skipped
        assert len(listing.streams) <= (0 if is_done else 1)
        if listing.streams:
            consumers, skipped = listing.streams[0][0].consumers()
            assert [consumer.meta.name for consumer in consumers] == ["C"]
            assert not skipped
        root.finish_deletions()
        names = disk.list_directory(f"{root.folder}/$G/streams")
        assert names == (["S"] if listing.streams else [])

    crash_everywhere(made_with_consumer, lambda disk: folder_on(disk).delete(), judge)


def test_a_stream_deleted_twice_leaves_the_second_one_deleted_too() -> None:
    disk = made()
    folder = folder_on(disk)
    folder.retire()
    folder.create(NEW)
    folder.retire()
    assert disk.list_directory(folder.path.rpartition("/")[0]) == [".S", ".S-1"]
    folder.remove_retired()
    assert disk.list_directory(folder.path.rpartition("/")[0]) == []


# ------------------------------------------------------------------ the root


def test_a_second_server_on_the_same_folder_is_refused() -> None:
    disk = SimulatedDisk()
    root = StoreRoot(disk, ROOT)
    with pytest.raises(FolderInUse, match="in use"):
        StoreRoot(disk, ROOT)
    root.close()
    StoreRoot(disk, ROOT).close()


def test_accounts_and_streams_are_listed_and_other_things_are_passed_over() -> None:
    disk = made()
    StreamFolder(disk, ROOT, "ACME.org", "T").create(StreamMeta({"name": "T"}))
    disk.make_directory(f"{ROOT}/jetstream/$SYS/_js_/group")
    disk.make_directory(f"{ROOT}/jetstream/$G/streams/.GONE")
    disk.make_directory(f"{ROOT}/jetstream/$G/streams/HALF/msgs")
    disk.write_file_atomically(f"{ROOT}/jetstream/$G/streams/note.txt", b"hello")
    root = StoreRoot(disk, ROOT)
    assert root.accounts() == ["$G", "ACME.org"]
    listing = root.streams("$G")
    assert [folder.stream for folder, _ in listing.streams] == ["S"]
    assert [skipped.path for skipped in listing.skipped] == [f"{ROOT}/jetstream/$G/streams/HALF"]
    assert [meta.config["name"] for _, meta in root.streams("ACME.org").streams] == ["T"]
    assert root.finish_deletions() == [f"{ROOT}/jetstream/$G/streams/.GONE"]


def test_an_encrypted_stream_is_refused_with_the_reason() -> None:
    disk = made_with_consumer()
    disk.write_file_atomically(f"{folder_on(disk).path}/obs/C/meta.key", bytes(64))
    assert "is encrypted" in folder_on(disk).consumers()[1][0].reason
    disk.write_file_atomically(f"{folder_on(disk).path}/meta.key", bytes(64))
    with pytest.raises(NotReadable, match="no key is configured"):
        folder_on(disk).read_meta()


@pytest.mark.parametrize(
    ("account", "stream", "text"),
    [
        ("", "S", "account name '' is empty"),
        ("..", "S", "is not a name of a folder"),
        ("$G", "a.b", "stream name 'a.b' contains '.'"),
        ("$G", "../x", "contains '.'"),
        ("$G", "x" * 300, "300 bytes"),
    ],
)
def test_bad_names_are_refused(account: str, stream: str, text: str) -> None:
    with pytest.raises(StoreError, match=text):
        StreamFolder(SimulatedDisk(), ROOT, account, stream)


def test_limits_come_from_the_configuration() -> None:
    config = {"max_msgs": 1, "max_bytes": 2, "max_age": 3, "max_msgs_per_subject": 4}
    assert limits_of(config) == StoreLimits(1, 2, 3, 4)
    assert limits_of({"max_msgs": -1, "max_bytes": None, "discard": "old"}) == StoreLimits()
    assert limits_of({"discard": "new"}) == StoreLimits(discard_new=True)


def test_a_first_sequence_is_kept_over_a_restart() -> None:
    disk = SimulatedDisk()
    folder = folder_on(disk)
    folder.create(StreamMeta({**OLD.config, "first_seq": 100}))
    for _ in range(3):
        _, store, _ = folder.open(NOW)
        assert (store.table.state.first_seq, store.table.state.last_seq) == (100, 99)
        store.commit()
    assert store.table.store(b"a", b"", b"x", NOW) == 100
    store.close()
    _, store, _ = folder.open(NOW)
    assert store.table.get(100).payload == b"x"


# ------------------------------------------------------------------ consumers


@pytest.mark.slow
def test_a_new_consumer_is_there_with_its_state_or_not_at_all() -> None:
    def judge(disk: SimulatedDisk, is_done: bool) -> None:
        folder = folder_on(disk)
        consumers, _ = folder.consumers()
        assert len(consumers) == 1 or not is_done
        if consumers:
            assert consumers[0].state == state_at(5)
            assert not consumers[0].problem
        else:
            folder.create_consumer(CONSUMER, state_at(6), NOW)
            assert folder.read_consumer("C").state == state_at(6)

    crash_everywhere(
        made, lambda disk: folder_on(disk).create_consumer(CONSUMER, state_at(5), NOW), judge
    )


def test_a_deleted_consumer_is_gone_or_whole() -> None:
    def judge(disk: SimulatedDisk, is_done: bool) -> None:
        consumers, _ = folder_on(disk).consumers()
        assert not consumers or not is_done
        assert all(consumer.state == state_at(1) for consumer in consumers)

    crash_everywhere(made_with_consumer, lambda disk: folder_on(disk).delete_consumer("C"), judge)


def test_configuration_of_another_stream_is_refused() -> None:
    """As in a folder that somebody has put together by hand, with a sum that fits."""
    disk = made()
    folder = folder_on(disk)
    other = encode_stream_meta(StreamMeta({"name": "T", "subjects": ["a"]}, NOW))
    write_meta(disk, folder.path, other, stream_key_text("S"))
    with pytest.raises(CorruptRecord, match="it is of stream 'T', not 'S'"):
        folder.read_meta()


def test_a_consumer_with_a_wrong_sum_is_usable_and_said_to_be_wrong() -> None:
    disk = made_with_consumer()
    disk.write_file_atomically(f"{folder_on(disk).path}/obs/C/meta.sum", b"0" * 16)
    found = folder_on(disk).read_consumer("C")
    assert found.meta.config == folder_on(made_with_consumer()).read_consumer("C").meta.config
    assert "its hash is" in found.problem


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("meta.inf", b"{}", '"Name"'),
        ("meta.inf", b'{"Name":"D"}', "it is of consumer 'D', not 'C'"),
        ("o.dat", b"\x16\x09\x00", "not with 22 and a version 1 or 2"),
    ],
)
def test_a_consumer_that_cannot_be_read_is_skipped(name: str, data: bytes, reason: str) -> None:
    disk = made_with_consumer()
    disk.write_file_atomically(f"{folder_on(disk).path}/obs/C/{name}", data)
    consumers, skipped = folder_on(disk).consumers()
    assert not consumers
    assert reason in skipped[0].reason


def test_a_consumer_without_a_state_file_has_never_delivered() -> None:
    disk = made_with_consumer()
    disk.remove(f"{folder_on(disk).path}/obs/C/o.dat")
    assert folder_on(disk).read_consumer("C").state == ConsumerState()


def test_a_consumer_is_not_created_twice() -> None:
    with pytest.raises(StreamExists, match="consumer exists"):
        folder_on(made_with_consumer()).create_consumer(CONSUMER, state_at(2), NOW)


def test_consumer_names_are_checked() -> None:
    with pytest.raises(StoreError, match=r"contains '\.'"):
        folder_on(made()).read_consumer("../other")


# ------------------------------------------------------------------ consumer states


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

    def ack_one(self) -> int:
        seq = self.acks.delivered_stream + 1
        self.acks.deliver(seq, 0)
        self.acks.acknowledge(seq, seq)
        return seq

    def encode_whole(self, now_ns: int) -> bytes:
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


@pytest.mark.parametrize("refused", [1, 2])
def test_log_whose_beginning_was_refused_keeps_what_is_written_later(refused: int) -> None:
    """The first two writes to it are its header and a record: without the former nothing counts."""
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
    assert disk.open_files == 0
    folder.states.commit(NOW)
    durable = disk.crash_losing_unsynced()
    assert [floor_on(durable, name) for name in "CD"] == [1, last]


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
    assert len(commit.files) == 2
    commit.run()
    folder.states.finish_commit(commit)
    assert floor_on(disk.crash_losing_unsynced(), "C7") == 1
    # Others are not kept yet, though they were marked before.
    assert folder.states.kept_ticket("C7") >= last > kept_of_all(folder, names)
    folder.states.commit(NOW)
    assert kept_of_all(folder, names) == last
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
        sizes.append(len(commit.files))
        commit.run()
        folder.states.finish_commit(commit)
    assert sizes == [4, 4, 2, 0]
    assert kept_of_all(folder, names) == last
    durable = folder_on(disk.crash_losing_unsynced())
    assert all(durable.read_consumer(name).state == state_at(5) for name in names)
