"""What a start makes of the files of a chain: what was told stays, what does not fit is named."""

from __future__ import annotations

import errno

import pytest

from store_chains import CREATED, FOLDER, chain_of, chained, checkpoint, verify_chain
from tradewind.chain.chain_entries import digest_of, first_link
from tradewind.chain.chain_folder import (
    CHECKPOINTS,
    HEADER_BYTES,
    LinksHeader,
    encode_header,
    segment_name,
)
from tradewind.errors import StoreError
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_chain import BROKEN, STATE
from tradewind.testing.fake_disk import SimulatedDisk

CHAIN = f"{FOLDER}/chain"
LINES = f"{CHAIN}/{CHECKPOINTS}"
MESSAGE_BYTES = 41


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    return disk


def fill(store: FileStore, count: int) -> None:
    """Messages, promised."""
    for _ in range(count):
        seq = store.table.last_seq + 1
        store.table.store(b"a", b"", b"payload-%d" % seq, seq)
    store.commit()
    store.mark_idle()


def closed(count: int, *, covered: int = 0, segment_entries: int = 1 << 20) -> SimulatedDisk:
    """A chain of so many messages, the first `covered` of them with a checkpoint."""
    disk = new_disk()
    store, _ = chained(disk, segment_entries=segment_entries)
    if covered:
        fill(store, covered)
        checkpoint(store)
    fill(store, count - covered)
    store.close()
    return disk


def change(disk: SimulatedDisk, path: str, offset: int, flipped: int = 1) -> None:
    content = bytearray(disk.content_of(path))
    content[offset] ^= flipped
    disk.put_durable_file(path, bytes(content))


def assert_broken(disk: SimulatedDisk, index: int, reason: str, count: int) -> None:
    """It is told now and at every later start; all messages are there, and more can come."""
    for start in range(2):
        store, report = chained(disk)
        broken = chain_of(store).broken
        assert broken is not None
        assert (broken.index, reason in broken.reason) == (index, True), broken
        assert any(reason in note for note in report.notes) == (start == 0)
        assert [message.seq for message in store.table.messages()] == list(range(1, count + 1))
        fill(store, 1)
        count += 1
        store.close()


# --- what was told is durable ---------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_first_checkpoint_that_succeeds_at_the_second_try_survives_a_power_failure(
    error: int,
) -> None:
    disk = new_disk()
    store, _ = chained(disk)
    fill(store, 3)
    disk.fail("write", LINES, error=error)
    with pytest.raises(StoreError, match="checkpoints: write failed"):
        checkpoint(store)
    told = checkpoint(store)
    again, _ = chained(disk.crash_losing_unsynced())
    assert chain_of(again).checkpoint == told
    verify_chain(again)


@pytest.mark.parametrize(("folder", "nth"), [(FOLDER, 3), (CHAIN, 1)])
def test_links_that_a_killed_process_has_begun_are_durable_with_the_next_commit(
    folder: str, nth: int
) -> None:
    """The names of files and folders that the system knows are not on disk for that."""
    disk = new_disk()
    fault = disk.fail("sync_directory", folder, nth)
    store, _ = chained(disk)
    store.table.store(b"a", b"", b"payload-1", 1)
    with pytest.raises(StoreError, match="sync_directory failed"):
        store.commit()
    assert fault.hits
    again, _ = chained(disk)
    fill(again, 1)
    promised = chain_of(again).synced
    crashed = disk.crash_losing_unsynced()
    assert crashed.exists(f"{CHAIN}/{segment_name(0)}")
    after, report = chained(crashed)
    assert not report.notes
    assert chain_of(after).synced == promised
    verify_chain(after)


def test_links_that_a_killed_process_has_written_into_two_files_are_all_durable() -> None:
    disk = new_disk()
    store, _ = chained(disk, segment_entries=4)
    fill(store, 2)
    for seq in range(3, 7):
        store.table.store(b"a", b"", b"payload-%d" % seq, seq)
    store.flush()
    chain_of(store).write()
    again, _ = chained(disk, segment_entries=4)
    promised = chain_of(again).synced
    assert promised.size == 6
    crashed = disk.crash_losing_unsynced()
    for path in (f"{CHAIN}/{segment_name(0)}", f"{CHAIN}/{segment_name(4)}"):
        assert crashed.content_of(path) == disk.content_of(path)
    after, _ = chained(crashed, segment_entries=4)
    assert chain_of(after).synced == promised
    assert len(verify_chain(after, segment_entries=4)) == 6


def test_checkpoint_that_a_killed_process_has_written_is_durable_before_it_is_told() -> None:
    disk = closed(5, covered=3)
    copy = disk.crash_keeping_unsynced()
    store, _ = chained(copy)
    told = checkpoint(store)
    before, after = disk.read_file(LINES), copy.read_file(LINES)
    assert after.startswith(before)
    with disk.open(LINES, writes=True) as file:
        file.write(after[len(before) :], len(before))
    again, _ = chained(disk)
    assert chain_of(again).checkpoint == told
    crashed, _ = chained(disk.crash_losing_unsynced())
    assert chain_of(crashed).checkpoint == told


@pytest.mark.parametrize("covered", [0, 8])
def test_loss_that_a_start_has_found_which_was_cut_off_is_explained_by_the_next(
    covered: int,
) -> None:
    """The repair of the blocks is durable by then: only the report of it knows what was lost."""
    disk = closed(8, covered=covered)
    disk.remove(f"{FOLDER}/msgs/index.db")
    blocks = f"{FOLDER}/msgs/1.blk"
    change(disk, blocks, disk.content_of(blocks).index(b"payload-5"))
    disk.fail("sync", f"{CHAIN}/*.links")
    with pytest.raises(StoreError, match="sync failed"):
        chained(disk)
    disk.clear_faults()
    sizes = set()
    for _ in range(3):
        store, _ = chained(disk)
        assert [message.seq for message in store.table.messages()] == [1, 2, 3, 4, 6, 7, 8]
        sizes.add(len(verify_chain(store)))
        store.close()
    assert sizes == {9}


# --- what does not fit ----------------------------------------------------------------------------


def test_break_that_cannot_be_read_is_still_a_break() -> None:
    disk = closed(3)
    disk.put_durable_file(f"{CHAIN}/{BROKEN}", b"\xff{")
    store, _ = chained(disk)
    broken = chain_of(store).broken
    assert broken is not None
    assert broken.reason == f"{CHAIN}/{BROKEN} cannot be read"


def test_checkpoint_that_cannot_be_read_breaks_the_chain_and_its_line_is_named() -> None:
    disk = closed(5, covered=3)
    disk.put_durable_file(LINES, disk.content_of(LINES) + b'{"size": "many"}\n')
    assert_broken(disk, 0, f"{LINES}, line 2: ", 5)


@pytest.mark.parametrize("rest", [b'{"size":', b'{"si\0\0\0\0\0\0"}\n'])
def test_line_of_a_checkpoint_that_has_not_arrived_whole_goes(rest: bytes) -> None:
    disk = closed(5, covered=3)
    whole = disk.content_of(LINES)
    disk.put_durable_file(LINES, whole + rest)
    store, report = chained(disk)
    assert not report.notes
    assert disk.content_of(LINES) == whole
    checkpoint(store)
    assert len(verify_chain(store)) == 5


def test_only_line_of_the_checkpoints_that_has_not_arrived_goes() -> None:
    disk = closed(5)
    disk.put_durable_file(LINES, b'{"size":5,')
    store, report = chained(disk)
    assert not report.notes
    assert disk.content_of(LINES) == b""
    checkpoint(store)
    assert len(verify_chain(store)) == 5


def test_entries_of_a_checkpoint_that_are_missing_break_the_chain() -> None:
    disk = closed(5, covered=5)
    path = f"{CHAIN}/{segment_name(0)}"
    disk.put_durable_file(path, disk.content_of(path)[: HEADER_BYTES + 2 * MESSAGE_BYTES + 7])
    assert_broken(disk, 2, "entries 2 to 4 are missing or damaged", 5)


def test_record_that_is_none_within_a_checkpoint_breaks_the_chain() -> None:
    disk = closed(5, covered=5)
    disk.remove(f"{CHAIN}/{STATE}")
    change(disk, f"{CHAIN}/{segment_name(0)}", HEADER_BYTES + 3 * MESSAGE_BYTES, 0x70)
    assert_broken(disk, 3, "entries 3 to 4 are missing or damaged", 5)


def test_links_that_a_checkpoint_does_not_cover_break_the_chain() -> None:
    disk = closed(5, covered=5)
    disk.remove(f"{CHAIN}/{STATE}")
    change(disk, f"{CHAIN}/{segment_name(0)}", HEADER_BYTES + MESSAGE_BYTES + 20)
    assert_broken(disk, 4, "the links are not those of the last checkpoint", 5)


def test_chain_of_another_stream_is_named() -> None:
    disk = closed(3)
    path = f"{CHAIN}/{segment_name(0)}"
    other = first_link(digest_of("sha256"), "OTHER", CREATED)
    header = encode_header(LinksHeader("sha256", 0, other))
    disk.put_durable_file(path, header + disk.content_of(path)[HEADER_BYTES:])
    assert_broken(disk, 0, "the chain is of another stream", 3)


def test_chain_of_another_algorithm_is_refused_and_nothing_changes() -> None:
    disk = closed(3)
    path = f"{CHAIN}/{segment_name(0)}"
    before = disk.content_of(path)
    with pytest.raises(StoreError, match=r"uses sha256, and the metadata of the stream say blake3"):
        chained(disk, algorithm="blake3")
    assert disk.content_of(path) == before


@pytest.mark.parametrize(
    ("first_index", "problem"),
    [(4, "it does not continue the file before it"), (5, "it should begin with entry 4")],
)
def test_file_that_does_not_continue_the_one_before_is_named(
    first_index: int, problem: str
) -> None:
    disk = closed(7, covered=7, segment_entries=4)
    disk.remove(f"{CHAIN}/{STATE}")
    path = f"{CHAIN}/{segment_name(4)}"
    header = encode_header(LinksHeader("sha256", first_index, b"x" * 32))
    disk.put_durable_file(path, header + disk.content_of(path)[HEADER_BYTES:])
    store, report = chained(disk, segment_entries=4)
    assert any(problem in note and path in note for note in report.notes)
    broken = chain_of(store).broken
    assert broken is not None
    assert broken.reason == "entries 4 to 6 are missing or damaged"
    assert store.table.msgs == 7


def test_a_cut_that_a_checkpoint_proves_is_a_loss_and_no_sequence_is_used_again() -> None:
    disk = new_disk()
    store, _ = chained(disk)
    fill(store, 10)
    checkpoint(store)
    disk = disk.crash_keeping_unsynced()
    path = f"{FOLDER}/msgs/1.blk"
    content = disk.content_of(path)
    disk.put_durable_file(path, content[: content.index((7).to_bytes(8, "little")) - 4])
    again, report = chained(disk)
    assert report.lost == [7, 8, 9, 10]
    assert any("a checkpoint of its chain covers message 10" in note for note in report.notes)
    assert again.table.last_seq >= 10
    fill(again, 3)
    verify_chain(again)
    again, report = chained(disk.crash_keeping_unsynced())
    assert not report.damage
    verify_chain(again)
