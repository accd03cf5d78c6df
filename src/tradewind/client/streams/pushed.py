"""Messages that a consumer pushes to a subject, for older programs.

Owns the responses to flow control, which are sent when the reader has caught up, so that a slow
reader slows down the server; and deleting a consumer that was created for one reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ConsumerInfo
from tradewind.client.core.subscription import MessageHandler
from tradewind.client.errors import OptionsError
from tradewind.client.streams.api_requests import ApiRequests
from tradewind.client.streams.config_settings import make_config
from tradewind.client.streams.consumer_events import Resumed
from tradewind.client.streams.delivered import DeliveredMessages, DeliverySource, StatusHandler
from tradewind.client.streams.manager import Consumers
from tradewind.durations import SECOND_NS
from tradewind.status_codes import HEARTBEAT

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg

PUSH_HEARTBEAT_NS = 5 * SECOND_NS


class PushedMessages(DeliveredMessages):
    """The messages of a push consumer; made by `js.subscribe_push`.

    The messages end with `stop`, `drain`, the end of the connection, or an error if the consumer is
    deleted.
    """

    info: ConsumerInfo

    def __init__(
        self,
        source: DeliverySource,
        info: ConsumerInfo,
        callback: MessageHandler | None,
        on_status: StatusHandler | None,
        *,
        is_temporary: bool,
    ) -> None:
        options = source.api.connection.options
        config = info.config
        # With flow control the server stops by itself.
        has_flow = config.flow_control
        super().__init__(
            source,
            config.deliver_subject,
            config.deliver_group,
            callback=callback,
            on_status=on_status,
            pending_messages_max=0 if has_flow else options.subscription_messages_max,
            pending_bytes_max=0 if has_flow else options.subscription_bytes_max,
            is_temporary=is_temporary,
        )
        self.info = info
        self._flow_reply = ""
        if config.idle_heartbeat:
            self._start_beat(config.idle_heartbeat / SECOND_NS)

    def _on_status(self, message: Msg) -> None:
        if message.status != HEARTBEAT or self._finished.is_set():
            return
        # A request for flow control has a reply subject; a heartbeat repeats one that got lost.
        reply = message.reply or message.headers.get("Nats-Consumer-Stalled", "")
        if not reply:
            return
        self._flow_reply = reply
        if self.pending_messages:
            self._inbox.set_refill(self.pending_messages // 2, 0)
        else:
            self._refill()

    def _refill(self) -> None:
        """Called when the reader has caught up: let the server continue."""
        self._inbox.set_refill(-1, 0)
        reply, self._flow_reply = self._flow_reply, ""
        if reply and self._connection.is_connected:
            self._connection.publish(reply)

    def _on_heartbeats_missed(self) -> None:
        # If there is no answer, the next missed heartbeat asks again.
        self._start(self._look_for_consumer())

    def _on_link(self) -> None:
        if self._connection.is_connected and not self.is_ended:
            self._tell(Resumed())
            self._start(self._look_for_consumer())


async def bind_push(
    api: ApiRequests,
    stream: str,
    name: str,
    callback: MessageHandler | None,
    on_status: StatusHandler | None,
) -> PushedMessages:
    """The messages of a push consumer that exists."""
    info = await api.call(ConsumerInfo, "consumer_info", stream, name)
    if not info.config.deliver_subject:
        raise OptionsError(
            f"consumer {name!r} of stream {stream!r} is pulled: read it with consumers.get"
        )
    source = DeliverySource.of(api, info)
    return PushedMessages(source, info, callback, on_status, is_temporary=False)


async def create_push(
    api: ApiRequests,
    stream: str,
    settings: Mapping[str, Any],
    callback: MessageHandler | None,
    on_status: StatusHandler | None,
) -> PushedMessages:
    """The messages of a new push consumer."""
    base = ConsumerConfig(
        deliver_subject=api.connection.new_inbox(),
        ack_policy=AckPolicy.EXPLICIT,
        flow_control=True,
        idle_heartbeat=PUSH_HEARTBEAT_NS,
    )
    config = make_config(base, settings)
    info = await Consumers(api).add(stream, config)
    # The server sends nothing before there is a subscriber, so nothing is missed in between.
    source = DeliverySource.of(api, info)
    return PushedMessages(source, info, callback, on_status, is_temporary=not config.durable_name)
