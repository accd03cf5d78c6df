"""Determines the contents of a stream from its files.

Owns the question which messages in the blocks still exist. There are three ways, depending on the
files:

- `index.db` matches the blocks: it is used, and no block is read;
- the stream has limits that nats-server enforces without recording it in the blocks: they are
  replayed over all messages, starting from an older `index.db`;
- otherwise tombstones and floors are complete: the blocks are read, from the end of an older
  `index.db` or from the first requested block.

A view is a snapshot: it ends with the last record that was synced when it was made. Messages that
are removed later may or may not be read.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tradewind.errors import CorruptRecord
from tradewind.spark.files.block_summary import (
    BlockSummary,
    LimitReplay,
    add_members,
    advance,
    first_at_time,
    first_message,
    summarize_block,
)
from tradewind.spark.files.store_files import ReadBlockFile, StreamFiles, VanishedFileError
from tradewind.store.contract import limits_of
from tradewind.store.format.hash import Key, key_for
from tradewind.store.format.index_file import StreamIndex, decode_index
from tradewind.store.format.layout import block_key_text
from tradewind.store.format.sequence_set import SequenceSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ATTEMPTS_MAX: Final = 20
# This many blocks at the end of a stream may hold what its server has not synced yet.
UNSYNCED_MAX: Final = 16
# A view from here on is of the last block only.
TAIL: Final = 1 << 62
# A clock that was set back makes times inside a block leave the range of its ends.
TIME_SLACK_NS: Final = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class BlockRange:
    """A block with messages: its sequences and times, those of removed messages included."""

    number: int
    size: int
    first_seq: int
    last_seq: int
    first_time_ns: int
    last_time_ns: int


@dataclass(slots=True)
class StreamContents:
    """A stream at one moment, from the block of `from_seq` on.

    `removed` are the sequences of messages in these blocks that are gone; below `floor` all are.
    `first_seq` is the lowest sequence that can be there, `last_seq + 1` if there is none.
    """

    first_seq: int = 1
    last_seq: int = 0
    blocks: list[BlockRange] = field(default_factory=list)
    removed: SequenceSet = field(default_factory=SequenceSet)
    floor: int = 0
    last_number: int = 0
    is_whole: bool = True  # no block was left out
    messages: int | None = None  # how many there are, if that is known without counting
    bytes: int | None = None  # and their size
    # All block files, by number, before they were looked at.
    identities: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveRemovals:
    """The removals of a stream by its server: all below `floor`, and `deleted` (None: too many)."""

    floor: int
    deleted: SequenceSet | None


class StreamContentsReader:
    """Makes views of one stream, and remembers what was read of blocks that have not changed.

    `ask_server` is called where the files alone do not say which messages are left.
    """

    def __init__(
        self,
        files: StreamFiles,
        ask_server: Callable[[StreamFiles], LiveRemovals | None] | None = None,
    ) -> None:
        self.files = files
        self._ask_server = ask_server
        self._summaries: dict[int, tuple[tuple[int, int], int, BlockSummary]] = {}
        self._heads: dict[int, tuple[int, tuple[int, int]]] = {}
        self._synced: dict[int, tuple[int, int]] = {}
        # The last view, the files it was made from, and where it begins.
        self._latest: tuple[object, int, StreamContents] | None = None

    def view(self, from_seq: int = 1) -> StreamContents:
        """How the stream is now; blocks that end below `from_seq` may be left out."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._view(from_seq)
            except VanishedFileError:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt ends otherwise")

    def _view(self, from_seq: int) -> StreamContents:
        blocks = self._blocks()
        if not blocks:
            return StreamContents()
        index_data = self.files.read_index()
        moment = (tuple(blocks), index_data)
        if self._latest is not None and self._latest[0] == moment and self._latest[1] <= from_seq:
            return self._latest[2]
        view = self._made(blocks, self._index(index_data), from_seq)
        view.identities = {block.number: block.identity for block in blocks}
        self._latest = (moment, 0 if view.is_whole else from_seq, view)
        return view

    def _blocks(self) -> list[ReadBlockFile]:
        """The blocks that hold anything; what they hold at this moment is synced."""
        blocks = [block for block in self.files.list_blocks() if block.size]
        for block in blocks[-UNSYNCED_MAX:]:
            if self._synced.get(block.number) != block.identity:
                self.files.sync_block(block.number)
                self._synced[block.number] = block.identity
        return blocks

    def _made(
        self, blocks: list[ReadBlockFile], index: StreamIndex | None, from_seq: int
    ) -> StreamContents:
        if index is not None and self._fits(index, blocks):
            return _from_index(index, blocks)
        limits = limits_of(self.files.config)
        counts = not limits.discard_new and (limits.msgs_max > 0 or limits.bytes_max > 0)
        if counts or limits.subject_msgs_max > 0:
            return self._replayed(blocks, index)
        return self._summarized(blocks, index, from_seq)

    def _index(self, data: bytes | None) -> StreamIndex | None:
        if data is None:
            return None
        try:
            return decode_index(data, self.files.name, self.files.folder)
        except CorruptRecord:
            # Perhaps it is being written; the blocks say the same.
            return None

    def _fits(self, index: StreamIndex, blocks: list[ReadBlockFile]) -> bool:
        listed = [block.number for block in index.blocks]
        numbers = {block.number for block in blocks}
        if not listed or listed[-1] < blocks[-1].number:
            return False
        # Empty files are not among the blocks.
        if any(number not in numbers for number in listed[:-1]):
            return False
        if listed[-1] not in numbers:
            return index.last_checksum == bytes(8)
        return self.files.read_block_end(listed[-1]) == index.last_checksum

    # ---------------------------------------------------------------- from the blocks

    def _summarized(
        self, blocks: list[ReadBlockFile], index: StreamIndex | None, from_seq: int
    ) -> StreamContents:
        view = StreamContents(last_number=blocks[-1].number, is_whole=False)
        known = _known(index, view)
        start = self._block_of(blocks, from_seq) if from_seq > 1 else 0
        first = self._first_of_all(blocks) if start else 0
        for block in blocks[start:]:
            entry = known.get(block.number)
            if entry is not None and index is not None and block.number < index.blocks[-1].number:
                view.blocks.append(BlockRange(block.number, block.size, *entry))
                view.last_seq = max(view.last_seq, entry[1])
                continue
            summary = self._summary(block, verifies=block is blocks[-1])
            add_members(view.removed, summary.tombstones)
            _take(view, block, summary, entry[0] if entry else 0)
        self._forget_others(blocks)
        lowest = first or min((block.first_seq for block in view.blocks), default=0)
        view.first_seq = max(lowest or view.last_seq + 1, view.floor, 1)
        return view

    def _replayed(self, blocks: list[ReadBlockFile], index: StreamIndex | None) -> StreamContents:
        view = StreamContents(last_number=blocks[-1].number)
        known = _known(index, view)
        summaries = [self._summary(block, verifies=block is blocks[-1]) for block in blocks]
        for summary in summaries:
            view.floor = max(view.floor, summary.floor)
        # In our own blocks every removal has left its word; the limits only confirm it.
        follows = not self.files.was_changed and not summaries[-1].is_ours
        if not follows:
            for summary in summaries:
                add_members(view.removed, summary.tombstones)
        before = SequenceSet()
        add_members(before, view.removed)
        limits = limits_of(self.files.config)
        counts = (0, 0) if limits.discard_new else (limits.msgs_max, limits.bytes_max)
        replay = LimitReplay(
            *counts, limits.subject_msgs_max, view.removed, view.floor, follows_tombstones=follows
        )
        for block, summary in zip(blocks, summaries, strict=True):
            data = self.files.read_block(block.number)
            first_seq = known.get(block.number, (0,))[0]
            key = key_of(self.files.name, block.number)
            replay.feed(data[: summary.good_bytes], key, first_seq)
            _take(view, block, summary, first_seq)
        has_gaps = replay.has_gaps or before.count > 0
        if follows and any(counts) and has_gaps and self._ask_server is not None:
            # A tombstone may be gone, or stand where its message had long made room for others.
            said = self._ask_server(self.files)
            if said is not None:
                view.floor = max(view.floor, said.floor)
                for summary in summaries if said.deleted is None else ():
                    add_members(before, summary.tombstones)
                view.removed = before if said.deleted is None else said.deleted
        self._forget_others(blocks)
        lowest = min((block.first_seq for block in view.blocks), default=view.last_seq + 1)
        view.first_seq = max(_first_left(lowest, view.last_seq, view.removed), view.floor, 1)
        return view

    def _summary(self, block: ReadBlockFile, *, verifies: bool) -> BlockSummary:
        found = self._summaries.get(block.number)
        if found is not None and found[:2] == (block.identity, block.size):
            return found[2]
        # Data that was written since then is not known to be synced.
        data = self.files.read_block(block.number, block.size if verifies else -1)
        key = key_of(self.files.name, block.number)
        summary = summarize_block(data, key, verifies=verifies)
        self._summaries[block.number] = (block.identity, block.size, summary)
        return summary

    def _forget_others(self, blocks: Iterable[ReadBlockFile]) -> None:
        numbers = {block.number for block in blocks}
        known: tuple[dict[int, Any], ...] = (self._summaries, self._heads, self._synced)
        for table in known:
            for number in [number for number in table if number not in numbers]:
                del table[number]

    def _head(self, block: ReadBlockFile) -> tuple[int, int]:
        """Sequence and time of its first message; (0, 0) if it has none."""
        found = self._heads.get(block.number)
        if found is not None and found[0] == block.identity[0] and found[1][0]:
            return found[1]
        head = first_message(self.files.read_block_head(block.number))
        if head == (0, 0):
            # Many tombstones, or none at all.
            summary = self._summary(block, verifies=False)
            head = (summary.first_seq, summary.first_time_ns)
        self._heads[block.number] = (block.identity[0], head)
        return head

    def _block_of(self, blocks: list[ReadBlockFile], seq: int) -> int:
        """Index of the block that holds `seq`, or that is before where it would be."""
        low, high = 0, len(blocks)
        while high - low > 1:
            middle = (low + high) // 2
            probe = middle
            while probe < high and not self._head(blocks[probe])[0]:
                probe += 1  # it holds no message
            if probe < high and self._head(blocks[probe])[0] <= seq:
                low = probe
            else:
                high = middle
        return low

    def _first_of_all(self, blocks: list[ReadBlockFile]) -> int:
        return next((seq for block in blocks if (seq := self._head(block)[0])), 0)

    # ---------------------------------------------------------------- positions

    def seq_at_time(self, time_ns: int) -> int:
        """The first sequence of a message that is not older; one after the last if none is."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._seq_at_time(time_ns)
            except VanishedFileError:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt ends otherwise")

    def _seq_at_time(self, time_ns: int) -> int:
        view = self.view(TAIL)
        blocks = [block for block in self._blocks() if self._head(block)[0]]
        place = bisect_left(blocks, time_ns, key=lambda block: self._head(block)[1])
        for block in blocks[max(place - 1, 0) :]:
            if seq := first_at_time(self.files.read_block(block.number), time_ns):
                return min(max(seq, view.first_seq), view.last_seq + 1)
        return view.last_seq + 1

    def bytes_behind(self, after_seq: int) -> int:
        """The size of the files after a sequence; of the block that it is in, its share by count.

        Blocks that are compressed count as they are, and removed messages until they are erased.
        """
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._bytes_behind(after_seq)
            except VanishedFileError:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt ends otherwise")

    def _bytes_behind(self, after_seq: int) -> int:
        blocks = self._blocks()
        if not blocks:
            return 0
        place = self._block_of(blocks, after_seq + 1)
        later = blocks[place + 1 :]
        first = self._head(blocks[place])[0]
        end = self._first_of_all(later) or self.view(TAIL).last_seq + 1
        share = max(end - max(after_seq + 1, first), 0)
        whole = max(end - first, 1)
        return sum(block.size for block in later) + blocks[place].size * share // whole

    def advance(
        self, view: StreamContents, after_seq: int, msgs_max: int, bytes_max: int
    ) -> tuple[int, int, int]:
        """How far a batch from `after_seq` may go: its last sequence, its messages and bytes.

        The batch holds at least one message if there is one, even if that is larger than
        `bytes_max`.
        """
        seq, messages, size = after_seq, 0, 0
        for block in view.blocks:
            if block.last_seq <= after_seq:
                continue
            data = self.files.read_block(block.number)
            after = min(max(seq, view.floor - 1), view.last_seq)
            reached, found, found_bytes, is_full = advance(
                data, after, msgs_max - messages, bytes_max - size, view.removed, messages == 0
            )
            seq, messages, size = reached, messages + found, size + found_bytes
            if is_full:
                return min(seq, view.last_seq), messages, size
        return view.last_seq, messages, size

    def first_message(self, view: StreamContents) -> int:
        """The sequence of the first message of a whole view, one after the last if none is there.

        Other than `first_seq` of the view, which messages at the head may be removed from.
        """
        seq, messages, _ = self.advance(view, view.first_seq - 1, 1, 1 << 62)
        return seq if messages else view.last_seq + 1


def key_of(stream: str, number: int) -> Key:
    """The hash key of a block."""
    return key_for(block_key_text(stream, number))


def _known(index: StreamIndex | None, view: StreamContents) -> dict[int, tuple[int, int, int, int]]:
    """The knowledge of a summary that is out of date: what was removed by then stays removed."""
    if index is None:
        return {}
    view.floor = index.first_seq
    for block in index.blocks:
        add_members(view.removed, block.deleted)
    return {
        block.number: (block.first_seq, block.last_seq, block.first_time_ns, block.last_time_ns)
        for block in index.blocks
        if block.messages
    }


def _take(
    view: StreamContents, block: ReadBlockFile, summary: BlockSummary, first_seq: int
) -> None:
    view.floor = max(view.floor, summary.floor)
    view.last_seq = max(view.last_seq, summary.spoken_seq)
    if summary.messages:
        view.blocks.append(
            BlockRange(
                block.number,
                block.size,
                max(summary.first_seq, first_seq),
                summary.last_seq,
                summary.first_time_ns,
                summary.last_time_ns,
            )
        )


def _first_left(lowest: int, last_seq: int, removed: SequenceSet) -> int:
    found = removed.next_absent(lowest)
    return last_seq + 1 if found is None else min(found, last_seq + 1)


def _from_index(index: StreamIndex, blocks: list[ReadBlockFile]) -> StreamContents:
    sizes = {block.number: block.size for block in blocks}
    view = StreamContents(max(index.first_seq, 1), index.last_seq, last_number=blocks[-1].number)
    view.floor = index.first_seq
    view.messages = index.messages
    view.bytes = index.live_bytes
    for block in index.blocks:
        if block.messages and block.number in sizes:
            view.blocks.append(
                BlockRange(
                    block.number,
                    sizes[block.number],
                    block.first_seq,
                    block.last_seq,
                    block.first_time_ns,
                    block.last_time_ns,
                )
            )
            add_members(view.removed, block.deleted)
    return view
