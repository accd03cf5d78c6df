"""The transport of kombu: AMQP's channels, exchanges and queues over a NATS server.

Owns the translation of kombu's calls; the state is in the server (`task_queues.py`), and messages
come through `prefetching.py`. Differences to AMQP are listed in docs/how-to/CELERY.md.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from amqp.exceptions import RecoverableConnectionError
from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from tradewind._version import __version__
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import (
    AuthorizationError,
    BadHeaderError,
    ClientError,
    ConnectionClosedError,
    DisconnectedError,
    JetStreamUnavailableError,
    MaxPayloadError,
    NoServersError,
    OperationTimeoutError,
    OptionsError,
    PendingLimitError,
)
from tradewind.contrib.kombu.broker_session import BrokerSession
from tradewind.contrib.kombu.broker_settings import (
    DEFAULT_PORT,
    BrokerSettings,
    server_of_parts,
    server_url,
    settings_of,
    stream_of,
    tls_options,
)
from tradewind.contrib.kombu.prefetching import ChannelReader, HeldTask
from tradewind.contrib.kombu.queue_subjects import (
    DIRECT,
    FANOUT,
    PRIORITY_MAX,
    TOPIC,
    QueueBinding,
)
from tradewind.contrib.kombu.task_inbox import TaskInbox
from tradewind.contrib.kombu.task_messages import encode_task
from tradewind.contrib.kombu.task_queues import (
    QueueGoneError,
    QueueMismatchError,
    QueueRecord,
    TaskQueues,
)

AUTO_DELETE_SECONDS: Final = 60.0
EVENTS_PER_TURN: Final = 100
_KNOWN_ARGUMENTS: Final = frozenset(("x-expires", "x-message-ttl", "x-max-priority"))
_log = logging.getLogger("tradewind.contrib.kombu")


class SettlingQoS(virtual.QoS):
    """Settles messages at the server; the prefetch count is kept where messages are pulled."""

    restore_at_shutdown = False  # the channel gives back what it holds

    def append(self, message: Any, delivery_tag: str) -> None:
        """Nothing to do: a message is held from its arrival on."""

    def can_consume(self) -> bool:
        """No message arrives for which there is no room."""
        return True

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge one message."""
        self.channel.basic_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give one message up, or back."""
        self.channel.basic_reject(delivery_tag, requeue)

    def restore_unacked(self) -> list[Any]:
        """Give everything back."""
        self.channel.give_back()
        return []


class TradewindChannel(virtual.Channel):
    """A channel; queues and bindings are those of all programs that use the same stream."""

    QoS = SettlingQoS
    supports_fanout = True
    do_restore = False
    body_encoding = None
    max_priority = PRIORITY_MAX
    closed: bool

    def __init__(self, connection: TradewindTransport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        session = connection.session
        self._session = session
        self._queues = connection.queues
        self._settings = connection.settings
        self._inbox = connection.inbox
        self._callbacks: dict[str, Callable[[Any], None]] = {}
        self._reader: ChannelReader = session.run(self._make_reader())

    async def _make_reader(self) -> ChannelReader:
        return ChannelReader(
            self._queues,
            self._settings.heartbeat_seconds,
            lambda held: self._inbox.put((self, held)),
            lambda error: self._inbox.put((self, error)),
        )

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a request; what AMQP reports as an error of the channel is one."""
        try:
            return self._session.run(work)
        except QueueGoneError as error:
            raise ChannelError(str(error.args[0]), (50, 10), "Channel.queue", "404") from None
        except (QueueMismatchError, JetStreamApiError) as error:
            text = f"PRECONDITION_FAILED - {error}"
            raise ChannelError(text, (50, 10), "Channel.queue", "406") from None

    # ------------------------------------------------------------------ exchanges

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = DIRECT,  # noqa: A002
        **kwargs: Any,
    ) -> None:
        """Note the type of an exchange; the server needs none."""
        if type and type not in (DIRECT, TOPIC, FANOUT):
            raise ChannelError(
                f"COMMAND_INVALID - exchange {exchange!r}: type direct, topic or fanout, "
                f"not {type!r}",
                (40, 10), "Channel.exchange_declare", "503",
            )  # fmt: skip
        super().exchange_declare(exchange, type, **kwargs)

    def exchange_delete(
        self,
        exchange: str,
        if_unused: bool = False,
        nowait: bool = False,
    ) -> None:
        """Remove all bindings to an exchange, of all programs; queues stay."""
        bound = self._run(self._queues.queues_of(exchange))
        if not (if_unused and bound):
            for queue, binding in bound:
                self._run(self._queues.unbind(queue, binding))
            self.state.exchanges.pop(exchange, None)

    # ------------------------------------------------------------------ queues

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        """The arguments of a queue in the notation of AMQP."""
        return to_rabbitmq_queue_arguments(arguments or {}, **kwargs)

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create a queue unless it exists; with `passive` that is an error."""
        name = queue or f"amq.gen-{uuid()}"
        if not passive:
            expires = _milliseconds(name, arguments, "x-expires")
            if expires is None and (auto_delete or exclusive):
                expires = AUTO_DELETE_SECONDS
            self._run(self._queues.declare(self._record(name, arguments or {}), expires))
        return queue_declare_ok_t(name, self._size(name), 0)

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,
        if_empty: bool = False,
        **kwargs: Any,
    ) -> None:
        """Delete a queue for all programs."""
        if not self._has_queue(queue):
            return
        if if_empty and not self._run(self._queues.is_empty(queue)):
            return
        if if_unused and self._run(self._queues.is_used(queue)):
            return
        self._run(self._queues.delete(queue))
        self.state.queue_bindings_delete(queue)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """Let a queue receive what an exchange routes to it."""
        name = exchange or "amq.direct"
        self.state.binding_declare(queue, name, routing_key, arguments)
        self._run(self._queues.bind(queue, self._binding(name, routing_key)))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """Undo `queue_bind`. Messages that wait from this binding are dropped, unlike in AMQP."""
        name = exchange or "amq.direct"
        self.state.binding_delete(queue, name, routing_key)
        self._run(self._queues.unbind(queue, self._binding(name, routing_key)))

    def list_bindings(self) -> list[tuple[str, str, str]]:
        """The bindings that this connection has made."""
        return [(key.queue, key.exchange, key.routing_key) for key in self.state.bindings]

    def _binding(self, exchange: str, routing_key: str) -> QueueBinding:
        kind = exchange.removeprefix("amq.") if exchange.startswith("amq.") else DIRECT
        declared = self.state.exchanges.get(exchange)
        return QueueBinding(exchange, declared["type"] if declared else kind, routing_key or "")

    def _record(self, queue: str, arguments: Mapping[str, Any]) -> QueueRecord:
        for name in arguments:
            if name not in _KNOWN_ARGUMENTS:
                _log.warning("queue %r: argument %s has no effect here", queue, name)
        has_priorities = bool(arguments.get("x-max-priority"))
        return QueueRecord(
            queue,
            self._settings.priority_steps if has_priorities else (0,),
            _milliseconds(queue, arguments, "x-message-ttl"),
        )

    def _size(self, queue: str) -> int:
        count: int = self._run(self._queues.size(queue))
        return count

    def _purge(self, queue: str) -> int:
        count: int = self._run(self._queues.purge(queue))
        return count

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        try:
            self._session.run(self._queues.find(queue))
        except QueueGoneError:
            return False
        return True

    # ------------------------------------------------------------------ messages

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any
    ) -> None:
        """Publish a message, and wait until it is stored unless its delivery mode is transient."""
        message["properties"]["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        task = encode_task(message, self._settings.priority_max)
        subject = self._queues.subject(exchange, routing_key, task.priority)
        self._run(self._queues.publish(subject, task))

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], None],
        consumer_tag: str,
        **kwargs: Any,
    ) -> None:
        """Call `callback` for the messages of a queue, from `drain_events`."""
        self._callbacks[consumer_tag] = callback
        self._consumers.add(consumer_tag)
        self._tag_to_queue[consumer_tag] = queue
        self._run(self._reader.add(queue, consumer_tag, no_ack=bool(no_ack)))

    def basic_cancel(self, consumer_tag: str) -> None:
        """Read no longer; what was not handed over goes back to the queue."""
        if consumer_tag not in self._consumers:
            return
        self._consumers.discard(consumer_tag)
        self._tag_to_queue.pop(consumer_tag, None)
        self._callbacks.pop(consumer_tag, None)
        if not self._session.is_usable:
            return
        self._run(self._reader.remove(consumer_tag))
        self._give_back_unread(
            lambda held: not isinstance(held, Exception) and held.level.channel_tag == consumer_tag
        )

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """The next message of a queue; None if none waits."""
        held: HeldTask | None = self._run(self._reader.take(queue, no_ack=bool(no_ack)))
        return None if held is None else self._message_of(held)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, or all up to it. One that is settled already is none."""
        tags = [delivery_tag]
        if multiple:
            tags = [tag for tag in self._reader.held_tags() if int(tag) <= int(delivery_tag)]
        for tag in tags:
            message = self._reader.settle(tag)
            if message is not None:
                message.ack()

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back for delivery to any client, or give it up."""
        message = self._reader.settle(delivery_tag)
        if message is None:
            return
        if requeue:
            message.nak()
        else:
            message.term("rejected")

    def basic_recover(self, requeue: bool = False) -> None:
        """Give everything back that is not settled."""
        self.give_back()

    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        apply_global: bool = False,
    ) -> None:
        """Hold at most so many messages at a time."""
        self.qos.prefetch_count = prefetch_count or 0
        self._run(self._reader.set_prefetch(prefetch_count or 0))

    def give_back(self) -> None:
        """Return everything that is not settled to its queues."""
        for tag in self._reader.held_tags():
            message = self._reader.settle(tag)
            if message is not None:
                message.nak()

    def deliver(self, held: HeldTask) -> bool:
        """Call the consumer of a message; False if it is gone, and the message given back."""
        callback = self._callbacks.get(held.level.channel_tag)
        if self.closed or callback is None:
            self.basic_reject(held.tag, requeue=True)
            return False
        callback(self._message_of(held))
        return True

    def _message_of(self, held: HeldTask) -> Any:
        if held.level.no_ack:
            self.basic_ack(held.tag)
        return self.Message(held.payload, channel=self)

    def _give_back_unread(self, is_unwanted: Callable[[HeldTask | Exception], bool]) -> None:
        removed = self._inbox.remove(lambda item: item[0] is self and is_unwanted(item[1]))
        for _, held in removed:
            if not isinstance(held, Exception):
                self.basic_reject(held.tag, requeue=True)

    def close(self) -> None:
        """Stop reading, and give back what is not settled."""
        if self.closed:
            return
        self.closed = True
        self._consumers.clear()
        self._callbacks.clear()
        if self._session.is_usable:
            with suppress(ClientError):
                self._session.run(self._reader.close())
                self._inbox.remove(lambda item: item[0] is self)
                self.give_back()
        if self.connection is not None:
            self.connection.close_channel(self)
        self.exchange_types = None


class TradewindTransport(virtual.Transport):
    """One connection to a NATS server. Acknowledgements stay valid when it is lost and made anew.

    `session`, `queues` and `settings` exist once the connection is established.
    """

    Channel = TradewindChannel
    default_port = DEFAULT_PORT
    driver_type = "tradewind"
    driver_name = "tradewind"
    connection_errors = (
        *virtual.Transport.connection_errors,
        AuthorizationError,
        ConnectionClosedError,
        DisconnectedError,
        JetStreamUnavailableError,
        NoServersError,
        OperationTimeoutError,
        PendingLimitError,
    )
    channel_errors = (
        *virtual.Transport.channel_errors,
        BadHeaderError,
        JetStreamApiError,
        MaxPayloadError,
        OptionsError,
    )
    # A wrong option does not become right by trying again.
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset((DIRECT, TOPIC, FANOUT)), heartbeats=False
    )

    session: BrokerSession
    queues: TaskQueues
    settings: BrokerSettings

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.inbox: TaskInbox[tuple[TradewindChannel, HeldTask | Exception]] = TaskInbox()

    # ------------------------------------------------------------------ the connection

    def driver_version(self) -> str:
        """The version of this package."""
        return __version__

    def establish_connection(self) -> TradewindTransport:
        """Connect, and create the stream if it is not there."""
        client = self.client
        host = client.hostname or ""
        if "://" in host:  # as in nats+tls://host, which kombu does not take apart
            servers, stream = server_url(host), stream_of(host)
        else:
            servers = server_of_parts(host, client.port)
            stream = (client.virtual_host or "").strip("/")
        self.settings = settings_of(stream, client.transport_options)
        options: dict[str, Any] = {
            "name": f"kombu {os.getpid()}",
            "connect_timeout": float(client.connect_timeout or 5),
            **tls_options(client.ssl),
            **self.settings.connect,
        }
        if client.userid and client.password is None:
            options.setdefault("token", client.userid)
        elif client.userid:
            options.setdefault("user", client.userid)
            options.setdefault("password", client.password)
        self.session = BrokerSession(servers, options)
        try:
            self.queues = TaskQueues(self.session.js, self.settings)
            self.session.run(self.queues.open())
        except BaseException:
            self.session.close()
            raise
        return self

    def close_connection(self, connection: Any) -> None:
        """Give back what is not settled, and close."""
        while self.channels:
            self.channels.pop().close()
        self.session.close()
        self.inbox.close()

    def create_channel(self, connection: Any) -> TradewindChannel:
        """A new channel of this connection."""
        channel = self.Channel(connection)
        self.channels.append(channel)
        return channel

    def verify_connection(self, connection: Any) -> bool:
        """Whether it can still be used; it reconnects by itself."""
        return self.session.is_usable

    # ------------------------------------------------------------------ events

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver the next message; socket.timeout if none comes in time."""
        item = self.inbox.take(timeout)
        if item is None:
            raise socket.timeout("no message came in time")  # noqa: UP041 - the name kombu uses
        channel, held = item
        if isinstance(held, QueueGoneError):
            raise RecoverableConnectionError(str(held.args[0]))
        if isinstance(held, Exception):
            raise RecoverableConnectionError(f"reading queues: {held}")
        channel.deliver(held)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let kombu's event loop wait for messages."""
        loop.add_reader(self.inbox.fileno(), self.on_readable, connection, loop)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Undo `register_with_event_loop`."""
        if self.inbox.fileno() >= 0:
            loop.remove_reader(self.inbox.fileno())

    def on_readable(self, connection: Any, loop: Any) -> None:
        """Deliver what has arrived; the rest in the next turn."""
        for _ in range(EVENTS_PER_TURN):
            try:
                self.drain_events(connection, timeout=0)
            except TimeoutError:
                return


def _milliseconds(queue: str, arguments: Mapping[str, Any] | None, name: str) -> float | None:
    """The seconds of an argument of a queue; None if it is not given."""
    value = (arguments or {}).get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise ChannelError(
            f"PRECONDITION_FAILED - queue {queue!r}: {name} is a number of milliseconds above 0, "
            f"not {str(value)[:40]!r}",
            (50, 10), "Channel.queue_declare", "406",
        )  # fmt: skip
    return value / 1000
