"""Reading a clock from compiled code; the code is in clock_reading.pyx."""

from libc.stdint cimport int64_t

cdef int64_t reading(clock) except? -1
