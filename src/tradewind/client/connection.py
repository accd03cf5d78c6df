"""A persistent connection to a NATS server: publish, subscribe, request, drain.

Owns the public methods; the life cycle of the underlying connection is in `lifecycle.py`. All
methods must be called in one event loop; for threads there is `tradewind.sync`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Self, Unpack

from tradewind.client.core.connect_options import ConnectOptions, ConnectSettings, make_options
from tradewind.client.core.contexts import load_context
from tradewind.client.core.headers import Headers, HeaderValues
from tradewind.client.core.lifecycle import Lifecycle
from tradewind.client.core.message import Msg
from tradewind.client.core.openings import opening
from tradewind.client.core.replies import Replies, nuid
from tradewind.client.core.subscription import MessageHandler, Subscription
from tradewind.client.errors import (
    BadSubjectError,
    DrainingError,
    DrainTimeoutError,
    NoRespondersError,
)
from tradewind.client.jetstream import WINDOW_MESSAGES, JetStream
from tradewind.client.streams.manager import JetStreamManager
from tradewind.status_codes import NO_RESPONDERS
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.client.services.discovery import Services

HeaderInput = Headers | Mapping[str, HeaderValues] | Iterable[tuple[str, str]] | bytes
Payload = bytes | bytearray | memoryview | str


@opening
async def connect(
    servers: str | list[str] | None = None,
    *,
    context: str | None = None,
    **settings: Unpack[ConnectSettings],
) -> Connection:
    """Connect to a NATS server; the result is also an async context manager that closes it.

    >>> async with tradewind.connect("nats://127.0.0.1:4222") as connection:
    ...     await connection.publish("hello", b"world")

    `servers` is a url, several joined by commas, or a list. `context` is the name of a context of
    the nats command line ("" for the selected one); other arguments override what it says.
    """
    base = ConnectOptions() if context is None else load_context(context)
    options = make_options(base, settings)
    if servers is not None:
        options = make_options(options, {"servers": servers})
    connection = Connection(options)
    await connection._start()
    return connection


class Connection(Lifecycle):
    """One logical connection, through however many sockets it takes. Made by `connect`.

    `replies` is its inbox, shared by all requests; `services` runs and finds services.
    """

    def __init__(self, options: ConnectOptions) -> None:
        super().__init__(options)
        # For every message: a method would add 27 ns to 30 (`benchmarks.micro`, frame-publish).
        self.__dict__["publish"] = self._wire.publish
        self.replies = Replies(self, options.inbox_prefix)
        self._contexts: dict[tuple[str, str, float | None, int], JetStream] = {}

    @cached_property
    def services(self) -> Services:
        """Runs services, and finds those of anybody."""
        from tradewind.client.services.discovery import Services

        return Services(self)

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeaderInput | None = None,
    ) -> Awaitable[None]:
        """Publish a message.

        The message is queued for sending when this returns. Await the result in loops, so that a
        full outbox slows the program down instead of raising PendingLimitError.

        >>> await connection.publish("orders.new", b"two apples", headers={"Trace": "7"})
        """
        return self._wire.publish(subject, payload, reply=reply, headers=headers)

    @property
    def max_payload(self) -> int:
        """The largest message, headers included, that the server accepts."""
        return self._wire.max_payload

    @property
    def is_crowded(self) -> bool:
        """Whether an awaited publish would wait."""
        return self._wire.is_crowded

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait to be sent."""
        return self._wire.pending_bytes

    def new_inbox(self) -> str:
        """A new and unique subject to receive replies on."""
        return f"{self.options.inbox_prefix}.{nuid.next()}"

    @opening
    async def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        callback: MessageHandler | None = None,
        max_msgs: int = 0,
        pending_messages_max: int | None = None,
        pending_bytes_max: int | None = None,
    ) -> Subscription:
        """Subscribe; the result is an async iterator, unless a `callback` gets the messages.

        `queue` names a group of which one member gets each message. The subscription ends after
        `max_msgs` messages. More messages than the pending limits are not queued: the newest are
        dropped and counted in `dropped_count`, and a SlowConsumer event is emitted. A limit of 0
        means no limit.

        >>> async with connection.subscribe("orders.*") as messages:
        ...     async for message in messages:
        ...         print(message.subject, message.data)
        """
        if not is_valid_subject(subject):
            raise BadSubjectError(
                f"subject {subject!r}: needs tokens joined by single dots, no blanks, '>' only last"
            )
        if queue and not is_valid_subject(queue):
            raise BadSubjectError(f"queue {queue!r}: must be a name without spaces")
        self._check_open()
        if self.is_draining:
            raise DrainingError(f"subscribe to {subject!r}: the connection is being drained")
        options = self.options
        subscription = Subscription(
            self,
            subject,
            queue,
            callback,
            pending_messages_max=(
                options.subscription_messages_max
                if pending_messages_max is None
                else pending_messages_max
            ),
            pending_bytes_max=(
                options.subscription_bytes_max if pending_bytes_max is None else pending_bytes_max
            ),
            messages_max=max_msgs,
        )
        self._subscribe(subscription._inbox)
        return subscription

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: float | None = None,
        headers: HeaderInput | None = None,
    ) -> Msg:
        """Publish a message and wait for the first answer.

        Raises NoRespondersError at once if the subject has no subscriber, and
        OperationTimeoutError after `timeout` seconds.
        """
        self._check_open()
        seconds = self.options.timeout if timeout is None else timeout
        question = self.replies.ask(subject, payload, headers, seconds)
        try:
            message = await question.future
        except BaseException:
            self.replies.forget(question)
            raise
        if message.status == NO_RESPONDERS and not message.data:
            raise NoRespondersError(subject)
        return message

    async def request_many(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: float | None = None,
        max_messages: int = 0,
        stall: float | None = None,
        sentinel: Callable[[Msg], bool] | None = None,
        headers: HeaderInput | None = None,
    ) -> AsyncIterator[Msg]:
        """Publish a message and iterate over all answers.

        The iteration ends after `max_messages`, after `stall` seconds without another answer, at
        the first message for which `sentinel` is true (that message is not returned), or after
        `timeout` seconds in total.
        """
        self._check_open()
        loop = self._loop
        deadline = loop.time() + (self.options.timeout if timeout is None else timeout)
        arrived: asyncio.Queue[Msg | Exception] = asyncio.Queue()
        question = self.replies.add(subject, arrived.put_nowait)
        count = 0
        try:
            self.publish(subject, payload, reply=question.reply, headers=headers)
            while not max_messages or count < max_messages:
                until = deadline
                if stall is not None and count:
                    until = min(deadline, loop.time() + stall)
                try:
                    async with asyncio.timeout_at(until):
                        reply = await arrived.get()
                except TimeoutError:
                    return
                if isinstance(reply, Exception):
                    raise reply
                if reply.status == NO_RESPONDERS and not reply.data:
                    raise NoRespondersError(subject)
                if sentinel is not None and sentinel(reply):
                    return
                count += 1
                yield reply
        finally:
            self.replies.forget(question)

    def jetstream(
        self,
        *,
        domain: str = "",
        api_prefix: str = "",
        timeout: float | None = None,
        publish_window: int = WINDOW_MESSAGES,
    ) -> JetStream:
        """Publish into streams and read from them; see JetStream.

        `domain` or `api_prefix` selects the API if it is not that of the connection's own account.
        `timeout` is the default timeout of API requests, in seconds. At most `publish_window`
        messages wait for an acknowledgement at a time. Calls with the same arguments return the
        same object.
        """
        key = (domain, api_prefix, timeout, publish_window)
        if key not in self._contexts:
            self._contexts[key] = JetStream(
                self,
                domain=domain,
                api_prefix=api_prefix,
                timeout=timeout,
                publish_window=publish_window,
            )
        return self._contexts[key]

    def jetstream_manager(
        self, *, domain: str = "", api_prefix: str = "", timeout: float | None = None
    ) -> JetStreamManager:
        """Create, change and delete streams and consumers; see JetStreamManager."""
        return JetStreamManager(self, domain=domain, api_prefix=api_prefix, timeout=timeout)

    async def drain(self, timeout: float | None = None) -> None:
        """Close gracefully: accept no new messages, handle those that have arrived, send what is
        queued.
        """
        if self.is_closed or self.is_draining:
            raise DrainingError("drain: the connection is already closed or being drained")
        self._is_draining = True
        seconds = self.options.drain_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._drain_one(queue) for queue in self._subscribers()))
                for context in self._contexts.values():
                    for window in context._windows:
                        await window.wait_idle()
                await self.flush(seconds)
        except TimeoutError:
            raise DrainTimeoutError(
                f"drain: messages were still not handled after {seconds:g} s (drain_timeout)"
            ) from None
        finally:
            await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _drain_one(self, queue: Subscription) -> None:
        emptied: asyncio.Future[None] = self._loop.create_future()
        await queue.drain()
        queue._inbox.when_empty(emptied)
        await emptied

    def _fail_requests(self, error: Exception, subject: str) -> None:
        self.replies.fail(error, subject)
        for context in self._contexts.values():
            for window in context._windows:
                window.fail_all(error, subject)

    def _close_requests(self, error: Exception) -> None:
        self.replies.close(error)
        for context in self._contexts.values():
            for window in context._windows:
                window.close(error)
