"""State of the turns of a server; the code and the explanation are in turn_loop.pyx."""

from libc.stdint cimport int64_t, uint32_t
from tradewind.broker.deadlines cimport Deadlines
from tradewind.broker.router cimport Router
from tradewind.broker.turn_end cimport TurnEnd
from tradewind.broker.turn_watch cimport TurnWatch

cdef class TurnLoop:
    cdef readonly object broker         # Broker
    cdef Router _router                 # the broker's
    cdef TurnWatch _watch               # the broker's
    cdef TurnEnd _turn_end              # the broker's
    cdef Deadlines _deadlines           # the broker's
    cdef object _places                 # passwords that wait for a check
    cdef object _loop                   # None until the server is started
    cdef readonly object sockets        # SocketSet, from then on
    cdef object _check_passwords
    cdef object _timer                  # asyncio.TimerHandle, or None
    cdef int64_t _timer_ns
    cdef bint _turn_scheduled
    cdef bint _is_in_batch              # ready sockets are being read; the turn ends after them
    cdef bint batch_has_turn            # ... if one of them asked for that
    cdef bint _is_ending                # the end of a turn is running; it cannot be entered again
    cdef list _held                     # links that are not read because their receivers are slow
    cdef object _release                # asyncio.TimerHandle while there are any
    cdef object _lost                   # deque of (session, reason): lost connections
    cdef int _lost_count                # sessions of lost connections closed in this turn
    cdef void* _talker                  # the link that sent last; only compared, may be gone
    cdef uint32_t _talks
    cdef void* _reader                  # the link that filled the last read; only compared
    cdef int64_t _reading_since_ns      # the time of its first read in an unbroken row

    cdef int begin_batch(self) except -1
    cdef int end_batch(self) except -1
    cdef int _end_turn(self) except -1
    cdef int _close_lost(self) except -1
    cdef int _run_turn(self) except -1
    cdef int _finish_turn(self) except -1
    cdef int _set_timer(self) except -1
