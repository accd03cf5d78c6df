"""State of the end of turns; the code is in turn_end.pyx."""

from tradewind.broker.deadlines cimport Deadlines
from tradewind.broker.router cimport Router
from tradewind.broker.turn_watch cimport TurnWatch

cdef class EngineTurns:
    cpdef int end_turn(self) except -1
    cpdef object next_deadline_ns(self)


cdef class TurnEnd:
    cdef object _owner                  # TurnOwner: the broker
    cdef Router _router                 # ... and its parts
    cdef TurnWatch _watch
    cdef Deadlines _deadlines
    cdef object _engine                 # Engine, or None
    cdef EngineTurns _engine_turns      # None: it is called through Python

    cdef list run(self)
    cdef object next_ns(self)
