"""The journal of an account on disk: changes of several streams and consumers, written first.

Owns the files `tradewind.commits.<N>` beside the streams of one account, which of them are still
needed, and what is in them after a crash. The meaning of a record is defined by its writer
(`tradewind.jetstream.transactions`); the format is that of `transaction_log`.

A record that was appended is with the operating system; it is on disk when a `JournalSync` has run,
in any thread. A file is removed when nothing in it is needed any more and no record is appended to
it: `release` says so, one by one. Removing it late does no harm, since a transaction whose changes
are there is recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.errors import StoreError
from tradewind.store.commits.commit import Commit, SyncTarget
from tradewind.store.files.disk import MissingFile
from tradewind.store.format.layout import JOURNAL_KEY_FILE
from tradewind.store.format.transaction_log import (
    HEADER_BYTES,
    JournalEntry,
    decode_entry,
    encode_entry,
    journal_header,
    journal_name,
    journal_numbers,
    journal_record,
    read_bodies,
)

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile
    from tradewind.store.files.vault import MainKeyRing, Sealer

# A file that has grown so large is followed by another one.
JOURNAL_BYTES_MAX: Final = 4_194_304
# All files together. They go as soon as the streams are synced, so this much waits for a disk that
# is slow or has failed.
JOURNALS_BYTES_MAX: Final = 268_435_456
_KEY_CONTEXT: Final = "commits"


class Segment(msgspec.Struct, eq=False):
    """A file of the journal. `needed` counts its transactions that may have to be repeated."""

    number: int
    path: str
    file: DiskFile | None = None
    size: int = HEADER_BYTES
    synced_size: int = 0
    needed: int = 0
    syncs: int = 0
    is_named: bool = False
    is_bad: bool = False


class JournalSync:
    """A sync in progress: `run` is for any thread, `ended` for the owner."""

    def __init__(self, disk: Disk, folder: str, segments: list[tuple[Segment, int]]) -> None:
        self._disk = disk
        self._folder = folder
        self._segments = segments
        self._names = any(not segment.is_named for segment, _ in segments)

    def as_commit(self) -> Commit:
        """The sync in the form that the syncer's threads run."""
        files = [segment.file for segment, _ in self._segments if segment.file is not None]
        return Commit(
            self._disk, 0, (0, 0), files=files, folders=[self._folder] if self._names else []
        )

    def run(self) -> None:
        """Sync the files; StoreError."""
        for segment, _ in self._segments:
            assert segment.file is not None
            segment.file.sync()
        if self._names:
            self._disk.sync_directory(self._folder)

    def ended(self, error: Exception | None) -> None:
        """Note the end of the sync. After a failure the content of the disk is unknown, and nothing
        more is appended to these files.
        """
        for segment, size in self._segments:
            segment.syncs -= 1
            if error is None:
                segment.synced_size = max(segment.synced_size, size)
                segment.is_named = True
            else:
                segment.is_bad = True


class TransactionJournal:
    """The journal of one account; `folder` is that of the account."""

    def __init__(
        self, disk: Disk, folder: str, account: str, ring: MainKeyRing | None = None
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._account = account
        self._ring = ring
        self._sealer: Sealer | None = None
        self._segments: dict[int, Segment] = {}
        self._current: Segment | None = None
        self._last_number = 0

    # ---------------------------------------------------------------- after a start

    def read(self) -> list[tuple[Segment, JournalEntry]]:
        """Read the entries that may have to be repeated, in order; StoreError."""
        if not self._disk.is_directory(self._folder):
            return []
        found: list[tuple[Segment, JournalEntry]] = []
        for number in journal_numbers(self._disk.list_directory(self._folder)):
            segment = Segment(number, f"{self._folder}/{journal_name(number)}", is_named=True)
            self._segments[number] = segment
            self._last_number = number
            content = self._disk.read_file(segment.path)
            segment.size = len(content)
            bodies = read_bodies(number, content)
            found += [(segment, self._opened(segment, body)) for body in bodies]
        return found

    def _opened(self, segment: Segment, body: bytes) -> JournalEntry:
        try:
            sealer = self._key() if self._ring is not None else None
            return decode_entry(body if sealer is None else sealer.unseal(body, segment.path))
        except msgspec.MsgspecError as error:
            raise StoreError(f"{segment.path}: a record has an unknown format: {error}") from None

    def _key(self) -> Sealer:
        """The sealer for the records of an encrypted store; its key is created with the first
        record.
        """
        if self._sealer is None:
            from tradewind.store.files.vault import Sealer

            assert self._ring is not None
            path = f"{self._folder}/{JOURNAL_KEY_FILE}"
            if self._disk.exists(path):
                key = self._ring.read(self._disk, path, self._account, _KEY_CONTEXT)
            else:
                key = self._ring.new_key()
                content = self._ring.wrapped(key, self._account, _KEY_CONTEXT)
                self._disk.write_file_atomically(path, content)
            self._sealer = Sealer(key)
        return self._sealer

    # ---------------------------------------------------------------- appending

    def append(self, entry: JournalEntry) -> tuple[Segment, int]:
        """Append a record; returns its file and offset. StoreError if the disk refuses it, in which
        case it does not count.
        """
        if self.is_full:
            raise StoreError(
                f"the journal of account {self._account!r} has {JOURNALS_BYTES_MAX} bytes that"
                " wait until streams are synced; try again later"
            )
        body = encode_entry(entry)
        if self._ring is not None:
            body = self._key().seal(body)
        segment = self._segment()
        assert segment.file is not None
        offset = segment.size
        record = journal_record(segment.number, offset, body)
        segment.file.write(record, offset)
        segment.size += len(record)
        segment.needed += 1
        return segment, offset

    @property
    def is_full(self) -> bool:
        """Whether all files together have reached the limit, so that nothing more is appended."""
        return sum(each.size for each in self._segments.values()) >= JOURNALS_BYTES_MAX

    def _segment(self) -> Segment:
        """The file for new records."""
        current = self._current
        if current is not None and current.size < JOURNAL_BYTES_MAX and not current.is_bad:
            return current
        number = self._last_number + 1
        path = f"{self._folder}/{journal_name(number)}"
        file = self._disk.create(path, replace=True)
        try:
            file.write(journal_header(number), 0)
        except StoreError:
            file.close()
            with suppress(StoreError):
                self._disk.remove(path)
            raise
        self._last_number = number
        self._current = self._segments[number] = Segment(number, path, file)
        return self._current

    def take_back(self, segment: Segment, offset: int) -> None:
        """Invalidate the last record, which begins at `offset`; this syncs, because it may be on
        disk already. StoreError if the disk refuses that too; then the record may count.
        """
        assert segment.file is not None
        segment.file.truncate(offset)
        segment.size = offset
        segment.synced_size = 0
        segment.needed -= 1

    def _unsynced(self) -> list[Segment]:
        return [
            segment
            for segment in self._segments.values()
            if segment.file is not None
            and not segment.is_bad
            and segment.size > segment.synced_size
        ]

    @property
    def is_dirty(self) -> bool:
        """Whether something was appended that is not synced."""
        return bool(self._unsynced())

    def begin_sync(self) -> JournalSync:
        """Begin a sync of everything appended up to now."""
        segments = [(segment, segment.size) for segment in self._unsynced()]
        for segment, _ in segments:
            segment.syncs += 1
        return JournalSync(self._disk, self._folder, segments)

    # ---------------------------------------------------------------- what is no longer needed

    def release(self, segment: Segment) -> None:
        """Note that one record of this file is no longer needed."""
        segment.needed -= 1

    @property
    def has_files(self) -> bool:
        """Whether there are any files, needed or not."""
        return bool(self._segments)

    def take_unneeded(self, *, also_current: bool) -> Callable[[], None] | None:
        """Forget unneeded files; returns a function for any thread that removes them, or None."""
        gone = [
            segment
            for segment in self._segments.values()
            if not segment.needed
            and not segment.syncs
            and not segment.is_bad
            and (also_current or segment is not self._current)
        ]
        if not gone:
            return None
        for segment in gone:
            del self._segments[segment.number]
            if segment is self._current:
                self._current = None
            if segment.file is not None:
                segment.file.close()
                segment.file = None

        def remove() -> None:
            for segment in gone:
                with suppress(MissingFile):
                    self._disk.remove(segment.path)
            self._disk.sync_directory(self._folder)

        return remove

    def close(self) -> None:
        """Close the files, which stay."""
        for segment in self._segments.values():
            if segment.file is not None:
                segment.file.close()
                segment.file = None
        self._current = None


class JournalFiles(SyncTarget):
    """The journal as a target of the syncer. After a failure it continues with another file."""

    def __init__(self, journal: TransactionJournal) -> None:
        self._journal = journal
        self._syncing: JournalSync | None = None

    def has_changes(self) -> bool:
        """Whether a commit has anything to do."""
        return self._journal.is_dirty

    def begin_commit(self) -> Commit | None:
        """Begin a commit; None if there is nothing to sync, or a commit is in progress."""
        if self._syncing is not None or not self._journal.is_dirty:
            return None
        self._syncing = self._journal.begin_sync()
        return self._syncing.as_commit()

    def finish_commit(self, commit: Commit) -> None:
        """End a commit, or raise its error."""
        self.drop_commit(commit)
        if commit.error is not None:
            raise commit.error

    def drop_commit(self, commit: Commit) -> None:
        """See `SyncTarget`."""
        assert self._syncing is not None
        syncing, self._syncing = self._syncing, None
        syncing.ended(commit.error)
