"""What the engine and its streams look at in every turn; the explanation is in turns.pyx."""

from libc.stdint cimport int64_t
from tradewind.broker.router cimport Router
from tradewind.broker.turn cimport Turn
from tradewind.jetstream.usage cimport Usage
from tradewind.store.syncer cimport SyncEntry, Syncer
from tradewind.stream.ingest cimport Ingest


cdef class StreamTurns:
    cdef readonly EngineTurns engine
    cdef public object stream               # Stream
    cdef Ingest ingest                      # its compiled half
    cdef public dict consumers              # name -> Consumer
    # (round of the syncer, whom to tell when it is kept), oldest first.
    cdef public object waiting_requests     # deque
    cdef public SyncEntry sync_entry        # None: it is in memory
    cdef readonly Usage _counted            # what it has in the sums of account and server
    cdef Usage account_usage
    cdef bint _is_tight                     # it has to ask for credit in every turn

    cdef int settle(self) except -1
    cdef int use_bytes(self) except -1


cdef class EngineTurns:
    cdef readonly Router router
    cdef readonly Turn turn
    cdef readonly Syncer syncer
    cdef readonly Usage usage               # of all streams
    # Who is meant by what a turn lists.
    cdef readonly dict hosts                # Ingest -> StreamTurns
    cdef readonly dict consumer_hosts       # Consumer -> StreamTurns
    # Consumers that nobody has used for long: they go at the end of the turn.
    cdef readonly list retired              # (StreamTurns, Consumer)
    cdef readonly object timers             # Timers
    cdef object wall_ns
    cdef object monotonic_ns

    cdef int send(self) except -1
    cdef bint _is_late(self) except -1
