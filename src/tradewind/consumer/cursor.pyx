"""The position of a consumer in its stream, and the exact number of messages left for it.

Owns a position in a stream and the number of messages after it that pass the filter. It reads no
message: it uses the subject numbers that the store keeps per message. It never moves back.

The number is maintained, not computed: `counted` covers the sequences from the position up to
`counted_to`. Delivering or removing a message decrements it, and a query first adds the rest up to
the last sequence. Every message is therefore examined once, however often the number is asked for.

A consumer that starts with the last message of each subject first has a list of those messages;
after the list it continues with what was stored since the list was built.
"""

from array import array

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from tradewind cimport invariants
from tradewind.store.format.records cimport Record
from tradewind.store.table.block cimport Block
from tradewind.store.table.bounded_walk cimport Reach, next_within
from tradewind.store.table.store_listener cimport StoreListener


# Marks a removed message in the list of single messages. No sequence is this high.
cdef uint64_t GONE = <uint64_t>1 << 63
cdef uint64_t ALL_WORK = <uint64_t>1 << 62
# What an observer of one consumer among thousands may look at.
cdef uint64_t OBSERVER_WORK = 10_000


cdef class Cursor(StoreListener):
    """A position that starts at `next_seq`, after the single messages of `skip`, which ascend.
    Messages are those that pass a filter, or patterns.
    """

    def __init__(self, MessageStore store not None, patterns=(), uint64_t next_seq=1, skip=()):
        self.store = store
        self.chosen = store.filter(patterns)
        self.next_seq = max(next_seq, <uint64_t>1)
        self.work_left = ALL_WORK
        if skip:
            self._take_skip(array("Q", skip))
        self._recount()

    def __dealloc__(self):
        free(self.skip)

    cdef int _take_skip(self, const uint64_t[::1] sequences) except -1:
        """Copy the list of single messages, which ascend."""
        self.skip = <uint64_t*>malloc(sequences.shape[0] * sizeof(uint64_t))
        if self.skip == NULL:
            raise MemoryError
        memcpy(self.skip, &sequences[0], sequences.shape[0] * sizeof(uint64_t))
        self.skip_count = <uint32_t>sequences.shape[0]
        self.skipped_to = self.skip[0]
        return 0

    cdef void _pass_gone(self) noexcept nogil:
        """Skip removed messages at the front of the list."""
        while self.skip_begin < self.skip_count and self.skip[self.skip_begin] & GONE:
            self.skip_begin += 1
            self.skip_gone -= 1

    cdef void _drop_skip(self) noexcept nogil:
        self.skip_begin = self.skip_count
        self.skip_gone = 0

    def _recount(self):
        self.counted = self._count_from(self.next_seq)
        self.counted_to = max(self.store.last_seq, self.next_seq - 1)

    def set_filter(self, patterns):
        """Use other patterns (or a filter) from now on; the remaining messages are counted
        again.
        """
        self.chosen = self.store.filter(patterns)
        self._recount()

    def seek(self, uint64_t next_seq):
        """Start over at a sequence; an unfinished list is dropped."""
        self.next_seq = max(next_seq, <uint64_t>1)
        self._drop_skip()
        self._recount()

    def raise_to(self, uint64_t seq):
        """Skip to a sequence below which nothing is stored any more."""
        if seq > self.next_seq:
            self.next_seq = seq
            if self.counted_to < seq - 1:
                self.counted_to = seq - 1

    # -------------------------------------------------------------- what comes next

    cpdef uint64_t peek(self, uint64_t visible_seq) except? 0:
        """The next message up to `visible_seq`; 0 if there is none, or if the search `is_late` and
        continues where it stopped.
        """
        cdef Reach reach
        cdef uint64_t found, passed
        self.is_late = False
        if self.skip_begin < self.skip_count:
            found = self.skip[self.skip_begin]
            return found if found <= visible_seq else 0
        if self.next_seq > visible_seq:
            return 0
        reach.work_left = self.work_left
        found = next_within(self.store, self.next_seq, self.chosen, &reach)
        self.work_left = reach.work_left
        if found and found <= visible_seq:
            return found
        self.is_late = found == 0 and reach.work_left == 0 and reach.passed < visible_seq
        # Nothing up to there: skipped messages are not examined again.
        passed = min(reach.passed, visible_seq)
        if passed >= self.next_seq:
            self.next_seq = passed + 1
            if self.counted_to < passed:
                self.counted_to = passed
                self.counted = 0
        return 0

    def waiting_seq(self):
        """The next message for an observer, 0 if there is none; if the search for it would take
        long, the sequence from which it continues. The consumer's own searches cost what they did.
        """
        cdef uint64_t work_left = self.work_left, found
        cdef bint is_late = self.is_late
        self.work_left = OBSERVER_WORK
        try:
            found = self.peek(self.store.last_seq)
            return self.next_seq if found == 0 and self.is_late else found
        finally:
            self.work_left = work_left
            self.is_late = is_late

    cpdef int advance(self, uint64_t seq) except -1:
        """Called when the message that `peek` returned has been delivered."""
        if self.skip_begin < self.skip_count:
            self.skip_begin += 1
            self.skipped_to = seq + 1
            self._pass_gone()
            return 0
        if invariants.checked:
            assert self.next_seq <= seq <= self.store.last_seq, (
                self.next_seq, seq, self.store.last_seq)
            assert self.counted or seq > self.counted_to, (seq, self.counted_to)
        self.next_seq = seq + 1
        if seq <= self.counted_to:
            self.counted -= 1
        else:
            self.counted_to = seq
            self.counted = 0
        return 0

    cpdef uint64_t limit(self) noexcept:
        """The first sequence that has not been delivered, nor any message after it."""
        return self.skipped_to if self.skip_begin < self.skip_count else self.next_seq

    # -------------------------------------------------------------- how much is left

    cpdef uint64_t pending(self) except? 0xFFFFFFFFFFFFFFFF:
        """The number of messages that are left at this moment."""
        if self.counted_to < self.store.last_seq:
            self.counted += self._count_from(max(self.counted_to + 1, self.next_seq))
            self.counted_to = self.store.last_seq
        if invariants.checked:
            assert self.counted <= self.store.msgs, (self.counted, self.store.msgs)
            assert self.skip_begin + self.skip_gone <= self.skip_count
        return self.counted + (self.skip_count - self.skip_begin - self.skip_gone)

    cdef uint64_t _count_from(self, uint64_t seq) except? 0xFFFFFFFFFFFFFFFF:
        """Count the live messages from a sequence on that pass the filter."""
        cdef uint64_t before, total
        cdef Block last = self.store.last
        if self.store.msgs == 0 or seq > self.store.last_seq:
            return 0
        if seq > last.first_seq or (seq == last.first_seq and last.live_msgs):
            self.chosen.prepare()
            return last.count_accepted(seq, self.chosen)
        if seq <= self.store.first_seq:
            return self.store.msgs if self.chosen.everything \
                else self.store.index.matching_total(self.chosen)[1]
        # From the nearer end: the other part follows from the total.
        total = self._count_from(self.store.first_seq)
        if seq - self.store.first_seq < self.store.last_seq - seq:
            return total - self._count_below(seq)
        before = 0
        self.chosen.prepare()
        for block in reversed(self.store.blocks):
            if (<Block>block).last_seq < seq:
                break
            before += self._count_block(block, seq)
        return before

    cdef uint64_t _count_below(self, uint64_t seq) except? 0xFFFFFFFFFFFFFFFF:
        """Count the live messages below a sequence that pass the filter."""
        cdef uint64_t total = 0
        self.chosen.prepare()
        for block in self.store.blocks:
            if (<Block>block).first_seq >= seq and (<Block>block).live_msgs:
                break
            total += self._count_block(block, 0)
            if (<Block>block).last_seq >= seq:
                total -= self._count_block(block, seq)
        return total

    def _count_block(self, Block block, uint64_t seq):
        """Count the same in one block, from a sequence on."""
        if block.live_msgs == 0:
            return 0
        if self.chosen.everything and seq <= block.first_seq:
            return block.live_msgs
        self.store.load_index(block)
        return block.count_accepted(seq, self.chosen)

    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1:
        """Called by the store before a message is removed."""
        cdef uint32_t low = self.skip_begin, high = self.skip_count, middle
        if seq >= self.next_seq and seq <= self.counted_to:
            self.chosen.prepare()
            if self.chosen.accepts(subject_id):
                self.counted -= 1
            return 0
        while low < high:
            middle = (low + high) // 2
            if self.skip[middle] & ~GONE < seq:
                low = middle + 1
            else:
                high = middle
        if low < self.skip_count and self.skip[low] == seq:
            self.skip[low] |= GONE
            self.skip_gone += 1
            self._pass_gone()
        return 0

    cdef int all_removed(self) except -1:
        """Called by the store when it has become empty."""
        self._drop_skip()
        self.next_seq = max(self.next_seq, self.store.last_seq + 1)
        self.counted_to = self.next_seq - 1
        self.counted = 0
        return 0

    def is_left(self, uint64_t seq):
        """Whether a message that passes the filter was not delivered yet."""
        cdef uint32_t index
        if seq >= self.next_seq:
            return True
        for index in range(self.skip_begin, self.skip_count):
            if self.skip[index] & ~GONE >= seq:
                return self.skip[index] == seq
        return False

    def accepts(self, bytes subject not None):
        """Whether messages of a subject pass the filter."""
        return self.chosen.matches(subject)


def message_time_ns(MessageStore store not None, uint64_t seq):
    """When a message was stored; 0 if it is not there."""
    cdef Record record
    return record.timestamp if store.read(seq, &record) == 0 else 0
