"""Watched buckets: the newest changes, stored while they are being viewed.

Owns the watches and their limits. A watch is one ordered consumer; pages that show the same bucket
share it, and it ends some seconds after the last view. Only the beginning of a value is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.client.errors import ClientError
from tradewind.dashboard.data.message_data import excerpt
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.dashboard.data.samplers import FIRST_SECONDS, LEASE_SECONDS
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream

WATCHES_MAX: Final = 16
CHANGES_KEPT_MAX: Final = 100
# This many changes before the watch are shown, too.
CHANGES_BEFORE: Final = 30
READ_MAX: Final = 256
# The delay before a failed watch is tried again.
RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a key."""

    key: str
    revision: int
    time_ns: int
    operation: str
    text: str
    size: int


class _Watch:
    """The watch of one bucket and pattern."""

    def __init__(self) -> None:
        self.changes: deque[Change] = deque(maxlen=CHANGES_KEPT_MAX)
        self.problem: Problem | None = None
        self.touched_at = 0.0
        self.ended_at = float("-inf")
        self.task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()


class Watches:
    """The watches of one login. `clock` returns seconds that never decrease."""

    def __init__(
        self,
        jetstream: Callable[[], JetStream],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jetstream = jetstream
        self._clock = clock
        self._watches: OrderedDict[tuple[str, str], _Watch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._watches)

    async def see(self, bucket: str, keys: str) -> tuple[list[Change], Problem | None]:
        """The newest changes, newest first; waits a moment for the first result."""
        watch = self._find(bucket, keys)
        watch.touched_at = self._clock()
        if watch.task is None and self._clock() - watch.ended_at >= RETRY_SECONDS:
            watch.begun.clear()
            watch.task = asyncio.create_task(self._run(watch, bucket, keys), name="dashboard watch")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await watch.begun.wait()
        return list(reversed(watch.changes)), watch.problem

    async def close(self) -> None:
        """End all watches."""
        tasks = [watch.task for watch in self._watches.values() if watch.task is not None]
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find(self, bucket: str, keys: str) -> _Watch:
        watch = self._watches.get((bucket, keys))
        if watch is None:
            while len(self._watches) >= WATCHES_MAX:
                _, oldest = self._watches.popitem(last=False)
                if oldest.task is not None:
                    oldest.task.cancel()
            watch = self._watches[bucket, keys] = _Watch()
        self._watches.move_to_end((bucket, keys))
        return watch

    async def _run(self, watch: _Watch, bucket: str, keys: str) -> None:
        try:
            await self._follow(watch, bucket, keys)
        except TradewindError as error:
            watch.problem = problem_of(error)
        finally:
            watch.task = None
            watch.ended_at = self._clock()
            watch.begun.set()

    async def _follow(self, watch: _Watch, bucket: str, keys: str) -> None:
        jetstream = self._jetstream()
        kv = await jetstream.kv.open(bucket)
        last = (await jetstream.manager.streams.info(kv.stream)).state.last_seq
        known = watch.changes[-1].revision if watch.changes else 0
        start = max(last - CHANGES_BEFORE, known) + 1
        async with kv.watch(keys, from_revision=start) as watcher:
            watch.problem = None
            if watcher.is_current:
                watch.begun.set()
            while self._clock() - watch.touched_at <= LEASE_SECONDS:
                try:
                    async with asyncio.timeout(LEASE_SECONDS):
                        entries = await watcher.take_some(READ_MAX)
                except TimeoutError as error:
                    if isinstance(error, ClientError):
                        raise
                    continue
                if not entries:
                    return
                for entry in entries:
                    text = excerpt(entry.value)
                    change = Change(
                        entry.key,
                        entry.revision,
                        entry.created_ns,
                        entry.operation.value,
                        text,
                        entry.size,
                    )
                    watch.changes.append(change)
                watch.begun.set()
