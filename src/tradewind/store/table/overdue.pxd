"""Pending removals by limits; the code and the explanation are in overdue.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.message_store cimport MessageStore

# All limits are to be checked, whatever was in progress.
cdef int begin_limits(MessageStore store) except -1
# The limit of messages per subject alone.
cdef int begin_trimming(MessageStore store) except -1
cdef bint is_overdue(MessageStore store) noexcept
# Remove some of what is too much; `budget` goes down by what that takes. False: there is more.
cdef bint remove_overdue(MessageStore store, uint64_t* budget) except -1
# A message was stored, and there are too many now.
cdef int make_room(MessageStore store) except -1
# A subject has too many.
cdef int trim_subject(MessageStore store, bytes subject, uint64_t keep) except -1
