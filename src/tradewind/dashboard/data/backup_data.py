"""Backups and restores of a stream with its consumers, in chunks from and to the server.

Owns the two exchanges. The server aborts an exchange without progress for some seconds, and an
incomplete restore leaves nothing on the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.stream_types import StreamInfo
from tradewind.client.errors import NoRespondersError, OperationTimeoutError
from tradewind.client.streams.api_requests import check_answer, decode_answer
from tradewind.errors import TradewindError
from tradewind.status_codes import NO_CONTENT

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg
    from tradewind.client.core.subscription import Subscription
    from tradewind.client.jetstream import JetStream

TOO_SLOW: Final = 408
CHUNK_BYTES: Final = 64 << 10
CHUNK_SECONDS: Final = 60.0


class BackupFailedError(TradewindError):
    """A backup or a restore that did not complete; the text says why."""


@dataclass(frozen=True)
class Backup:
    """A backup: the configuration with the state of the stream, and its data."""

    document: dict[str, Any]
    chunks: AsyncIterator[bytes]


async def open_backup(jetstream: JetStream, stream: str, *, check: bool, consumers: bool) -> Backup:
    """Start a backup; the data must be read at once."""
    connection = jetstream.connection
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    body = {"deliver_subject": inbox, "jsck": check, "no_consumers": not consumers}
    try:
        answer = await jetstream.api.call_raw(
            "stream_snapshot", stream, body=body, timeout=CHUNK_SECONDS
        )
        check_answer(answer)
    except BaseException:
        await subscription.unsubscribe()
        raise
    told = msgspec.json.decode(answer, type=dict[str, Any])
    document = {"config": told.get("config"), "state": told.get("state")}
    return Backup(document, _chunks(jetstream, stream, subscription))


async def _chunks(
    jetstream: JetStream, stream: str, subscription: Subscription
) -> AsyncIterator[bytes]:
    async with subscription:
        while True:
            try:
                message = await subscription.next(CHUNK_SECONDS)
            except OperationTimeoutError:
                raise BackupFailedError(
                    f"the backup of {stream} is incomplete: no data for {CHUNK_SECONDS:g} s"
                ) from None
            if not message.data:
                if message.status and message.status != NO_CONTENT:
                    raise BackupFailedError(_failure(stream, message))
                return
            yield message.data
            if message.reply:
                await jetstream.connection.publish(message.reply)


def _failure(stream: str, message: Msg) -> str:
    reason = f"the server says {message.status} {message.description}"
    if message.status == TOO_SLOW:
        reason = f"the browser paused too long, so the server gave up ({message.description})"
    return f"the backup of {stream} is incomplete: {reason}"


async def restore(
    jetstream: JetStream, document: dict[str, Any], data: AsyncIterator[bytes]
) -> StreamInfo:
    """Restore the stream of a backup."""
    config = document["config"]
    body = {"config": config, "state": document.get("state") or {}}
    answer = await jetstream.api.call_raw("stream_restore", config["name"], body=body)
    check_answer(answer)
    subject = msgspec.json.decode(answer, type=dict[str, Any]).get("deliver_subject")
    if not isinstance(subject, str):
        raise BackupFailedError("the server did not say where to send the data")
    held = bytearray()
    async for piece in data:
        held += piece
        while len(held) >= CHUNK_BYTES:
            await _send(jetstream, subject, bytes(held[:CHUNK_BYTES]))
            del held[:CHUNK_BYTES]
    if held:
        await _send(jetstream, subject, bytes(held))
    return decode_answer(await _send(jetstream, subject, b""), StreamInfo)


async def _send(jetstream: JetStream, subject: str, chunk: bytes) -> bytes:
    try:
        answer = await jetstream.connection.request(subject, chunk, timeout=CHUNK_SECONDS)
    except NoRespondersError:
        raise BackupFailedError(
            "the server gave up on this restore: the file arrived too slowly. Nothing was kept"
        ) from None
    if chunk and answer.data:
        check_answer(answer.data)
    return answer.data
