"""Who is told that a consumer is done with a message; the code is in settled.pyx."""

from libc.stdint cimport uint64_t
from tradewind.broker.turn cimport Participant


cdef class Settled:
    cdef int settle(self, Participant consumer, uint64_t seq) except -1
