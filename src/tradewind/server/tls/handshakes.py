"""Schedules TLS handshakes.

Owns the connections whose handshake can continue. A step costs as much processor time as thousands
of messages and runs in the event loop. Each iteration therefore does only a few steps, and only one
with an expensive key, so that established connections are served in between. Addresses take turns.
The same applies to the ends of connections that were never established: many peers may leave at
once.

Threads are no help: OpenSSL runs without the interpreter's lock, but a thread that returns from it
waits for the loop to release the lock. A thousand handshakes took twice as long in threads, and 0.3
ms more of processor time each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import thread_time_ns
from typing import Protocol

from tradewind.broker.password_checks import FairQueue
from tradewind.broker.room import source_of

STEPS_PER_TURN = 4
ENDS_PER_TURN = 64
STEP_NS_MAX = 2_000_000


class Shaker(Protocol):
    """A connection during its TLS handshake."""

    def take_step(self) -> None:
        """Process the bytes that the peer has sent."""


class HandshakeTurns:
    """The handshakes of one listener.

    `processor_ns` is the clock that measures steps. The processor time of the thread does not
    include waits for a processor, so a busy machine does not make a cheap step look expensive.
    """

    def __init__(self, processor_ns: Callable[[], int] = thread_time_ns) -> None:
        self._processor_ns = processor_ns
        self._queue: FairQueue[Shaker] = FairQueue()
        self._steps_left = STEPS_PER_TURN
        self._ends: deque[Callable[[], None]] = deque()
        self._ends_left = ENDS_PER_TURN
        self._is_planned = False

    def __len__(self) -> int:
        return len(self._queue)

    def request(self, shaker: Shaker, ip: str) -> None:
        """Schedule a step of a handshake, now or soon; it must not request another step before."""
        if self._steps_left and not self._queue:
            self._plan()
            self._take(shaker)
        else:
            self._queue.push((source_of(ip),), id(shaker), shaker)
            self._plan()

    def withdraw(self, shaker: Shaker, ip: str) -> None:
        """Called when a handshake has nothing left to do."""
        self._queue.remove((source_of(ip),), id(shaker))

    def finish(self, end: Callable[[], None]) -> None:
        """Handle the end of a connection that was never established, now or soon."""
        self._plan()
        if self._ends_left and not self._ends:
            self._ends_left -= 1
            end()
        else:
            self._ends.append(end)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Take the steps of the next iteration of the loop."""
        self._is_planned = False
        self._steps_left = STEPS_PER_TURN
        self._ends_left = ENDS_PER_TURN
        try:
            while self._queue and self._steps_left:
                self._take(self._queue.pop())
            while self._ends and self._ends_left:
                self._ends_left -= 1
                self._ends.popleft()()
        finally:
            # A failing handshake must not stop the others.
            if self._queue or self._ends:
                self._plan()

    def _take(self, shaker: Shaker) -> None:
        self._steps_left -= 1
        began_ns = self._processor_ns()
        try:
            shaker.take_step()
        finally:
            if self._processor_ns() - began_ns > STEP_NS_MAX:
                # An expensive key: one of these is enough for an iteration.
                self._steps_left = 0
