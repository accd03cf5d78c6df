"""Messages that were asked for: what `fetch` and `consume` give.

Owns the pull requests, the reading of the server's statuses, and going on after silence, refusals
and reconnects. Counting and queueing is in `pull.pyx`. An iteration ends with an error only if
nothing more can come: the consumer is gone, or cannot be used in this way.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tradewind.api.base import encode
from tradewind.api.consumer_types import AckPolicy, ConsumerInfo
from tradewind.api.request_types import NextRequest
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.api_requests import ApiRequests, to_ns
from tradewind.client.consumer_events import (
    ConsumerDeleted,
    ConsumerEvent,
    HeartbeatsMissed,
    NoResponders,
    Resumed,
    ServerNotice,
)
from tradewind.client.errors import ClientError, ConsumerGoneError, OptionsError
from tradewind.client.events import ErrorEvent
from tradewind.client.pull import PullCore
from tradewind.client.subscription import MessageHandler, Subscription

if TYPE_CHECKING:
    from tradewind.client.message import Msg

StatusHandler = Callable[[ConsumerEvent], Awaitable[Any] | Any]
# What a request asks for unless it is told otherwise.
EXPIRES = 30.0
MESSAGES_MAX = 500
HEARTBEAT = 100
NO_RESPONDERS = 503
BAD_REQUEST = 400
EXPIRED = (404, 408)
# The server ends a request by itself; this much later the client does, in case it does not.
EXPIRES_GRACE = 2.0
# Between attempts after a refusal.
RETRY_WAIT = 0.25
RETRY_WAIT_MAX = 5.0
EVENTS_MAX = 1024
# Without a limit on messages a request for bytes asks for so many.
BATCH_MAX = 1_000_000
HEARTBEATS_MISSED = 2
# Reasons of a 409 after which the same request can only fail again.
_FINAL = ("consumer is push based", "exceeded maxrequest", "consumer deleted")


@dataclass(frozen=True, slots=True)
class PullOptions:
    """What every pull request of a consumption says. Times are in seconds."""

    expires: float
    idle_heartbeat: float
    max_bytes: int = 0
    no_wait: bool = False
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class PullSource:
    """Where to ask: a consumer, by its name at this moment."""

    api: ApiRequests
    stream: str
    name: str
    wants_acks: bool

    @classmethod
    def of(cls, api: ApiRequests, info: ConsumerInfo) -> Self:
        """The consumer that an info describes."""
        wants_acks = info.config.ack_policy is not AckPolicy.NONE
        return cls(api, info.stream_name, info.name, wants_acks)

    @property
    def subject(self) -> str:
        """Where pull requests go."""
        return self.api.subject("consumer_next", self.stream, self.name)

    async def info(self) -> ConsumerInfo:
        """Configuration and state now."""
        return await self.api.call(ConsumerInfo, "consumer_info", self.stream, self.name)


class StatusEvents:
    """An async iterator over the events of a consumption; it ends when that does.

    At most EVENTS_MAX wait to be read; then the oldest are dropped.
    """

    def __init__(self) -> None:
        self._events: deque[ConsumerEvent] = deque(maxlen=EVENTS_MAX)
        self._changed = asyncio.Event()
        self._ended = False

    def put(self, event: ConsumerEvent) -> None:
        """Add an event."""
        self._events.append(event)
        self._changed.set()

    def end(self) -> None:
        """No more events will come."""
        self._ended = True
        self._changed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerEvent:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()


class PulledMessages(Subscription, PullCore):
    """Base of the messages of `fetch` and `consume`: an async iterator with an end."""

    def __init__(
        self,
        source: PullSource,
        options: PullOptions,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
    ) -> None:
        connection = source.api.connection
        limits = {"pending_messages_max": 0, "pending_bytes_max": 0, "messages_max": 0}
        super().__init__(connection, connection.new_inbox(), "", callback, **limits)
        self._source = source
        self._pull_subject = source.subject
        self._options = options
        self._on_event = on_status
        self._readers: list[StatusEvents] = []
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._finished = asyncio.Event()
        connection._subscribe(self)
        connection._link_watchers.add(self._on_link)

    # ------------------------------------------------------------------ for users

    def status(self) -> StatusEvents:
        """An async iterator over what happens besides messages: missed heartbeats and so on."""
        events = StatusEvents()
        self._readers.append(events)
        if self._finished.is_set():
            events.end()
        return events

    async def stop(self) -> None:
        """End now. Messages that were not read are given back to the consumer."""
        unread = []
        while (message := self.take()) is not None:
            unread.append(message)
        if self._source.wants_acks and not self._connection.is_closed:
            for message in reversed(unread):
                message.nak()
        await self.unsubscribe()

    async def unsubscribe(self) -> None:
        """End now; messages that were not read come again after the ack wait."""
        self._release()
        await super().unsubscribe()

    async def drain(self, timeout: float | None = None) -> None:
        """Ask for nothing more; those that have arrived can still be read."""
        self._release()
        await super().drain(timeout)

    async def wait_ended(self) -> None:
        """Wait until nothing more will come; raises what ended it, if it was an error."""
        await self._finished.wait()
        if self._error is not None:
            raise self._error

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        source = self._source
        return f"{type(self).__name__}({source.stream!r}, {source.name!r})"

    # ------------------------------------------------------------------ requests

    def _pull(self, count: int, size: int) -> None:
        """Ask for messages; `size` is 0 if bytes are not limited."""
        options = self._options
        expires_ns = to_ns(self._expires())
        request = NextRequest(
            expires=expires_ns,
            batch=count,
            max_bytes=size,
            no_wait=options.no_wait,
            idle_heartbeat=min(to_ns(options.idle_heartbeat), expires_ns // 2),
            group=options.group,
            min_pending=options.min_pending,
            min_ack_pending=options.min_ack_pending,
            priority=options.priority,
        )
        self._request(count, size)
        self._connection.publish(self._pull_subject, encode(request), reply=self.subject)

    def _expires(self) -> float:
        return self._options.expires

    def _try_pull(self) -> None:
        """Ask again for what is missing, if that makes sense right now."""
        raise AssertionError("a kind of messages knows how it asks again")

    def _retry_later(self, seconds: float) -> None:
        if not self.is_ended:
            self._set_timer("retry", seconds, self._try_pull)

    # ------------------------------------------------------------------ statuses

    def _on_status(self, message: Msg) -> None:
        code = message.status
        if code == HEARTBEAT or self._finished.is_set():
            return
        headers = message.headers
        left = headers.get("Nats-Pending-Messages", "")
        size = headers.get("Nats-Pending-Bytes", "")
        if left.isdecimal() and size.isdecimal():
            self._returned(int(left), int(size))
        else:
            self._returned(self.wanted_messages, self.wanted_bytes)
        description = message.description
        if code in EXPIRED:
            self._on_expired()
        elif code == NO_RESPONDERS:
            self._tell(NoResponders())
            self._start(self._find_out())
        elif code == BAD_REQUEST or description.lower().startswith(_FINAL):
            self._on_gone(description)
        else:
            self._on_ended_request(code, description)

    def _on_expired(self) -> None:
        """A request has come to its end in the normal way."""
        self._try_pull()

    def _on_gone(self, description: str) -> None:
        """No request can succeed any more."""
        source = self._source
        self._tell(ConsumerDeleted(description))
        self._fail(
            ConsumerGoneError(
                f"consumer {source.name!r} of stream {source.stream!r}: {description}"
            )
        )

    def _on_ended_request(self, code: int, description: str) -> None:
        """The server ended a request before its time."""
        if description.lower() != "batch completed":
            self._tell(ServerNotice(code, description))
        self._retry_later(RETRY_WAIT)

    async def _find_out(self) -> None:
        """Nobody takes requests: is the consumer gone, or only its server?"""
        try:
            await self._source.info()
        except JetStreamApiError as error:
            self._tell(ConsumerDeleted(error.description))
            self._fail(error)
        except ClientError:
            self._retry_later(RETRY_WAIT_MAX)
        else:
            self._retry_later(RETRY_WAIT)

    def _tell(self, event: ConsumerEvent) -> None:
        for reader in self._readers:
            reader.put(event)
        if self._on_event is None:
            return
        try:
            result = self._on_event(event)
        except Exception as error:
            self._connection._emit(ErrorEvent(error, self))
            return
        if inspect.isawaitable(result):
            self._start(result)

    # ------------------------------------------------------------------ life

    def _on_link(self) -> None:
        """The connection was lost, or is back."""
        if self._connection.is_connected and not self.is_ended:
            self._returned(self.wanted_messages, self.wanted_bytes)
            self._tell(Resumed())
            self._try_pull()

    def _fail(self, error: Exception) -> None:
        """Nothing more can come: readers are told when they have read everything."""
        if self.is_ended:
            return
        if self._callback is not None:
            self._connection._emit(ErrorEvent(error, self))
        self._connection._unsubscribe(self)
        self._close(error)

    def _finish(self) -> None:
        """Everything has arrived; the queue can still be read."""
        self._connection._unsubscribe(self)
        self._close(None)

    def _close(self, error: Exception | None) -> None:
        self._release()
        super()._close(error)

    def _release(self) -> None:
        """Nothing more is asked for: stop timers and tasks."""
        self._set_refill(-1, 0)
        self._connection._link_watchers.discard(self._on_link)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        current = asyncio.current_task() if self._tasks else None
        for task in self._tasks:
            if task is not current:
                task.cancel()
        for reader in self._readers:
            reader.end()
        self._finished.set()

    def _start(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._connection._emit(ErrorEvent(error, self))

    def _set_timer(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        if (old := self._timers.get(name)) is not None:
            old.cancel()
        self._timers[name] = self._loop.call_later(seconds, call)

    async def _stop_task(self) -> None:
        await super()._stop_task()
        left = self._tasks - {asyncio.current_task()}
        if left:
            await asyncio.wait(left)


class FetchedMessages(PulledMessages):
    """The messages of one `fetch`: at most as many as it asked for, in at most the time given."""

    def __init__(self, source: PullSource, options: PullOptions, count: int) -> None:
        super().__init__(source, options)
        self._count_left = count
        self._deadline = self._loop.time() + options.expires
        self._set_batch()
        self._set_timer("guard", options.expires + EXPIRES_GRACE, self._finish)
        self._try_pull()

    def _expires(self) -> float:
        return max(self._deadline - self._loop.time(), 0.001)

    def _try_pull(self) -> None:
        self._timers.pop("retry", None)
        if self.is_ended or not self._connection.is_connected:
            return
        left = self._count_left - self.received_messages
        if self._loop.time() >= self._deadline or left <= 0:
            self._finish()
            return
        self._pull(left, self._options.max_bytes)

    def _on_expired(self) -> None:
        self._finish()

    def _on_served(self) -> None:
        self._finish()

    def _on_ended_request(self, code: int, description: str) -> None:
        if description.lower() == "batch completed":
            self._finish()
        elif description.lower().startswith("message size exceeds"):
            if self.received_messages:
                self._finish()
            else:
                self._fail(too_large(self._options.max_bytes))
        else:
            super()._on_ended_request(code, description)


class ConsumerMessages(PulledMessages):
    """The messages of `consume`: an async iterator that asks for more before it runs dry.

    >>> async with await consumer.consume() as messages:
    ...     async for message in messages:
    ...         message.ack()

    It goes on over reconnects and restarts of the server. It ends with `stop`, `drain`, the end of
    the connection, or an error if the consumer is deleted.
    """

    def __init__(
        self,
        source: PullSource,
        options: PullOptions,
        *,
        max_messages: int,
        threshold: float,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
    ) -> None:
        super().__init__(source, options, callback, on_status)
        self._messages_max = max_messages
        self._threshold = (int(max_messages * threshold), int(options.max_bytes * threshold))
        self._seen = 0
        self._missed = 0
        self._too_large_at = -1
        self._begin()

    def _begin(self) -> None:
        self._set_refill(min(self._threshold[0], self._messages_max - 1), self._threshold[1])
        self._try_pull()
        self._set_timer("beat", self._options.idle_heartbeat, self._beat)

    def _try_pull(self) -> None:
        self._timers.pop("retry", None)
        if self._connection.is_connected and self._wants_more():
            self._refill()

    def _refill(self) -> None:
        if not self._connection.is_connected or "retry" in self._timers:
            return
        count = self._messages_max - self.wanted_messages - self.pending_messages
        size = self._options.max_bytes
        if size:
            size = max(size - self.wanted_bytes - self.pending_bytes, 1)
        self._pull(max(count, 1), size)

    def _beat(self) -> None:
        """A heartbeat interval has passed."""
        self._set_timer("beat", self._options.idle_heartbeat, self._beat)
        is_idle = not self.wanted_messages or "retry" in self._timers
        if is_idle or self.arrivals != self._seen or not self._connection.is_connected:
            self._seen = self.arrivals
            self._missed = 0
            return
        self._missed += 1
        if self._missed >= HEARTBEATS_MISSED:
            self._tell(HeartbeatsMissed(self._missed))
            if not self.is_ended:
                self._on_silence()

    def _on_silence(self) -> None:
        """The requests are lost; others take their place."""
        self._returned(self.wanted_messages, self.wanted_bytes)
        self._try_pull()

    def _on_ended_request(self, code: int, description: str) -> None:
        if not description.lower().startswith("message size exceeds"):
            super()._on_ended_request(code, description)
        elif self.pending_messages:
            pass  # there is room for it when these are read
        elif self._too_large_at == self.received_messages:
            self._fail(too_large(self._options.max_bytes))
        else:
            self._too_large_at = self.received_messages
            self._try_pull()


def too_large(max_bytes: int) -> ConsumerGoneError:
    """The error if the next message can never be delivered."""
    return ConsumerGoneError(f"the next message is larger than max_bytes ({max_bytes}): raise it")


def check_positive(**values: float) -> None:
    """An error that names the first argument that is not above 0."""
    for name, value in values.items():
        if not value > 0:
            raise OptionsError(f"{name}: more than 0, not {value}")
