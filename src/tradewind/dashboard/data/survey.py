"""The state of all streams and consumers, collected step by step in the background.

Owns the order and the pace of the requests: one every five seconds while no page shows them, and a
bounded number of them while a page does. A round visits all pages of the list of
streams, and the list of consumers of each stream that has any. Only summaries are stored, and their
number is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.dead_letter_rules import dead_letters_of
from tradewind.api.errors import ApiError
from tradewind.api.responses import ConsumerListResponse, StreamListResponse
from tradewind.api.stream_types import StreamInfo
from tradewind.client.api_errors import JetStreamApiError, StreamNotFoundError
from tradewind.client.errors import NoLeaderError
from tradewind.client.why.states import (
    OK,
    State,
    StateReason,
    consumer_verdict,
    origin_lag,
    stream_verdict,
)
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.client.jetstream import JetStream

STEP_SECONDS: Final = 5.0
# How many requests are made per turn while a page shows the result, and how many at a time.
STEPS_WATCHED: Final = 200
AT_ONCE: Final = 8
LEASE_SECONDS: Final = 10.0
# The delay after a refusal: each attempt is an error in the log of the server.
REFUSED_SECONDS: Final = 300.0
STREAMS_MAX: Final = 20_000
CONSUMERS_MAX: Final = 20_000
# Rates are known from looks that are at most this far apart.
RATE_SECONDS_MAX: Final = 120.0
TEXT_MAX: Final = 400


class StreamSummary(msgspec.Struct, frozen=True):
    """A stream at the last look."""

    name: str
    verdict: StateReason = OK
    messages: int = 0
    bytes: int = 0
    last_seq: int = 0
    consumers: int = 0
    last_ts: str = ""
    lag: int = 0
    description: str = ""


class ConsumerSummary(msgspec.Struct, frozen=True):
    """A consumer at the last look; `at` is the time of it."""

    stream: str
    name: str
    at: float
    verdict: StateReason = OK
    is_durable: bool = True
    is_push: bool = False
    pending: int = 0
    ack_pending: int = 0
    redelivered: int = 0
    delivered: int = 0
    acked: int = 0
    delivered_to: int = 0
    acked_to: int = 0
    waiting: int = 0
    last_active: str = ""
    delivered_rate: float | None = None
    dead_letter_stream: str = ""


SummaryListener = Callable[[float, StreamSummary | ConsumerSummary], None]


class Survey:
    """The newest summaries of all streams and consumers of a login.

    `is_whole` says whether a round has ended, so that nothing is missing but what exceeds a bound.
    """

    def __init__(
        self,
        jetstream: Callable[[], JetStream],
        clock: Callable[[], float] = time.monotonic,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._jetstream = jetstream
        self._clock = clock
        self._wall_clock_ns = wall_clock_ns
        self.streams: dict[str, StreamSummary] = {}
        self.consumers: dict[str, dict[str, ConsumerSummary]] = {}  # by stream, by name
        self.consumers_known = 0
        self.streams_total = 0
        self.is_whole = False
        self.is_cut = False  # a bound was exceeded
        self.problem: Problem | None = None
        self.ended_at = float("-inf")
        # How long a round takes, which is how far apart two looks at one stream are.
        self.round_seconds = STEP_SECONDS
        self._began_at = 0.0
        self._others: list[Callable[[], Awaitable[bool]]] = []
        self._seen: set[str] = set()
        self._is_stale = False  # something was changed during this round
        self._plan: deque[Callable[[], Awaitable[None]]] = deque()
        self._blocked_until = float("-inf")
        self._touched_at = float("-inf")
        self._woken = asyncio.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[SummaryListener] = []

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start looking in the background."""
        self._task = asyncio.create_task(self._run(), name="dashboard survey")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def on_summary(
        self, listener: Callable[[float, StreamSummary | ConsumerSummary], None]
    ) -> None:
        """Call `listener` with each summary and its time, in seconds since 1970."""
        self._listeners.append(listener)

    async def watched(self, seconds: float = 0.0) -> None:
        """Look faster for a while, since a page shows the result; wait a moment for the end of a
        round if the last one is not recent.
        """
        was_watched = self._is_watched()
        self._touched_at = self._clock()
        if was_watched and self.is_whole:
            return
        if not was_watched:
            self._woken.set()
        if seconds and self._clock() - self.ended_at > STEP_SECONDS and self._task is not None:
            self._ended.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), seconds)

    def changed(self) -> None:
        """Begin a new round. Called when the dashboard has changed something."""
        self._plan.clear()
        self._is_stale = True
        self._blocked_until = float("-inf")
        self._woken.set()

    def _is_watched(self) -> bool:
        return self._clock() - self._touched_at <= LEASE_SECONDS

    def on_every_other_turn(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Call `step` in every second turn that no page waits for; it returns whether it has made
        a request, which then is the one of that turn.
        """
        self._others.append(step)

    async def _run(self) -> None:
        is_other = True
        while True:
            self._woken.clear()
            if self._is_watched():
                await self.turn(STEPS_WATCHED)
            elif not (is_other and await self._other_step()):
                await self.turn(1)
            is_other = not is_other
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), STEP_SECONDS)

    async def _other_step(self) -> bool:
        try:
            return any([await step() for step in self._others])
        except (TradewindError, OSError):
            return True  # the pages that show it report why

    # ------------------------------------------------------------------ steps

    async def turn(self, steps_max: int) -> int:
        """Make the next requests, at most so many and to the end of the round; how many it made."""
        made = 0
        if self._clock() < self._blocked_until:
            return made
        if not self._plan:
            self._begin_round()
        try:
            while self._plan and made < steps_max:
                size = min(AT_ONCE, steps_max - made, len(self._plan))
                batch = [self._plan.popleft() for _ in range(size)]
                made += size
                answers = await asyncio.gather(*(step() for step in batch), return_exceptions=True)
                for error in answers:
                    if error is not None:
                        raise error
        except (TradewindError, OSError) as error:
            self._failed(error)
            return made
        self.problem = None
        if not self._plan:
            self._end_round()
        return made

    def _failed(self, error: TradewindError | OSError) -> None:
        self._plan.clear()
        if isinstance(error, TradewindError):
            self.problem = problem_of(error)
        else:
            self.problem = Problem("away", f"The connection failed: {error.strerror or error}.")
        if self.problem.kind != "away":
            self._blocked_until = self._clock() + REFUSED_SECONDS
        self._ended.set()

    def _begin_round(self) -> None:
        self._seen = set()
        self._began_at = self._clock()
        self._is_stale = False
        self._plan.append(lambda: self._ask_streams(0))

    def _end_round(self) -> None:
        if self._is_stale:
            return
        for name in [name for name in self.streams if name not in self._seen]:
            del self.streams[name]
        for name in [name for name in self.consumers if name not in self.streams]:
            self._forget_consumers(name, set())
        self.is_whole = True
        self.ended_at = self._clock()
        self.round_seconds = max(self.ended_at - self._began_at + STEP_SECONDS, STEP_SECONDS)
        self._ended.set()

    async def _ask_streams(self, first: int) -> None:
        api = self._jetstream().manager.api
        answer = await api.call(StreamListResponse, "stream_list", body={"offset": first})
        self.streams_total = answer.total
        now_ns = self._wall_clock_ns()
        for info in answer.streams:
            name = info.config.name
            self._seen.add(name)
            if name not in self.streams and len(self.streams) >= STREAMS_MAX:
                self.is_cut = True
                continue
            self._add_stream(info, now_ns)
            if info.state.consumer_count:
                self._plan.append(self._consumer_step(name, 0))
            else:
                self._forget_consumers(name, set())
        shown = first + len(answer.streams)
        if answer.streams and shown < min(answer.total, STREAMS_MAX):
            # Before the consumers: the names of all streams come first.
            self._plan.appendleft(lambda: self._ask_streams(shown))

    def _consumer_step(self, stream: str, first: int) -> Callable[[], Awaitable[None]]:
        return lambda: self._ask_consumers(stream, first)

    async def _ask_consumers(self, stream: str, first: int, names: set[str] | None = None) -> None:
        api = self._jetstream().manager.api
        body = {"offset": first}
        try:
            answer = await api.call(ConsumerListResponse, "consumer_list", stream, body=body)
        except StreamNotFoundError:
            self._forget_consumers(stream, set())
            return
        except (JetStreamApiError, NoLeaderError, TimeoutError):
            return  # this stream is unwell, which must not hide the others
        found = names if names is not None else set()
        for info in answer.consumers:
            found.add(info.name)
            self._add_consumer(info)
        shown = first + len(answer.consumers)
        if answer.consumers and shown < min(answer.total, CONSUMERS_MAX):
            self._plan.append(lambda: self._ask_consumers(stream, shown, found))
        else:
            self._forget_consumers(stream, found)

    def _forget_consumers(self, stream: str, kept: set[str]) -> None:
        """Forget the consumers of a stream except for these."""
        known = self.consumers.get(stream, {})
        for name in [name for name in known if name not in kept]:
            del known[name]
            self.consumers_known -= 1
        if not known:
            self.consumers.pop(stream, None)

    # ------------------------------------------------------------------ summaries

    def _add_stream(self, info: StreamInfo, now_ns: int) -> None:
        before = self.streams.get(info.config.name)
        verdict = stream_verdict(info, now_ns, before.lag if before is not None else None)
        state = info.state
        summary = StreamSummary(
            info.config.name,
            _cut(verdict),
            state.messages,
            state.bytes,
            state.last_seq,
            state.consumer_count,
            state.last_ts,
            origin_lag(info),
            info.config.description[:TEXT_MAX],
        )
        self.streams[summary.name] = summary
        for listener in self._listeners:
            listener(now_ns / 1e9, summary)

    def _add_consumer(self, info: ConsumerInfo) -> None:
        known = self.consumers.setdefault(info.stream_name, {})
        if info.name not in known:
            if self.consumers_known >= CONSUMERS_MAX:
                self.is_cut = True
                return
            self.consumers_known += 1
        now, now_ns = self._clock(), self._wall_clock_ns()
        rates = self.rates(info, now)
        summary = ConsumerSummary(
            info.stream_name,
            info.name,
            now,
            _cut(consumer_verdict(info, now_ns, rates)),
            bool(info.config.durable_name),
            bool(info.config.deliver_subject),
            info.num_pending,
            info.num_ack_pending,
            info.num_redelivered,
            info.delivered.consumer_seq,
            info.ack_floor.consumer_seq,
            info.delivered.stream_seq,
            info.ack_floor.stream_seq,
            info.num_waiting,
            info.delivered.last_active or "",
            rates[0],
            _letter_stream(info),
        )
        known[info.name] = summary
        for listener in self._listeners:
            listener(now_ns / 1e9, summary)

    def rates(self, info: ConsumerInfo, now: float) -> tuple[float | None, float | None]:
        """How much a consumer has delivered and acknowledged per second since the last look."""
        before = self.consumers.get(info.stream_name, {}).get(info.name)
        if before is None or not 0 < now - before.at <= RATE_SECONDS_MAX:
            return None, None
        passed = now - before.at
        delivered = info.delivered.consumer_seq - before.delivered
        acked = info.ack_floor.consumer_seq - before.acked
        if delivered < 0 or acked < 0:
            return None, None  # it was created anew
        return delivered / passed, acked / passed

    def verdict_of(self, info: StreamInfo | ConsumerInfo) -> StateReason:
        """The state of a stream or consumer that was just asked for."""
        now_ns = self._wall_clock_ns()
        if not isinstance(info, StreamInfo):
            return consumer_verdict(info, now_ns, self.rates(info, self._clock()))
        before = self.streams.get(info.config.name)
        return stream_verdict(info, now_ns, before.lag if before is not None else None)

    def state_of(self, stream: str, consumer: str = "") -> State | None:
        """The state at the last look; None if there was none yet."""
        if consumer:
            known = self.consumers.get(stream, {}).get(consumer)
            return known.verdict.state if known is not None else None
        summary = self.streams.get(stream)
        return summary.verdict.state if summary is not None else None


def _cut(verdict: StateReason) -> StateReason:
    if len(verdict.text) <= TEXT_MAX and len(verdict.advice) <= TEXT_MAX:
        return verdict
    return StateReason(verdict.state, verdict.text[:TEXT_MAX], verdict.advice[:TEXT_MAX])


def _letter_stream(info: ConsumerInfo) -> str:
    """Where a consumer puts dead letters; settings that are not valid have no effect."""
    with contextlib.suppress(ApiError):
        letters = dead_letters_of(info.config.metadata)
        return letters.stream if letters is not None else ""
    return ""
