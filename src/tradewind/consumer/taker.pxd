"""The interface of objects that take the messages of a stream; the code is in taker.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.broker.turn cimport Participant


cdef class TakerPart:
    cdef bint needs_message(self, uint64_t seq, uint32_t subject_id) except -1
    cdef uint64_t limit(self) noexcept
    cdef bint has_demand(self) noexcept


cdef class Taker(Participant):
    cdef TakerPart part                 # never None
    cdef public bint is_waiting         # its stream lists it among those that wait for messages
