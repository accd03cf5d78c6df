"""The end of a turn: services and engine run, and the sessions with output are collected.

Owns only the order. Compiled, because it runs for every read of a client that waits for each
answer.
"""

from tradewind.broker.deadlines cimport Deadlines
from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session
from tradewind.broker.turn_watch cimport TurnWatch

from typing import Protocol


class TurnOwner(Protocol):
    """The owner of the turn: the broker."""

    engine: object

    def service_failed(self, message, error):
        """Called when a service of the server has failed with an error."""

    def session_failed(self, session, error):
        """Called when the work of a session has failed with an error."""

    def close_doomed(self, session):
        """Called when routing has found a reason to close a session."""


cdef class TurnEnd:
    """The end of every turn of one broker."""

    def __init__(self, owner not None, Router router not None, TurnWatch watch not None,
                 Deadlines deadlines not None):
        self._owner = owner
        self._router = router
        self._watch = watch
        self._deadlines = deadlines

    def end_turn(self):
        """Finish everything that happened since the last turn. Return the sessions whose link has
        to write, pause, resume or close.
        """
        return self.run()

    def next_deadline_ns(self):
        """The monotonic time at which the owner's `tick` next has something to do; None: never."""
        return self.next_ns()

    cdef list run(self):
        """Call `end_turn`, from compiled code."""
        cdef Router router = self._router
        cdef Session session
        cdef list touched
        owner = self._owner
        if router.internal:
            router.run_internal(owner.service_failed, self._watch)
        if router.resuming or router.waiting:
            router.run_resumed(owner.session_failed, self._watch)
        if router.leaving:
            router.drop_leaving()
        engine = owner.engine
        if engine is not None:
            try:
                engine.end_turn()
            except Exception as error:
                router.faults.contain("turn", error)
        if router.telling:
            router.tell_interest()
        touched = router.take_touched()
        for session in touched:
            session.clean()
        for session in touched:
            if session.state.doom and not session.state.closed:
                try:
                    owner.close_doomed(session)
                except Exception as error:
                    owner.session_failed(session, error)
        return touched

    cdef object next_ns(self):
        """Call `next_deadline_ns`, from compiled code."""
        due_ns = self._deadlines.first_ns()
        engine = self._owner.engine
        engine_ns = None if engine is None else engine.next_deadline_ns()
        if due_ns is None or (engine_ns is not None and engine_ns < due_ns):
            return engine_ns
        return due_ns
