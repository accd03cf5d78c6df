"""How many messages there are from a sequence on, and where a given number or time begins.

Owns the counting: ids in memory are counted, from the nearer end, and no message is read except for
its time.
"""

from libc.stdint cimport uint32_t
from tradewind.store.format.records cimport Record
from tradewind.store.format.sequence_tree cimport sequences_count_in
from tradewind.store.table.block cimport Block
from tradewind.store.table.subject_index cimport SubjectEntry

from tradewind.errors import CorruptRecord


cdef uint64_t count_from(MessageStore store, SubjectFilter chosen, uint64_t seq) except? 0:
    """Blocks are counted from the nearer end."""
    cdef Py_ssize_t low = 0, high = len(store.blocks), middle, index
    cdef Block block
    cdef uint64_t total = 0
    if seq > store.last_seq:
        return 0
    if seq <= store.first_seq:
        return count_all(store, chosen)
    chosen.prepare()
    while low < high:
        middle = (low + high) // 2
        if (<Block>store.blocks[middle]).last_seq < seq:
            low = middle + 1
        else:
            high = middle
    if chosen.everything or store.has_open_damage or len(store.blocks) - low <= low + 1:
        for index in range(low, len(store.blocks)):
            total += count_in_block(store, store.blocks[index], chosen, seq)
        return total
    for index in range(low):
        total += count_in_block(store, store.blocks[index], chosen, 0)
    block = store.blocks[low]
    total += count_in_block(store, block, chosen, 0)
    total -= count_in_block(store, block, chosen, seq)
    return count_all(store, chosen) - total


cdef uint64_t count_all(MessageStore store, SubjectFilter chosen) except? 0:
    cdef SubjectEntry* entry
    if chosen.everything:
        return store.msgs
    if chosen.is_literal:
        entry = store.index.find(chosen.literal, <uint32_t>len(chosen.literal))
        return 0 if entry == NULL else entry.total
    return store.index.matching_total(chosen)[1]


cdef uint64_t count_in_block(MessageStore store, Block block, SubjectFilter chosen,
                             uint64_t seq) except? 0:
    """How many messages of a block from `seq` on pass; the filter is prepared."""
    cdef SubjectEntry* entry
    if block.live_msgs == 0 or block.last_seq < seq:
        return 0
    if chosen.everything:
        seq = max(seq, block.first_seq)
        return block.last_seq - seq + 1 - sequences_count_in(
            &block.deleted.tree, seq, block.last_seq)
    if chosen.is_literal:
        entry = store.index.find(chosen.literal, <uint32_t>len(chosen.literal))
        if entry == NULL or not entry.first_block <= block.number <= entry.last_block:
            return 0
    store.load_index(block)
    return block.count_accepted(seq, chosen)


cdef uint64_t sequence_that_keeps(
        MessageStore store, SubjectFilter chosen, uint64_t keep) except? 0:
    """The sequence from which exactly `keep` matching messages remain; 1 if there are no more.

    Blocks are counted from the nearer end, and only one is walked through.
    """
    cdef uint64_t total = store.msgs, left, count
    cdef Block block
    if not chosen.everything:
        _, total = store.index.matching_total(chosen)
    if total <= keep:
        return 1
    chosen.prepare()
    left = total - keep
    if left <= keep:
        for block in store.blocks:
            count = count_in_block(store, block, chosen, 0)
            if left < count:
                return matching_in(store, block, chosen, left)
            left -= count
        return 1
    left = keep
    for block in reversed(store.blocks):
        count = count_in_block(store, block, chosen, 0)
        if left <= count:
            return matching_in(store, block, chosen, count - left)
        left -= count
    return 1


cdef uint64_t matching_in(MessageStore store, Block block, SubjectFilter chosen,
                          uint64_t index) except? 0:
    """The sequence of a message of a block by its place among those that pass."""
    cdef uint64_t seq
    store.load_index(block)
    seq = block.next_accepted(block.first_seq, chosen)
    while index and seq:
        seq = block.next_accepted(seq + 1, chosen)
        index -= 1
    return seq or 1


cdef uint64_t sequence_from(MessageStore store, int64_t timestamp_ns) except? 0:
    cdef Block block
    cdef Record record
    cdef uint64_t seq
    cdef SubjectFilter everything = store.filter()
    cdef bint is_there
    for block in store.blocks:
        if block.live_msgs == 0 or block.last_timestamp < timestamp_ns:
            continue
        store.load_index(block)
        seq = block.first_seq
        while seq and seq <= block.last_seq:
            try:
                is_there = block.read(seq, &record) == 0
            except CorruptRecord:
                is_there = store.read(seq, &record) == 0
            if is_there and record.timestamp >= timestamp_ns:
                return seq
            seq = block.next_accepted(seq + 1, everything)
    return store.last_seq + 1
