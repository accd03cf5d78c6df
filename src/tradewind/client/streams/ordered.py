"""Ordered consumers: every message of a stream once and in order, despite interruptions.

Owns creating the consumers on the server, which need no acknowledgements. `pulled.py` replaces one
transparently: after a gap, a missing heartbeat or a reconnect, or if it is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from tradewind.api.request_types import ConsumerAction
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.core.message import Msg
from tradewind.client.core.openings import opening
from tradewind.client.core.replies import nuid
from tradewind.client.core.subscription import MessageHandler
from tradewind.client.errors import (
    JetStreamUnavailableError,
    OperationTimeoutError,
    OptionsError,
    SubscriptionClosedError,
)
from tradewind.client.streams.api_requests import ApiRequests
from tradewind.client.streams.delivered import DeliverySource, StatusHandler
from tradewind.client.streams.packed import PackedMessages
from tradewind.client.streams.pull_policies import ConsumePolicy, PullOptions, PullPolicy
from tradewind.client.streams.pulled import (
    EXPIRES,
    MESSAGES_MAX,
    NewConsumer,
    PulledMessages,
    check_positive,
)
from tradewind.durations import SECOND_NS

INACTIVE_SECONDS = 300
ORDERED_HEARTBEAT = 5.0
# More is requested when this share of the maximum is left.
THRESHOLD = 0.5


class OrderedMessages(PulledMessages):
    """The messages of an ordered consumer; `info` is that of the consumer it began with.

    `info.num_pending` is how many messages there were when it began.
    """

    info: ConsumerInfo

    def __init__(
        self,
        source: DeliverySource,
        policy: PullPolicy,
        info: ConsumerInfo,
        new_consumer: NewConsumer,
        callback: MessageHandler | None,
        on_status: StatusHandler | None,
    ) -> None:
        self.info = info
        super().__init__(source, policy, callback, on_status, new_consumer)

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the last message that came in order; 0 before the first."""
        return self._inbox.last_sequence

    @property
    def consumer_name(self) -> str:
        """The name of the consumer that delivers at this moment; another one after a gap."""
        return self._source.name

    async def count_left(self) -> int | None:
        """How many messages the server has still to deliver; None if it cannot be asked now."""
        try:
            return (await self._source.info()).num_pending
        except (JetStreamApiError, JetStreamUnavailableError, OperationTimeoutError):
            return None

    def pack(self) -> None:
        """Have messages packed as they arrive; to be called before anything is awaited.

        They are read by `next_packed` then, and by nothing else.
        """
        self._inbox.start_packing()

    async def next_packed(self, timeout: float) -> PackedMessages:
        """All that have arrived, or the first that comes; OperationTimeoutError if none does."""
        deadline = self._loop.time() + timeout
        while (packed := self._inbox.take_packed()) is None:
            if self.is_ended:
                raise self._error or SubscriptionClosedError(
                    f"{self!r} has ended and all its messages are read"
                )
            if not await self._wait(deadline):
                raise OperationTimeoutError(f"{self!r}: no message within {timeout:g} s")
        return packed


class OrderedConsumer:
    """Reads a stream in order. Made by `js.consumers.ordered`.

    Use one way of reading at a time: `consume`, or `next` and `fetch`, which continue where the
    last call ended until `stop` is called.
    """

    def __init__(
        self, api: ApiRequests, stream: str, config: ConsumerConfig, name_prefix: str = ""
    ) -> None:
        self.api = api
        self.stream = stream
        self._config = config
        self._prefix = name_prefix or nuid.next()
        self._serial = 0
        self._position = 0
        self._consuming: OrderedMessages | None = None
        self._reading: OrderedMessages | None = None

    @opening
    async def consume(
        self,
        max_messages: int = MESSAGES_MAX,
        *,
        expires: float = EXPIRES,
        idle_heartbeat: float = ORDERED_HEARTBEAT,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
    ) -> OrderedMessages:
        """Read without end: an async iterator, unless a `callback` gets the messages.

        See `Consumer.consume`.
        """
        check_positive(max_messages=max_messages, expires=expires, idle_heartbeat=idle_heartbeat)
        self._check_free("consume", self._reading)
        options = PullOptions(expires=expires, idle_heartbeat=min(idle_heartbeat, expires / 2))
        self._consuming = await self._open(options, max_messages, callback, on_status)
        return self._consuming

    async def next(self, timeout: float = EXPIRES) -> Msg | None:
        """The next message, or None if there is none within `timeout` seconds."""
        async for message in self.fetch(1, expires=timeout):
            return message
        return None

    async def fetch(
        self, max_messages: int = 100, *, expires: float = EXPIRES
    ) -> AsyncIterator[Msg]:
        """The next messages: an async iterator over those that come within `expires` seconds."""
        check_positive(max_messages=max_messages, expires=expires)
        self._check_free("fetch and next", self._consuming)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + expires
        if self._reading is None or self._reading.is_ended:
            options = PullOptions(expires=EXPIRES, idle_heartbeat=ORDERED_HEARTBEAT)
            self._reading = await self._open(options, MESSAGES_MAX, None, None)
        for _ in range(max_messages):
            try:
                message = await self._reading.next(max(deadline - loop.time(), 0.001))
            except OperationTimeoutError:
                return
            self._position = message.metadata.stream_sequence
            yield message

    async def stop(self) -> None:
        """Remove the consumer that `next` and `fetch` use; they resume after their last message."""
        reading, self._reading = self._reading, None
        if reading is not None:
            await reading.stop()

    def __repr__(self) -> str:
        return f"OrderedConsumer({self.stream!r})"

    def _check_free(self, what: str, other: OrderedMessages | None) -> None:
        if other is not None and not other.is_ended:
            raise OptionsError(
                f"{what}: this ordered consumer is already read in another way; stop that first, "
                "or use another one"
            )

    async def _open(
        self,
        options: PullOptions,
        max_messages: int,
        callback: MessageHandler | None,
        on_status: StatusHandler | None,
    ) -> OrderedMessages:
        info = await self._create(self._position)
        source = DeliverySource.of(self.api, info)
        policy = ConsumePolicy(options, max_messages, THRESHOLD)
        return OrderedMessages(source, policy, info, self._create, callback, on_status)

    async def _create(self, last_sequence: int) -> ConsumerInfo:
        """A new consumer that starts behind a message of the stream, 0 for the configured start."""
        self._serial += 1
        config = msgspec.structs.replace(
            self._config,
            name=f"{self._prefix}_{self._serial}",
            ack_policy=AckPolicy.NONE,
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=INACTIVE_SECONDS * SECOND_NS,
        )
        if last_sequence:
            config = msgspec.structs.replace(
                config,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=last_sequence + 1,
                opt_start_time=None,
            )
        body = {"stream_name": self.stream, "config": config, "action": ConsumerAction.CREATE}
        endpoint = "consumer_create_filtered" if config.filter_subject else "consumer_create"
        return await self.api.call(
            ConsumerInfo, endpoint, self.stream, config.name, config.filter_subject, body=body
        )
