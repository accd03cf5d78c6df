"""The next message that passes a filter, looked for only so far.

Owns the walk in steps: a filter that matches nothing would otherwise be compared with every message
of a stream in one go. The caller continues after the messages passed. Unbounded searches are in
`message_store`.
"""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.record_index cimport NO_RECORD, RecordIndex, records_from, records_seq
from tradewind.store.table.subject_index cimport SubjectEntry

cdef enum:
    # The costs of turning to a block, and of examining this many messages of it.
    BLOCK_WORK = 4096
    GROUP_WORK = 256
    # ... and if its index has to be read first.
    LOAD_WORK = 2_000_000


cdef uint64_t first_in(Block block, uint64_t seq, SubjectFilter chosen,
                       Reach* reach) noexcept nogil:
    """Find the first live sequence >= seq of a loaded block that passes; 0 if there is none in
    reach.
    """
    cdef RecordIndex* records = &block.records
    cdef uint32_t entry = records_from(records, seq)
    cdef uint64_t before, spent
    while entry < records.count:
        before = chosen.work
        spent = entry
        while entry < records.count and entry - spent < GROUP_WORK:
            if records.offsets[entry] != NO_RECORD and chosen.accepts(records.subject_ids[entry]):
                return records_seq(records, entry)
            entry += 1
        spent = GROUP_WORK + chosen.work - before
        reach.passed = records_seq(records, entry - 1)
        reach.work_left -= min(spent, reach.work_left)
        if reach.work_left == 0:
            return 0
    return 0


cdef Py_ssize_t block_from(MessageStore store, uint64_t seq) except -1:
    """Find the first block that reaches a sequence; blocks ascend."""
    cdef Py_ssize_t low = 0, high = len(store.blocks), middle
    while low < high:
        middle = (low + high) // 2
        if (<Block>store.blocks[middle]).last_seq < seq:
            low = middle + 1
        else:
            high = middle
    return low


cdef uint64_t next_within(MessageStore store, uint64_t seq, SubjectFilter chosen,
                          Reach* reach) except? 0:
    """Find the first live sequence >= seq whose subject passes; 0 if there is none in the part
    examined: up to `reach.passed`, which is the end of the stream if work is left.
    """
    cdef Py_ssize_t index
    cdef Block block
    cdef SubjectEntry* entry = NULL
    cdef uint64_t found
    if chosen.is_literal:
        entry = store.index.find(chosen.literal, <uint32_t>len(chosen.literal))
    if chosen.everything or store.msgs == 0 or seq > store.last_seq \
            or (chosen.is_literal and (entry == NULL or entry.first_seq >= seq
                                       or 0 < entry.last_seq < seq)):
        found = store.next_matching(seq, chosen)
        reach.passed = found - 1 if found else store.last_seq
        return found
    seq = max(seq, store.first_seq)
    reach.passed = max(seq, <uint64_t>1) - 1
    if chosen.build(reach.work_left):
        reach.work_left = 0
        return 0
    chosen.prepare()
    index = block_from(store, seq)
    while index < len(store.blocks):
        block = <Block>store.blocks[index]
        index += 1
        if block.live_msgs == 0 or (entry != NULL and block.number < entry.first_block):
            continue
        if entry != NULL and block.number > entry.last_block:
            break
        if not block.is_loaded():
            reach.work_left -= min(reach.work_left - 1, <uint64_t>LOAD_WORK)
            store.load_index(block)
        found = first_in(block, max(seq, reach.passed + 1), chosen, reach)
        if found:
            reach.passed = found - 1
            return found
        if reach.work_left == 0:
            return 0
        reach.passed = max(reach.passed, block.last_seq)
        reach.work_left -= min(reach.work_left, <uint64_t>BLOCK_WORK)
    reach.work_left = max(reach.work_left, <uint64_t>1)
    reach.passed = store.last_seq
    return 0


def look_for(MessageStore store not None, SubjectFilter chosen not None, uint64_t seq,
             uint64_t work):
    """Call `next_within` from Python; returns (sequence or 0, sequence passed, work left)."""
    cdef Reach reach
    reach.work_left = work
    found = next_within(store, seq, chosen, &reach)
    return found, reach.passed, reach.work_left
