"""What a broker looks at when a turn ends; the code and the explanation are in turn_end.pyx."""

from tradewind.broker.router cimport Router
from tradewind.broker.turn_watch cimport TurnWatch

cdef class TurnEnd:
    cdef readonly Router router
    cdef public object engine           # Engine, or None
    cdef readonly object deadlines      # Deadlines
    cdef readonly object deferred       # CheckQueue: passwords to check elsewhere
    cdef readonly TurnWatch watch
