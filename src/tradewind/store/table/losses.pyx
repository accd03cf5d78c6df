"""Messages that their file no longer holds, while the store continues with all others.

Owns which of the totals and subjects are correct immediately, and which have to wait for a recount.
The intact content of a damaged block is determined by others (`repair`), and reported by
`take_salvaged`.
"""

from libc.stdint cimport uint32_t
from tradewind.store.format.records cimport Record
from tradewind.store.table.scan cimport load_block_index
from tradewind.store.table.subject_index cimport SubjectEntry

from tradewind.errors import CorruptRecord

cdef enum:
    REASON_LOST = 5         # as in `tradewind.chain.chain_entries`


cdef int read_damaged(MessageStore store, Block block, uint64_t seq, Record* record) except -1:
    """Continue with the intact records of a file whose bytes have changed since they were
    verified.
    """
    if block is store.last:
        if block.has_faulted() and block.read_anew(seq, record):
            return 0
        store.block_keeper.record_damaged(block)
        return 1
    store.block_keeper.block_damaged(block)
    return block.read(seq, record)


cdef int forget_damaged(MessageStore store, Block block, uint64_t seq, bint tombstone) except -1:
    """Remove a message whose record has changed in its file since it was verified."""
    if block is store.last:
        store.add_block()
    store.block_keeper.block_damaged(block)
    return store.forget_message(seq, tombstone) if store.is_live(seq) else 1


def suspect_records(MessageStore store not None, Block block not None):
    """The offsets of records in a file whose lengths differ from the index, with those known
    before; None if there are none. The index is needed for that, and may have been dropped.
    """
    cdef Record record
    found = set(block.suspects or ())
    if block.is_loaded() and block.written:
        for seq in block.live_sequences():
            try:
                if block.read(seq, &record) != 0:
                    continue
            except CorruptRecord:
                continue
            if block._offset_of(seq) < block.written \
                    and not has_known_lengths(store.index, block, &record):
                found.add(block._offset_of(seq))
    return frozenset(found) or None


def take_salvaged(MessageStore store not None, Block block not None, list lost not None):
    """Continue without the `lost` messages of a block; its bytes hold all others.

    The totals are correct immediately; those of the subjects only after a recount, because the
    subjects of the lost messages are unknown.
    """
    cdef uint64_t msgs = block.live_msgs, size = block.live_bytes, seq
    cdef uint64_t first_seq = block.first_seq
    cdef Block other
    block.lose(lost)
    for seq in lost:
        store.forget_times(seq)
        if store.chain is not None:
            store.chain.remove(seq, seq, REASON_LOST)
    if load_block_index(block, store.index, True) != 0:
        raise CorruptRecord(block.path, 0, "the block cannot be read in spite of its repair")
    block.recount()
    store.msgs -= msgs - block.live_msgs
    store.bytes -= size - block.live_bytes
    store.has_open_damage = True
    store.first_seq = store.last_seq + 1
    for other in store.blocks:
        if other.live_msgs:
            store.first_seq = other.first_seq
            break
    if lost:
        forget_ends(store, first_seq, block.last_seq)
    if block.number < store.recount.below:
        store.recount.restart()


cdef int forget_ends(MessageStore store, uint64_t first, uint64_t last) except -1:
    """Clear references of subjects to missing messages in this range."""
    cdef uint32_t index
    cdef SubjectEntry* entry
    for index in range(store.index.entry_count):
        entry = store.index.entries[index]
        if entry == NULL:
            continue
        if first <= entry.first_seq <= last and not store.is_live(entry.first_seq):
            entry.first_seq = 0
        if first <= entry.last_seq <= last and not store.is_live(entry.last_seq):
            entry.last_seq = 0
    return 0


def count_block(MessageStore store not None, Block block not None):
    """Count the messages of the next block by subject; it may turn out to be damaged."""
    store.load_index(block)
    store.recount.add(block, store.index)


def finish_count(MessageStore store not None):
    """Complete the recount after its last block."""
    store.recount.finish(store.index)
