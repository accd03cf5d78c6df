"""The end of a turn: services and engine run, and the sessions with output are collected.

Owns only the order. Compiled, because it runs for every read of a client that waits for each
answer.
"""

from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session

from typing import Protocol


class TurnOwner(Protocol):
    """The owner of the turn: the broker. The stub declares its interface."""


def end_turn(owner not None, Router router not None, watch not None):
    """Finish everything that happened since the last turn. Return the sessions whose link has to
    write, pause, resume or close.
    """
    cdef Session session
    if router.internal:
        router.run_internal(owner.service_failed, watch)
    if router.resuming or router.waiting:
        router.run_resumed(owner.session_failed, watch)
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
        if session.state.doom and not session.state.closed:
            try:
                owner.close_doomed(session)
            except Exception as error:
                owner.session_failed(session, error)
    return touched


def next_deadline_ns(owner not None, deadlines not None):
    """The monotonic time at which the owner's `tick` next has something to do; None: never."""
    due_ns = deadlines.next_ns()
    engine = owner.engine
    engine_ns = None if engine is None else engine.next_deadline_ns()
    if due_ns is None or (engine_ns is not None and engine_ns < due_ns):
        return engine_ns
    return due_ns
