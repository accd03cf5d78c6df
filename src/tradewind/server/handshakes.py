"""Schedules TLS handshakes.

Owns the connections whose handshake can continue. A step costs as much processor time as thousands
of messages and runs in the event loop. Each iteration therefore does only a few steps, so that
established connections are served in between. Addresses take turns.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tradewind.broker.password_checks import FairQueue
from tradewind.broker.room import source_of

STEPS_PER_TURN = 4


class Shaker(Protocol):
    """A connection on its way to TLS."""

    def take_step(self) -> None:
        """Do what can be done with what the peer has sent."""


class HandshakeTurns:
    """Those of one listener."""

    def __init__(self) -> None:
        self._queue: FairQueue[Shaker] = FairQueue()
        self._is_planned = False

    def __len__(self) -> int:
        return len(self._queue)

    def request(self, shaker: Shaker, ip: str) -> None:
        """Have it take a step soon; it must not ask again before."""
        self._queue.push((source_of(ip),), id(shaker), shaker)
        self._plan()

    def withdraw(self, shaker: Shaker, ip: str) -> None:
        """It has nothing left to do."""
        self._queue.remove((source_of(ip),), id(shaker))

    def _plan(self) -> None:
        if self._queue and not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_planned = False
        try:
            for _ in range(min(STEPS_PER_TURN, len(self._queue))):
                if self._queue:
                    self._queue.pop().take_step()
        finally:
            # One that fails must not stop the others.
            self._plan()
