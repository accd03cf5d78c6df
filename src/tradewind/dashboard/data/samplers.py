"""Requests that are repeated while their results are being viewed.

Owns the leases: a page touches its topic each time it is rendered, all pages with the same topic
share one request, and a topic that has not been touched for a while is no longer requested. Results
are stored as long as charts go back, and the number of topics is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tradewind.dashboard.data.chart_history import ChartHistory
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.dashboard.data.series import Series
from tradewind.errors import TradewindError

Value = TypeVar("Value")
TOPICS_MAX: Final = 256
LEASE_SECONDS: Final = 10.0
# How long an answer is remembered that no page shows.
KEPT_SECONDS: Final = 15 * 60
# How long a page waits for the first answer before it is rendered without it.
FIRST_SECONDS: Final = 1.5
# The delay after a problem, however long the normal interval is: the problem may be over.
RETRY_SECONDS: Final = 3.0


@dataclass(frozen=True)
class Question(Generic[Value]):
    """A request, its interval, and the figures of its answer to remember.

    Two questions with the same key are the same question.
    """

    key: Hashable
    ask: Callable[[], Awaitable[Value]]
    interval: float = 2.0
    names: tuple[str, ...] = ()
    figures: Callable[[Value], Sequence[float]] | None = None


@dataclass(frozen=True)
class Observation(Generic[Value]):
    """The newest answer, or the problem that prevents it, and the earlier figures."""

    value: Value | None
    problem: Problem | None
    series: Series
    age: float = 0.0


class _Topic:
    """The newest answer to a question and, while it is viewed, the task that repeats the
    request.
    """

    def __init__(self, question: Question[Any], series: Series) -> None:
        self.question = question
        self.series = series
        self.value: Any = None
        self.problem: Problem | None = None
        self.answered_at = float("-inf")
        self.touched_at = 0.0
        self.task: asyncio.Task[None] | None = None
        self.answered = asyncio.Event()


class Samplers:
    """The topics of one login. `clock` returns seconds that never decrease."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        history: ChartHistory | None = None,
    ) -> None:
        self._history = ChartHistory() if history is None else history
        self._clock = clock
        self._wall_clock = wall_clock
        self._topics: OrderedDict[Hashable, _Topic] = OrderedDict()

    def __len__(self) -> int:
        return len(self._topics)

    async def see(self, question: Question[Value]) -> Observation[Value]:
        """The newest answer; waits a moment for the first one."""
        topic = self._topic(question)
        topic.touched_at = self._clock()
        if topic.task is None:
            if self._clock() - topic.answered_at > question.interval:
                topic.answered.clear()
            topic.task = asyncio.create_task(self._run(topic), name=f"sampler {question.key}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(topic.answered.wait(), FIRST_SECONDS)
        if not topic.answered.is_set():
            waiting = Problem("away", "The server has not responded yet.")
            return Observation(None, topic.problem or waiting, topic.series)
        age = max(self._clock() - topic.answered_at, 0.0)
        return Observation(topic.value, topic.problem, topic.series, age)

    async def see_present(self, question: Question[Value]) -> Observation[Value]:
        """The newest answer, for a page about a single object.

        If the object is missing, the request is repeated: it may have been created since.
        """
        seen = await self.see(question)
        if seen.problem is not None and seen.problem.kind == "missing":
            self.forget(question.key)
            seen = await self.see(question)
        return seen

    def forget(self, key: Hashable) -> None:
        """Repeat the request at the next view: the stored answer is outdated."""
        if (topic := self._topics.get(key)) is not None:
            topic.answered_at = float("-inf")
            topic.answered.clear()
            self._stop(topic)

    async def close(self) -> None:
        """Stop all requests."""
        tasks = [topic.task for topic in self._topics.values() if topic.task is not None]
        self._topics.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _topic(self, question: Question[Any]) -> _Topic:
        topic = self._topics.get(question.key)
        if topic is None:
            self._make_room()
            series = (
                self._history.series(question.key, question.names, question.interval)
                if question.names
                else Series((), question.interval)
            )
            topic = self._topics[question.key] = _Topic(question, series)
        self._topics.move_to_end(question.key)
        return topic

    def _make_room(self) -> None:
        """Drop topics that charts no longer reach back to, and then the least recently viewed
        ones.
        """
        now = self._clock()
        for key, topic in list(self._topics.items()):
            if now - topic.touched_at <= KEPT_SECONDS and len(self._topics) < TOPICS_MAX:
                break
            del self._topics[key]
            self._stop(topic)

    @staticmethod
    def _stop(topic: _Topic) -> None:
        if topic.task is not None:
            topic.task.cancel()
            topic.task = None

    async def _run(self, topic: _Topic) -> None:
        """Repeat the request until the topic is no longer viewed."""
        question = topic.question
        try:
            while self._clock() - topic.touched_at <= LEASE_SECONDS:
                await self._ask(topic)
                is_well = topic.problem is None
                await asyncio.sleep(
                    question.interval if is_well else min(question.interval, RETRY_SECONDS)
                )
        finally:
            if topic.task is asyncio.current_task():
                topic.task = None

    async def _ask(self, topic: _Topic) -> None:
        question = topic.question
        try:
            value = await question.ask()
        except (TradewindError, OSError) as error:
            # The last answer stays beside the problem, so that a page can continue showing it.
            topic.problem = problem_of(error) if isinstance(error, TradewindError) else _cut(error)
        else:
            topic.value, topic.problem = value, None
            if question.figures is not None:
                values = question.figures(value)
                self._history.add(question.key, topic.series, self._wall_clock(), values)
        topic.answered_at = self._clock()
        topic.answered.set()


def _cut(error: OSError) -> Problem:
    return Problem("away", f"The connection failed: {error.strerror or error}.")
