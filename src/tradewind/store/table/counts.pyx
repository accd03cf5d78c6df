"""The number of messages from a sequence on, and the place where a given number or time begins.

Owns the counting: ids in memory are counted, from the nearer end, and no message is read except for
its time. For streams with many blocks it goes in steps (`CountSearch`).
"""

from libc.stdint cimport uint32_t
from tradewind.store.format.records cimport Record
from tradewind.store.format.sequence_tree cimport sequences_count_in
from tradewind.store.table.block cimport Block
from tradewind.store.table.bounded_walk cimport block_from
from tradewind.store.table.subject_index cimport SubjectEntry

from tradewind.errors import CorruptRecord

cdef enum:
    # The costs of turning to a block, and of reading its index; see `bounded_walk`.
    BLOCK_WORK = 4096
    LOAD_WORK = 2_000_000


cdef uint64_t count_from(MessageStore store, SubjectFilter chosen, uint64_t seq) except? 0:
    """Count the matching messages from a sequence on; blocks are counted from the nearer end."""
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


cdef class CountSearch:
    """A count of matching messages from a sequence on, in steps, from the nearer end. Messages
    stored or removed between two steps may be counted or not.
    """

    cdef int begin(self, MessageStore store, SubjectFilter chosen, uint64_t seq) except -1:
        """Prepare the count for its first step."""
        cdef Py_ssize_t low
        self.store = store
        self.chosen = chosen
        self.seq = seq
        self.end = store.last_seq
        self.at = seq
        self.is_over = seq > store.last_seq
        if self.is_over:
            return 0
        if chosen.everything or (chosen.is_literal and seq <= store.first_seq):
            self.total = count_from(store, chosen, seq)
            self.is_over = True
            return 0
        low = block_from(store, seq)
        if seq <= store.first_seq or not (
                store.has_open_damage or len(store.blocks) - low <= low + 1):
            self.from_front = True
            self.at = store.first_seq
            self.end = max(seq, <uint64_t>1) - 1
        return 0

    cpdef bint step(self, uint64_t work_max) except -1:
        """Count for about `work_max`; returns whether more is left."""
        cdef uint64_t before = self.chosen.work
        cdef Py_ssize_t index
        cdef Block block
        self.work = 0
        if self.is_over:
            return False
        if self.from_front:
            if self.chosen.judge(work_max):
                self.work = work_max
                return True
        elif self.chosen.build(work_max):
            self.work = work_max
            return True
        self.chosen.prepare()
        while self.at <= self.end:
            self.work += self.chosen.work - before
            before = self.chosen.work
            if self.work >= work_max:
                return True
            index = block_from(self.store, self.at)
            if index == len(self.store.blocks):
                break
            block = <Block>self.store.blocks[index]
            if not block.is_loaded():
                self.work += LOAD_WORK
            self.counted += count_in_block(self.store, block, self.chosen, self.at)
            if self.from_front and block.last_seq > self.end:
                self.counted -= count_in_block(self.store, block, self.chosen, self.end + 1)
            self.work += BLOCK_WORK + block.records.count
            self.at = max(self.at, block.last_seq) + 1
        self.total = self.counted
        if self.from_front:
            self.total = count_all(self.store, self.chosen)
            self.total -= min(self.total, self.counted)
        self.is_over = True
        return False


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
    """Count the matching messages of a block from `seq` on; the filter must be prepared."""
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
        if block.live_msgs == 0 or block.latest_timestamp < timestamp_ns:
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


def counting(MessageStore store not None, SubjectFilter chosen not None, uint64_t seq):
    """A `CountSearch` that has begun; for Python callers."""
    cdef CountSearch search = CountSearch()
    search.begin(store, chosen, seq)
    return search
