"""Messages become objects, and ranges of them become pages.

Owns the sizes of both, and what a later backup does with the ranges of one before: those that are
gone are left out, those that have lost messages list them, and those that are mostly gone are
written again. That happens when three of four messages are gone, so each message written again was
paid for by three that are gone. Pages that did not change are not even read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.backups.backup_documents import (
    PAGE_RANGES,
    PAGE_REMOVED_BYTES,
    MessageRange,
    PageLink,
    RangePage,
    SavedStream,
)
from tradewind.backups.backup_errors import (
    BackupError,
    DamagedMessagesError,
    StreamReadError,
)
from tradewind.backups.message_entries import EntrySelection, scan_entries
from tradewind.backups.sequence_ranges import SequenceRanges
from tradewind.store.backup.archive import END, append_entry
from tradewind.store.format.s2 import S2Error, compress, decompress

if TYPE_CHECKING:
    from tradewind.backups.backup_repository import BackupRepository

# A range is closed when it has this many bytes, before compression.
RANGE_BYTES: Final = 4 << 20
# One message may be larger than a range.
RANGE_BYTES_MAX: Final = 1 << 30
# Below one live message in so many, a range is written again.
LIVE_ONE_IN: Final = 4
TIME_NS_MIN: Final = -(1 << 63)
TIME_NS_MAX: Final = (1 << 63) - 1


def _end_mark() -> bytes:
    mark = bytearray()
    append_entry(mark, *END)
    return bytes(mark)


END_MARK: Final = _end_mark()


class RangeWriter:
    """Stores messages as they come, in ranges; `ranges` are those that are complete.

    Only messages after `after` and up to `last_seq` are taken.
    """

    def __init__(
        self, repository: BackupRepository, stream: str, after: int, last_seq: int
    ) -> None:
        self.ranges: list[MessageRange] = []
        self._repository = repository
        self._stream = stream
        self._after = after
        self._last_seq = last_seq
        self._data = bytearray()
        self._end = 0  # of what was scanned
        self._counts: MessageRange | None = None

    def feed(self, data: bytes) -> None:
        """Take entries, which may end anywhere."""
        self._data += data
        while True:
            start = self._end
            self._scan()
            if self._end >= RANGE_BYTES:
                self._store()
            elif self._end == start:
                return

    def _scan(self) -> None:
        try:
            end, count, first, last, first_ns, last_ns = scan_entries(
                self._data, self._end, RANGE_BYTES - self._end, self._after
            )
        except DamagedMessagesError as error:
            raise StreamReadError(f"stream {self._stream}: {error}") from None
        if not count:
            return
        if last > self._last_seq:
            raise StreamReadError(
                f"stream {self._stream}: message {last} is beyond the end, {self._last_seq}"
            )
        self._after, self._end = last, end
        counts = self._counts
        if counts is None:
            self._counts = MessageRange(
                object="",
                first_seq=first,
                last_seq=last,
                messages=count,
                live=count,
                size=end,
                stored=0,
                first_ns=first_ns,
                last_ns=last_ns,
            )
            return
        counts.last_seq, counts.size = last, end
        counts.messages = counts.live = counts.messages + count
        counts.first_ns = min(counts.first_ns, first_ns)
        counts.last_ns = max(counts.last_ns, last_ns)

    def _store(self) -> None:
        counts = self._counts
        if counts is None:
            return
        with memoryview(self._data) as view:
            content = compress(view[: self._end])
        counts.object, counts.stored = self._repository.put(content), len(content)
        self.ranges.append(counts)
        del self._data[: self._end]
        self._end, self._counts = 0, None

    def finish(self, rest: bytes = b"") -> list[MessageRange]:
        """Store what is left; `rest` is what has to follow the last message."""
        if self._data[self._end :] != rest:
            raise StreamReadError(f"stream {self._stream}: the messages of the server are cut off")
        self._store()
        return self.ranges


def read_range(repository: BackupRepository, stream: str, found: MessageRange) -> bytes:
    """The entries of a range, checked against what is known of them."""
    what = f"messages {found.first_seq} to {found.last_seq} of stream {stream}"
    content = repository.get(found.object, what)
    try:
        data = decompress(content, RANGE_BYTES_MAX)
        end, count, first, last, first_ns, last_ns = scan_entries(data, 0, RANGE_BYTES_MAX, 0)
    except (S2Error, DamagedMessagesError) as error:
        raise BackupError(f"object {found.object}: damaged: {error}; it holds {what}") from None
    seen = (end, count, first, last, first_ns, last_ns)
    noted = (len(data), found.messages, found.first_seq, found.last_seq)
    if seen != (*noted, found.first_ns, found.last_ns):
        raise BackupError(f"object {found.object}: other messages than listed; it holds {what}")
    return data


def removed_of(stream: str, found: MessageRange) -> SequenceRanges:
    """The sequences of a range that do not belong to the backup."""
    try:
        return SequenceRanges.unpacked(found.removed)
    except ValueError as error:
        raise BackupError(
            f"stream {stream}: the removed messages of {found.first_seq} to {found.last_seq}:"
            f" {error}"
        ) from None


class PageWriter:
    """Makes the pages of a stream, from those of the backup before and new ranges."""

    def __init__(self, repository: BackupRepository, stream: str) -> None:
        self._repository = repository
        self._stream = stream
        self.links: list[PageLink] = []

    def keep(self, link: PageLink) -> None:
        """Take a page as it is."""
        self.links.append(link)

    def add(self, ranges: list[MessageRange]) -> None:
        """Add pages of these ranges."""
        group: list[MessageRange] = []
        removed = 0
        for each in ranges:
            if len(group) == PAGE_RANGES or removed + len(each.removed) > PAGE_REMOVED_BYTES:
                self._write(group)
                group, removed = [], 0
            group.append(each)
            removed += len(each.removed)
        self._write(group)

    def _write(self, group: list[MessageRange]) -> None:
        if not group:
            return
        self.links.append(
            PageLink(
                object=self._repository.put_document(RangePage(ranges=group)),
                first_seq=group[0].first_seq,
                last_seq=group[-1].last_seq,
                live=sum(each.live for each in group),
                size=sum(each.size for each in group),
                stored=sum(each.stored for each in group),
            )
        )


class PagesUpdate:
    """The pages of a stream that has gone on since a backup.

    `first_seq` is where it begins now, and `removed` are all sequences without a message from there
    on.
    """

    def __init__(
        self,
        repository: BackupRepository,
        before: SavedStream,
        first_seq: int,
        removed: SequenceRanges,
    ) -> None:
        self._repository = repository
        self._before = before
        self._first_seq = first_seq
        self._removed = removed

    def links(self, new: list[MessageRange]) -> list[PageLink]:
        """All pages, with those of new ranges."""
        before = self._before
        writer = PageWriter(self._repository, before.name)
        for number, link in enumerate(before.pages):
            is_open = bool(new) and number == len(before.pages) - 1
            if not is_open and self._is_same(link):
                writer.keep(link)
                continue
            if link.last_seq < self._first_seq:
                continue
            page: RangePage = self._repository.get_document(
                link.object,
                RangePage,
                f"messages {link.first_seq} to {link.last_seq} of stream {before.name}",
            )
            ranges = self.updated(page.ranges)
            if is_open:
                ranges, new = ranges + new, []
            writer.add(ranges)
        writer.add(new)
        return writer.links

    def _live(self, first: int, last: int) -> int:
        """How many messages there are now, among known sequences."""
        first = max(first, self._first_seq)
        return max(last - first + 1 - self._removed.count(first, last), 0) if first <= last else 0

    def _is_same(self, link: PageLink) -> bool:
        return (
            link.first_seq >= self._first_seq
            and self._live(link.first_seq, link.last_seq) == link.live
        )

    def updated(self, ranges: list[MessageRange]) -> list[MessageRange]:
        """Ranges that were written before the stream became what it is now."""
        updated: list[MessageRange] = []
        rewritten: RangeWriter | None = None
        for found in ranges:
            live = self._live(found.first_seq, found.last_seq)
            if not live:
                continue
            if live * LIVE_ONE_IN <= found.messages:
                if rewritten is None:
                    rewritten = RangeWriter(
                        self._repository, self._before.name, 0, ranges[-1].last_seq
                    )
                rewritten.feed(self._live_entries(found))
                continue
            if rewritten is not None:
                updated += rewritten.finish()
                rewritten = None
            updated.append(found if live == found.live else self._with_removed(found, live))
        if rewritten is not None:
            updated += rewritten.finish()
        return updated

    def _gone(self, found: MessageRange) -> SequenceRanges:
        """The sequences of a range that have no message now."""
        gone = SequenceRanges()
        if found.first_seq < self._first_seq:
            gone.add(found.first_seq, self._first_seq - 1)
        for first, last in self._removed.within(
            max(found.first_seq, self._first_seq), found.last_seq
        ):
            gone.add(first, last)
        return gone

    def _with_removed(self, found: MessageRange, live: int) -> MessageRange:
        return msgspec.structs.replace(found, live=live, removed=self._gone(found).packed())

    def _live_entries(self, found: MessageRange) -> bytes:
        data = read_range(self._repository, self._before.name, found)
        selection = EntrySelection(self._gone(found).bounds, (), TIME_NS_MIN, TIME_NS_MAX)
        return selection.select(data)
