"""The end of a turn: services and engine run, and whoever has output is named.

Owns nothing but the order. Compiled, because it is run for every read of a client that waits for
each answer. Everything else of a broker is in the subclass, `Broker`.
"""

from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session
from tradewind.broker.turn_watch cimport TurnWatch


cdef class TurnEnd:
    """The subclass has `service_failed`, `session_failed`, and `close_doomed`."""

    def __init__(self, Router router not None, deadlines not None, deferred not None,
                 TurnWatch watch not None):
        self.router = router
        self.deadlines = deadlines
        self.deferred = deferred
        self.watch = watch

    def end_turn(self):
        """Everything that happened since the last turn: sessions whose link has to write, pause,
        resume or close.
        """
        cdef Router router = self.router
        cdef Session session
        if router.internal:
            router.run_internal(self.service_failed, self.watch)
        if router.leaving:
            router.drop_leaving()
        if self.engine is not None:
            try:
                self.engine.end_turn()
            except Exception as error:
                router.faults.contain("turn", error)
        touched = router.take_touched()
        for session in touched:
            if session.state.doom and not session.state.closed:
                try:
                    self.close_doomed(session)
                except Exception as error:
                    self.session_failed(session, error)
        return touched

    def next_deadline_ns(self):
        """When `tick` has something to do next, by the monotonic clock."""
        due_ns = self.deadlines.next_ns()
        engine_ns = None if self.engine is None else self.engine.next_deadline_ns()
        if due_ns is None or engine_ns is None:
            return engine_ns if due_ns is None else due_ns
        return min(due_ns, engine_ns)
