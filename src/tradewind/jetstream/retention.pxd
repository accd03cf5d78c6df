"""State of a stream's retention; the code and the explanation are in retention.pyx."""

from libc.stdint cimport uint64_t
from tradewind.broker.turn cimport Participant, Turn
from tradewind.consumer.settled cimport Settled
from tradewind.store.message_core cimport MessageCore
from tradewind.store.sequence_set cimport SequenceSet
from tradewind.stream.ingest cimport Ingest


cdef class Retention(Settled):
    cdef Ingest ingest
    cdef MessageCore store          # of the stream
    cdef Turn turn
    cdef object demand              # Demand: who wants what
    cdef public bint any_ack        # work queue: whoever acknowledges removes; else all must have
    cdef SequenceSet refused        # nobody needs them, but the store could not remove them

    cdef bint _take_out(self, uint64_t seq, Participant without) except -1
    cdef bint _is_needed(self, uint64_t seq, Participant without) except -1
