"""Sums of times that saturate at the ends of 64 bits; `durations.later` is the same in Python.

A request may contain any duration that 64 bits can hold. Added to the present, it must result in a
time that never comes, not in one long past.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

cdef enum:
    # Corrections of a clock up to this are normal. A larger distance means that the clock was
    # wrong.
    CLOCK_SLACK_NS = 2_000_000_000


cdef inline int64_t later(int64_t time_ns, int64_t duration_ns) noexcept nogil:
    """The sum of a time and a duration, saturated."""
    if duration_ns >= 0:
        return time_ns + duration_ns if time_ns <= INT64_MAX - duration_ns else INT64_MAX
    return time_ns + duration_ns if time_ns >= INT64_MIN - duration_ns else INT64_MIN


cdef inline int64_t distance(int64_t from_ns, int64_t to_ns) noexcept nogil:
    """The time between two times, saturated."""
    if from_ns >= 0:
        return to_ns - from_ns if to_ns >= INT64_MIN + from_ns else INT64_MIN
    return to_ns - from_ns if to_ns <= INT64_MAX + from_ns else INT64_MAX
