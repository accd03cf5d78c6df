"""Settings of Python's garbage collector in a server process.

Owns the settings for the process of `tradewind-server`; a program with an embedded server keeps its
own. A full collection visits every object and blocks all clients: with 10,000 streams, for a third
of a second. Objects that exist after the start are therefore excluded permanently. They are needed
as long as the server runs, and those that are not are freed by reference counting, unless they are
in a cycle.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tradewind.broker.turn_watch import TurnWatch

# The last generation: all that has survived.
_FULL: Final = 2


def leave_out_what_is_there() -> None:
    """Nothing that exists now is looked at again; `main` lets nothing be collected until here."""
    gc.freeze()
    gc.enable()


def name_collections(watch: TurnWatch) -> Callable[[], None]:
    """Name full collections in this thread where a turn is too long; returns how to stop it."""
    owner = threading.get_ident()

    def collected(phase: str, facts: dict[str, int]) -> None:
        if facts["generation"] != _FULL or threading.get_ident() != owner:
            return
        if phase == "start":
            watch.begin()
        else:
            watch.lap("garbage collection", f"{facts['collected']} objects were freed")

    gc.callbacks.append(collected)
    return lambda: gc.callbacks.remove(collected)
