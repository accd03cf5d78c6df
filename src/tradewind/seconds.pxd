"""The nanoseconds of a second for compiled modules; `durations.SECOND_NS` is the same in Python."""

cdef enum:
    SECOND_NS = 1000000000
