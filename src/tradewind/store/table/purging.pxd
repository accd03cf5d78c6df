"""Removing many messages; the code and the explanation are in purging.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectFilter

cdef uint64_t purge_some(MessageStore store, SubjectFilter chosen, uint64_t seq, uint64_t below,
                         uint64_t count, uint64_t work) except? 0xFFFFFFFFFFFFFFFF
# Where the messages that pass a filter are, if it matches few subjects: in no sequence outside of
# the range. `singles` has all of them if each subject has one; otherwise it is None.
cdef struct PurgeRange:
    uint64_t first
    uint64_t end
    bint is_known
cdef object listed_range(MessageStore store, SubjectFilter chosen, PurgeRange* found)
cdef uint64_t first_passing(MessageStore store, SubjectFilter chosen, uint64_t seq) except? 0
cdef uint64_t purge_listed(MessageStore store, uint64_t[::1] singles, uint64_t place,
                           uint64_t below, uint64_t count) except? 0xFFFFFFFFFFFFFFFF
cdef int purge_all(MessageStore store) except -1
