"""State of a copier; the code and the explanation are in copier.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.turn cimport Turn
from tradewind.consumer.done_listener cimport DoneListener
from tradewind.consumer.taker cimport Taker, TakerPart
from tradewind.containers.buffer cimport Buffer
from tradewind.jetstream.replication.inbox cimport Inbox
from tradewind.store.format.records cimport Record
from tradewind.store.table.subject_index cimport SubjectFilter
from tradewind.stream.ingest cimport Ingest

ctypedef struct CopyMark:
    uint64_t target_seq         # once everything up to it is safe ...
    uint64_t origin_seq         # ... the origin need not keep anything up to this for us


cdef class Copier(TakerPart):
    cdef Taker owner                        # the mirror or source: a CopierOwner
    cdef readonly Ingest target
    cdef readonly Ingest origin             # a stream of this server; None: not connected
    cdef readonly Inbox inbox               # ... or what a consumer delivers; None: not connected
    cdef Turn turn
    cdef readonly tuple patterns            # of subjects of the origin; empty: everything
    cdef SubjectFilter chosen               # ... in its store
    cdef DoneListener done_listener         # None: the origin keeps its messages by limits
    cdef public bint keeps_place            # copies have the sequence and time of the original
    cdef public bint is_plain               # nothing in the configurations needs closer examination
    cdef public bint maps                   # ... but copies have other subjects, see CopierOwner
    cdef list mapped                        # subjects of copies by id of the original; or None
    cdef uint32_t mapped_epoch              # ... with the ids of that time
    cdef dict mapped_by_name                # the same for what comes through an inbox; or None
    cdef public bint expires                # ... so Nats-TTL does
    cdef public bint rolls_up               # ... so Nats-Rollup does
    # What a copy says of its origin: `head`, sequence, `middle`, subject, `tail`; b"": nothing.
    cdef public bytes head
    cdef public bytes middle
    cdef public bytes tail
    cdef readonly uint64_t next_seq         # everything below was copied, or need not be
    cdef readonly uint64_t copied_seq       # the last one that was copied; 0: none yet
    cdef readonly uint64_t confirmed_seq    # everything up to it is safe
    cdef uint64_t released_seq               # ... and the origin was notified
    cdef readonly bint is_crowded           # too much waits for the disk of the target
    cdef readonly int64_t due_ns            # when it is tried again; 0: it need not be
    cdef Buffer body                        # of a copy that differs from the original
    cdef Buffer marks                       # CopyMark, ascending

    cdef bint _copy_some(self, uint64_t visible_seq) except -1
    cdef bint _copy_next(self, uint64_t visible_seq) except -1
    cdef bint _copy_arrived(self) except -1
    cdef bint _copy(self, Record* record) except -1
    cdef bint _copy_placed(self, Record* record, int notes) except -1
    cdef bint _copy_sourced(self, Record* record) except -1
    cdef bint _copy_slowly(self, Record* record) except -1
    cdef int _build(self, Record* record) except -1
    cdef bytes _mapped(self, Record* record)
    cdef bytes _mapped_by_name(self, bytes subject)
    cdef int _note_copied(self) except -1
    cpdef void confirm(self) except *
    cdef int _release_some(self) except -1
