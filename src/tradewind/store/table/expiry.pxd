"""Expiry of messages; the code and the explanation are in expiry.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.records cimport Record
from tradewind.store.format.timing_wheel cimport TimingWheel

# The time to live in its header, in ns: 0 without one, negative for never.
cdef int64_t ttl_of(const Record* record) except? -2

cdef bint is_too_old(MessageStore store, int64_t now_ns) except -1
# The next message that has expired, 0 if there is none.
cdef uint64_t next_to_expire(MessageStore store, int64_t now_ns) except? 0
# The same, only by its own time to live.
cdef uint64_t next_timed_out(MessageStore store, int64_t now_ns) except? 0
# (sequence, time) of the first message from a sequence on that ages, or None.
cdef object aging_at(MessageStore store, uint64_t from_seq, int64_t now_ns)
cdef bint has_expired(MessageStore store, uint64_t seq, int64_t now_ns) except -1
# Whether a message that has expired has to be replaced instead of being removed.
cdef bint leaves_marker(MessageStore store, uint64_t seq) except -1
# A time, or None.
cdef object next_expiry(MessageStore store, int64_t now_ns)
cdef int adopt_timers(MessageStore store, TimingWheel found) except -1
cdef int start_timers(MessageStore store, uint64_t from_seq) except -1
