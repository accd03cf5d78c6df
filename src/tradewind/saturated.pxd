"""Sums of times that stop at the ends of 64 bits; `durations.later` is the same in Python.

A duration of a request may be as long as 64 bits can say. Added to the present it must become a
time that never comes, not one that is long over.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t


cdef inline int64_t later(int64_t time_ns, int64_t duration_ns) noexcept nogil:
    """The sum; what is too far away for 64 bits is as far as they go."""
    if duration_ns >= 0:
        return time_ns + duration_ns if time_ns <= INT64_MAX - duration_ns else INT64_MAX
    return time_ns + duration_ns if time_ns >= INT64_MIN - duration_ns else INT64_MIN


cdef inline int64_t distance(int64_t from_ns, int64_t to_ns) noexcept nogil:
    """How long it is from one time to another; as long as 64 bits go if it is longer."""
    if from_ns >= 0:
        return to_ns - from_ns if to_ns >= INT64_MIN + from_ns else INT64_MIN
    return to_ns - from_ns if to_ns <= INT64_MAX + from_ns else INT64_MAX
