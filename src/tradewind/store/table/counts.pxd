"""How many messages there are; the code and the explanation are in counts.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectFilter

# Messages from `seq` on that pass.
cdef uint64_t count_from(MessageStore store, SubjectFilter chosen, uint64_t seq) except? 0
# The sequence from which exactly `keep` of those that pass remain.
cdef uint64_t sequence_that_keeps(
    MessageStore store, SubjectFilter chosen, uint64_t keep) except? 0
# The first message that was stored at a time or later; behind the last one if there is none.
cdef uint64_t sequence_from(MessageStore store, int64_t timestamp_ns) except? 0
