"""What limits have left to remove; the code and the explanation are in overdue.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.message_core cimport MessageCore

# All limits are to be looked at, whatever was under way.
cdef int begin_limits(MessageCore store) except -1
# The limit of messages per subject alone.
cdef int begin_trimming(MessageCore store) except -1
cdef bint is_overdue(MessageCore store) noexcept
# Remove some of what is too much; `budget` goes down by what that takes. False: there is more.
cdef bint remove_overdue(MessageCore store, uint64_t* budget) except -1
