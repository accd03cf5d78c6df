"""The end of a turn: services and engine run, and whoever has output is named.

Owns nothing but the order. Compiled, because it is run for every read of a client that waits for
each answer.
"""

from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session

from typing import Protocol


class TurnOwner(Protocol):
    """Whose turn ends: the broker. The stub says what it has."""


def end_turn(owner not None, Router router not None, watch not None):
    """Everything that happened since the last turn: sessions whose link has to write, pause, resume
    or close.
    """
    cdef Session session
    if router.internal:
        router.run_internal(owner.service_failed, watch)
    if router.leaving:
        router.drop_leaving()
    engine = owner.engine
    if engine is not None:
        try:
            engine.end_turn()
        except Exception as error:
            router.faults.contain("turn", error)
    touched = router.take_touched()
    for session in touched:
        if session.state.doom and not session.state.closed:
            try:
                owner.close_doomed(session)
            except Exception as error:
                owner.session_failed(session, error)
    return touched
