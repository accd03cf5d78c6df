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

    def service_failed(self, message, error):
        """Called when a service of the server has failed with an error."""

    def session_failed(self, session, error):
        """Called when the work of a session has failed with an error."""

    def close_doomed(self, session):
        """Called when routing has found a reason to close a session."""


cdef class EngineTurns:
    """The part of an engine that every turn calls, its `turns`."""

    cpdef int end_turn(self) except -1:
        """End the turn for all streams and consumers."""
        raise AssertionError(f"{type(self).__name__} does not say this")

    cpdef object next_deadline_ns(self):
        """The earliest deadline of the engine; None: there is none."""
        raise AssertionError(f"{type(self).__name__} does not say this")


cdef class TurnEnd:
    """The end of every turn of one broker."""

    def __init__(self, owner not None, Router router not None, TurnWatch watch not None,
                 Deadlines deadlines not None):
        self._owner = owner
        self._router = router
        self._watch = watch
        self._deadlines = deadlines

    @property
    def engine(self):
        """The engine that takes part in the turns, or None."""
        return self._engine

    @engine.setter
    def engine(self, engine):
        turns = getattr(engine, "turns", None)
        self._engine = engine
        self._engine_turns = turns if isinstance(turns, EngineTurns) else None

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
        if self._engine is not None:
            try:
                if self._engine_turns is not None:
                    self._engine_turns.end_turn()
                else:
                    self._engine.end_turn()
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
        if self._engine is None:
            return due_ns
        engine_ns = self._engine.next_deadline_ns() if self._engine_turns is None \
            else self._engine_turns.next_deadline_ns()
        if due_ns is None or (engine_ns is not None and engine_ns < due_ns):
            return engine_ns
        return due_ns
