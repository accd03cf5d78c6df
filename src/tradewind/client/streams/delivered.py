"""Messages that a consumer delivers, pulled or pushed: an async iterator with an end.

Owns the common parts: events, heartbeats, tasks and timers, and the ways to end. Pull requests are
in `pulled.py`, flow control of pushed messages in `pushed.py`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tradewind.api.consumer_types import AckPolicy, ConsumerInfo
from tradewind.client.api_errors import ClusterNotAvailableError, JetStreamApiError
from tradewind.client.core.message import Msg
from tradewind.client.core.subscription import MessageHandler, Subscription
from tradewind.client.errors import ClientError
from tradewind.client.events import ErrorEvent
from tradewind.client.streams.api_requests import ApiRequests
from tradewind.client.streams.consumer_events import (
    ConsumerDeleted,
    ConsumerEvent,
    HeartbeatsMissed,
)
from tradewind.client.streams.inbox_owners import PullOwner
from tradewind.client.streams.pull_inbox import PullInbox

StatusHandler = Callable[[ConsumerEvent], Awaitable[Any] | Any]
HEARTBEATS_MISSED = 2
EVENTS_MAX = 1024
STOP_SECONDS_MAX = 1.0


@dataclass(frozen=True, slots=True)
class DeliverySource:
    """Where messages come from: a consumer, by its name at this moment."""

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


class DeliveredMessages(Subscription, PullOwner):
    """Base of all messages of consumers."""

    _inbox_type = PullInbox
    _inbox: PullInbox

    def __init__(
        self,
        source: DeliverySource,
        subject: str,
        queue: str = "",
        *,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
        pending_messages_max: int = 0,
        pending_bytes_max: int = 0,
        is_temporary: bool = False,
    ) -> None:
        connection = source.api.connection
        super().__init__(
            connection,
            subject,
            queue,
            callback,
            pending_messages_max=pending_messages_max,
            pending_bytes_max=pending_bytes_max,
            messages_max=0,
        )
        self._source = source
        self._is_temporary = is_temporary  # the consumer was created for these messages alone
        self._on_event = on_status
        self._readers: list[StatusEvents] = []
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._finished = asyncio.Event()
        self._seen = 0
        self._missed = 0
        connection._subscribe(self._inbox)
        connection._link_watchers.add(self._on_link)

    # ------------------------------------------------------------------ for users

    @property
    def wanted_messages(self) -> int:
        """How many messages were requested and have not arrived yet."""
        return self._inbox.wanted_messages

    @property
    def received_messages(self) -> int:
        """How many messages have arrived."""
        return self._inbox.received_messages

    def status(self) -> StatusEvents:
        """An async iterator over what happens besides messages: missed heartbeats and so on."""
        events = StatusEvents()
        self._readers.append(events)
        if self._finished.is_set():
            events.end()
        return events

    async def stop(self) -> None:
        """End now. Messages that were not read are given back to the consumer."""
        connection = self._connection
        self._release()
        unread: list[Msg] = []
        try:
            if not self.is_ended and self._source.wants_acks:
                self._inbox.divert(unread.append)
                is_asked = connection._stop_delivery(self._inbox)
                self._inbox.end()
                if is_asked:
                    # The answer comes after what was still on its way.
                    await connection.flush(STOP_SECONDS_MAX)
        except ClientError:
            pass  # what the server has sent meanwhile comes again after the ack wait
        finally:
            while (message := self.take()) is not None:
                unread.append(message)
            self.give_back(unread)
            await self.unsubscribe()

    def give_back(self, messages: Sequence[Msg]) -> None:
        """Let the consumer deliver messages again at once, to any client that requests them."""
        if self._source.wants_acks and not self._connection.is_closed:
            for message in reversed(messages):
                if not message.status and not message.is_settled:
                    message.nak()

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

    # ------------------------------------------------------------------ heartbeats

    def _start_beat(self, seconds: float) -> None:
        """Expect something from the server in each interval of this length."""
        self._set_timer("beat", seconds, lambda: self._beat(seconds))

    def _beat(self, seconds: float) -> None:
        """Called when a heartbeat interval has passed."""
        self._start_beat(seconds)
        arrivals = self._inbox.arrivals
        if self._is_idle() or arrivals != self._seen or not self._connection.is_connected:
            self._seen = arrivals
            self._missed = 0
            return
        self._missed += 1
        if self._missed >= HEARTBEATS_MISSED:
            self._tell(HeartbeatsMissed(self._missed))
            if not self.is_ended:
                self._on_heartbeats_missed()

    def _is_idle(self) -> bool:
        """Whether the server has no reason to send anything."""
        return False

    def _on_heartbeats_missed(self) -> None:
        """Called when the server has been silent for too long."""
        raise AssertionError("a kind of messages knows what to do")

    def _on_link(self) -> None:
        """Called when the connection was lost, or is back."""
        raise AssertionError("a kind of messages knows what to do")

    # ------------------------------------------------------------------ life

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

    def _fail(self, error: Exception) -> None:
        """Called when no more messages can come; readers get the error after the last message."""
        if self.is_ended:
            return
        if self._callback is not None:
            self._connection._emit(ErrorEvent(error, self))
        self._connection._unsubscribe(self._inbox)
        self._close(error)

    async def _look_for_consumer(self) -> bool:
        """Whether the consumer is known to exist. If it is gone, the messages end with an error."""
        try:
            await self._source.info()
        except ClusterNotAvailableError:
            return False  # no leader at the moment
        except JetStreamApiError as error:
            self._tell(ConsumerDeleted(error.description))
            self._fail(error)
            return False
        except ClientError:
            return False
        return True

    def _finish(self) -> None:
        """End without an error; messages in the queue can still be read."""
        self._connection._unsubscribe(self._inbox)
        self._close(None)

    def _close(self, error: Exception | None) -> None:
        self._release()
        super()._close(error)

    def _release(self) -> None:
        """Ask for nothing more: stop timers and tasks, and delete a temporary consumer."""
        was_open = not self._finished.is_set()
        self._inbox.set_refill(-1, 0)
        self._connection._link_watchers.discard(self._on_link)
        for name in list(self._timers):
            self._cancel_timer(name)
        current = asyncio.current_task() if self._tasks else None
        for task in self._tasks:
            if task is not current:
                task.cancel()
        for reader in self._readers:
            reader.end()
        self._finished.set()
        if was_open and self._is_temporary:
            self._delete_consumer()

    def _delete_consumer(self) -> None:
        """Delete the consumer, without waiting for the answer."""
        source = self._source
        if self._connection.is_connected:
            self._connection.publish(
                source.api.subject("consumer_delete", source.stream, source.name)
            )

    def _start(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._connection._emit(ErrorEvent(error, self))

    def _set_timer(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._cancel_timer(name)
        self._timers[name] = self._loop.call_later(seconds, call)

    def _cancel_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    async def _stop_task(self) -> None:
        await super()._stop_task()
        left = self._tasks - {asyncio.current_task()}
        if left:
            await asyncio.wait(left)
