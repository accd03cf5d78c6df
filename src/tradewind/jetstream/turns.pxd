"""What the engine looks at in every turn; the explanation is in turns.pyx."""

from tradewind.broker.router cimport Router
from tradewind.broker.turn cimport Turn
from tradewind.jetstream.usage cimport Usage
from tradewind.store.syncer cimport Syncer


cdef class EngineTurns:
    cdef readonly Router router
    cdef readonly Turn turn
    cdef readonly Syncer syncer
    cdef readonly Usage usage               # of all streams
    # Who is meant by what a turn lists.
    cdef readonly dict hosts                # Ingest -> HostedStream
    cdef readonly dict consumer_hosts       # Consumer -> HostedStream
    # Consumers that nobody has used for long: they go at the end of the turn.
    cdef readonly list retired              # (HostedStream, Consumer)
    cdef readonly object timers             # Timers
    cdef object wall_ns
    cdef object monotonic_ns

    cdef int _settle(self, hosted) except -1
    cdef int send(self) except -1
    cdef bint _is_late(self) except -1
