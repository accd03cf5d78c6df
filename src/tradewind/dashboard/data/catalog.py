"""Streams and consumers: the names of all, and the details of those on screen.

Owns the requests. Lists are read page by page and only names are stored: ten thousand streams take
ten requests once, and as many details as a page of the table has rows.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tradewind.api.consumer_types import ConsumerInfo
from tradewind.api.responses import ConsumerListResponse
from tradewind.api.stream_types import StreamInfo
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import NoLeaderError
from tradewind.client.streams.api_requests import check_answer
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.dashboard.data.samplers import Observation, Question

if TYPE_CHECKING:
    from tradewind.client.streams.delivery_lag import DeliveryLag
    from tradewind.dashboard.data.workspace import Workspace

NAMES_KEY: Final = "stream names"
NAMES_MAX: Final = 100_000
NAMES_SECONDS: Final = 30.0
ROWS: Final = 50
ROW_SECONDS: Final = 3.0
DETAIL_SECONDS: Final = 2.0
AT_ONCE: Final = 16
SUBJECTS_SHOWN_MAX: Final = 100
STREAM_FIGURES: Final = ("messages", "bytes", "last_seq", "consumers")
CONSUMER_FIGURES: Final = (
    "pending",
    "ack_pending",
    "delivered",
    "acked",
    "waiting",
    "redelivered",
    "delivered_to",
    "acked_to",
)
LAG_FIGURES: Final = ("seconds", "messages")
LAG_SECONDS: Final = 4.0
# The number of consumer pages whose previous positions are remembered.
POSITIONS_MAX: Final = 64
POSITION_SECONDS: Final = 15.0
Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Names:
    """The names of all streams, sorted; `total` may exceed the number of stored names."""

    names: list[str]
    total: int


@dataclass(frozen=True)
class Page:
    """Some rows of a longer list."""

    first: int
    total: int


@dataclass(frozen=True)
class StreamPage(Page):
    """Streams on screen; for one that is missing or has no leader, the problem instead."""

    streams: list[tuple[str, StreamInfo | Problem]]


@dataclass(frozen=True)
class ConsumerPage(Page):
    """Consumers of a stream on screen, and the recent message rate of each."""

    consumers: list[ConsumerInfo]
    rates: dict[str, float]


class _SubjectsPage(msgspec.Struct):
    """The part of a stream info that has subjects."""

    class State(msgspec.Struct):
        """The state of the stream."""

        subjects: dict[str, int] = {}

    state: State = msgspec.field(default_factory=State)
    total: int = 0


def chosen(names: Sequence[str], search: str, prefixes: Sequence[str] = ()) -> list[str]:
    """The names that contain a text, ignoring case, and begin with one of the prefixes."""
    wanted = search.strip().casefold()
    return [
        name
        for name in names
        if (not prefixes or name.startswith(tuple(prefixes))) and wanted in name.casefold()
    ]


def lag_key(info: ConsumerInfo) -> tuple[str, ...]:
    """The key of the samples of a consumer's lag."""
    return ("lag", info.stream_name, info.name)


class Catalog:
    """Requests streams and consumers on behalf of pages."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # (stream, offset) -> the time, and the delivered count of each consumer
        self._positions: OrderedDict[tuple[str, int], tuple[float, dict[str, int]]] = OrderedDict()

    async def names(self) -> Observation[Names]:
        """The names of all streams."""

        async def ask() -> Names:
            pages = self._workspace.jetstream.manager.streams.names()
            found: list[str] = []
            while len(found) < NAMES_MAX and (page := await pages.next_page()):
                found += page
            return Names(sorted(found), max(pages.total, len(found)))

        return await self._workspace.samplers.see(Question(NAMES_KEY, ask, NAMES_SECONDS))

    async def stream_page(
        self, names: Sequence[str], first: int, total: int
    ) -> Observation[StreamPage]:
        """Details of the streams on screen."""
        shown = names[:ROWS]
        # The same rows in another order are the same question.
        wanted = tuple(sorted(shown))

        async def ask() -> dict[str, StreamInfo | Problem]:
            infos = await self._at_once(self._info_or_problem, wanted)
            return dict(zip(wanted, infos, strict=True))

        seen = await self._workspace.samplers.see(Question(("streams", wanted), ask, ROW_SECONDS))
        if (found := seen.value) is None:
            return Observation(None, seen.problem, seen.series)
        made = StreamPage(first, total, [(name, found[name]) for name in shown])
        return Observation(made, seen.problem, seen.series, seen.age)

    async def stream(self, name: str) -> Observation[StreamInfo]:
        """One stream, and its growth."""

        async def ask() -> StreamInfo:
            return await self._workspace.jetstream.manager.streams.info(name)

        def figures(info: StreamInfo) -> Sequence[float]:
            state = info.state
            return (state.messages, state.bytes, state.last_seq, state.consumer_count)

        return await self._workspace.samplers.see_present(
            Question(("stream", name), ask, DETAIL_SECONDS, STREAM_FIGURES, figures)
        )

    async def subjects(self, name: str, pattern: str) -> tuple[dict[str, int], int]:
        """Some subjects of a stream with their counts, largest first, and the number of all."""
        found, total = await self._subject_counts(name, pattern)
        largest = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return dict(largest[:SUBJECTS_SHOWN_MAX]), total

    async def subject_names(self, name: str, pattern: str) -> tuple[list[str], int]:
        """Subjects of a stream, as many as the server returns at once, and the number of all."""
        found, total = await self._subject_counts(name, pattern)
        return list(found), total

    async def _subject_counts(self, name: str, pattern: str) -> tuple[dict[str, int], int]:
        api = self._workspace.jetstream.manager.api
        answer = await api.call_raw(
            "stream_info", name, body={"subjects_filter": pattern, "offset": 0}
        )
        check_answer(answer)
        page = msgspec.json.decode(answer, type=_SubjectsPage)
        return page.state.subjects, max(page.total, len(page.state.subjects))

    async def consumer_page(self, stream: str, first: int) -> Observation[ConsumerPage]:
        """The consumers of a stream from an offset on."""

        async def ask() -> ConsumerPage:
            answer = await self._workspace.jetstream.manager.api.call(
                ConsumerListResponse, "consumer_list", stream, body={"offset": first}
            )
            shown = answer.consumers[:ROWS]
            rates = self._rates((stream, first), shown, time.monotonic())
            return ConsumerPage(first, answer.total, shown, rates)

        return await self._workspace.samplers.see_present(
            Question(("consumers", stream, first), ask, ROW_SECONDS)
        )

    async def consumer_rows(
        self, shown: Sequence[tuple[str, str]]
    ) -> Observation[dict[tuple[str, str], ConsumerInfo | Problem]]:
        """Details of the consumers on screen, each by its stream and name."""
        wanted = tuple(sorted(shown[:ROWS]))

        async def ask() -> dict[tuple[str, str], ConsumerInfo | Problem]:
            infos = await self._at_once(self._consumer_or_problem, wanted)
            return dict(zip(wanted, infos, strict=True))

        return await self._workspace.samplers.see(
            Question(("consumer rows", wanted), ask, ROW_SECONDS)
        )

    def _rates(
        self, page: tuple[str, int], consumers: Sequence[ConsumerInfo], now: float
    ) -> dict[str, float]:
        """How much was delivered per second since the same page was last asked for."""
        standing = {info.name: info.delivered.consumer_seq for info in consumers}
        then, before = self._positions.pop(page, (now, {}))
        self._positions[page] = (now, standing)
        while len(self._positions) > POSITIONS_MAX:
            self._positions.popitem(last=False)
        passed = now - then
        if not 0 < passed <= POSITION_SECONDS:
            return {}
        return {
            name: (count - before[name]) / passed
            for name, count in standing.items()
            if count >= before.get(name, count + 1)
        }

    async def consumer(self, stream: str, name: str) -> Observation[ConsumerInfo]:
        """One consumer, and its progress."""

        async def ask() -> ConsumerInfo:
            return await self._workspace.jetstream.manager.consumers.info(stream, name)

        def figures(info: ConsumerInfo) -> Sequence[float]:
            return (
                info.num_pending,
                info.num_ack_pending,
                info.delivered.consumer_seq,
                info.ack_floor.consumer_seq,
                info.num_waiting,
                info.num_redelivered,
                info.delivered.stream_seq,
                info.ack_floor.stream_seq,
            )

        return await self._workspace.samplers.see_present(
            Question(("consumer", stream, name), ask, DETAIL_SECONDS, CONSUMER_FIGURES, figures)
        )

    async def lag(self, info: ConsumerInfo) -> Observation[DeliveryLag]:
        """How far a consumer is behind, in messages and seconds, and over time."""

        async def ask() -> DeliveryLag:
            manager = self._workspace.jetstream.manager
            return await manager.consumers.lag(info.stream_name, info.name)

        def figures(lag: DeliveryLag) -> Sequence[float]:
            return (math.nan if lag.seconds is None else lag.seconds, lag.messages)

        key = lag_key(info)
        return await self._workspace.samplers.see(
            Question(key, ask, LAG_SECONDS, LAG_FIGURES, figures)
        )

    def changed(self, stream: str, consumer: str = "") -> None:
        """Drop outdated answers. Called when the dashboard has changed a stream or consumer."""
        samplers = self._workspace.samplers
        samplers.forget(("consumer", stream, consumer) if consumer else ("stream", stream))
        samplers.forget(NAMES_KEY)
        self._workspace.survey.changed()

    async def _info_or_problem(self, name: str) -> StreamInfo | Problem:
        """The info of one stream, or its problem, which must not hide the other streams."""
        try:
            return await self._workspace.jetstream.manager.streams.info(name)
        except (JetStreamApiError, NoLeaderError) as error:
            return problem_of(error)

    async def _consumer_or_problem(self, key: tuple[str, str]) -> ConsumerInfo | Problem:
        """The info of one consumer, or its problem, which must not hide the other consumers."""
        try:
            return await self._workspace.jetstream.manager.consumers.info(*key)
        except (JetStreamApiError, NoLeaderError) as error:
            return problem_of(error)

    async def _at_once(
        self, ask: Callable[[Key], Awaitable[Item]], names: Sequence[Key]
    ) -> list[Item]:
        """Request several streams or consumers, a limited number of them at a time."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(name: Key) -> Item:
            async with gate:
                return await ask(name)

        return list(await asyncio.gather(*(one(name) for name in names)))
