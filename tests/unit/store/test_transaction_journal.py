"""The journal of transactions: what is read is what was written, as far as it was."""

from __future__ import annotations

import errno

import pytest

from tradewind.errors import StoreError
from tradewind.options import EncryptionOptions, Secret
from tradewind.store.files.vault import MainKeyRing
from tradewind.store.folder import transaction_journal
from tradewind.store.folder.transaction_journal import TransactionJournal
from tradewind.store.format.transaction_log import (
    JournaledAck,
    JournaledDelete,
    JournaledMessage,
    JournaledPart,
    JournaledTransaction,
    JournaledVoid,
    JournalEntry,
    journal_record,
)
from tradewind.testing.fake_disk import SimulatedDisk

FOLDER = "/disk/jetstream/ACC"


def entry(number: int) -> JournaledTransaction:
    message = JournaledMessage(
        number, 2, b"s", b"h", b"payload %d" % number, b"id", 3, "sub", False
    )
    return JournaledTransaction(
        [JournaledPart("S", 1, [message])],
        [JournaledAck("S", 1, "c", 2, number)],
        [JournaledDelete("D", 1, number)],
    )


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    return disk


def journal_on(disk: SimulatedDisk, ring: MainKeyRing | None = None) -> TransactionJournal:
    return TransactionJournal(disk, FOLDER, "ACC", ring)


def sync(journal: TransactionJournal) -> None:
    synced = journal.begin_sync()
    synced.run()
    synced.ended(None)


def found_on(disk: SimulatedDisk, ring: MainKeyRing | None = None) -> list[JournalEntry]:
    return [one for _, one in journal_on(disk, ring).read()]


def test_what_was_synced_is_read_again() -> None:
    disk = new_disk()
    journal = journal_on(disk)
    wanted: list[JournalEntry] = [entry(1), JournaledVoid("S", "c"), entry(2)]
    for one in wanted:
        journal.append(one)
    sync(journal)
    journal.append(entry(3))
    assert found_on(disk.crash_losing_unsynced()) == wanted
    assert found_on(disk.crash_keeping_unsynced()) == [*wanted, entry(3)]


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_record_that_is_cut_off_does_not_count(cut: int) -> None:
    disk = new_disk()
    journal = journal_on(disk)
    journal.append(entry(1))
    segment, _ = journal.append(entry(2))
    with disk.open(segment.path, writes=True) as file:
        file.truncate(segment.size - cut)
    assert found_on(disk) == [entry(1)]


@pytest.mark.parametrize("offset", range(0, 88, 7))
def test_a_flipped_bit_ends_what_counts(offset: int) -> None:
    disk = new_disk()
    journal = journal_on(disk)
    segment, _ = journal.append(entry(1))
    content = bytearray(disk.content_of(segment.path))
    content[offset] ^= 1
    disk.put_durable_file(segment.path, bytes(content))
    assert found_on(disk) == []


def test_a_record_can_be_taken_back_until_it_is_synced() -> None:
    disk = new_disk()
    journal = journal_on(disk)
    journal.append(entry(1))
    segment, offset = journal.append(entry(2))
    journal.take_back(segment, offset)
    journal.append(entry(3))
    sync(journal)
    assert found_on(disk.crash_losing_unsynced()) == [entry(1), entry(3)]


def test_files_go_when_nothing_in_them_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_journal, "JOURNAL_BYTES_MAX", 50)
    disk = new_disk()
    journal = journal_on(disk)
    segments = [journal.append(entry(number))[0] for number in range(1, 4)]
    assert len({segment.number for segment in segments}) == 3
    sync(journal)
    journal.release(segments[0])
    remove = journal.take_unneeded(also_current=False)
    assert remove is not None
    remove()
    assert found_on(disk.crash_losing_unsynced()) == [entry(2), entry(3)]
    for segment in segments[1:]:
        journal.release(segment)
    remove = journal.take_unneeded(also_current=True)
    assert remove is not None
    remove()
    assert disk.list_directory(FOLDER) == []
    assert not journal.has_files
    # Numbers are not used again.
    assert journal.append(entry(4))[0].number == 4


def test_a_full_disk_refuses_and_leaves_the_others() -> None:
    disk = new_disk()
    journal = journal_on(disk)
    disk.fail("write", "*commits*", times=1, error=errno.ENOSPC)
    with pytest.raises(StoreError):
        journal.append(entry(1))
    assert disk.list_directory(FOLDER) == []
    journal.append(entry(2))
    disk.fail("write", "*commits*", times=1, error=errno.ENOSPC)
    with pytest.raises(StoreError):
        journal.append(entry(3))
    journal.append(entry(4))
    sync(journal)
    assert found_on(disk.crash_losing_unsynced()) == [entry(2), entry(4)]


def test_nothing_is_appended_to_a_file_that_could_not_be_synced() -> None:
    disk = new_disk()
    journal = journal_on(disk)
    first, _ = journal.append(entry(1))
    synced = journal.begin_sync()
    synced.ended(StoreError("it failed"))
    second, _ = journal.append(entry(2))
    assert second.number == first.number + 1
    journal.release(first)
    assert journal.take_unneeded(also_current=False) is None


def test_an_encrypted_store_has_nothing_in_clear() -> None:
    disk = new_disk()
    ring = MainKeyRing(EncryptionOptions(Secret("a main key")))
    journal = journal_on(disk, ring)
    segment, _ = journal.append(entry(1))
    sync(journal)
    assert b"payload" not in disk.content_of(segment.path)
    after = disk.crash_losing_unsynced()
    assert found_on(after, MainKeyRing(EncryptionOptions(Secret("a main key")))) == [entry(1)]
    with pytest.raises(StoreError, match="key"):
        found_on(after, MainKeyRing(EncryptionOptions(Secret("another key"))))


def test_record_that_is_whole_and_none_of_ours_is_named_and_kept() -> None:
    """Another version may have written it: nothing is repeated before somebody has looked."""
    disk = new_disk()
    journal = journal_on(disk)
    journal.append(entry(1))
    segment, _ = journal.append(entry(2))
    sync(journal)
    content = disk.content_of(segment.path)
    content += journal_record(segment.number, len(content), b"\xc1 of another version")
    disk.put_durable_file(segment.path, content)
    with pytest.raises(StoreError, match="a record has an unknown format") as caught:
        found_on(disk)
    assert segment.path in str(caught.value)
    assert disk.content_of(segment.path) == content


def test_journal_whose_records_nobody_releases_takes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_journal, "JOURNAL_BYTES_MAX", 400)
    monkeypatch.setattr(transaction_journal, "JOURNALS_BYTES_MAX", 2000)
    disk = new_disk()
    journal = journal_on(disk)
    segments = []
    while not journal.is_full:
        segments.append(journal.append(entry(len(segments)))[0])
    with pytest.raises(StoreError, match="has 2000 bytes that wait until streams are synced"):
        journal.append(entry(100))
    sync(journal)
    assert 2000 <= sum(len(data or b"") for data in disk.snapshot_tree().values()) < 2400
    # After a start it is as full.
    assert len(journal_on(disk).read()) == len(segments)
    again = journal_on(disk.crash_losing_unsynced())
    again.read()
    assert again.is_full
    for segment in segments:
        journal.release(segment)
    remove = journal.take_unneeded(also_current=False)
    assert remove is not None
    remove()
    journal.append(entry(100))
