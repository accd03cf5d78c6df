"""Notified when a consumer is done with a message; the code is in done_listener.pyx."""

from libc.stdint cimport uint64_t
from tradewind.broker.turn cimport Participant


cdef class DoneListener:
    cdef int message_done(self, Participant consumer, uint64_t seq) except -1
