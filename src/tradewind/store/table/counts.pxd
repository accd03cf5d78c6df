"""The numbers of messages; the code and the explanation are in counts.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectFilter


cdef class CountSearch:
    cdef MessageStore store
    cdef SubjectFilter chosen
    cdef uint64_t seq               # messages from here on are counted
    cdef uint64_t at                # the next one to be counted ...
    cdef uint64_t end               # ... of those up to here
    cdef bint from_front            # those below `seq` are counted, and taken from all
    cdef bint is_over
    cdef uint64_t counted
    cdef readonly uint64_t total    # when it is over
    cdef uint64_t work              # what the last step has cost

    cdef int begin(self, MessageStore store, SubjectFilter chosen, uint64_t seq) except -1
    cpdef bint step(self, uint64_t work_max) except -1


# Messages from `seq` on that pass.
cdef uint64_t count_from(MessageStore store, SubjectFilter chosen, uint64_t seq) except? 0
# The sequence from which exactly `keep` of those that pass remain.
cdef uint64_t sequence_that_keeps(
    MessageStore store, SubjectFilter chosen, uint64_t keep) except? 0
# The first message that was stored at a time or later; after the last one if there is none.
cdef uint64_t sequence_from(MessageStore store, int64_t timestamp_ns) except? 0
