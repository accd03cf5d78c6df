"""Notices that the clock of the machine has jumped, and has all streams and consumers look again.

Owns when to look, and the walk over all of them, in steps. Each decides itself how to react to a
jump: ages and times to live (`stream.upkeep`), schedules, pauses of consumers. Which time is
believed is decided in one place, `Turn.steady_ns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from tradewind.store.table.stamps_ahead import forget_ahead

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.timers import TimerOwner

# A clock that is set while the server is idle is noticed after this time.
LOOK_NS: Final = 60_000_000_000
# This many streams and consumers are notified in one step.
TOLD_PER_STEP: Final = 64


class ClockWatch:
    """The clock watch of one engine, which is one of the engine's timers."""

    name = ""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._walk: Iterator[None] | None = None

    def start(self) -> None:
        """Start watching the clock."""
        self._engine.turn.steady_ns()
        self._engine.turn.clock_watch = self._notice
        self._engine.timers.set(self, self.next_deadline_ns)

    def _notice(self, moved_ns: int) -> None:
        """Called when the clock has moved by `moved_ns`, or is ahead (0); restarts the walk."""
        if moved_ns > 0:
            # At once, because callers of the clock already see the new time: stamps were judged by
            # a clock that was behind.
            for hosted in self._engine.hosted_streams():
                forget_ahead(hosted.stream.store)
        if moved_ns:
            self._walk = self._tell(ahead=moved_ns > 0)
        self._engine.timers.set(self, self.next_deadline_ns)

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` is next due (monotonic)."""
        turn = self._engine.turn
        if self._walk is not None:
            return max(turn.monotonic_ns, 1)
        look_ns = turn.monotonic_ns + LOOK_NS
        return min(look_ns, turn.believed_at_ns) if turn.believed_at_ns else look_ns

    def tick(self) -> None:
        """Check the clock, and continue the walk that notifies streams and consumers."""
        self._engine.turn.steady_ns()
        walk = self._walk
        if walk is not None and next(walk, self) is self and self._walk is walk:
            self._walk = None

    def _tell(self, *, ahead: bool) -> Iterator[None]:
        """Notify all streams and consumers in steps.

        One that is removed between two steps is skipped, because it must not get a deadline again.
        """
        told = 0
        for hosted in list(self._engine.hosted_streams()):
            if hosted.is_attached:
                self._try(hosted, partial(hosted.clock_moved, ahead=ahead))
            for consumer in list(hosted.consumers.values()):
                if hosted.consumers.get(consumer.name) is consumer:
                    self._try(consumer, partial(self._tell_consumer, consumer))
                told += 1
                if told % TOLD_PER_STEP == 0:
                    yield
            told += 1
            if told % TOLD_PER_STEP == 0:
                yield

    def _tell_consumer(self, consumer: ServerConsumer) -> None:
        consumer.clock_moved()
        self._engine.timers.set(consumer, consumer.next_deadline_ns)

    def _try(self, owner: TimerOwner, tell: Callable[[], None]) -> None:
        """Notify one stream or consumer; its failure must not affect the others."""
        try:
            tell()
        except Exception as error:
            self._engine.put_off(owner, error)
