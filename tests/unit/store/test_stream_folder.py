"""A stream's folder comes, changes and goes without a moment at which a crash loses anything."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
from stream_folder_kit import (
    CONSUMER,
    NEW,
    NOW,
    OLD,
    ROOT,
    crash_everywhere,
    folder_on,
    made,
    made_with_consumer,
    state_at,
)

from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.contract import StoreLimits
from tradewind.store.files.disk import DiskFull, FolderInUse, MissingFile
from tradewind.store.files.joint_step import make
from tradewind.store.files.meta_files import write_meta
from tradewind.store.folder.stream_folder import (
    NotReadable,
    StoreRoot,
    StreamExists,
    StreamFolder,
    limits_of,
)
from tradewind.store.format.consumer_file import ConsumerState
from tradewind.store.format.layout import stream_key_text
from tradewind.store.format.meta import StreamMeta, encode_stream_meta
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk


def config_of(meta: StreamMeta) -> tuple[object, ...]:
    return (meta.config["subjects"], meta.config["max_msgs"], meta.created_ns)


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
    make(folder.retirement())
    folder.create(NEW)
    make(folder.retirement())
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
