"""Dead letters: look at them, change them, send them back, remove them.

Owns how a dead letter is recognised and what a message is that goes back. To send one back, or to
change it, is one transaction: the new message and the end of the dead letter happen together, so
that nothing is lost and nothing is there twice. Only a Tradewind server has dead letters.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from tradewind.api.dead_letter_rules import HEADER_PREFIX, ORIGINAL_PREFIX
from tradewind.api.stream_types import RetentionPolicy
from tradewind.client.api_errors import NoMessageFoundError, SequenceNotFoundError
from tradewind.client.core.headers import Headers
from tradewind.client.errors import OptionsError
from tradewind.client.streams.direct import read_messages
from tradewind.client.streams.manager import decode_direct
from tradewind.subjects import is_subset

if TYPE_CHECKING:
    from tradewind.client.connection import HeaderInput, Payload
    from tradewind.client.jetstream import JetStream

REDRIVEN_HEADER: Final = "Tradewind-Redriven"
EDITED_HEADER: Final = f"{HEADER_PREFIX}Edited"
DIGITS_MAX: Final = 20
# What a server puts into its answer to a direct get.
_DIRECT_GET_HEADERS: Final = frozenset(
    f"Nats-{name}"
    for name in ("Stream", "Subject", "Sequence", "Time-Stamp", "Num-Pending", "Last-Sequence")
)
# How many messages a listing reads at once, and how long it waits for them.
FETCHED_MESSAGES: Final = 500
FETCH_SECONDS: Final = 5.0
# The slowest that a rate can be: one in a quarter of an hour.
RATE_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A message that a consumer has given up, as it is in the dead-letter stream."""

    stream: str
    seq: int
    subject: str
    data: bytes
    headers: Headers
    time: datetime

    def _said(self, name: str) -> str:
        return self.headers.get(HEADER_PREFIX + name, "")

    @property
    def origin_stream(self) -> str:
        """The stream that the message came from."""
        return self._said("Stream")

    @property
    def origin_consumer(self) -> str:
        """The consumer that gave the message up."""
        return self._said("Consumer")

    @property
    def origin_subject(self) -> str:
        """The original subject of the message."""
        return self._said("Subject")

    @property
    def origin_seq(self) -> int:
        """The original sequence of the message."""
        return _number(self._said("Sequence"))

    @property
    def reason(self) -> str:
        """Why the message was given up: "max_deliver" or "term"."""
        return self._said("Reason")

    @property
    def detail(self) -> str:
        """The reason that a client gave when it terminated the message."""
        return self._said("Detail")

    @property
    def deliveries(self) -> int:
        """How often the message was delivered."""
        return _number(self._said("Deliveries"))

    @property
    def attempts(self) -> list[str]:
        """The times of deliveries, as RFC 3339, as far as the server knew them: it forgets these
        times when it restarts.
        """
        return [time for time in self._said("Attempts").split(",") if time]

    @property
    def clients(self) -> list[str]:
        """The connection that each of the `attempts` went to, as `id/name`; "?" where the server
        did not know it.
        """
        return [client for client in self._said("Clients").split(",") if client]

    @property
    def is_edited(self) -> bool:
        """Whether its payload or its headers were changed since."""
        return EDITED_HEADER in self.headers

    @property
    def redriven(self) -> int:
        """How often it was sent back before."""
        return _number(self.headers.get(REDRIVEN_HEADER, ""))

    def own_headers(self) -> Headers:
        """The headers of its publisher, without ids and other options for the stream."""
        kept = Headers()
        for name, value in self.headers.fields():
            if not name.startswith((HEADER_PREFIX, ORIGINAL_PREFIX)) and name != REDRIVEN_HEADER:
                kept.add(name, value)
        return kept


_Read: TypeAlias = "AsyncGenerator[StoredDeadLetter, None]"


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A selection of dead letters by their original stream and consumer, the reason, and the
    original subject, which may be a pattern. Empty fields match everything.
    """

    origin: str = ""
    consumer: str = ""
    reason: str = ""
    subject: str = ""

    def takes(self, letter: StoredDeadLetter) -> bool:
        """Whether this is one of them."""
        return (
            self.origin in ("", letter.origin_stream)
            and self.consumer in ("", letter.origin_consumer)
            and self.reason in ("", letter.reason)
            and (not self.subject or is_subset(letter.origin_subject, self.subject))
        )


class DeadLetters:
    """The dead letters of an account. Made by `js.dead_letters`.

    >>> async for letter in js.dead_letters.letters("DEAD", consumer="billing"):
    ...     print(letter.seq, letter.reason, letter.origin_subject)
    >>> await js.dead_letters.redrive_all("DEAD", consumer="billing", rate=100)
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def get(self, stream: str, seq: int) -> StoredDeadLetter:
        """Return one dead letter; OptionsError if the message is not a dead letter."""
        stored = await self._js.manager.streams.get_message(stream, seq=seq)
        found = letter_of(
            stored.stream, stored.seq, stored.subject, stored.data, stored.headers, stored.time
        )
        if found is None:
            raise OptionsError(f"message {seq} of stream {stream!r} is not a dead letter")
        return found

    async def letters(
        self,
        stream: str,
        *,
        origin: str = "",
        consumer: str = "",
        reason: str = "",
        subject: str = ">",
        origin_subject: str = "",
        first: int = 1,
    ) -> AsyncIterator[StoredDeadLetter]:
        """Iterate over the dead letters of a stream from a sequence on, optionally only those of an
        origin stream, a consumer, a reason, a subject pattern of the dead-letter stream, or an
        original subject.
        """
        wanted = LetterFilter(origin, consumer, reason, origin_subject)
        streams = self._js.manager.streams
        seq = max(first, 1)
        while True:
            try:
                found = await streams.get_message(stream, seq=seq, next_by_subject=subject or ">")
            except NoMessageFoundError:
                return
            seq = found.seq + 1
            letter = letter_of(
                found.stream, found.seq, found.subject, found.data, found.headers, found.time
            )
            if letter is not None and wanted.takes(letter):
                yield letter

    async def listing(
        self,
        stream: str,
        *,
        origin: str = "",
        consumer: str = "",
        reason: str = "",
        limit: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> AsyncIterator[StoredDeadLetter]:
        """List dead letters in batches, for display. Reads with an ordered consumer, or with direct
        gets if the stream has another retention than limits.

        Direct gets have headers of their own, so headers of a message with such a name
        (Nats-Stream, Nats-Subject, ...) are missing then. The listing ends after `limit` dead
        letters, and its consumer is deleted. `progress` is called after each batch with the last
        sequence that was read.
        """
        info = await self._js.manager.streams.info(stream)
        wanted = LetterFilter(origin, consumer, reason)
        if info.config.retention is RetentionPolicy.LIMITS:
            read = self._by_consumer(stream, info.state.last_seq)
        elif info.config.allow_direct:  # consumers of other streams take messages away
            read = self._by_direct_gets(stream)
        else:
            read = self._one_by_one(stream)
        count = found = 0
        async with aclosing(read):
            async for stored in read:
                count += 1
                if progress is not None and count % FETCHED_MESSAGES == 0:
                    result = progress(stored.seq)
                    if inspect.isawaitable(result):
                        await result
                made = letter_of(
                    *(stored.stream, stored.seq, stored.subject),
                    *(stored.data, stored.headers, stored.time),
                )
                if made is not None and wanted.takes(made):
                    yield made
                    found += 1
                    if found == limit:
                        return

    async def _by_direct_gets(self, stream: str) -> _Read:
        async for found in read_messages(self._js.manager.api, stream, ">"):
            stored = decode_direct(found.message)
            headers = Headers()
            for name, value in stored.headers.fields():
                if name not in _DIRECT_GET_HEADERS:
                    headers.add(name, value)
            yield StoredDeadLetter(
                stored.stream, stored.seq, stored.subject, stored.data, headers, stored.time
            )

    async def _by_consumer(self, stream: str, last_seq: int) -> _Read:
        reader = self._js.consumers.ordered(stream)
        seq = 0
        try:
            while seq < last_seq:
                before = seq
                async for message in reader.fetch(FETCHED_MESSAGES, expires=FETCH_SECONDS):
                    told = message.metadata
                    seq = told.stream_sequence
                    yield StoredDeadLetter(
                        stream, seq, message.subject, message.data, message.headers, told.timestamp
                    )
                    if seq >= last_seq:
                        break
                if seq == before:  # the rest was removed in the meantime
                    return
        finally:
            await reader.stop()

    async def _one_by_one(self, stream: str) -> _Read:
        seq = 1
        while True:
            try:
                found = await self._js.manager.streams.get_message(
                    stream, seq=seq, next_by_subject=">"
                )
            except NoMessageFoundError:
                return
            seq = found.seq + 1
            yield StoredDeadLetter(
                stream, found.seq, found.subject, found.data, found.headers, found.time
            )

    async def redrive(
        self,
        letter: StoredDeadLetter,
        *,
        to: str = "",
        data: Payload | None = None,
        headers: HeaderInput | None = None,
        consumer: bool = False,
    ) -> int:
        """Send a dead letter back to its subject, or `to` another one; returns the new sequence.

        `data` and `headers` replace its own. The dead letter is deleted once the message is stored.
        With `consumer`, only the consumer that gave it up receives it again; the stream must still
        have the message, the dead letter must not be edited, and the result is the original
        sequence.
        """
        if consumer:
            if to or data is not None or headers is not None:
                raise OptionsError("consumer: cannot be combined with `to`, `data` or `headers`")
            return await self._revive(letter)
        target = to or letter.origin_subject
        if not target:
            raise OptionsError(f"dead letter {letter.seq} does not name its subject; use `to`")
        if isinstance(headers, bytes):
            raise OptionsError("headers: must be a mapping, not an encoded block")
        made = letter.own_headers() if headers is None else Headers(headers)
        made[REDRIVEN_HEADER] = str(letter.redriven + 1)
        transaction = self._js.transaction()
        transaction.publish(target, letter.data if data is None else data, headers=made)
        transaction.delete(letter.stream, letter.seq)
        return (await transaction.commit()).publishes[0].seq

    async def _revive(self, letter: StoredDeadLetter) -> int:
        if letter.is_edited:
            raise OptionsError(
                f"dead letter {letter.seq} was changed, and its consumer has only the original"
            )
        transaction = self._js.transaction()
        transaction.revive(letter.origin_stream, letter.origin_consumer, letter.origin_seq)
        transaction.delete(letter.stream, letter.seq)
        await transaction.commit()
        return letter.origin_seq

    async def redrive_all(
        self,
        stream: str,
        *,
        origin: str = "",
        consumer: str = "",
        reason: str = "",
        subject: str = ">",
        origin_subject: str = "",
        to: str = "",
        to_consumer: bool = False,
        rate: float = 0.0,
        limit: int = 0,
    ) -> int:
        """Send back all dead letters that `letters` returns, except those that arrive meanwhile;
        returns how many.

        `rate` is the maximum per second, `limit` the maximum in total; 0: no limit. `to_consumer`:
        see `consumer` of `redrive`.
        """
        count = 0
        async for _ in self.redriving(
            stream,
            origin=origin,
            consumer=consumer,
            reason=reason,
            subject=subject,
            origin_subject=origin_subject,
            to=to,
            to_consumer=to_consumer,
            rate=rate,
            limit=limit,
        ):
            count += 1
        return count

    async def redriving(
        self,
        stream: str,
        *,
        origin: str = "",
        consumer: str = "",
        reason: str = "",
        subject: str = ">",
        origin_subject: str = "",
        to: str = "",
        to_consumer: bool = False,
        rate: float = 0.0,
        limit: int = 0,
    ) -> AsyncIterator[StoredDeadLetter]:
        """Do the same as `redrive_all` step by step: yields each dead letter after sending it back.

        Skips dead letters that are sent back or deleted elsewhere meanwhile.
        """
        if limit < 0 or (rate != 0 and not RATE_MIN <= rate < math.inf):
            raise OptionsError(f"limit: 0 or more; rate: 0 for no limit, or {RATE_MIN} or more")
        last = (await self._js.manager.streams.info(stream)).state.last_seq
        count = 0
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async for letter in self.letters(
            stream,
            origin=origin,
            consumer=consumer,
            reason=reason,
            subject=subject,
            origin_subject=origin_subject,
        ):
            if letter.seq > last or (limit and count == limit):
                break
            if rate:
                await asyncio.sleep(max(begun + count / rate - loop.time(), 0.0))
            try:
                await self.redrive(letter, to=to, consumer=to_consumer)
            except SequenceNotFoundError:
                continue
            count += 1
            yield letter

    async def edit(
        self,
        letter: StoredDeadLetter,
        *,
        data: Payload | None = None,
        headers: HeaderInput | None = None,
    ) -> StoredDeadLetter:
        """Replace the payload of a dead letter, or the headers of its publisher; returns the new
        dead letter, which has another sequence.
        """
        if isinstance(headers, bytes):
            raise OptionsError("headers: must be a mapping, not an encoded block")
        made = letter.own_headers() if headers is None else Headers(headers)
        for name, value in letter.headers.fields():
            if name.startswith((HEADER_PREFIX, ORIGINAL_PREFIX)) or name == REDRIVEN_HEADER:
                made.add(name, value)
        made[EDITED_HEADER] = "1"
        transaction = self._js.transaction()
        transaction.publish(letter.subject, letter.data if data is None else data, headers=made)
        transaction.delete(letter.stream, letter.seq)
        answer = await transaction.commit()
        return await self.get(answer.publishes[0].stream, answer.publishes[0].seq)

    async def remove(self, letter: StoredDeadLetter) -> None:
        """Delete a dead letter for good."""
        await self._js.manager.streams.delete_message(letter.stream, letter.seq)


def _number(text: str) -> int:
    """The number in a header; 0 if it is not a number, as publishers can write anything there."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else 0


def letter_of(
    stream: str, seq: int, subject: str, data: bytes, headers: Headers, time: datetime
) -> StoredDeadLetter | None:
    """A message of a stream as a dead letter; None if it is another message."""
    if f"{HEADER_PREFIX}Stream" not in headers:
        return None
    return StoredDeadLetter(stream, seq, subject, data, headers, time)
