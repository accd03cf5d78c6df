"""Dead letters: the streams that hold them, pages of them, and sending many of them back.

Owns finding these streams (consumers name them, and the newest message of a stream shows it by its
headers), and the tasks that send dead letters back, with their progress. The tasks continue when no
page is open, and end with the login. The client defines what a dead letter is, and how one is sent
back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from tradewind.api.dead_letter_rules import STREAM_KEY
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.core.headers import Headers
from tradewind.client.errors import PermissionsError
from tradewind.client.streams.dead_letters import LetterFilter, StoredDeadLetter, letter_of
from tradewind.dashboard.data.message_data import ListedMessage, Search
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.dashboard.data.samplers import Observation, Question
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.jetstream import JetStream
    from tradewind.dashboard.data.workspace import Workspace

# The number of streams, and of consumers of each, that are checked for dead letters.
STREAMS_LOOKED_AT_MAX: Final = 500
CONSUMERS_LOOKED_AT_MAX: Final = 512
FIND_SECONDS: Final = 20.0
AT_ONCE: Final = 8
# The limits for concurrent tasks of one login, and for remembered ones.
REDRIVES_MAX: Final = 4
REDRIVES_KEPT_MAX: Final = 16
State = Literal["running", "done", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class LetterStream:
    """A stream for dead letters. `messages` is None if consumers name it but it does not exist."""

    name: str
    messages: int | None
    givers: list[tuple[str, str]] = field(default_factory=list)  # (stream, consumer)


@dataclass(frozen=True, slots=True)
class LetterStreams:
    """The streams that were found; `is_cut` says that some streams were not checked. `problem` says
    what could not be checked, and why.
    """

    streams: list[LetterStream]
    is_cut: bool = False
    problem: Problem | None = None


def has_own_letters(workspace: Workspace) -> bool:
    """Whether the server has dead letters; other servers only publish an event."""
    return bool(workspace.connection.info.tradewind)


async def find_streams(workspace: Workspace) -> Observation[LetterStreams]:
    """The streams that hold dead letters, or should hold them."""

    async def ask() -> LetterStreams:
        return await _find(workspace.jetstream)

    return await workspace.samplers.see(Question("dead letters", ask, FIND_SECONDS))


async def _find(jetstream: JetStream) -> LetterStreams:
    infos: list[StreamInfo] = []
    pages = jetstream.manager.streams.list()
    while len(infos) < STREAMS_LOOKED_AT_MAX and (page := await pages.next_page()):
        infos += page
    is_cut = pages.total > STREAMS_LOOKED_AT_MAX
    infos = infos[:STREAMS_LOOKED_AT_MAX]
    gate = asyncio.Semaphore(AT_ONCE)
    denied: list[Problem] = []

    async def look(info: StreamInfo) -> tuple[dict[str, list[str]], bool]:
        named: dict[str, list[str]] = {}
        async with gate:
            try:
                named = await _named_by(jetstream, info)
                return named, await _holds_letters(jetstream, info)
            except JetStreamApiError:
                pass  # removed meanwhile
            except PermissionsError as error:
                denied.append(problem_of(error))
        return named, False

    found = await asyncio.gather(*(look(info) for info in infos))
    givers: dict[str, list[tuple[str, str]]] = {}
    for info, (named, _) in zip(infos, found, strict=True):
        for target, consumers in named.items():
            givers.setdefault(target, []).extend((info.config.name, name) for name in consumers)
    counts = {info.config.name: info.state.messages for info in infos}
    holders = {info.config.name for info, (_, holds) in zip(infos, found, strict=True) if holds}
    streams = [
        LetterStream(name, counts.get(name), sorted(givers.get(name, [])))
        for name in sorted(givers.keys() | holders)
    ]
    return LetterStreams(streams, is_cut, denied[0] if denied else None)


async def _named_by(jetstream: JetStream, info: StreamInfo) -> dict[str, list[str]]:
    """The streams that the consumers of a stream name for their dead letters."""
    named: dict[str, list[str]] = {}
    if not info.state.consumer_count:
        return named
    pages = jetstream.manager.consumers.list(info.config.name)
    looked_at = 0
    while looked_at < CONSUMERS_LOOKED_AT_MAX and (page := await pages.next_page()):
        looked_at += len(page)
        for consumer in page:
            if target := (consumer.config.metadata or {}).get(STREAM_KEY):
                named.setdefault(target, []).append(consumer.name)
    return named


async def _holds_letters(jetstream: JetStream, info: StreamInfo) -> bool:
    """Whether the newest message of a stream is a dead letter."""
    if not info.state.messages:
        return False
    name = info.config.name
    found = await jetstream.manager.streams.get_message(name, last_by_subject=">")
    letter = letter_of(name, found.seq, found.subject, b"", found.headers, found.time)
    return letter is not None


# ---------------------------------------------------------------------- pages


@dataclass(frozen=True, slots=True)
class LetterSearch(Search):
    """A page of dead letters; other messages of the stream are skipped."""

    stream: str = ""
    wanted: LetterFilter = field(default_factory=LetterFilter)

    def takes(self, message: ListedMessage) -> bool:
        """Whether a message is one of the dead letters."""
        letter = as_letter(self.stream, message)
        return letter is not None and self.wanted.takes(letter)


def as_letter(stream: str, message: ListedMessage) -> StoredDeadLetter | None:
    """A stored message as a dead letter; None if it is another message."""
    headers = Headers()
    for name, value in message.headers:
        headers.add(name, value)
    time = datetime.fromtimestamp(message.time_ns / 1e9, UTC)
    return letter_of(stream, message.sequence, message.subject, message.data, headers, time)


# ---------------------------------------------------------------------- many at once


class TooManyRedrivesError(TradewindError):
    """The limit for concurrent tasks is reached."""


@dataclass
class Redrive:
    """A task that sends the selected dead letters of a stream back, one after the other."""

    stream: str
    wanted: LetterFilter
    to: str = ""
    rate: float = 0.0
    limit: int = 0
    first_seq: int = 0
    last_seq: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "running"
    done: int = 0
    at_seq: int = 0
    text: str = ""
    task: asyncio.Task[None] | None = None

    @property
    def part(self) -> float:
        """The progress in the stream, from 0 to 1."""
        if self.limit:
            return min(self.done / self.limit, 1.0)
        passed = max(self.at_seq - self.first_seq + 1, 0)
        return min(passed / max(self.last_seq - self.first_seq + 1, 1), 1.0)

    def stop(self) -> None:
        """Stop the task; dead letters already sent back stay so."""
        if self.task is not None and self.state == "running":
            self.state = "stopped"
            self.task.cancel()

    async def run(self, jetstream: JetStream) -> None:
        """Run the task; never raises an error that a server or a user can cause."""
        try:
            async for letter in jetstream.dead_letters.redriving(
                self.stream,
                origin=self.wanted.origin,
                consumer=self.wanted.consumer,
                reason=self.wanted.reason,
                origin_subject=self.wanted.subject,
                to=self.to,
                rate=self.rate,
                limit=self.limit,
            ):
                self.done += 1
                self.at_seq = letter.seq
            self.state = "done"
        except TradewindError as error:
            self.state, self.text = "failed", problem_of(error).text
        except BaseException:
            if self.state == "running":
                self.state, self.text = "failed", "It was stopped with the dashboard."
            raise


class Redrives:
    """The tasks of one login."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Redrive] = OrderedDict()

    async def begin(self, jetstream: JetStream, made: Redrive) -> None:
        """Start a task; TooManyRedrivesError if there are too many."""
        state = (await jetstream.manager.streams.info(made.stream)).state
        made.first_seq, made.last_seq = state.first_seq, state.last_seq
        running = sum(each.state == "running" for each in self._known.values())
        if running >= REDRIVES_MAX:
            raise TooManyRedrivesError(
                f"{REDRIVES_MAX} tasks are already sending dead letters back: wait for one, "
                "or stop it"
            )
        self._known[made.id] = made
        made.task = asyncio.create_task(made.run(jetstream), name=f"redrive {made.stream}")
        for each in list(self._known.values()):
            if len(self._known) > REDRIVES_KEPT_MAX and each.state != "running":
                del self._known[each.id]

    def of(self, stream: str) -> list[Redrive]:
        """The tasks of a stream, newest first."""
        return [each for each in reversed(self._known.values()) if each.stream == stream]

    def find(self, number: str) -> Redrive | None:
        """The task with a number, or None."""
        return self._known.get(number)

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = [each.task for each in self._known.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
