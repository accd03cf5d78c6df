"""Atomic batches: several messages that a stream stores together or not at all.

Owns the headers that number and end a batch. The server holds the messages back until the last one,
and drops a batch that is not committed in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.responses import PubAck
from tradewind.client.core.headers import Headers
from tradewind.client.core.replies import nuid
from tradewind.client.errors import JetStreamUnavailableError, NoRespondersError, OptionsError
from tradewind.client.streams.api_requests import ApiRequests, check_answer, decode_answer

if TYPE_CHECKING:
    from tradewind.client.connection import HeaderInput, Payload
    from tradewind.client.core.message import Msg

BATCH_MESSAGES_MAX = 1000


class Batch:
    """One atomic batch. Made by `js.batch`; `id` is its name on the wire."""

    def __init__(self, api: ApiRequests) -> None:
        self._api = api
        self.id = nuid.next()
        self._count = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """The number of messages added so far."""
        return self._count

    async def add(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeaderInput | None = None,
        expect_last_subject_sequence: int | None = None,
        expect_last_sequence: int | None = None,
    ) -> None:
        """Add a message. The first one waits for the server to open the batch."""
        self._api.check_payload(subject, payload, headers)
        made = self._next_headers(headers, expect_last_sequence, expect_last_subject_sequence)
        if self._count > 1:
            await self._api.connection.publish(subject, payload, headers=made)
            return
        reply = await self._request(subject, payload, made)
        if reply.data:
            check_answer(reply.data)
            self._is_closed = True
            raise OptionsError(
                f"batch: the stream of {subject!r} stored the message by itself; it does not "
                "allow atomic "
                "batches"
            )

    async def commit(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeaderInput | None = None,
        expect_last_subject_sequence: int | None = None,
        expect_last_sequence: int | None = None,
    ) -> PubAck:
        """Add the last message and store them all; the PubAck has its sequence and the count."""
        self._api.check_payload(subject, payload, headers)
        made = self._next_headers(headers, expect_last_sequence, expect_last_subject_sequence)
        made["Nats-Batch-Commit"] = "1"
        self._is_closed = True
        reply = await self._request(subject, payload, made)
        return decode_answer(reply.data, PubAck)

    def _next_headers(
        self, headers: HeaderInput | None, last: int | None, last_of_subject: int | None
    ) -> Headers:
        if self._is_closed:
            raise OptionsError("batch: it is already committed or rejected; start another one")
        if isinstance(headers, bytes):
            raise OptionsError("headers: must be a mapping, not an encoded block, in a batch")
        if self._count == BATCH_MESSAGES_MAX:
            raise OptionsError(f"batch: at most {BATCH_MESSAGES_MAX} messages; commit it")
        self._count += 1
        made = Headers(headers)
        made["Nats-Batch-Id"] = self.id
        made["Nats-Batch-Sequence"] = str(self._count)
        if last is not None:
            made["Nats-Expected-Last-Sequence"] = str(last)
        if last_of_subject is not None:
            made["Nats-Expected-Last-Subject-Sequence"] = str(last_of_subject)
        return made

    async def _request(self, subject: str, payload: Payload, headers: Headers) -> Msg:
        try:
            return await self._api.connection.request(
                subject, payload, headers=headers, timeout=self._api.timeout
            )
        except NoRespondersError:
            self._is_closed = True
            raise JetStreamUnavailableError(
                f"no stream stores subject {subject!r}: create one with streams.add"
            ) from None
