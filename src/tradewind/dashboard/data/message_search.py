"""Searches through whole streams in the background, towards older or newer messages.

Owns the tasks and their bounds: one batch at a time with a pause after it, few searches per login,
a limited number of messages in memory, and an end when no page shows the search any longer.
Messages that are not taken are forgotten at once.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from tradewind.dashboard.data.message_data import ListedMessage, MessageReader
from tradewind.dashboard.data.message_filters import MessageFilter
from tradewind.dashboard.data.problems import problem_of
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream

State = Literal["running", "done", "full", "stopped", "failed"]
SEARCHES_MAX: Final = 2
SEARCHES_KEPT_MAX: Final = 3
FOUND_MAX: Final = 1000
FOUND_BYTES_MAX: Final = 16 << 20
BATCH_MESSAGES: Final = 1024
BATCH_BYTES: Final = 4 << 20
# Sequences of a step towards older messages; more where few of them match the subject.
WINDOW: Final = 8 * BATCH_MESSAGES
WINDOW_MAX: Final = 1 << 40
# The pause after a batch, as a part of the time that the batch took.
PAUSE_PART: Final = 0.25
WATCHED_SECONDS: Final = 60.0


class TooManySearchesError(TradewindError):
    """The limit for concurrent searches is reached."""


@dataclass
class MessageSearch:
    """A search in one stream. `at_seq` is the last sequence that was passed.

    `lowest` and `highest` are the ends of the stream when it began.
    """

    stream: str
    pattern: str
    wanted: MessageFilter
    is_older: bool
    query: dict[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "running"
    text: str = ""
    lowest: int = 0
    highest: int = 0
    begun_seq: int = 0
    at_seq: int = 0
    looked_at: int = 0
    found: list[ListedMessage] = field(default_factory=list)
    found_bytes: int = 0
    seconds: float = 0.0
    seen_at: float = 0.0
    task: asyncio.Task[None] | None = None

    @property
    def part(self) -> float:
        """How much of the stream it has passed, from 0 to 1."""
        if self.state == "done":
            return 1.0
        total = self.begun_seq - self.lowest + 1
        passed = self.begun_seq - self.at_seq
        if not self.is_older:
            total = self.highest - self.begun_seq + 1
            passed = self.at_seq - self.begun_seq
        return min(max(passed / max(total, 1), 0.0), 1.0)

    def stop(self, text: str = "") -> None:
        """Stop the search; it can be continued."""
        if self.state == "running":
            self.state, self.text = "stopped", text
            if self.task is not None:
                self.task.cancel()

    @property
    def is_full(self) -> bool:
        """Whether no more messages are held."""
        return len(self.found) >= FOUND_MAX or self.found_bytes >= FOUND_BYTES_MAX

    def _take(self, message: ListedMessage) -> None:
        self.found.append(message)
        self.found_bytes += len(message.data) + len(message.subject)

    async def run(self, jetstream: JetStream, clock: Callable[[], float]) -> None:
        """Run until the end; never raises an error that a server or a user can cause."""
        begun, before = clock(), self.seconds
        try:
            info = await jetstream.manager.streams.info(self.stream)
            reader = MessageReader(jetstream, info)
            self.lowest, self.highest = max(info.state.first_seq, 1), info.state.last_seq
            if self.is_older:
                await self._go_older(reader, clock, before - begun)
            else:
                await self._go_newer(reader, clock, before - begun)
            if self.state == "running":
                self.state = "full" if self.is_full else "done"
        except TradewindError as error:
            self.state, self.text = "failed", problem_of(error).text
        except BaseException:
            if self.state == "running" and self.task is asyncio.current_task():
                self.state, self.text = "failed", "It was stopped with the dashboard."
            raise
        finally:
            self.seconds = before + clock() - begun

    async def _go_newer(
        self, reader: MessageReader, clock: Callable[[], float], offset: float
    ) -> None:
        start = max(self.at_seq + 1, self.lowest)
        while start <= self.highest and not self.is_full:
            messages = await self._batch(reader, start, clock, BATCH_MESSAGES)
            for message in messages:
                self.at_seq = message.sequence
                self.looked_at += 1
                if self.wanted.takes(message):
                    self._take(message)
                    if self.is_full:
                        break
            self.seconds = offset + clock()
            if not messages:
                self.at_seq = self.highest
                return
            start = self.at_seq + 1

    async def _go_older(
        self, reader: MessageReader, clock: Callable[[], float], offset: float
    ) -> None:
        """Go back by windows; a window is read forwards, and what it has comes newest first."""
        end = min(self.at_seq, self.highest + 1)
        window = WINDOW
        while end > self.lowest and not self.is_full:
            first = max(end - window, self.lowest)
            looked_at = self.looked_at
            try:
                taken = await self._window(reader, first, end, clock)
            except BaseException:
                self.looked_at = looked_at  # the window is searched again
                raise
            self.seconds = offset + clock()
            end = first
            for message in reversed(taken):
                self._take(message)
                if self.is_full:
                    end = message.sequence
                    break
            self.at_seq = end
            # Where few messages have the subject, a step covers more sequences.
            is_sparse = self.looked_at - looked_at < BATCH_MESSAGES
            window = min(window * 2, WINDOW_MAX) if is_sparse else WINDOW

    async def _window(
        self, reader: MessageReader, start: int, end: int, clock: Callable[[], float]
    ) -> list[ListedMessage]:
        """The messages to take between two sequences, oldest first."""
        taken: list[ListedMessage] = []
        while start < end:
            most = min(BATCH_MESSAGES, end - start)
            messages = await self._batch(reader, start, clock, most)
            inside = [each for each in messages if each.sequence < end]
            self.looked_at += len(inside)
            taken += [each for each in inside if self.wanted.takes(each)]
            # Older ones are found again when the search is continued.
            del taken[:-FOUND_MAX]
            if not messages or len(inside) < len(messages):
                break
            start = messages[-1].sequence + 1
        return taken

    async def _batch(
        self, reader: MessageReader, start: int, clock: Callable[[], float], most: int
    ) -> list[ListedMessage]:
        begun = clock()
        if begun - self.seen_at > WATCHED_SECONDS:
            self.stop("No page has shown it for a minute.")
        messages = await reader.batch(self.pattern, start, most, BATCH_BYTES)
        await asyncio.sleep((clock() - begun) * PAUSE_PART)
        return messages


class MessageSearches:
    """The searches of one login. `clock` returns seconds that never decrease."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[str, MessageSearch] = OrderedDict()

    def begin(self, jetstream: JetStream, search: MessageSearch) -> None:
        """Start or continue a search; TooManySearchesError if too many are running."""
        running = [each for each in self._known.values() if each.state == "running"]
        if len([each for each in running if each.id != search.id]) >= SEARCHES_MAX:
            raise TooManySearchesError(
                f"{SEARCHES_MAX} searches are running already: wait for one, or stop it"
            )
        if search in running and search.task is not None:
            return
        search.state, search.text = "running", ""
        search.seen_at = self._clock()
        self._known[search.id] = search
        self._known.move_to_end(search.id)
        run = search.run(jetstream, self._clock)
        search.task = asyncio.create_task(run, name=f"search {search.stream}")
        for each in list(self._known.values()):
            if len(self._known) > SEARCHES_KEPT_MAX and each.state != "running":
                del self._known[each.id]

    def see(self, number: str) -> MessageSearch | None:
        """The search with a number, which a page shows now; None if there is none."""
        search = self._known.get(number)
        if search is not None:
            search.seen_at = self._clock()
        return search

    async def close(self) -> None:
        """Stop all searches."""
        tasks = [each.task for each in self._known.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        self._known.clear()
        await asyncio.gather(*tasks, return_exceptions=True)
