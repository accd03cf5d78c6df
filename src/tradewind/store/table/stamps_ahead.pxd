"""Stamps that are ahead of the clock; the code and the explanation are in stamps_ahead.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.table.message_store cimport MessageStore

# When a message with this stamp counts as stored, now that it is `now_ns`.
cdef int64_t stored_at(MessageStore store, uint64_t seq, int64_t timestamp,
                       int64_t now_ns) except? -1
