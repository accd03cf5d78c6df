"""Fetches accounts for logins that are waiting for them.

Owns the threads that fetch, and the list of logins per account. An account is fetched once for all
waiting logins. Addresses take turns, so that an address that names unknown accounts does not delay
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tradewind.broker.password_checks import FairQueue
from tradewind.broker.room import source_of
from tradewind.server.operators.account_book import MISSING, TIMED_OUT, AccountBook
from tradewind.server.operators.resolvers import Resolver, ResolverError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

LOOKUP_THREADS = 8
WAITING_MAX = 4096


class AccountLookups:
    """The pending lookups of a server; used in the event loop only."""

    def __init__(
        self, book: AccountBook, resolver: Resolver, log_error: Callable[[str], None]
    ) -> None:
        self._book = book
        self._resolver = resolver
        self._log_error = log_error
        self.turn_needed: Callable[[], None] = lambda: None
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._queue: FairQueue[str] = FairQueue()
        self._number = 0
        self._running = 0
        self._pool: ThreadPoolExecutor | None = None

    def fetch(self, key: str, address: str, resume: Callable[[], None]) -> bool:
        """Call `resume` when the book has an answer; False if too many logins wait already."""
        if self._resolver.is_immediate:
            self.fetch_now(key)
            resume()
            return True
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(resume)
            return True
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting[key] = [resume]
        self._number += 1
        self._queue.push((source_of(address),), self._number, key)
        self._start()
        return True

    def fetch_now(self, key: str) -> None:
        """Fetch in this thread: at the start, or from a resolver that takes no time."""
        token, reason = self._answer(key)
        self._book.fetched(key, token, reason)

    def _answer(self, key: str) -> tuple[str | None, str]:
        """Fetch the JWT of an account, without touching shared state: this may run in a thread."""
        try:
            return self._resolver.fetch(key), MISSING
        except ResolverError as error:
            timed_out = "timed out" in str(error)
            return None, TIMED_OUT if timed_out else str(error)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue and self._running < LOOKUP_THREADS:
            key = self._queue.pop()
            self._running += 1
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(LOOKUP_THREADS, "tradewind-lookup")
            future = loop.run_in_executor(self._pool, self._answer, key)
            future.add_done_callback(partial(self._fetched, key))

    def _fetched(self, key: str, future: asyncio.Future[tuple[str | None, str]]) -> None:
        self._running -= 1
        if future.cancelled():
            return
        try:
            token, reason = future.result()
        except Exception as error:  # the others are fetched all the same
            token, reason = None, repr(error)
        if token is None and reason != MISSING:
            self._log_error(f"Account [{key}] fetch failed: {reason}")
        try:
            self._book.fetched(key, token, reason)
        except Exception as error:
            self._log_error(f"Account [{key}] cannot be used: {error!r}")
        for resume in self._waiting.pop(key, ()):
            try:
                resume()
            except Exception as error:
                self._log_error(f"A login to account [{key}] has failed: {error!r}")
        self._start()
        self.turn_needed()

    def stop(self) -> None:
        """Stop fetching."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
