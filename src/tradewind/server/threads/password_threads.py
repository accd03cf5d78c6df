"""Threads that check passwords, which is slow by design.

Owns the threads. It never decides which password is next: the broker's queue
(`broker.password_checks`) does, and is asked only when a thread is free, because calls that already
wait in a pool could no longer be overtaken.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tradewind.broker.identity import Consultation, Identity, Rejection

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from tradewind.broker.broker import Broker
    from tradewind.broker.password_checks import Check

PASSWORD_THREADS = 2
_Answer = Identity | Rejection | Consultation


class PasswordThreads:
    """The threads of one server; used in its event loop only."""

    def __init__(self, broker: Broker, turn_needed: Callable[[], None]) -> None:
        self._broker = broker
        self._turn_needed = turn_needed
        self._pool: ThreadPoolExecutor | None = None
        self._running = 0
        self._is_stopped = False

    def start_checks(self) -> None:
        """Give each free thread a waiting check."""
        loop = asyncio.get_running_loop()
        while self._running < PASSWORD_THREADS and not self._is_stopped:
            check = self._broker.deferred.take()
            if check is None:
                return
            self._running += 1
            if self._pool is None:
                # Most servers never need a pool, and importing it delays the start.
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(PASSWORD_THREADS, "tradewind-password")
            future = loop.run_in_executor(self._pool, check.decide)
            future.add_done_callback(partial(self._checked, check))

    def _checked(self, check: Check, future: asyncio.Future[_Answer]) -> None:
        self._running -= 1
        decision: _Answer
        if future.cancelled():
            decision = Rejection("the server is shutting down")
        elif (error := future.exception()) is not None:
            self._broker.faults.contain("password check", error)
            decision = Rejection("the check failed")
        else:
            decision = future.result()
        try:
            self._broker.authenticated(check, decision)
        except Exception as error:
            self._broker.faults.contain("password check", error)
        self.start_checks()
        self._turn_needed()

    def stop(self) -> None:
        """Start no more checks."""
        self._is_stopped = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
