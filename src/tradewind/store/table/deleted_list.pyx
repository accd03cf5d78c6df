"""The sequences of a stream that have no message, as the JSON of stream info.

Owns the text so far and where it ends. It is built in steps, because there may be a million of
them; a deletion between two steps is included only if it lies beyond the current place.

    [2,3,17]
"""

from libc.stdint cimport uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.sequence_tree cimport sequences_next_present
from tradewind.containers.buffer cimport (
    Buffer, buffer_free, buffer_init, buffer_reserve, buffer_size, write_decimal)

cdef enum:
    DECIMAL_BYTES_MAX = 24


cdef class DeletedList:
    """The list of one stream: call `collect` until it is false, then `text`; at most `limit`
    sequences.
    """

    cdef MessageStore store
    cdef uint64_t next_seq
    cdef readonly uint64_t count
    cdef uint64_t limit
    cdef Buffer found               # each followed by a comma

    def __cinit__(self, *_, **__):
        buffer_init(&self.found)

    def __init__(self, MessageStore store not None, uint64_t limit):
        self.store = store
        self.limit = limit

    def __dealloc__(self):
        buffer_free(&self.found)

    @property
    def text(self):
        """The list as JSON."""
        cdef size_t size = buffer_size(&self.found)
        return b"[" + (self.found.data + self.found.begin)[:size - 1] + b"]" if size else b"[]"

    def collect(self, uint64_t step):
        """Add up to `step` sequences; returns whether there may be more."""
        cdef MessageStore store = self.store
        cdef Py_ssize_t low = 0, high = len(store.blocks), middle
        cdef uint64_t last = min(self.count + step, self.limit), seq = 0
        cdef Block block
        if store.msgs == 0:
            return False
        self.next_seq = max(self.next_seq, store.first_seq)
        while low < high:
            middle = (low + high) // 2
            if (<Block>store.blocks[middle]).last_seq < self.next_seq:
                low = middle + 1
            else:
                high = middle
        for block in store.blocks[low:]:
            if block.live_msgs == 0:
                continue
            self._add_below(block.first_seq, last)
            while self.count < last and sequences_next_present(
                    &block.deleted.tree, self.next_seq, &seq):
                self.next_seq = seq
                self._add_below(seq + 1, last)
            if self.count == last:
                return last < self.limit
            self.next_seq = max(self.next_seq, block.last_seq + 1)
        self._add_below(store.last_seq + 1, last)
        return self.count == last and last < self.limit

    cdef int _add_below(self, uint64_t end, uint64_t last) except -1:
        """Add all sequences up to `end`, until there are `last`."""
        cdef char* at
        while self.next_seq < end and self.count < last:
            if buffer_reserve(&self.found, DECIMAL_BYTES_MAX) != 0:
                raise MemoryError
            at = self.found.data + self.found.end
            at += write_decimal(at, self.next_seq)
            at[0] = b","
            self.found.end = at + 1 - self.found.data
            self.next_seq += 1
            self.count += 1
        return 0
