"""JetStream for programs: publish to streams, read from consumers.

Owns the options of a publish and their headers; the window of unacknowledged messages is in
`publishing.py`. Streams and consumers are managed by `manager.py`. Everything else is imported when
a program first uses it: most use a part.
"""

from __future__ import annotations

import asyncio
import datetime
import re
from collections.abc import Awaitable
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack

from tradewind.api.responses import PubAck
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.core.duration_input import DurationInput, duration_ns
from tradewind.client.core.headers import Headers, encode_headers
from tradewind.client.core.openings import opening
from tradewind.client.core.payloads import payload_bytes
from tradewind.client.core.protocol import ReadyResult
from tradewind.client.core.subscription import MessageHandler
from tradewind.client.errors import OperationTimeoutError, OptionsError
from tradewind.client.streams.ack_inbox import PendingAck
from tradewind.client.streams.manager import JetStreamManager
from tradewind.client.streams.publishing import PublishWindow
from tradewind.client.streams.setting_types import ConsumerSettings
from tradewind.durations import parse_duration_ns

if TYPE_CHECKING:
    from tradewind.client.bucket_manager import KvBuckets, ObjectStores
    from tradewind.client.connection import Connection, HeaderInput, Payload
    from tradewind.client.schema_bucket import SchemaFollower, Schemas
    from tradewind.client.stream_schedules import StreamSchedules
    from tradewind.client.streams.batches import Batch
    from tradewind.client.streams.chains import Chains
    from tradewind.client.streams.consumers import ConsumerAccess
    from tradewind.client.streams.dead_letters import DeadLetters
    from tradewind.client.streams.delivered import StatusHandler
    from tradewind.client.streams.fast_batches import FastBatch
    from tradewind.client.streams.pushed import PushedMessages
    from tradewind.client.streams.row_window import RowWindow
    from tradewind.client.streams.transactions import Transaction
    from tradewind.client.why.asking import Why

# How many messages may wait for their acknowledgement.
WINDOW_MESSAGES = 4096


class PublishOptions(TypedDict, total=False):
    """The options of a publish, which travel in headers.

    `msg_id` is stored only once within the duplicate window. The message is refused unless
    `expect_*` is so: the name of the stream, its last sequence, the last sequence of the subject
    (or of `expect_last_subject_filter`), its last message id; 0 and "" mean: none yet. `ttl` is in
    seconds, a timedelta, a text such as "7d", or "never"; `rollup` is "sub" or "all".

    With `schedule` the stream, which needs allow_msg_schedules, keeps the message and publishes it
    to `schedule_target` later: at a datetime, every timedelta, or as a pattern says ("@daily",
    "0 30 9 * * mon-fri", in `schedule_time_zone`). The published message is this one or the
    last one of `schedule_source`, with `schedule_ttl`, and replaces older ones if `schedule_rollup`
    is "sub". A subject has one schedule; purging the subject ends it.
    """

    msg_id: str
    expect_stream: str
    expect_last_sequence: int
    expect_last_subject_sequence: int
    expect_last_subject_filter: str
    expect_last_msg_id: str
    ttl: DurationInput
    rollup: Literal["sub", "all"]
    schedule: str | datetime.datetime | datetime.timedelta
    schedule_target: str
    schedule_source: str
    schedule_ttl: DurationInput
    schedule_rollup: Literal["sub"]
    schedule_time_zone: str


_CHOICES: Final = {"rollup": ("sub", "all"), "schedule_rollup": ("sub",)}
_CHECKED: Final = frozenset((*_CHOICES, "schedule", "schedule_ttl", "ttl"))
_MSG_ID: Final = re.compile(rb"\r\nNats-Msg-Id:[ \t]*[^ \t\r]")
_HEADERS = {
    "msg_id": "Nats-Msg-Id",
    "expect_stream": "Nats-Expected-Stream",
    "expect_last_sequence": "Nats-Expected-Last-Sequence",
    "expect_last_subject_sequence": "Nats-Expected-Last-Subject-Sequence",
    "expect_last_subject_filter": "Nats-Expected-Last-Subject-Sequence-Subject",
    "expect_last_msg_id": "Nats-Expected-Last-Msg-Id",
    "ttl": "Nats-TTL",
    "rollup": "Nats-Rollup",
    "schedule": "Nats-Schedule",
    "schedule_target": "Nats-Schedule-Target",
    "schedule_source": "Nats-Schedule-Source",
    "schedule_ttl": "Nats-Schedule-TTL",
    "schedule_rollup": "Nats-Schedule-Rollup",
    "schedule_time_zone": "Nats-Schedule-Time-Zone",
}


class JetStream:
    """Publishes into streams and reads through consumers. Made by `Connection.jetstream`.

    >>> js = connection.jetstream()
    >>> ack = await js.publish("orders.new", b"two apples", msg_id="order-17")
    >>> print(ack.stream, ack.seq, ack.duplicate)

    `kv` has the key-value buckets, `objects` the object stores, `dead_letters` the messages that
    consumers have given up, and `schedules` those that are published later. `why` explains why
    streams and consumers make no progress, and `chains` proves that a stream was not changed.
    """

    connection: Connection
    manager: JetStreamManager

    def __init__(
        self,
        connection: Connection,
        *,
        domain: str = "",
        api_prefix: str = "",
        timeout: float | None = None,
        publish_window: int = WINDOW_MESSAGES,
    ) -> None:
        if publish_window < 1:
            raise OptionsError(f"publish_window: at least 1 message, not {publish_window}")
        self.connection = connection
        self.manager = JetStreamManager(
            connection, domain=domain, api_prefix=api_prefix, timeout=timeout
        )
        self.api = self.manager.api
        self._window = PublishWindow(connection, publish_window)
        self._rows: RowWindow | None = None

    @cached_property
    def consumers(self) -> ConsumerAccess:
        """Reading from consumers."""
        from tradewind.client.streams.consumers import ConsumerAccess

        return ConsumerAccess(self.api)

    @cached_property
    def kv(self) -> KvBuckets:
        """The key-value buckets of the account."""
        from tradewind.client.bucket_manager import KvBuckets

        return KvBuckets(self)

    @cached_property
    def objects(self) -> ObjectStores:
        """The object stores of the account."""
        from tradewind.client.bucket_manager import ObjectStores

        return ObjectStores(self)

    async def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeaderInput | None = None,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Publish a message and wait until the stream has stored it.

        The publish is retried if no stream responds, and with `msg_id` also after a reconnect.

        >>> await js.publish("orders.new", b"two apples", expect_last_subject_sequence=0)
        """
        pending = await self.publish_async(
            subject, payload, headers=headers, timeout=timeout, **options
        )
        pending.is_claimed = True
        return await pending

    def publish_async(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeaderInput | None = None,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> Awaitable[PendingAck]:
        """Publish a message without waiting for the stream.

        Awaiting the call waits only if too many messages are unacknowledged; await the result for
        the PubAck. `publish_async_completed` waits for all of them.

        >>> for order in orders:
        ...     await js.publish_async("orders.new", order)
        >>> await js.publish_async_completed()
        """
        block = publish_block(headers, options)
        data = payload_bytes(payload)
        if self.api.schemas is not None:
            self.api.schemas.check(subject, data, headers)
        seconds = self.api.timeout if timeout is None else timeout
        has_id = has_message_id(block)
        if self._window.has_room:
            return ReadyResult(self._window.send(subject, data, block, seconds, has_id=has_id))
        return self._publish_later(subject, data, block, seconds, has_id=has_id)

    def _publish_now(self, subject: str, payload: Payload) -> PendingAck | None:
        """As `publish_async` without options, if there is room; None if it would have to wait."""
        window = self._window
        if type(payload) is not bytes or not window.has_room or self.api.schemas is not None:
            return None
        return window.send(subject, payload, None, self.api.timeout, has_id=False)

    async def publish_async_completed(self, timeout: float | None = None) -> None:
        """Wait until the outcome of every `publish_async` is known.

        Raises PublishError if messages were not stored whose own results were not awaited, and
        OperationTimeoutError after `timeout` seconds; each message also has its own timeout.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._window.wait_idle()
        except TimeoutError:
            raise OperationTimeoutError(
                f"{self._window.unacknowledged} messages had no acknowledgement after {timeout:g} s"
            ) from None
        if (error := self._window.take_failures()) is not None:
            raise error

    @property
    def why(self) -> Why:
        """Explain in words why consumers and streams make no progress."""
        from tradewind.client.why.asking import Why

        return Why(self.manager)

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that consumers have given up: read, edit and resend them."""
        from tradewind.client.streams.dead_letters import DeadLetters

        return DeadLetters(self)

    @property
    def schedules(self) -> StreamSchedules:
        """The scheduled messages of streams: list, cancel and move them."""
        from tradewind.client.stream_schedules import StreamSchedules

        return StreamSchedules(self)

    @property
    def chains(self) -> Chains:
        """The hash chains of streams: their heads, proofs and verification."""
        from tradewind.client.streams.chains import Chains

        return Chains(self)

    @property
    def schemas(self) -> Schemas:
        """The schemas of payloads: add versions, check and encode payloads."""
        from tradewind.client.schema_bucket import Schemas

        return Schemas(self)

    async def use_schemas(self) -> SchemaFollower:
        """Check payloads against the schemas of their subjects before they are published.

        From now on a publish, batch, fast batch or transaction of this object raises
        SchemaViolationError for a payload that its stream should not get. Changes of schemas are
        followed; subjects without one are free. `stop` of the result ends it.

        >>> await js.use_schemas()
        """
        follower = await self.schemas.follow()
        if self.api.schemas is not None:
            await follower.stop()
            raise OptionsError("use_schemas: payloads are checked already; stop that first")
        self.api.schemas = follower
        return follower

    @property
    def publish_async_pending(self) -> int:
        """The number of messages that wait for an acknowledgement."""
        return self._window.unacknowledged

    @property
    def rows(self) -> RowWindow:
        """For one writer of many messages with ids that makes operations itself."""
        if self._rows is None:
            from tradewind.client.streams.row_window import RowWindow

            self._rows = RowWindow(self.connection, self._window.size)
        return self._rows

    @property
    def _windows(self) -> list[PublishWindow | RowWindow]:
        """All that is on its way."""
        return [self._window] if self._rows is None else [self._window, self._rows]

    async def increment(
        self, subject: str, by: int = 1, *, timeout: float | None = None, msg_id: str = ""
    ) -> int:
        """Add to the counter of a subject; returns the new value. The stream needs
        allow_msg_counter.

        With `msg_id`, a repeated call counts once and returns the current value.

        >>> await js.increment("hits.home", 5)
        """
        from tradewind.client.streams.counter_values import (
            INCREMENT_HEADER,
            increment_text,
            number_in,
        )

        options: PublishOptions = {"msg_id": msg_id} if msg_id else {}
        fields = {INCREMENT_HEADER: increment_text(by)}
        ack = await self.publish(subject, headers=fields, timeout=timeout, **options)
        if not ack.val:
            return await self.counter(ack.stream, subject)
        return number_in(ack.val)

    async def counter(self, stream: str, subject: str) -> int:
        """Return the value of a counter; 0 if it has not been incremented yet."""
        try:
            found = await self.manager.streams.get_message(stream, last_by_subject=subject)
        except NoMessageFoundError:
            return 0
        from tradewind.client.streams.counter_values import number_of

        return number_of(found.data)

    def batch(self) -> Batch:
        """A batch of messages that are stored together or not at all; the stream needs
        allow_atomic.

        >>> batch = js.batch()
        >>> await batch.add("orders.1", b"apples")
        >>> ack = await batch.commit("orders.2", b"pears")
        """
        from tradewind.client.streams.batches import Batch

        return Batch(self.api)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Publishes to several streams and acknowledgements that take effect together or not at
        all.

        The transaction is committed at the end of the block; an exception inside the block cancels
        it.

        >>> async with js.transaction() as transaction:
        ...     transaction.publish("invoices.17", b"two apples")
        ...     transaction.ack(message)
        """
        from tradewind.client.streams.transactions import Transaction

        return Transaction(self.api, publish_headers, timeout)

    def fast_batch(self, *, flow: int = 1000, skips_failures: bool = False) -> FastBatch:
        """A sequence of messages with few acknowledgements; the stream needs allow_batched.

        The server acknowledges at least every `flow` messages. A message that it refuses ends the
        batch, unless `skips_failures` is set: then it is recorded in `failures`, and the batch
        continues.

        >>> async with js.fast_batch() as batch:
        ...     for number in range(100_000):
        ...         await batch.add("readings", str(number))
        """
        from tradewind.client.streams.fast_batches import FastBatch

        return FastBatch(self.api, flow=flow, skips_failures=skips_failures)

    @opening
    async def subscribe_push(
        self,
        stream: str,
        consumer: str = "",
        *,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> PushedMessages:
        """Read from a push consumer, as older programs do: with an async iterator or a callback.

        With the name of an existing consumer, returns its messages, which the members of its
        deliver group share. Otherwise a consumer is created with these settings, flow control and
        heartbeats, and deleted at the end unless it has a durable name. New programs should use
        `consumers` instead.

        >>> messages = await js.subscribe_push("ORDERS", filter_subject="orders.new")
        """
        from tradewind.client.streams.pushed import bind_push, create_push

        if consumer:
            if settings:
                raise OptionsError(
                    f"consumer {consumer!r} already exists: its settings cannot be passed"
                )
            return await bind_push(self.api, stream, consumer, callback, on_status)
        return await create_push(self.api, stream, settings, callback, on_status)

    def _publish_if_ready(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeaderInput | None = None,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> PendingAck | None:
        """For other threads: `publish_async`, or None if that needs the loop right now."""
        seconds = self.api.timeout if timeout is None else timeout
        if not self._window.is_ready(seconds) or self.api.schemas is not None:
            return None
        block = publish_block(headers, options)
        has_id = has_message_id(block)
        return self._window.send(subject, payload_bytes(payload), block, seconds, has_id=has_id)

    async def _publish_later(
        self, subject: str, payload: bytes, block: bytes | None, timeout: float, *, has_id: bool
    ) -> PendingAck:
        await self._window.wait_for_room()
        return self._window.send(subject, payload, block, timeout, has_id=has_id)


def publish_block(headers: HeaderInput | None, options: PublishOptions) -> bytes | None:
    """The header block of a publish; None if it has no headers."""
    made = publish_headers(headers, options)
    return None if made is None else encode_headers(made)


def has_message_id(block: bytes | None) -> bool:
    """Whether a stream would store a message with these headers only once.

    However the id came there: as an option, or as a header. An empty one is none.
    """
    return block is not None and _MSG_ID.search(block) is not None


def publish_headers(headers: HeaderInput | None, options: PublishOptions) -> HeaderInput | None:
    """The headers of a publish with these options."""
    if not options:
        return headers
    if isinstance(headers, bytes):
        raise OptionsError("headers: must be a mapping, not an encoded block, with other options")
    made = Headers(headers)
    for name, value in options.items():
        if name not in _HEADERS:
            near = get_close_matches(name, _HEADERS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionsError(f"publish has no option {name!r}{hint}")
        made[_HEADERS[name]] = (
            _header_text(name, value) if name in _CHECKED else _option_text(value)
        )
    return made


def _header_text(name: str, value: object) -> str:
    """The header of an option; OptionsError if it cannot be sent."""
    if name == "schedule":
        return schedule_text(value)
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        raise OptionsError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    if name in ("ttl", "schedule_ttl") and value != "never":
        nanoseconds = duration_ns(name, value)
        if isinstance(value, str) and parse_duration_ns(value) is None:
            return f"{nanoseconds // 1000}us"  # days and weeks, which servers do not know
    return _option_text(value)


def schedule_text(value: object) -> str:
    """When a message is to be published, as the header says it; OptionsError if that is wrong."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise OptionsError("schedule: a datetime needs a time zone, such as datetime.UTC")
        return "@at " + value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.timedelta):
        return f"@every {_option_text(value)}"
    return str(value)


def _option_text(value: object) -> str:
    if isinstance(value, datetime.timedelta):
        return f"{value // datetime.timedelta(microseconds=1)}us"
    if isinstance(value, float):
        return f"{round(value * 1_000_000)}us"
    return str(value)
