"""A record that stays valid while the store changes.

Owns the one record that is needed beyond the next call of its store: loading a block may release
another, and an append may move records that are not in a file yet. A record in a mapping or in
inflated bytes is held there; one that may move is copied.
"""

from libc.stddef cimport ptrdiff_t
from tradewind.containers.buffer cimport buffer_append, buffer_clear, buffer_free, buffer_init

cdef enum:
    # Up to this much memory of a copy is kept for the next one.
    COPY_KEEP_BYTES = 16384


cdef class KeptRecord:
    """Holds one record at a time."""

    def __cinit__(self):
        buffer_init(&self.moved)

    def __dealloc__(self):
        buffer_free(&self.moved)

    cdef int keep(self, MessageStore store, Record* record) except -1:
        """Hold the record that the store's `read` just returned, instead of the previous one."""
        cdef ptrdiff_t distance
        self.keeper = store.keeper(record)
        if self.keeper is not None:
            return 0
        buffer_clear(&self.moved)
        if buffer_append(&self.moved, record.start, record.size) != 0:
            raise MemoryError
        distance = self.moved.data - record.start
        record.start += distance
        record.subject += distance
        record.header += distance
        record.payload += distance
        return 0

    cdef int let_go(self) except -1:
        """Release the record."""
        self.keeper = None
        if self.moved.capacity > COPY_KEEP_BYTES:
            buffer_free(&self.moved)
        return 0
