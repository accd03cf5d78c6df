"""The C side of message expiry."""

from libc.stdint cimport int64_t, uint64_t

ctypedef struct Timer:
    uint64_t seq                # 0 in an unused place of the table
    int64_t expires_ns

ctypedef struct TimerTable:
    # By sequence: open addressing, capacity a power of two, at most 3/4 full.
    Timer* places
    uint64_t capacity
    uint64_t count
    # By time: a binary heap. An entry whose time is not that of the table is a leftover.
    Timer* heap
    uint64_t heap_size
    uint64_t heap_capacity
    uint64_t seed

cdef void timers_init(TimerTable* table, uint64_t seed) noexcept nogil
cdef void timers_free(TimerTable* table) noexcept nogil
# Adds, or changes the time of a sequence, which is not 0; -1 if there is no memory.
cdef int timers_add(TimerTable* table, uint64_t seq, int64_t expires_ns) noexcept nogil
# Whether the sequence was there with that time.
cdef bint timers_remove(TimerTable* table, uint64_t seq, int64_t expires_ns) noexcept nogil
# The same whatever its time.
cdef bint timers_forget(TimerTable* table, uint64_t seq) noexcept nogil
# The timer that ends first, which stays; false if there is none.
cdef bint timers_peek(TimerTable* table, Timer* found) noexcept nogil
# Takes the timer that ends first if it has ended at `now_ns`.
cdef bint timers_pop(TimerTable* table, int64_t now_ns, Timer* found) noexcept nogil


cdef class TimingWheel:
    cdef TimerTable table
