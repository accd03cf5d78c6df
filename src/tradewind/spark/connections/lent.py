"""Connections that an executor process keeps from one task to the next.

Owns them while they are unused. A task borrows a connection together with its event loop, and has
exclusive use of it: nothing is ever shared between threads. A connection that a task returns intact
is kept for the next task with the same address and login, for a limited time and in limited number;
after an error it is closed. The loop runs only while a task uses it, so a kept connection is
checked before it is lent again.

Spark forks its Python workers. A process never uses connections inherited from another one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.spark.providers.network import ReadAddress

# A task has one connection to read or to write, and one more to look for rows that are stored.
KEPT_MAX: Final = 4
# Less than the two minutes after which servers ping, as an idle connection does not answer.
IDLE_SECONDS_MAX: Final = 30.0
PROBE_SECONDS: Final = 1.0
_Result = TypeVar("_Result")
# Where and as whom; the rest of the options is of the task.
_Key = tuple[object, ...]


class LentConnection:
    """One connection and its event loop, for one task at a time."""

    def __init__(self, address: ReadAddress, waits_seconds: float) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._opened = AsyncExitStack()
        self.idle_since = 0.0
        self.pid = os.getpid()
        try:
            self.connection: Connection = self.run(
                self._opened.enter_async_context(address.connected(waits_seconds))
            )
        except BaseException:
            self._runner.close()
            raise

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Do this in the loop of the connection."""
        return self._runner.run(work)

    def works(self) -> bool:
        """Whether the server still answers."""
        with suppress(Exception):
            self.run(self.connection.flush(PROBE_SECONDS))
            return self.connection.is_connected
        return False

    def close(self) -> None:
        """Close the connection and the loop; an error says that they are gone already."""
        with suppress(Exception):
            self.run(self._opened.aclose())
        self._runner.close()


class LentConnections:
    """The idle connections of one process."""

    def __init__(self, idle_seconds_max: float = IDLE_SECONDS_MAX) -> None:
        self._idle_seconds_max = idle_seconds_max
        self._lock = threading.Lock()
        self._kept: list[tuple[_Key, LentConnection]] = []
        self._sweeper: threading.Timer | None = None
        self._pid = os.getpid()
        # These are of a parent. Closing them, or letting them be closed, would touch the parent's.
        self._inherited: list[tuple[_Key, LentConnection]] = []

    @property
    def count(self) -> int:
        """How many are kept."""
        return len(self._kept)

    @contextmanager
    def lent(self, address: ReadAddress, waits_seconds: float = 0) -> Iterator[LentConnection]:
        """A connection for one task; kept if the task ends well."""
        key = (address.options.servers, address.options.context, address.options.login)
        found = self._take(key) or LentConnection(address, waits_seconds)
        try:
            yield found
        except BaseException:
            found.close()
            raise
        self._give_back(key, found)

    def _take(self, key: _Key) -> LentConnection | None:
        self._check_process()
        while True:
            with self._lock:
                # The one that was used last: the others may grow old.
                places = [n for n, (other, _) in enumerate(self._kept) if other == key]
                if not places:
                    return None
                _, found = self._kept.pop(places[-1])
            if found.works():
                return found
            found.close()

    def _give_back(self, key: _Key, lent: LentConnection) -> None:
        self._check_process()
        if lent.pid != self._pid:
            self._inherited.append((key, lent))
            return
        if not lent.connection.is_connected:
            lent.close()
            return
        lent.idle_since = time.monotonic()
        with self._lock:
            self._kept.append((key, lent))
            surplus = [self._kept.pop(0)] if len(self._kept) > KEPT_MAX else []
            self._sweep_later()
        for _, one in surplus:
            one.close()

    def _sweep_later(self) -> None:
        """Look for idle connections in a while; the thread does not keep the process alive."""
        if self._sweeper is None and self._kept:
            self._sweeper = threading.Timer(self._idle_seconds_max, self._sweep)
            self._sweeper.daemon = True
            self._sweeper.start()

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._idle_seconds_max
        with self._lock:
            self._sweeper = None
            idle = [one for one in self._kept if one[1].idle_since <= oldest]
            self._kept = [one for one in self._kept if one not in idle]
            self._sweep_later()
        for _, one in idle:
            one.close()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            # Somebody may have held it when the process was forked.
            self._lock = threading.Lock()
            self._inherited += self._kept
            self._kept, self._sweeper = [], None

    def close(self) -> None:
        """Close all that are kept."""
        self._check_process()
        with self._lock:
            kept, self._kept = self._kept, []
            sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
        for _, one in kept:
            one.close()


CONNECTIONS: Final = LentConnections()
atexit.register(CONNECTIONS.close)
