"""Removing many messages; the code and the explanation are in purging.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectFilter

cdef uint64_t purge_some(MessageStore store, SubjectFilter chosen, uint64_t seq, uint64_t below,
                         uint64_t count, uint64_t work) except? 0xFFFFFFFFFFFFFFFF
cdef int purge_all(MessageStore store) except -1
