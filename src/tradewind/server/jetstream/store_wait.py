"""Waits for a store folder that another server is about to leave.

Owns how long a start waits for the lock of its folder. A service manager or a test harness that
restarts a server often starts the next one while the last one is still writing, or while the system
is still clearing away one that was killed. nats-server takes no lock and starts; here the second
waits for a moment. It never takes a lock by force, and nothing is opened meanwhile: no client is
greeted.

The wait is in steps, not in the system: the event loop of a program that has a server inside
continues, and a signal ends a starting process at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tradewind.broker.contracts import BrokerLog
from tradewind.clock import Clock
from tradewind.durations import format_duration
from tradewind.store.files.disk import FolderInUse

# A stop takes well below a second unless the disk is slow, and harnesses look for a new server for
# two to ten seconds. Two servers on one folder are a mistake, which is reported soon.
WAIT_NS_MAX: Final = 5_000_000_000
PAUSE_SECONDS: Final = 0.05

_Taken = TypeVar("_Taken")


async def when_free(
    take: Callable[[], _Taken],
    log: BrokerLog,
    clock: Clock,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> _Taken:
    """The result of `take`, once it raises no `FolderInUse`; that error after `WAIT_NS_MAX`."""
    until_ns = clock.monotonic_ns() + WAIT_NS_MAX
    told_pid = -1
    while True:
        try:
            return take()
        except FolderInUse as error:
            if clock.monotonic_ns() >= until_ns:
                raise
            if error.pid != told_pid:
                told_pid = error.pid
                who = f"process {error.pid}" if error.pid else "another process"
                left = format_duration(until_ns - clock.monotonic_ns())
                log.warn(f"Waiting up to {left} for {error.folder}, which {who} is using")
        await pause(PAUSE_SECONDS)
