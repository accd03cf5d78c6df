"""Opens the chain of a stream: compares its files with the messages that exist.

Owns the rules for what a crash may leave, and what only tampering can explain. Links and messages
are synced with one commit, so a power failure can keep either without the other, but only of what
was never promised (`StoreTail`). Everything else that does not fit breaks the chain: it is noted
for good, and the chain continues from the stored links. It never repairs a link.

Only what follows the last checkpoint is compared with the messages, so a start stays quick; the
rest is for `tradewind.chain` to verify, on demand.

- Entries that do not fit at the end, after all that was promised: a write that was cut off. They
  are removed, and the messages that exist get new ones.
- A removal that is on disk, and its entry is not: the tombstone is among the last bytes of the
  blocks. The entry is made now; the reason is no longer known.
- An entry of a removal, and the message is still there: an entry says that it is back.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.times import format_time
from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import (
    EXPIRED,
    HASH_BYTES,
    LOST,
    MESSAGE,
    PURGED,
    RANGES_MAX,
    REMOVAL,
    RETURN,
    ChainError,
    ChainRecord,
    RecordError,
    decode_removal,
    message_body,
    read_records,
    removal_body,
)
from tradewind.chain.chain_folder import (
    CHECKPOINTS,
    HEADER_BYTES,
    SUFFIX,
    LinksHeader,
    decode_header,
    segment_name,
)
from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.contract import NotFoundError
from tradewind.store.files.disk import MissingFile
from tradewind.store.folder.stream_chain import (
    BROKEN,
    EXCHANGED,
    STATE,
    ChainBreak,
    ChainSettings,
    StreamChain,
)
from tradewind.store.format.chain_hash import chain_digest
from tradewind.store.table.chain_links import root_of_peaks
from tradewind.store.table.marks import MARK_FLOOR_KIND
from tradewind.store.table.scan import record_places

if TYPE_CHECKING:
    from tradewind.store.contract import MessageCopy
    from tradewind.store.folder.filestore import FileStore
    from tradewind.store.table.block import Block
    from tradewind.store.table.scan import BlockReport

PIECE_BYTES: Final = 1 << 20
Ranges = list[tuple[int, int]]


class StoreTail(msgspec.Struct):
    """The end of the messages, as recovery knows it.

    All messages up to `synced_seq` were promised. `removed` and `floor` (all below it) were removed
    by bytes that were not. `lost` was found to be lost by damage. `tell_cut` is called for a
    message that existed after the last one; it returns the sequences that are lost then.
    """

    synced_seq: int
    removed: list[int] = msgspec.field(default_factory=list)
    floor: int = 0
    lost: list[int] = msgspec.field(default_factory=list)
    tell_cut: Callable[[int], list[int]] | None = None


class EntryPlace(msgspec.Struct, frozen=True):
    """The position of an entry: the file that begins with entry `segment`, and the byte in it."""

    entry: int
    segment: int
    offset: int


class ChainState(msgspec.Struct):
    """The content of the file `state`."""

    size: int
    segment: int
    offset: int
    chained_seq: int
    link: str
    peaks: bytes


def tail_of(found: list[tuple[Block, BlockReport]], synced: tuple[int, int] | None) -> StoreTail:
    """The end of the messages, from the place up to which all blocks were synced; None: the blocks
    do not record that, and all of them count as promised.
    """
    tail = StoreTail(0)
    for block, report in found:
        if synced is None or block.number < synced[0]:
            tail.synced_seq = max(tail.synced_seq, block.last_seq)
            continue
        start = synced[1] if block.number == synced[0] else 0
        if start:
            before = (seq for seq, offset, _ in record_places(block) if offset < start)
            tail.synced_seq = max(tail.synced_seq, max(before, default=0))
        stones = report.tombstones
        pairs = zip(stones.sequences, stones.offsets, strict=True)
        tail.removed += [seq for seq, offset in pairs if offset >= start]
        for kind, value, offset in report.marks:
            if kind == MARK_FLOOR_KIND and offset >= start:
                tail.floor = max(tail.floor, value)
    return tail


def open_chain(store: FileStore, settings: ChainSettings, tail: StoreTail | None = None) -> None:
    """Open the chain of a store, with all its messages in it; without `tail` all of them were
    promised.
    """
    path = store.folder.rpartition("/")[0]
    chain = StreamChain(store.files, path, settings)
    opening = _Opening(chain, store, tail or StoreTail(store.table.last_seq))
    opening.read()
    opening.fill()
    chain.opened()
    store.attach_chain(chain)


class _Opening:
    def __init__(self, chain: StreamChain, store: FileStore, tail: StoreTail) -> None:
        self._chain = chain
        self._disk = chain.disk
        self._store = store
        self._table = store.table
        self._tail = tail
        self._removed = {*tail.removed, *tail.lost}
        self._gone: Ranges = []  # what the entries after the last checkpoint have removed
        self._back: set[int] = set()  # of these, messages that are there
        self._end = EntryPlace(0, 0, 0)

    # ---------------------------------------------------------------- what the files say

    def read(self) -> None:
        """Follow the entries in the files as far as they are valid."""
        chain, table = self._chain, self._table
        if not self._disk.exists(chain.folder):
            first = table.next_sequence(0, ())
            if 0 < first <= self._tail.synced_seq:
                self._break(0, f"the folder {chain.folder} is missing")
            return
        self._read_break()
        last_line, lines_bytes = self._read_checkpoints()
        start = self._read_state() or self._follow_covered()
        if self._tail.tell_cut is not None and read_exchanged(chain) is None:
            self._removed.update(self._tail.tell_cut(chain.links.last_seq))
        self._compare(start)
        self._cut(start.segment)
        chain.adopt(self._end.segment, self._end.offset, lines_bytes, last_line, table)

    def _break(self, index: int, reason: str) -> None:
        chain = self._chain
        if chain.broken is None:
            chain.notes.append(f"the chain is broken at entry {index}: {reason}")
            chain.note_break(index, reason, format_time(chain.settings.clock()))

    def _read_break(self) -> None:
        path = f"{self._chain.folder}/{BROKEN}"
        try:
            content = self._disk.read_file(path)
        except MissingFile:
            return
        try:
            self._chain.broken = msgspec.json.decode(content, type=ChainBreak)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._chain.broken = ChainBreak(0, f"{path} cannot be read")

    def _read_checkpoints(self) -> tuple[bytes, int]:
        """Read the last line; returns also where the next one goes.

        A line that has not arrived whole was never announced: it has no end, or zeros where a part
        of it is missing.
        """
        path = f"{self._chain.folder}/{CHECKPOINTS}"
        try:
            content = self._disk.read_file(path)
        except MissingFile:
            return b"", 0
        end = content.rfind(b"\n") + 1
        lines = content[:end].splitlines()
        if lines and b"\0" in lines[-1]:
            end -= len(lines.pop()) + 1
        if content:
            with self._disk.open(path, writes=end < len(content)) as file:
                if end < len(content):
                    file.truncate(end)
                # A process that was killed may have left the line with the system only.
                file.sync()
        if not lines:
            return b"", 0
        try:
            self._chain.checkpoint = checkpoints.decode(lines[-1])
        except ChainError as error:
            self._break(0, f"{path}, line {len(lines)}: {error}")
        return lines[-1], end

    @property
    def _covered(self) -> int:
        return 0 if self._chain.checkpoint is None else self._chain.checkpoint.size

    def _read_state(self) -> EntryPlace | None:
        """The end of the last checkpoint, if the file `state` has it and is right."""
        chain, checkpoint = self._chain, self._chain.checkpoint
        if checkpoint is None:
            return None
        number = chain.settings.number
        try:
            content = self._disk.read_file(f"{chain.folder}/{STATE}")
            state = msgspec.json.decode(content, type=ChainState)
            with self._disk.open(f"{chain.folder}/{segment_name(state.segment)}") as file:
                header = decode_header(file.read(0, HEADER_BYTES), file.path)
                link = file.read(state.offset - HASH_BYTES, HASH_BYTES)
        except (StoreError, msgspec.DecodeError, UnicodeDecodeError, ValueError):
            return None
        is_right = (
            state.size == checkpoint.size
            and link.hex() == state.link == checkpoint.link
            and len(state.peaks) == HASH_BYTES * state.size.bit_count()
            and root_of_peaks(number, state.peaks).hex() == checkpoint.root
            and header.first_index == state.segment < state.size
        )
        if not is_right:
            return None
        chain.links.adopt(state.size, link, state.peaks, state.chained_seq)
        return EntryPlace(state.size, state.segment, state.offset)

    def _follow_covered(self) -> EntryPlace:
        """Follow all entries up to the last checkpoint, by their links alone."""
        chain, checkpoint = self._chain, self._chain.checkpoint
        links, place = chain.links, EntryPlace(0, 0, 0)
        for at, record in self._records(place):
            place = at
            if place.entry >= self._covered:
                break
            links.follow(record.link, record.sequence)
        else:
            place = self._end
        if checkpoint is None:
            return place
        if links.size < checkpoint.size:
            self._break(
                links.size, f"entries {links.size} to {checkpoint.size - 1} are missing or damaged"
            )
        elif root_of_peaks(links.algorithm, links.peaks).hex() != checkpoint.root:
            self._break(checkpoint.size - 1, "the links are not those of the last checkpoint")
        return place

    def _segments(self) -> list[int]:
        found = []
        for name in self._disk.list_directory(self._chain.folder):
            stem = name.removesuffix(SUFFIX)
            if name != stem and len(stem) == 16:
                with suppress(ValueError):
                    found.append(int(stem, 16))
        return sorted(found)

    def _records(self, start: EntryPlace) -> Iterator[tuple[EntryPlace, ChainRecord]]:
        """All complete records from a place on; sets `_end` to where they end."""
        index, before = start.entry, b""
        self._end = start
        for segment in self._segments():
            if segment < start.segment:
                continue
            path = f"{self._chain.folder}/{segment_name(segment)}"
            with self._disk.open(path) as file:
                offset = start.offset if segment == start.segment else 0
                if not offset:
                    try:
                        header = decode_header(file.read(0, HEADER_BYTES), path)
                        self._check_header(header, segment, index, before)
                    except CorruptRecord as error:
                        self._chain.notes.append(str(error))
                        return
                    offset = HEADER_BYTES
                self._end = EntryPlace(index, segment, offset)
                while data := file.read(offset, min(PIECE_BYTES, file.size - offset)):
                    try:
                        found, used = read_records(data)
                    except RecordError as error:
                        found, used = read_records(data[: error.offset])
                    for record in found:
                        place = self._end
                        size = 41 if record.kind == MESSAGE else 37 + len(record.body)
                        self._end = EntryPlace(index + 1, segment, place.offset + size)
                        yield place, record
                        index += 1
                        before = record.link
                    offset += used
                    if not used:
                        return

    def _check_header(self, header: LinksHeader, segment: int, index: int, before: bytes) -> None:
        settings = self._chain.settings
        path = f"{self._chain.folder}/{segment_name(segment)}"
        if header.algorithm != settings.algorithm:
            raise StoreError(
                f"{path}: the chain uses {header.algorithm}, and the metadata of the stream say"
                f" {settings.algorithm}"
            )
        if header.first_index != segment or segment != index:
            raise CorruptRecord(path, 16, f"it should begin with entry {index}")
        if before and header.before != before:
            raise CorruptRecord(path, 24, "it does not continue the file before it")
        if index == 0 and header.before != settings.first_link:
            self._break(0, "the chain is of another stream")
            self._chain.links.adopt(0, header.before, b"", 0)

    # ---------------------------------------------------------------- the last entries

    def _compare(self, start: EntryPlace) -> None:
        """Follow the entries after the last checkpoint as far as they fit the messages."""
        links, synced_index = self._chain.links, self._look_ahead(start)
        gone: Ranges = []
        for place, record in self._records(start):
            if problem := self._problem(record):
                if place.entry >= synced_index:
                    self._end = place
                    self._chain.notes.append(
                        f"entries from {place.entry} on were not promised and go: {problem}"
                    )
                    break
                self._break(place.entry, problem)
            links.follow(record.link, record.sequence)
            ranges = _ranges_in(record)
            there = {seq for first, last in ranges for seq in self._live(first, last)}
            if record.kind == RETURN:
                self._back -= there
            else:
                gone += ranges
                self._back |= there
        self._gone = _merged(gone)

    def _look_ahead(self, start: EntryPlace) -> int:
        """Find removals further on; returns the first entry that may never have been promised."""
        synced_index = start.entry
        gone: Ranges = []
        for place, record in self._records(start):
            if record.kind == MESSAGE and record.sequence <= self._tail.synced_seq:
                synced_index = place.entry + 1
            elif record.kind == REMOVAL:
                gone += _ranges_in(record)
        self._gone = _merged(gone)
        return synced_index

    def _live(self, first: int, last: int) -> Iterator[int]:
        seq = self._table.next_sequence(first, ())
        while 0 < seq <= last:
            yield seq
            seq = self._table.next_sequence(seq + 1, ())

    def _message(self, seq: int) -> MessageCopy | None:
        try:
            return self._table.get(seq)
        except NotFoundError:
            return None

    def _problem(self, record: ChainRecord) -> str:
        """The reason why an entry does not fit; empty if it does, or if its messages were removed
        validly.
        """
        links, body = self._chain.links, record.body
        if record.kind == MESSAGE:
            seq = record.sequence
            if seq <= links.last_seq:
                return f"sequence {seq} follows {links.last_seq}"
            if seq > self._table.last_seq:
                return f"message {seq} is after the last one"
            message = self._message(seq)
            if message is None:
                is_right = self._is_gone(seq)
                return "" if is_right else f"message {seq} is missing, and nothing says why"
            body = message_body(
                seq, message.timestamp_ns, message.subject, message.header, message.payload
            )
        kind = bytes([record.kind])
        if chain_digest(links.algorithm, b"\0", links.link, kind, body) != record.link:
            what = f"message {record.sequence}" if record.kind == MESSAGE else "the entry"
            return f"{what} is not the one that was chained"
        return ""

    def _is_gone(self, seq: int) -> bool:
        if seq < self._tail.floor or seq in self._removed or _contains(self._gone, seq):
            return True
        return self._has_lost(seq)

    def _has_lost(self, seq: int) -> bool:
        """Whether damage was found at this sequence while the messages were read."""
        lost = self._store.lost
        if lost is not None:
            self._removed.update(lost.sequences)
        return seq in self._removed

    def _cut(self, first: int) -> None:
        """Remove everything after the valid entries, and make those durable.

        A process that was killed may have left names and entries with the system only, but none in
        files before `first`: a checkpoint covers these.
        """
        chain, end = self._chain, self._end
        for segment in self._segments():
            path = f"{chain.folder}/{segment_name(segment)}"
            if segment > end.segment or not end.offset:
                self._disk.remove(path)
            elif segment >= first:
                self._secure(path, end.offset if segment == end.segment else sys.maxsize)
        self._disk.sync_directory(chain.folder)
        self._disk.sync_directory(chain.folder.rpartition("/")[0])

    def _secure(self, path: str, size_max: int) -> None:
        """Make a file durable, without the bytes after `size_max`."""
        with self._disk.open(path) as file:
            if file.size <= size_max:
                file.sync()
                return
        with self._disk.open(path, writes=True) as file:
            file.truncate(size_max)
            file.sync()

    # ---------------------------------------------------------------- what is missing in them

    def fill(self) -> None:
        """Add entries for changes of messages that are missing in the files."""
        chain, tail = self._chain, self._tail
        links = chain.links
        self._fill_exchanged()
        self._add(RETURN, LOST, _ranges_of(sorted(self._back)))
        floor = min(tail.floor - 1, links.last_seq)
        if floor > 0:
            # Other entries may record some of them too, which does no harm.
            links.remove(1, floor, LOST)
        for seq in sorted(self._removed):
            is_known = seq <= floor or seq > links.last_seq or self._table.is_live(seq)
            if not is_known and not _contains(self._gone, seq):
                links.remove(seq, seq, LOST)
        links.end_removals()
        seq = self._table.next_sequence(links.last_seq + 1, ())
        while seq:
            links.add_message(self._table.get(seq))
            seq = self._table.next_sequence(seq + 1, ())

    def _add(self, kind: int, reason: int, ranges: Ranges) -> None:
        now_ns = self._chain.settings.clock() if ranges else 0
        for first in range(0, len(ranges), RANGES_MAX):
            body = removal_body(now_ns, reason, ranges[first : first + RANGES_MAX])
            self._chain.links.add_other(kind, body)

    def _fill_exchanged(self) -> None:
        """Add entries for the messages that an undo has brought back, and those it has removed."""
        exchanged = read_exchanged(self._chain)
        if exchanged is None:
            return
        self._chain.is_exchanged = True
        back = {seq for first, last in exchanged.back for seq in self._live(first, last)}
        self._back -= back
        chained = (seq for seq in sorted(back) if seq <= self._chain.links.last_seq)
        self._add(RETURN, PURGED, _ranges_of(chained))
        for first, last in exchanged.gone:
            # Messages that still exist have stayed: the undo was interrupted, or has failed.
            is_live = self._table.is_live
            for low, high in _ranges_of(seq for seq in range(first, last + 1) if not is_live(seq)):
                self._chain.links.remove(low, high, EXPIRED)


class ExchangedMessages(msgspec.Struct):
    """The content of the file `exchanged`: an undo recreates the messages, and these are back or
    gone afterwards. It is written when only a rename is left, and read by the next opening.
    """

    back: list[tuple[int, int]] = msgspec.field(default_factory=list)
    gone: list[tuple[int, int]] = msgspec.field(default_factory=list)


def read_exchanged(chain: StreamChain) -> ExchangedMessages | None:
    """Read the file; None if no undo was made since the chain was opened last."""
    try:
        content = chain.disk.read_file(f"{chain.folder}/{EXCHANGED}")
        return msgspec.json.decode(content, type=ExchangedMessages)
    except MissingFile:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ExchangedMessages()


def note_exchanged(chain: StreamChain, back: Iterable[int], gone: Iterable[int]) -> None:
    """Note that the messages of a closed store are about to be exchanged for others; runs in a
    worker.
    """
    exchanged = ExchangedMessages(_ranges_of(back), _ranges_of(gone))
    chain.disk.make_directory(chain.folder, sync=True)
    content = msgspec.json.encode(exchanged)
    chain.disk.write_file_atomically(f"{chain.folder}/{EXCHANGED}", content)


def _ranges_in(record: ChainRecord) -> Ranges:
    """The sequences of a removal or a return; empty for a message, or an unknown record."""
    if record.kind != MESSAGE:
        with suppress(ChainError):
            return list(decode_removal(record.body).ranges)
    return []


def _ranges_of(seqs: Iterable[int]) -> Ranges:
    """The ranges of ascending sequences."""
    found: Ranges = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def _merged(ranges: Ranges) -> Ranges:
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _contains(ranges: Ranges, seq: int) -> bool:
    at = bisect_right(ranges, (seq, 1 << 64)) - 1
    return at >= 0 and ranges[at][0] <= seq <= ranges[at][1]
