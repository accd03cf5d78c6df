"""Reads the messages of a subject in batches, without a consumer.

Owns one request, DIRECT.GET with `batch`. It leaves no state on the server, so reading continues
after a restart. A batch is limited in bytes and held as a whole; the reader requests the next one,
so a slow reader slows down only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.client.core.message import Msg
from tradewind.client.errors import (
    BadAnswerError,
    JetStreamUnavailableError,
    NoRespondersError,
    OperationTimeoutError,
    OptionsError,
)
from tradewind.status_codes import NO_CONTENT, NO_RESPONDERS, NOT_FOUND

if TYPE_CHECKING:
    from tradewind.client.streams.api_requests import ApiRequests

BATCH_MESSAGES: Final = 1024
BATCH_BYTES: Final = 4 << 20
# A stream that is just being recovered does not answer; asked so often, so long apart.
ATTEMPTS: Final = 40
RETRY_WAIT: Final = 0.25


@dataclass(slots=True)
class DirectMessage:
    """A message as it came, and where it stands in its stream."""

    message: Msg
    subject: str
    sequence: int
    time: str


@dataclass(slots=True)
class DirectBatch:
    """Messages in the order of the stream; `pending` is how many follow, 0 at the end."""

    messages: list[DirectMessage]
    pending: int


async def read_messages(
    api: ApiRequests, stream: str, subject: str, *, start: int = 1
) -> AsyncIterator[DirectMessage]:
    """All messages of a subject (wildcards may be in it) from a sequence on, one after the other.

    Ends with the last one that is there. Only whole batches are waited for, so leaving the loop
    early leaves nothing behind.
    """
    while True:
        batch = await read_batch(api, stream, subject, start=start)
        for item in batch.messages:
            yield item
        if not batch.pending or not batch.messages:
            return
        start = batch.messages[-1].sequence + 1


async def read_batch(
    api: ApiRequests,
    stream: str,
    subject: str,
    *,
    start: int,
    messages_max: int = BATCH_MESSAGES,
    bytes_max: int = BATCH_BYTES,
) -> DirectBatch:
    """The next messages of a subject; asked again when the server went away in between."""
    body: dict[str, object] = {
        "seq": start,
        "next_by_subj": subject,
        "batch": messages_max,
        "max_bytes": bytes_max,
    }
    return await _ask_patiently(api, stream, body)


async def read_last(
    api: ApiRequests, stream: str, subjects: Sequence[str], *, bytes_max: int = BATCH_BYTES
) -> DirectBatch:
    """The last message of each subject, as far as they fit into `bytes_max`; needs a server of
    version 2.11 or later.
    """
    if len(subjects) > BATCH_MESSAGES:
        raise OptionsError(f"subjects: {len(subjects)} at once, the limit is {BATCH_MESSAGES}")
    if not subjects:
        return DirectBatch([], 0)
    body = {"multi_last": list(subjects), "batch": len(subjects), "max_bytes": bytes_max}
    return await _ask_patiently(api, stream, body)


async def _ask_patiently(api: ApiRequests, stream: str, body: dict[str, object]) -> DirectBatch:
    """Send a request, again if the server went away in between."""
    asked = api.subject("direct_get", stream)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _ask(api, asked, msgspec.json.encode(body))
        except NoRespondersError:
            if attempt == ATTEMPTS:
                raise JetStreamUnavailableError(
                    f"stream {stream!r} does not answer direct gets: it was removed, or does not "
                    "allow them (allow_direct)"
                ) from None
            await asyncio.sleep(RETRY_WAIT)
        except OperationTimeoutError:
            if attempt * api.timeout >= ATTEMPTS * RETRY_WAIT:
                raise
        await api.connection.wait_connected(ATTEMPTS * RETRY_WAIT)
    raise AssertionError("the last attempt returns or raises")


async def _ask(api: ApiRequests, asked: str, payload: bytes) -> DirectBatch:
    connection = api.connection
    arrived: asyncio.Queue[Msg | Exception] = asyncio.Queue()
    question = connection.replies.add(asked, arrived.put_nowait)
    batch = DirectBatch([], 0)
    try:
        await connection.publish(asked, payload, reply=question.reply)
        while True:
            reply = await _next(arrived, asked, api.timeout)
            if status := reply.status:
                return _ended(asked, status, reply, batch)
            headers = reply.headers
            try:
                sequence = int(headers["Nats-Sequence"])
                stored = DirectMessage(
                    reply, headers["Nats-Subject"], sequence, headers["Nats-Time-Stamp"]
                )
            except (KeyError, ValueError) as error:
                raise BadAnswerError(f"direct get: the response lacks a header: {error}") from None
            if batch.messages and headers.get("Nats-Last-Sequence") != str(
                batch.messages[-1].sequence
            ):
                raise OperationTimeoutError(f"{asked}: a message of the batch was lost")
            batch.messages.append(stored)
            if "Nats-Num-Pending" not in headers:  # a server before 2.11 gives only one
                batch.pending = 1
                return batch
    finally:
        connection.replies.forget(question)


async def _next(arrived: asyncio.Queue[Msg | Exception], asked: str, seconds: float) -> Msg:
    try:
        async with asyncio.timeout(seconds):
            reply = await arrived.get()
    except TimeoutError:
        raise OperationTimeoutError(f"{asked}: no answer within {seconds:g} s") from None
    if isinstance(reply, Exception):
        raise reply
    return reply


def _ended(asked: str, status: int, reply: Msg, batch: DirectBatch) -> DirectBatch:
    if status == NO_CONTENT:
        batch.pending = int(reply.headers.get("Nats-Num-Pending", "0"))
    elif status == NO_RESPONDERS:
        raise NoRespondersError(asked)
    elif status != NOT_FOUND:
        raise BadAnswerError(f"{asked}: the server says {status} {reply.description}")
    return batch
