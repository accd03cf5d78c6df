"""Publishes of many rows that wait for their acknowledgement; explained in row_inbox.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from tradewind.client.core.protocol cimport Line, MessageInbox
from tradewind.client.core.publisher cimport Publisher
from tradewind.client.core.message cimport Msg
from tradewind.containers.buffer cimport Buffer

# One message under way. Its operation is kept until its outcome and those of all older ones are
# known.
ctypedef struct KeptRow:
    uint64_t place                      # of its operation, counted from the first byte ever kept
    double deadline                     # in the loop's time
    uint32_t size
    uint8_t is_done                  # its outcome is known
    uint8_t attempts                    # how often it was answered by "no responders"


cdef class RowInbox(MessageInbox):
    cdef Publisher _publisher
    cdef bytes _base                    # the reply subject without its token
    # A ring: the row of token n is at n & (capacity - 1), from `_first` up to but excluding
    # `_next`.
    cdef KeptRow* _rows                 # owned
    cdef uint64_t _rows_capacity        # a power of two, or 0
    cdef uint64_t _first
    cdef uint64_t _next
    cdef Buffer _kept                   # the operations
    cdef uint64_t _kept_place           # of its first byte
    cdef readonly uint64_t unacknowledged
    cdef uint64_t _wake_at              # notify the owner once no more than this many wait
    cdef bint _wakes

    cdef int send(self, const char* subject, Py_ssize_t subject_size, const char* header,
                  Py_ssize_t header_size, const char* payload, Py_ssize_t payload_size,
                  double deadline) except -1
    cdef KeptRow* _waiting(self, uint64_t token) noexcept
    cdef int _grow_rows(self) except -1
    cdef int _finish_row(self, uint64_t token) except -1
