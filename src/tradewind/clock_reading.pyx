"""Reading a clock from compiled code, which does so several times in every turn.

Owns no time: callers pass a function of a `Clock`. The machine's own clock is read without a Python
call and without a Python number.
"""

from libc.stdint cimport int64_t
from tradewind.seconds cimport SECOND_NS

from tradewind.clock import SystemClock

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    ctypedef int clockid_t
    clockid_t CLOCK_REALTIME
    clockid_t CLOCK_MONOTONIC
    int clock_gettime(clockid_t clock, timespec* now)

cdef object wall_ns = SystemClock.wall_ns
cdef object monotonic_ns = SystemClock.monotonic_ns


cdef inline int64_t now_ns(clockid_t clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return now.tv_sec * SECOND_NS + now.tv_nsec


cdef int64_t reading(clock) except? -1:
    """The time by `clock`, which is `wall_ns` or `monotonic_ns` of a `Clock`."""
    if clock is monotonic_ns:
        return now_ns(CLOCK_MONOTONIC)
    if clock is wall_ns:
        return now_ns(CLOCK_REALTIME)
    return clock()
