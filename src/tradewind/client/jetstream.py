"""JetStream as a program uses it: publish into streams, read through consumers.

Owns the headers of a publish and its retries; streams and consumers are managed by `manager.py`.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, TypedDict, Unpack

from tradewind.api.responses import PubAck
from tradewind.client.api_requests import ApiRequests, decode_answer
from tradewind.client.consumers import ConsumerAccess
from tradewind.client.errors import JetStreamUnavailableError, NoRespondersError
from tradewind.client.headers import Headers
from tradewind.client.manager import JetStreamManager

if TYPE_CHECKING:
    from tradewind.client.connection import Connection, HeaderInput, Payload

# A stream that was just made, or whose leader moves, is not there for a moment.
ATTEMPTS = 3
RETRY_WAIT = 0.25


class PublishOptions(TypedDict, total=False):
    """What a publish can demand of the stream; all of it travels in headers.

    `msg_id` is stored only once within the duplicate window. The message is refused unless
    `expect_*` is so: the name of the stream, its last sequence, the last sequence of the subject
    (or of `expect_last_subject_filter`), its last message id; 0 and "" mean: none yet. `ttl` is in
    seconds, a timedelta, or "never"; `rollup` is "sub" or "all".
    """

    msg_id: str
    expect_stream: str
    expect_last_sequence: int
    expect_last_subject_sequence: int
    expect_last_subject_filter: str
    expect_last_msg_id: str
    ttl: float | datetime.timedelta | str
    rollup: str


_HEADERS = {
    "msg_id": "Nats-Msg-Id",
    "expect_stream": "Nats-Expected-Stream",
    "expect_last_sequence": "Nats-Expected-Last-Sequence",
    "expect_last_subject_sequence": "Nats-Expected-Last-Subject-Sequence",
    "expect_last_subject_filter": "Nats-Expected-Last-Subject-Sequence-Subject",
    "expect_last_msg_id": "Nats-Expected-Last-Msg-Id",
    "ttl": "Nats-TTL",
    "rollup": "Nats-Rollup",
}


class JetStream:
    """Publishes into streams and reads through consumers. Made by `Connection.jetstream`.

    >>> js = connection.jetstream()
    >>> ack = await js.publish("orders.new", b"two apples", msg_id="order-17")
    >>> print(ack.stream, ack.seq, ack.duplicate)
    """

    manager: JetStreamManager
    consumers: ConsumerAccess

    def __init__(
        self,
        connection: Connection,
        *,
        domain: str = "",
        api_prefix: str = "",
        timeout: float | None = None,
    ) -> None:
        self.connection = connection
        self.api = ApiRequests(connection, domain=domain, api_prefix=api_prefix, timeout=timeout)
        self.manager = JetStreamManager(
            connection, domain=domain, api_prefix=api_prefix, timeout=timeout
        )
        self.consumers = ConsumerAccess(self.api)

    async def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeaderInput | None = None,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Publish a message and wait until the stream has it.

        >>> await js.publish("orders.new", b"two apples", expect_last_subject_sequence=0)
        """
        block = publish_headers(headers, options)
        seconds = self.api.timeout if timeout is None else timeout
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(RETRY_WAIT)
            try:
                reply = await self.connection.request(
                    subject, payload, timeout=seconds, headers=block
                )
            except NoRespondersError:
                continue
            return decode_answer(reply.data, PubAck)
        raise JetStreamUnavailableError(
            f"no stream stores subject {subject!r}: make one with streams.add, or check the account"
        )


def publish_headers(headers: HeaderInput | None, options: PublishOptions) -> HeaderInput | None:
    """The headers of a publish with these options."""
    if not options:
        return headers
    if isinstance(headers, bytes):
        raise TypeError("headers: give a mapping when options of the stream are used")
    made = Headers(headers)
    for name, value in options.items():
        made[_HEADERS[name]] = _option_text(value)
    return made


def _option_text(value: object) -> str:
    if isinstance(value, datetime.timedelta):
        return f"{value // datetime.timedelta(microseconds=1)}us"
    if isinstance(value, float):
        return f"{round(value * 1_000_000)}us"
    return str(value)
