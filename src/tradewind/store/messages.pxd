"""The contract of a message store for compiled callers; the code is in messages.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.message_core cimport MessageCore
from tradewind.store.records cimport Record
from tradewind.store.subject_index cimport SubjectFilter


cdef class MessageStore(MessageCore):
    cdef uint64_t _purge_some(self, SubjectFilter chosen, uint64_t seq, uint64_t below,
                              uint64_t count) except? 0xFFFFFFFFFFFFFFFF
    cdef object _copy(self, const Record* record)
