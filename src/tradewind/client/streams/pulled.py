"""Pulled messages: the results of `fetch` and `consume`.

Owns the pull requests, interpreting the server's statuses, and continuing after timeouts, refusals
and reconnects. Counting and queueing is in `pull_inbox.pyx`. An iteration ends with an error only
if no more messages can arrive: the consumer is gone, or cannot be used in this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tradewind.api.base import encode
from tradewind.api.request_types import NextRequest
from tradewind.client.core.subscription import MessageHandler
from tradewind.client.errors import ConsumerGoneError, OptionsError
from tradewind.client.streams.api_requests import to_ns
from tradewind.client.streams.consumer_events import (
    ConsumerDeleted,
    NoResponders,
    Resumed,
    ServerNotice,
)
from tradewind.client.streams.delivered import DeliveredMessages, DeliverySource, StatusHandler
from tradewind.status_codes import (
    BAD_REQUEST,
    HEARTBEAT,
    NO_RESPONDERS,
    NOT_FOUND,
    REQUEST_TIMEOUT,
    WRONG_PIN,
)

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg

# The defaults of a request.
EXPIRES = 30.0
MESSAGES_MAX = 500
EXPIRED = (NOT_FOUND, REQUEST_TIMEOUT)
# The server ends a request by itself; this much later the client does, in case it does not.
EXPIRES_GRACE = 2.0
# Between attempts after a refusal.
RETRY_WAIT = 0.25
RETRY_WAIT_MAX = 5.0
# Without a limit on messages a request for bytes asks for this many.
BATCH_MAX = 1_000_000
# Reasons of a 409 after which the same request can only fail again.
_FINAL = ("consumer is push based", "exceeded maxrequest", "consumer deleted")


@dataclass(frozen=True, slots=True)
class PullOptions:
    """The settings of each pull request of a consumption. Times are in seconds."""

    expires: float
    idle_heartbeat: float
    max_bytes: int = 0
    no_wait: bool = False
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0


class PulledMessages(DeliveredMessages):
    """Base of the messages of `fetch` and `consume`."""

    def __init__(
        self,
        source: DeliverySource,
        options: PullOptions,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
    ) -> None:
        inbox = source.api.connection.new_inbox()
        super().__init__(source, inbox, callback=callback, on_status=on_status)
        self._pull_subject = source.subject
        self._options = options
        self._pin_id = ""  # by which the server knows the reader that a group is pinned to
        if options.group:
            self._inbox.observe()

    # ------------------------------------------------------------------ requests

    def _pull(self, count: int, size: int) -> None:
        """Ask for messages; `size` is 0 if bytes are not limited."""
        options = self._options
        # With a time limit the server would wait for a first message.
        expires_ns = 0 if options.no_wait else to_ns(self._expires())
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
            id=self._pin_id,
        )
        self._inbox.requested(count, size)
        self._connection.publish(self._pull_subject, encode(request), reply=self.subject)

    def _expires(self) -> float:
        return self._options.expires

    def _try_pull(self) -> None:
        """Ask again for what is missing, if that makes sense right now."""
        raise AssertionError("a kind of messages knows how it asks again")

    def _retry_later(self, seconds: float) -> None:
        if not self._finished.is_set():
            self._set_timer("retry", seconds, self._try_pull)

    def _on_message(self, message: Msg) -> None:
        self._pin_id = message.headers.get("Nats-Pin-Id", self._pin_id)

    # ------------------------------------------------------------------ statuses

    def _on_status(self, message: Msg) -> None:
        code = message.status
        if code == HEARTBEAT or self._finished.is_set():
            return
        headers = message.headers
        left = headers.get("Nats-Pending-Messages", "")
        size = headers.get("Nats-Pending-Bytes", "")
        if left.isdecimal() and size.isdecimal():
            self._inbox.returned(int(left), int(size))
        else:
            self._inbox.returned(self._inbox.wanted_messages, self._inbox.wanted_bytes)
        description = message.description
        if code in EXPIRED:
            self._on_expired()
        elif code == NO_RESPONDERS:
            self._tell(NoResponders())
            self._start(self._find_out())
        elif code == WRONG_PIN:
            self._pin_id = ""
            self._try_pull()
        elif code == BAD_REQUEST or description.lower().startswith(_FINAL):
            self._on_gone(description)
        else:
            self._on_ended_request(code, description)

    def _on_expired(self) -> None:
        """A request has come to its end in the normal way."""
        self._try_pull()

    def _on_gone(self, description: str) -> None:
        """No further request can succeed."""
        source = self._source
        self._tell(ConsumerDeleted(description))
        self._fail(
            ConsumerGoneError(
                f"consumer {source.name!r} of stream {source.stream!r}: {description}"
            )
        )

    def _on_ended_request(self, code: int, description: str) -> None:
        """Called when the server ended a request before its time."""
        self._tell(ServerNotice(code, description))
        self._retry_later(RETRY_WAIT)

    async def _find_out(self) -> None:
        """Called when requests have no responder: is the consumer gone, or only its server?"""
        is_there = await self._look_for_consumer()
        if not self.is_ended:
            self._retry_later(RETRY_WAIT if is_there else RETRY_WAIT_MAX)

    # ------------------------------------------------------------------ life

    def _on_link(self) -> None:
        """Called when the connection was lost, or is back."""
        if self._connection.is_connected and not self.is_ended:
            self._inbox.returned(self._inbox.wanted_messages, self._inbox.wanted_bytes)
            self._tell(Resumed())
            self._try_pull()


class FetchedMessages(PulledMessages):
    """The messages of one `fetch`: at most as many as it asked for, in at most the time given."""

    def __init__(self, source: DeliverySource, options: PullOptions, count: int) -> None:
        super().__init__(source, options)
        self._count_left = count
        self._deadline = self._loop.time() + options.expires
        self._inbox.set_batch()
        self._set_timer("guard", options.expires + EXPIRES_GRACE, self._finish)
        self._try_pull()

    def _expires(self) -> float:
        return max(self._deadline - self._loop.time(), 0.001)

    def _try_pull(self) -> None:
        self._cancel_timer("retry")
        if self.is_ended or not self._connection.is_connected:
            return
        left = self._count_left - self._inbox.received_messages
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
            if self._inbox.received_messages:
                self._finish()
            else:
                self._fail(too_large(self._options.max_bytes))
        else:
            super()._on_ended_request(code, description)


class ConsumerMessages(PulledMessages):
    """The messages of `consume`: an async iterator that asks for more before it runs dry.

    >>> async with consumer.consume() as messages:
    ...     async for message in messages:
    ...         message.ack()

    The messages continue after reconnects and restarts of the server, and end with `stop`, `drain`,
    the end of the connection, or an error if the consumer is deleted.
    """

    def __init__(
        self,
        source: DeliverySource,
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
        self._too_large_at = -1
        self._begin()

    def _begin(self) -> None:
        self._inbox.set_refill(min(self._threshold[0], self._messages_max - 1), self._threshold[1])
        self._try_pull()
        self._start_beat(self._options.idle_heartbeat)

    def _try_pull(self) -> None:
        self._cancel_timer("retry")
        if self._connection.is_connected and self._inbox.wants_more():
            self._refill()

    def _refill(self) -> None:
        if not self._connection.is_connected or "retry" in self._timers:
            return
        count = self._messages_max - self._inbox.wanted_messages - self.pending_messages
        size = self._options.max_bytes
        if size:
            size = max(size - self._inbox.wanted_bytes - self.pending_bytes, 1)
        self._pull(max(count, 1), size)

    def _is_idle(self) -> bool:
        return not self._inbox.wanted_messages or "retry" in self._timers

    def _on_heartbeats_missed(self) -> None:
        """The requests are lost; others take their place."""
        self._inbox.returned(self._inbox.wanted_messages, self._inbox.wanted_bytes)
        self._try_pull()

    def _on_ended_request(self, code: int, description: str) -> None:
        reason = description.lower()
        if reason == "batch completed":
            self._try_pull()
        elif not reason.startswith("message size exceeds"):
            super()._on_ended_request(code, description)
        elif self.pending_messages:
            pass  # there is room for it when these are read
        elif self._too_large_at == self._inbox.received_messages:
            self._fail(too_large(self._options.max_bytes))
        else:
            self._too_large_at = self._inbox.received_messages
            self._try_pull()


def too_large(max_bytes: int) -> ConsumerGoneError:
    """The error if the next message can never be delivered."""
    return ConsumerGoneError(f"the next message is larger than max_bytes ({max_bytes}): raise it")


def check_positive(**values: float) -> None:
    """An error that names the first argument that is not above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise OptionsError(f"{name} must be a number above 0, not {value!r}")
