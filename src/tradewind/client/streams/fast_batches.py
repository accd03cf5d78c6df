"""Fast batches: many messages in sequence, with few acknowledgements.

Owns the reply subjects that number the messages, and the number of messages in flight: the server
determines after how many it reports its progress, and twice as many may be unacknowledged. Each
message is stored individually as it arrives; a fast batch never gives the guarantees of an atomic
batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tradewind.api.responses import PubAck
from tradewind.client.core.replies import nuid
from tradewind.client.errors import (
    ClientError,
    JetStreamUnavailableError,
    OperationTimeoutError,
    OptionsError,
    PublishError,
)
from tradewind.client.streams.api_requests import ApiRequests, check_answer, decode_answer
from tradewind.status_codes import NO_RESPONDERS

if TYPE_CHECKING:
    from tradewind.client.connection import HeaderInput, Payload
    from tradewind.client.core.message import Msg
    from tradewind.client.core.subscription import Subscription

FLOW_MAX = 65535
FAILURES_MAX = 100
_START, _APPEND, _COMMIT, _END = range(4)


class _Notice(msgspec.Struct):
    """A notice of the server during a batch: an acknowledgement, a gap or an error."""

    type: str = ""
    seq: int = 0
    msgs: int = 0
    last_seq: int = 0


class FastBatch:
    """One fast batch. Made by `js.fast_batch`; `id` is its name on the wire."""

    def __init__(self, api: ApiRequests, *, flow: int, skips_failures: bool) -> None:
        if not 0 < flow <= FLOW_MAX:
            raise OptionsError(f"flow: 1 to {FLOW_MAX} messages, not {flow}")
        self._api = api
        self._connection = api.connection
        self.id = nuid.next()
        self._inbox = self._connection.new_inbox()
        word = "ok" if skips_failures else "fail"
        self._reply = f"{self._inbox}.{self.id}.{flow}.{word}."
        self._subscription: Subscription | None = None
        self._count = 0
        self._acknowledged = 0
        self._step = 0  # unknown before the first answer
        self._failures: list[tuple[str, Exception]] = []
        self._failure_count = 0
        self._ack: PubAck | None = None
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._skips_failures = skips_failures
        self._subject = ""
        self._is_ending = False
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many messages were sent so far."""
        return self._count

    @property
    def acknowledged(self) -> int:
        """How many of them the server has acknowledged as stored."""
        return self._acknowledged

    @property
    def failures(self) -> list[tuple[str, Exception]]:
        """The refused messages: subject and error of the first hundred, see `skips_failures`."""
        return list(self._failures)

    async def add(
        self, subject: str, payload: Payload = b"", *, headers: HeaderInput | None = None
    ) -> None:
        """Send a message; waits only if too many are not acknowledged.

        The first one waits for the server to open the batch. Raises what has ended the batch.
        """
        await self._send(subject, payload, headers, _APPEND if self._count else _START)
        if self._count == 1:
            await self._until(lambda: self._step > 0, f"open a batch on {subject!r}")
        elif self._count - self._acknowledged >= 2 * self._step:
            await self._until(
                lambda: self._count - self._acknowledged < 2 * self._step, "acknowledge messages"
            )

    async def commit(
        self, subject: str, payload: Payload = b"", *, headers: HeaderInput | None = None
    ) -> PubAck:
        """Send the last message; returns its sequence and the count when all of them are stored."""
        await self._send(subject, payload, headers, _COMMIT)
        return await self._finish()

    async def close(self) -> PubAck | None:
        """End the batch without another message; None if there was none at all.

        The end is sent to the subject of the last message, and is not stored.
        """
        if self._count == 0 or self._is_closed:
            await self._leave()
            return self._ack
        await self._send(self._subject, b"", None, _END)
        self._count -= 1
        return await self._finish()

    async def __aenter__(self) -> FastBatch:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self._leave()

    # ---------------------------------------------------------------- to the server

    async def _send(
        self, subject: str, payload: Payload, headers: HeaderInput | None, operation: int
    ) -> None:
        if self._is_closed:
            raise OptionsError("batch: it has ended; start another one")
        self._check()
        if operation != _END:
            self._api.check_payload(subject, payload, headers)
        if self._subscription is None:
            self._subscription = await self._connection.subscribe(
                f"{self._inbox}.>", callback=self._received
            )
        self._count += 1
        self._subject = subject
        reply = f"{self._reply}{self._count}.{operation}.$FI"
        await self._connection.publish(subject, payload, headers=headers, reply=reply)

    async def _finish(self) -> PubAck:
        self._is_ending = True
        try:
            await self._until(lambda: self._ack is not None, "end the batch")
        finally:
            await self._leave()
        assert self._ack is not None
        return self._ack

    async def _leave(self) -> None:
        self._is_closed = True
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            await subscription.unsubscribe()

    # ---------------------------------------------------------------- from the server

    def _received(self, message: Msg) -> None:
        """Called for each answer of the server."""
        try:
            self._take(message)
        except ClientError as error:
            self._error = self._error or error
        self._changed.set()

    def _take(self, message: Msg) -> None:
        if self._ack is not None:
            return  # the server does not know what was sent after the end
        if message.status == NO_RESPONDERS:
            raise JetStreamUnavailableError(
                f"no stream stores subject {self._subject!r}: create one with streams.add"
            )
        notice = msgspec.json.decode(message.data, type=_Notice)
        if notice.type == "ack":
            self._acknowledged, self._step = notice.seq, notice.msgs
        elif notice.type == "gap":
            self._fail(PublishError(f"message {notice.last_seq} did not arrive", [], 1))
        elif notice.type == "err":
            try:
                check_answer(message.data)
            except ClientError as error:
                self._fail(error)
        else:
            self._ack = decode_answer(message.data, PubAck)
            self._acknowledged = self._ack.count

    def _fail(self, error: ClientError) -> None:
        self._failure_count += 1
        if len(self._failures) < FAILURES_MAX:
            self._failures.append((self._subject, error))

    def _check(self) -> None:
        """Raise what has ended the batch before its end."""
        if self._error is not None:
            self._is_closed = True
            raise self._error
        is_expected = self._is_ending and self._skips_failures
        if self._ack is not None and self._ack.count < self._count and not is_expected:
            self._is_closed = True
            reason = self._failures[0][1] if self._failures else "it detected a gap"
            raise PublishError(
                f"the stream has ended the batch after {self._ack.count} messages: {reason}",
                self._failures,
                self._failure_count,
            )

    async def _until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(self._api.timeout):
                while True:
                    self._check()
                    if is_so():
                        return
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise OperationTimeoutError(
                f"the server did not {what} within {self._api.timeout:g} s"
            ) from None
