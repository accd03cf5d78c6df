"""A walk through a store that ends early; the code and the explanation are in bounded_walk.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectFilter

# How far a walk goes. The unit of work is about a nanosecond, as with `SubjectFilter.work`.
ctypedef struct Reach:
    uint64_t work_left          # when it is 0 the walk ends
    uint64_t passed             # no message up to here passes

cdef uint64_t next_within(MessageStore store, uint64_t seq, SubjectFilter chosen,
                          Reach* reach) except? 0
# The index of the first block that may have a message from a sequence on.
cdef Py_ssize_t block_from(MessageStore store, uint64_t seq) except -1
