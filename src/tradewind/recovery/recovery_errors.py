"""The error of a recovery or a move, and patience with servers that are away for a moment.

Owns which failures pass by themselves and for how long they may last. It never contacts a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tradewind.client.api_errors import ClusterNotAvailableError
from tradewind.client.errors import (
    DisconnectedError,
    JetStreamUnavailableError,
    NoRespondersError,
    OperationTimeoutError,
)
from tradewind.errors import TradewindError

POLL_SECONDS: Final = 0.2
# The errors of a restarting server and of a cluster without a leader, and how long they may last.
AWAY: Final = (
    ClusterNotAvailableError,
    DisconnectedError,
    JetStreamUnavailableError,
    NoRespondersError,
    OperationTimeoutError,
)
AWAY_SECONDS: Final = 60.0


class RecoveryError(TradewindError):
    """A stream cannot be changed over as asked. `hints` are lines with what to do or to type."""

    def __init__(self, text: str, *hints: str) -> None:
        self.hints = hints
        super().__init__(text)


def patiently(step: Callable[[], None], say: Callable[[str], None]) -> None:
    """Run a step, and repeat it while a server is away or a cluster elects a leader: publishers may
    be waiting for its end.
    """
    deadline = 0.0
    while True:
        try:
            step()
        except AWAY as error:
            # A step may take long before it fails for the first time.
            deadline = deadline or time.monotonic() + AWAY_SECONDS
            if time.monotonic() > deadline:
                raise
            say(f"{error}; trying again")
            time.sleep(POLL_SECONDS)
        else:
            return


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Check a condition repeatedly; False after the time limit."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
