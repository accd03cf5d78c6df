"""Runs a benchmark: concurrent clients, each with its share of the messages.

Owns the distribution of work, the rate, the duration, and the counters. The work of one client is
in `bench_workloads.py`, the output in `bench_report.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tradewind.cli.frame.histogram import Histogram
from tradewind.errors import ConfigError

CLIENTS_MAX: Final = 1000
MESSAGES_MAX: Final = 10**12
# Between two looks at the clock, for the pace and the end.
CHUNK: Final = 256
_TICK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """The work that all clients of a benchmark do together.

    With `duration_seconds` the clients work for that long, otherwise until they have processed
    `messages` in total. `rate` limits the messages per second of all clients, 0 for no limit.
    """

    messages: int = 100_000
    size_bytes: int = 128
    clients: int = 1
    duration_seconds: float = 0.0
    rate: float = 0.0
    sleep_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.messages <= MESSAGES_MAX:
            raise ConfigError(f"--msgs: 1 to {MESSAGES_MAX:,}, not {self.messages}")
        if not 1 <= self.clients <= CLIENTS_MAX:
            raise ConfigError(f"--clients: 1 to {CLIENTS_MAX}, not {self.clients}")
        if not self.duration_seconds and self.clients > self.messages:
            raise ConfigError(f"--msgs: at least one for each of the {self.clients} clients")
        for name in ("duration_seconds", "rate", "sleep_seconds", "size_bytes"):
            if getattr(self, name) < 0:
                flag = name.partition("_")[0]
                raise ConfigError(f"--{flag}: 0 or more, not {getattr(self, name):g}")

    def share(self, client: int) -> int:
        """How many messages are for one client."""
        whole, left = divmod(self.messages, self.clients)
        return whole + (client < left)


@dataclass(slots=True)
class Share:
    """The work of one client: how much is left, and how it went so far.

    A workload takes pieces by `take` and reports by `done`; the clock runs from `start` to the
    last `done`. Everything is measured by `time.perf_counter_ns`.
    """

    plan: BenchPlan
    client: int
    count: int
    done_count: int = 0
    done_bytes: int = 0
    latency: Histogram = field(default_factory=Histogram)
    started_ns: int = 0
    ended_ns: int = 0
    _deadline_ns: int = 0

    def start(self) -> None:
        """The work begins; calling it again does nothing."""
        if not self.started_ns:
            self.started_ns = self.ended_ns = time.perf_counter_ns()
            if self.plan.duration_seconds:
                self._deadline_ns = self.started_ns + round(self.plan.duration_seconds * 1e9)

    async def take(self, count_max: int = CHUNK) -> int:
        """How many messages to do next, at most this many; 0 at the end. Waits to keep the pace."""
        self.start()
        await self._pace()
        if self._deadline_ns:
            return count_max if time.perf_counter_ns() < self._deadline_ns else 0
        return min(count_max, self.count - self.done_count)

    def left(self, count_max: int) -> int:
        """How many messages are still to come, at most this many; for those who receive."""
        return count_max if self._deadline_ns else min(count_max, self.count - self.done_count)

    @property
    def seconds_left(self) -> float | None:
        """How long it may still take; None without a limit."""
        if not self._deadline_ns:
            return None
        return max((self._deadline_ns - time.perf_counter_ns()) / 1e9, 0.0)

    def done(self, count: int = 1, size_bytes: int | None = None) -> None:
        """This many more messages are done; of this many bytes, unless of the planned size."""
        self.done_count += count
        self.done_bytes += count * self.plan.size_bytes if size_bytes is None else size_bytes
        self.ended_ns = time.perf_counter_ns()

    @property
    def is_paced(self) -> bool:
        """Whether messages are to be done one by one, because they have a pace."""
        return bool(self.plan.rate or self.plan.sleep_seconds)

    @property
    def seconds(self) -> float:
        """How long the work took so far."""
        return (self.ended_ns - self.started_ns) / 1e9

    async def _pace(self) -> None:
        if not self.done_count:
            return
        if self.plan.sleep_seconds:
            await asyncio.sleep(self.plan.sleep_seconds)
        if self.plan.rate:
            due_ns = self.started_ns + self.done_count / self.plan.rate * self.plan.clients * 1e9
            if (wait_ns := due_ns - time.perf_counter_ns()) > 0:
                await asyncio.sleep(wait_ns / 1e9)


Workload = Callable[[Share], Awaitable[None]]
Watch = Callable[[Sequence[Share]], None]


def make_shares(plan: BenchPlan) -> list[Share]:
    """The shares of all clients."""
    return [Share(plan, client, plan.share(client)) for client in range(plan.clients)]


async def run_shares(
    shares: Sequence[Share], workloads: Sequence[Workload], watch: Watch | None = None
) -> None:
    """Run one workload per client at the same time; `watch` is called now and then meanwhile.

    If one fails the others are stopped, and its error is raised.
    """
    watcher = asyncio.create_task(_watch(shares, watch)) if watch else None
    tasks = [
        asyncio.ensure_future(workload(share))
        for workload, share in zip(workloads, shares, strict=True)
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
    if watch:
        watch(shares)


async def _watch(shares: Sequence[Share], watch: Watch) -> None:
    while True:
        watch(shares)
        await asyncio.sleep(_TICK_SECONDS)
