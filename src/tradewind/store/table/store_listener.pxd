"""Notified of messages that leave a store; the code is in store_listener.pyx."""

from libc.stdint cimport uint32_t, uint64_t


cdef class StoreListener:
    # Called before the totals change; it must not ask the store for messages.
    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1
    cdef int all_removed(self) except -1
