"""Reading from consumers: the next message, a batch, or a continuous iteration.

Owns the choice of the way to read and its options; the messages come from `pulled.py`. It never
creates or changes consumers, which is up to `manager.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypedDict, Unpack

from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo, DeliverPolicy
from tradewind.client.core.message import Msg
from tradewind.client.core.openings import opening
from tradewind.client.core.subscription import MessageHandler
from tradewind.client.errors import OptionsError
from tradewind.client.running.consumer_run import ConsumerRun
from tradewind.client.running.run_settings import Handler, RunSettings, make_plan
from tradewind.client.running.run_stats import RunStats
from tradewind.client.streams.api_requests import ApiRequests, to_time
from tradewind.client.streams.config_settings import choice_of
from tradewind.client.streams.delivered import DeliverySource, StatusHandler
from tradewind.client.streams.manager import Consumers
from tradewind.client.streams.ordered import OrderedConsumer
from tradewind.client.streams.pull_policies import ConsumePolicy, FetchPolicy, PullOptions
from tradewind.client.streams.pulled import (
    BATCH_MAX,
    EXPIRES,
    MESSAGES_MAX,
    ConsumerMessages,
    FetchedMessages,
    check_positive,
)
from tradewind.client.streams.setting_types import Delivery
from tradewind.client.streams.windowed import WindowMessages

FETCH_MAX = 100
HEARTBEAT_MAX = 15.0


class GroupOptions(TypedDict, total=False):
    """Options for consumers with priority groups: the group, and when this client gets messages.

    With the policy "overflow", only from `min_pending` messages or `min_ack_pending` unacknowledged
    ones on; with "prioritized", after clients with a lower `priority` (0 to 9). With
    "pinned_client", one client gets everything until it stops asking; others wait.
    """

    group: str
    min_pending: int
    min_ack_pending: int
    priority: int


class Consumer:
    """A pull consumer of a stream. Made by `js.consumers.get`.

    Several programs may read from the same consumer: each message goes to one of them.
    """

    def __init__(self, api: ApiRequests, info: ConsumerInfo) -> None:
        self._api = api
        self._info = info
        self._source = DeliverySource.of(api, info)

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._info.stream_name

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self._info.name

    @property
    def cached_info(self) -> ConsumerInfo:
        """Configuration and state as they were at the last `info` (or `get`)."""
        return self._info

    async def info(self) -> ConsumerInfo:
        """Return the current configuration and state."""
        self._info = await self._source.info()
        return self._info

    async def next(self, timeout: float = EXPIRES, **options: Unpack[GroupOptions]) -> Msg | None:
        """The next message, or None if there is none within `timeout` seconds.

        >>> message = await consumer.next()
        >>> if message is not None:
        ...     message.ack()
        """
        batch = await self.fetch(1, expires=timeout, **options)
        try:
            async for message in batch:
                return message
            return None
        finally:
            if not batch.is_ended or batch.pending_messages:
                await batch.stop()

    @opening
    async def fetch(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int = 0,
        expires: float = EXPIRES,
        no_wait: bool = False,
        **options: Unpack[GroupOptions],
    ) -> FetchedMessages:
        """Request messages once, and iterate over those that arrive in time.

        The iteration ends after `max_messages` (100 unless bytes are limited), when the next one
        would exceed `max_bytes`, or after `expires` seconds; with `no_wait` when there are no more
        right now. Leaving the loop early gives the rest back to the consumer; after `await`, call
        `stop`.

        >>> async for message in consumer.fetch(5):
        ...     message.ack()
        """
        if max_messages is None:
            max_messages = BATCH_MAX if max_bytes else FETCH_MAX
        check_positive(max_messages=max_messages, expires=expires)
        settings = PullOptions(
            expires=expires,
            idle_heartbeat=0.0,
            max_bytes=max_bytes,
            no_wait=no_wait,
            **options,
        )
        now = asyncio.get_running_loop().time
        return FetchedMessages(self._source, FetchPolicy(settings, max_messages, now))

    @opening
    async def consume(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int = 0,
        threshold: float = 0.5,
        expires: float = EXPIRES,
        idle_heartbeat: float | None = None,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
        **options: Unpack[GroupOptions],
    ) -> ConsumerMessages:
        """Read without end: an async iterator, unless a `callback` gets the messages.

        At most `max_messages` (500 unless bytes are limited) or `max_bytes` are requested or
        unread; more are requested when that number falls to the `threshold`, a share of the
        maximum. `on_status` is called with the events of `status()`: missed heartbeats and so on.

        >>> async with consumer.consume() as messages:
        ...     async for message in messages:
        ...         message.ack()
        """
        if max_messages is None:
            max_messages = BATCH_MAX if max_bytes else MESSAGES_MAX
        settings = consume_options(expires, idle_heartbeat, max_bytes, options)
        check_consume(max_messages, threshold)
        return ConsumerMessages(
            self._source, ConsumePolicy(settings, max_messages, threshold), callback, on_status
        )

    def runner(self, handler: Handler, **settings: Unpack[RunSettings]) -> ConsumerRun:
        """A handler for all messages, not started yet: `run`, `stop` and `stats` of the result.

        The settings are those of `run`.
        """
        return ConsumerRun(self, make_plan(handler, settings))

    async def run(self, handler: Handler, **settings: Unpack[RunSettings]) -> RunStats:
        """Call a handler for each message, several at a time, until the task is cancelled.

        A message whose handler returns is acknowledged; one whose handler raises follows `retry`.
        A coroutine function runs in the event loop, a plain function in a thread. `RunSettings`
        has all settings. Raises an error if the consumer or its stream is deleted.

        >>> async def pack(order, message):
        ...     await print_label(order["id"])
        >>> await consumer.run(pack, codec="json", concurrency=8, signals=True)
        """
        return await self.runner(handler, **settings).run()

    def _open_window(self, size: int, batch: int, on_resumed: Callable[[], None]) -> WindowMessages:
        """Messages for a run; see `HandledConsumer`."""
        options = consume_options(EXPIRES, None)
        return WindowMessages(self._source, options, size, batch, on_resumed)

    async def delete(self) -> bool:
        """Delete the consumer."""
        return await Consumers(self._api).delete(self.stream, self.name)

    def __repr__(self) -> str:
        return f"Consumer({self.stream!r}, {self.name!r})"


class ConsumerAccess:
    """The consumers that a program reads from: `js.consumers`."""

    def __init__(self, api: ApiRequests) -> None:
        self._api = api

    async def get(self, stream: str, name: str) -> Consumer:
        """Return an existing pull consumer; ConsumerNotFoundError if there is none."""
        info = await self._api.call(ConsumerInfo, "consumer_info", stream, name)
        if info.config.deliver_subject:
            raise OptionsError(
                f"consumer {name!r} of stream {stream!r} pushes its messages to "
                f"{info.config.deliver_subject!r}: read it with js.subscribe_push"
            )
        return Consumer(self._api, info)

    def ordered(
        self,
        stream: str,
        *,
        filter_subjects: Sequence[str] | str = (),
        deliver_policy: Delivery = DeliverPolicy.ALL,
        start_sequence: int = 0,
        start_time: datetime | None = None,
        headers_only: bool = False,
        name_prefix: str = "",
    ) -> OrderedConsumer:
        """Read a stream in order, without acknowledgements; nothing is made before it is read.

        >>> async for message in js.consumers.ordered("ORDERS").consume():
        ...     print(message.metadata.stream_sequence)
        """
        filters = [filter_subjects] if isinstance(filter_subjects, str) else list(filter_subjects)
        policy = choice_of("deliver_policy", deliver_policy, DeliverPolicy)
        if policy is DeliverPolicy.LAST_PER_SUBJECT and not filters:
            filters = [">"]  # the server requires a filter
        if start_sequence:
            policy = DeliverPolicy.BY_START_SEQUENCE
        elif start_time is not None:
            policy = DeliverPolicy.BY_START_TIME
        config = ConsumerConfig(
            deliver_policy=policy,
            opt_start_seq=start_sequence,
            opt_start_time=None if start_time is None else to_time(start_time),
            filter_subject=filters[0] if len(filters) == 1 else "",
            filter_subjects=filters if len(filters) > 1 else [],
            headers_only=headers_only,
        )
        return OrderedConsumer(self._api, stream, config, name_prefix)


def consume_options(
    expires: float,
    idle_heartbeat: float | None,
    max_bytes: int = 0,
    options: GroupOptions | None = None,
) -> PullOptions:
    """The requests of a consumption."""
    check_positive(expires=expires)
    heartbeat = min(expires / 2, HEARTBEAT_MAX) if idle_heartbeat is None else idle_heartbeat
    check_positive(idle_heartbeat=heartbeat)
    if heartbeat * 2 > expires:
        raise OptionsError(
            f"idle_heartbeat: at most half of expires ({expires:g} s), not {heartbeat:g} s"
        )
    return PullOptions(
        expires=expires, idle_heartbeat=heartbeat, max_bytes=max_bytes, **(options or {})
    )


def check_consume(max_messages: int, threshold: float) -> None:
    """An error that names what cannot be."""
    check_positive(max_messages=max_messages)
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not is_number or not 0 <= threshold <= 1:
        raise OptionsError(f"threshold must be a share from 0 to 1, not {threshold!r}")
