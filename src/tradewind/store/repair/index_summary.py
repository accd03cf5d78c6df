"""Writes and verifies the index.db of a stream.

It is written when the stream is closed, and trusted when the stream is opened if everything in it
matches. Owns the comparison of the summary with the block files. It never reads a message, so a
stream of any size opens immediately.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tradewind.errors import StoreError
from tradewind.store.files.disk import DiskError, DiskFault
from tradewind.store.format.index_file import (
    EMPTY_CHECKSUM,
    IndexBlock,
    StreamIndex,
    SubjectTable,
    decode_index,
    encode_index,
)
from tradewind.store.format.layout import RECORD_BYTES_MIN, ZERO_TIME_NS
from tradewind.store.table.adoption import adopt_blocks, drop_below
from tradewind.store.table.block import Block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tradewind.store.files.disk import DiskFile
    from tradewind.store.folder.filestore import FileStore
    from tradewind.store.format.sequence_set import SequenceSet


def encode_summary(store: FileStore) -> bytes:
    """Encode the index.db of a store that has nothing unwritten."""
    state = store.table.state
    blocks = [
        IndexBlock(
            block.number,
            block.live_bytes,
            block.first_seq,
            block.first_timestamp,
            block.last_seq,
            block.last_timestamp,
            block.ttl_count,
            block.schedule_count,
            block.deleted,
        )
        for block in store.table.blocks
        if block.live_msgs or block is store.table.last
    ]
    index = StreamIndex(
        state.msgs,
        state.bytes,
        state.first_seq,
        state.first_timestamp_ns,
        state.last_seq,
        state.last_timestamp_ns,
        SubjectTable(*store.table.index.columns()),
        blocks,
        store.table.last.last_checksum(),
    )
    return encode_index(index, store.name)


def read_summary(store: FileStore) -> StreamIndex | None:
    """Read the summary, if there is one and it is intact.

    The result may be out of date.
    """
    path = f"{store.folder}/index.db"
    if not store.disk.exists(path):
        return None
    try:
        data = store.disk.read_file(path)
        if store.vault is not None:
            data = store.vault.unseal_index(data, path)
        return decode_index(data, store.name, path)
    except DiskError as error:
        if not isinstance(error, DiskFault):
            raise
        return None
    except StoreError:
        return None  # it is damaged, or sealed by another key


def fits(index: StreamIndex, store: FileStore, numbers: list[int]) -> bool:
    """Whether the block files are those that the summary lists."""
    listed = [block.number for block in index.blocks]
    if not numbers or numbers[-1] != listed[-1] or not set(listed) <= set(numbers):
        return False
    try:
        return _last_checksum(store.block_file(listed[-1])) == index.last_checksum
    except DiskFault:
        return False


def contradicts(index: StreamIndex, blocks: list[Block], damaged: set[int]) -> bool:
    """Whether blocks that were read show that a summary is older than they are, or of other blocks.

    Messages that are merely missing in the blocks are no contradiction: they may have been lost.
    `damaged` are the numbers of blocks that are known to have lost something.
    """
    listed = {entry.number: entry for entry in index.blocks}
    is_cut = all(block.number != index.blocks[-1].number for block in blocks)
    for block in blocks:
        entry = listed.get(block.number)
        if is_cut and block.live_msgs == 0 and block.last_seq <= index.last_seq:
            continue  # an interrupted start has begun it after the missing one
        if block.number > index.blocks[-1].number:
            return True
        if block.live_msgs == 0:
            continue
        if entry is None or block.last_seq > entry.last_seq:
            return True
        if block.last_seq < entry.first_seq and block.number not in damaged:
            return True
        if block.first_seq == entry.first_seq and block.first_timestamp != known_time(
            entry.first_time_ns
        ):
            return True
    return False


def forgotten(
    index: StreamIndex, store: FileStore, told: SequenceSet, damaged: set[int]
) -> list[int]:
    """The messages of a rebuilt store that a summary knows to be deleted.

    Their tombstones were in damaged or missing bytes. The summary may be older than the blocks, but
    it must belong to them: wherever nothing is `damaged` a block has the content that the summary
    lists, except for tombstones that were `told` since, and messages removed at the front.
    """
    listed = {entry.number: entry for entry in index.blocks}
    is_theirs = False
    found: list[int] = []
    for block in store.table.blocks:
        entry = listed.get(block.number)
        if block.live_msgs == 0:
            continue
        if block.number > index.blocks[-1].number:
            if block.first_seq <= index.last_seq:
                return []
            continue
        if entry is not None and same_messages(entry, block):
            if block.first_timestamp != known_time(entry.first_time_ns):
                return []
            is_theirs = True
            continue
        store.table.load_index(block)
        live = block.live_sequences()
        if entry is None:
            found += live
            continue
        kept = {seq for seq in live if entry.first_seq <= seq <= entry.last_seq}
        kept = {seq for seq in kept if seq not in entry.deleted}
        missing = (
            seq for seq in known_live(entry) if seq >= store.table.first_seq and seq not in kept
        )
        if block.number not in damaged and any(seq not in told for seq in missing):
            return []
        found += [seq for seq in live if seq <= entry.last_seq and seq not in kept]
        if entry.first_seq in kept:
            if store.table.get(entry.first_seq).timestamp_ns != known_time(entry.first_time_ns):
                return []
            is_theirs = True
        elif entry.last_seq in kept:
            last_time_ns = store.table.get(entry.last_seq).timestamp_ns
            is_theirs |= last_time_ns == known_time(entry.last_time_ns)
    if not is_theirs:
        return []
    return [seq for seq in found if seq <= index.last_seq and not _is_live(index, seq)]


def _is_live(index: StreamIndex, seq: int) -> bool:
    """Whether a message is live according to a summary."""
    place = bisect_left(index.blocks, seq, key=lambda entry: entry.last_seq)
    if place == len(index.blocks):
        return False
    entry = index.blocks[place]
    return entry.first_seq <= seq and seq not in entry.deleted


def known_live(block: Block | IndexBlock) -> Iterator[int]:
    """The live sequences of a block by its totals; its index need not be loaded."""
    seq = block.deleted.next_absent(block.first_seq)
    while seq is not None and seq <= block.last_seq:
        yield seq
        seq = block.deleted.next_absent(seq + 1)


def same_messages(entry: IndexBlock, block: Block) -> bool:
    """Whether a block has as many messages as a summary lists, between the same ends."""
    count = entry.last_seq + 1 - entry.first_seq - len(entry.deleted)
    return (block.first_seq, block.last_seq) == (entry.first_seq, entry.last_seq) and (
        block.live_msgs,
        block.live_bytes,
    ) == (count, entry.live_bytes)


def _last_checksum(file: DiskFile) -> bytes:
    size = file.size
    return file.read(size - 8, 8) if size >= 8 else EMPTY_CHECKSUM


def adopt_summary(store: FileStore, index: StreamIndex, numbers: list[int]) -> bool:
    """Fill a fresh store from the summary; blocks that hold only tombstones are not in it and stay
    as they are. False, and nothing is taken, if it lists more messages than a block can hold.
    """
    listed = {block.number: block for block in index.blocks}
    blocks: list[Block] = []
    seq = 0
    for number in numbers:
        block = Block(store.name, number, store.block_file(number))
        block.adopt_size()
        block.adopt_unverified()
        entry = listed.get(number)
        if entry is None:
            block.start_after(seq)
            block.tombstones = 1
        else:
            block.adopt_totals(
                entry.first_seq,
                known_time(entry.first_time_ns),
                entry.last_seq,
                known_time(entry.last_time_ns),
                entry.live_bytes,
                entry.deleted,
            )
            block.ttl_count = entry.ttl_count
            block.schedule_count = entry.schedule_count
            # How many tombstones it holds is not in the summary; one is as good as any number.
            block.tombstones = 1
            if block.live_msgs * RECORD_BYTES_MIN > block.size:
                return False
            seq = max(seq, entry.last_seq)
        blocks.append(block)
    table = index.subjects
    store.table.index.adopt_columns(
        table.names, table.ends, table.totals, table.first_blocks, table.last_blocks
    )
    adopt_blocks(store.table, blocks, index.last_seq, known_time(index.last_time_ns))
    if index.first_seq == 1 and index.last_seq == 0:
        drop_below(store.table, 1)  # it was purged before it had a message
    return True


def known_time(time_ns: int) -> int:
    """The time in a summary; 0 for Go's zero time, which the official server writes for none."""
    return 0 if time_ns == ZERO_TIME_NS else time_ns
