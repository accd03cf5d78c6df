"""For tests of runs: an event loop whose time passes by itself, and a consumer without a server.

In a `VirtualLoop` nothing ever waits: when all tasks sleep, its clock jumps to the next timer. The
`FakeConsumer` keeps the rules of a pull consumer that a run relies on: a message that is neither
acknowledged nor touched within the ack wait is delivered again, and each delivery counts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ConsumerInfo
from tradewind.client.errors import AlreadyAcknowledgedError
from tradewind.client.running.consumer_run import ConsumerRun
from tradewind.client.running.run_settings import make_plan

Result = TypeVar("Result")
SECOND_NS = 1_000_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that never sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            if timeout is None:
                raise AssertionError("all tasks wait for something that never happens")
            self._now += max(timeout, 0)
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


def run_virtually(main: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@dataclass
class FakeMetadata:
    stream_sequence: int
    delivered_count: int


@dataclass
class FakeMessage:
    consumer: FakeConsumer
    subject: str
    data: bytes
    headers: dict[str, str]
    metadata: FakeMetadata
    is_settled: bool = False

    def _settle(self, how: str, delay: float | None = None) -> None:
        if self.is_settled:
            raise AlreadyAcknowledgedError("once")
        self.is_settled = True
        self.consumer.settled(self.metadata.stream_sequence, how, delay)

    def ack(self) -> None:
        self._settle("ack")

    def nak(self, delay: float | None = None, *, reason: str = "") -> None:
        self._settle(f"nak {reason}".strip(), delay or 0.0)

    def term(self, reason: str = "") -> None:
        self._settle(f"term {reason}".strip())

    def working(self) -> None:
        assert not self.is_settled
        self.consumer.touched(self.metadata.stream_sequence)


@dataclass
class FakeWindow:
    """The room of one run, as `WindowMessages` counts it."""

    consumer: FakeConsumer
    size: int
    on_resumed: Callable[[], None]
    is_connected: bool = True
    held: int = 0
    unread: deque[FakeMessage] = field(default_factory=deque)
    is_stopped: bool = False
    error: Exception | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def room(self) -> int:
        return 0 if self.is_stopped else self.size - self.held - len(self.unread)

    async def take_some(self, count_max: int) -> list[Any]:
        self.consumer.deliver()
        while not self.unread:
            if self.error is not None:
                raise self.error
            if self.is_stopped:
                return []
            self.changed.clear()
            await self.changed.wait()
        taken = [self.unread.popleft() for _ in range(min(count_max, len(self.unread)))]
        self.held += len(taken)
        self.consumer.held_max = max(self.consumer.held_max, self.held)
        return taken

    def release(self, count: int) -> None:
        self.held -= count
        assert self.held >= 0
        self.consumer.deliver()

    async def stop(self) -> None:
        self.is_stopped = True
        while self.unread:
            self.unread.popleft().nak(0)
        self.changed.set()

    async def settle(self) -> None:
        assert self.is_stopped


class FakeConsumer:
    """A stream and its only consumer. `log` has what was done to each message, in order."""

    stream = "S"
    name = "c"

    def __init__(
        self,
        subjects: list[str],
        *,
        ack_wait: float = 30.0,
        max_deliver: int = -1,
        ack_policy: AckPolicy = AckPolicy.EXPLICIT,
        data: bytes = b"{}",
        headers: list[dict[str, str]] | None = None,
    ) -> None:
        self.subjects = subjects
        self.data = data
        self.headers = headers or [{} for _ in subjects]
        self.ack_wait = ack_wait
        self.config = ConsumerConfig(
            durable_name="c",
            ack_policy=ack_policy,
            ack_wait=round(ack_wait * SECOND_NS),
            max_deliver=max_deliver,
        )
        self.waiting = deque(range(1, len(subjects) + 1))
        self.deliveries = dict.fromkeys(self.waiting, 0)
        self.deadlines: dict[int, asyncio.TimerHandle] = {}
        self.log: list[tuple[int, str]] = []
        self.delays: list[float] = []
        self.touches = 0
        self.expired: list[int] = []
        self.held_max = 0
        self.window: FakeWindow

    def run(self, handler: Callable[..., Any], **settings: Any) -> ConsumerRun:
        settings.setdefault("on_event", lambda event: None)
        return ConsumerRun(self, make_plan(handler, settings))  # type: ignore[arg-type]

    async def info(self) -> ConsumerInfo:
        return ConsumerInfo(stream_name="S", name="c", config=self.config)

    def _open_window(self, size: int, batch: int, on_resumed: Callable[[], None]) -> FakeWindow:
        self.window = FakeWindow(self, size, on_resumed)
        return self.window

    # ------------------------------------------------------------------ the server's side

    def deliver(self) -> None:
        window = self.window
        while self.waiting and window.room > 0:
            sequence = self.waiting.popleft()
            self.deliveries[sequence] += 1
            self._expect(sequence)
            window.unread.append(
                FakeMessage(
                    self,
                    self.subjects[sequence - 1],
                    self.data,
                    self.headers[sequence - 1],
                    FakeMetadata(sequence, self.deliveries[sequence]),
                )
            )
            window.changed.set()

    def _expect(self, sequence: int) -> None:
        loop = asyncio.get_running_loop()
        self.deadlines[sequence] = loop.call_later(self.ack_wait, self._expire, sequence)

    def _expire(self, sequence: int) -> None:
        self.expired.append(sequence)
        self._again(sequence)

    def _again(self, sequence: int) -> None:
        self.deadlines.pop(sequence, None)
        self.waiting.appendleft(sequence)
        self.deliver()

    def touched(self, sequence: int) -> None:
        self.touches += 1
        if sequence in self.deadlines:
            self.deadlines[sequence].cancel()
            self._expect(sequence)

    def settled(self, sequence: int, how: str, delay: float | None) -> None:
        self.log.append((sequence, how))
        if sequence in self.deadlines:
            self.deadlines.pop(sequence).cancel()
        if delay is not None:
            self.delays.append(delay)
            loop = asyncio.get_running_loop()
            self.deadlines[sequence] = loop.call_later(delay, self._again, sequence)

    @property
    def is_done(self) -> bool:
        ended = {sequence for sequence, how in self.log if not how.startswith("nak")}
        return len(ended) == len(self.subjects)

    def ends(self) -> dict[int, str]:
        """How each message ended at last."""
        return dict(self.log)


async def run_to_end(consumer: FakeConsumer, runner: ConsumerRun) -> ConsumerRun:
    """Run until each message is acknowledged or given up."""
    task = asyncio.create_task(runner.run())
    while not consumer.is_done:
        await asyncio.sleep(0.05)
        if task.done():
            task.result()
            raise AssertionError("the run has ended before all messages had")
    runner.stop()
    await task
    return runner
