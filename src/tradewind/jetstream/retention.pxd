"""State of a stream's retention; the code and the explanation are in retention.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.turn cimport Participant, Turn
from tradewind.consumer.done_listener cimport DoneListener
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.sequence_set cimport SequenceSet
from tradewind.stream.ingest cimport Ingest


cdef class Retention(DoneListener):
    cdef Ingest ingest
    cdef MessageStore store         # of the stream
    cdef Turn turn
    cdef object demand              # Demand: who wants what
    cdef public bint any_ack        # work queue: any acknowledgement removes; else all are needed
    cdef public bint is_copied      # mirrors or sources take part: they must have it too
    cdef SequenceSet refused        # no longer needed, but the store could not remove them
    cdef SequenceSet put_off        # acknowledged in a turn that had removed enough
    cdef uint64_t put_off_count
    cdef list waiting               # called when none is put off any more
    # The range [sweep_from, sweep_to] still to be searched for unneeded messages; 0: none.
    cdef uint64_t sweep_from
    cdef uint64_t sweep_to
    cdef int64_t turn_ns            # when the turn began in which ...
    cdef uint32_t removed           # ... so many messages were removed

    cdef bint _puts_off(self, uint64_t seq) except -1
    cdef bint _take_out(self, uint64_t seq, Participant without) except -1
    cdef bint _is_needed(self, uint64_t seq, Participant without) except -1
    cdef bint _is_wanted(self, list groups, uint64_t seq, uint32_t subject_id,
                         Participant without) except -1
    cdef uint64_t _remove_put_off(self, uint64_t budget) except? 0xFFFFFFFFFFFFFFFF
    cdef int _sweep(self, uint64_t budget) except -1
