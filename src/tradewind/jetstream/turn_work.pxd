"""State of the checks that the engine does in every turn; the explanation is in turn_work.pyx."""

from libc.stdint cimport int64_t
from tradewind.broker.router cimport Router
from tradewind.broker.turn cimport Turn
from tradewind.broker.turn_end cimport EngineTurns
from tradewind.broker.turn_watch cimport TurnWatch
from tradewind.jetstream.timers cimport Timers
from tradewind.store.commits.syncer cimport Syncer


cdef class TurnWork(EngineTurns):
    cdef object _owner                      # TurnWorkOwner
    cdef Router _router
    cdef Turn _turn
    cdef Syncer _syncer
    # Maps what a turn lists to its hosts.
    cdef dict _hosts                        # Ingest -> HostedStream
    cdef dict _consumer_hosts               # Consumer -> HostedStream
    # Consumers unused for too long: they are deleted at the end of the turn.
    cdef list _retired                      # (HostedStream, Consumer)
    cdef set _replaying                     # consumers that had more to send; None: there are none
    cdef bint _answers_first                # they were passed over for the answers to others
    cdef int64_t _answered_ns               # when others were last sent anything
    cdef int64_t _passed_ns                 # when they were passed over
    cdef int64_t _owed_ns                   # spent on everything else since one of them has sent
    cdef int64_t _room_bytes                # what one of them may send in the next shared turn
    cdef TurnWatch _watch
    cdef Timers _timers
    cdef object _wall_ns
    cdef object _monotonic_ns

    cdef int _set_time(self) except -1
    cdef int _commit_stream(self, hosted) except -1
    cdef int _send(self) except -1
    cdef bint _is_late(self) except -1
    cdef int _wait_for_next(self, participant) except -1
    cdef bint _share_turn(self) except -1
