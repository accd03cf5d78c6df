"""Pulled messages: the one stream of `fetch`, `consume`, ordered consumers and runs.

Owns the pull requests, interpreting the server's statuses, and continuing after timeouts, refusals
and reconnects. The policies in `pull_policies.py` decide how much is requested; `pull_inbox.pyx`
counts and queues messages. An iteration ends with an error only if no more messages can arrive: the
consumer is gone, or cannot be used in this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tradewind.api.base import encode
from tradewind.api.consumer_types import ConsumerInfo
from tradewind.api.request_types import NextRequest
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.core.subscription import MessageHandler
from tradewind.client.errors import (
    ClientError,
    ConnectionClosedError,
    ConsumerGoneError,
    OptionsError,
)
from tradewind.client.streams.api_requests import to_ns
from tradewind.client.streams.consumer_events import (
    ConsumerDeleted,
    NoResponders,
    Recreated,
    Resumed,
    ServerNotice,
)
from tradewind.client.streams.delivered import DeliveredMessages, DeliverySource, StatusHandler
from tradewind.client.streams.pull_policies import PullPolicy, PullStep, RequestEnd
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
NewConsumer = Callable[[int], Awaitable[ConsumerInfo]]
# Reasons of a 409 after which the same request can only fail again.
_FINAL = ("consumer is push based", "exceeded maxrequest", "consumer deleted")


class PulledMessages(DeliveredMessages):
    """The one pull stream; its policy says how much to request, and what follows a request.

    With `new_consumer`, which creates a consumer that starts after a stream sequence, the messages
    have to be in order: the stream continues with a new consumer whenever some may be missing, and
    deletes the last one.
    """

    def __init__(
        self,
        source: DeliverySource,
        policy: PullPolicy,
        callback: MessageHandler | None = None,
        on_status: StatusHandler | None = None,
        new_consumer: NewConsumer | None = None,
    ) -> None:
        inbox = source.api.connection.new_inbox()
        is_ordered = new_consumer is not None
        super().__init__(
            source, inbox, callback=callback, on_status=on_status, is_temporary=is_ordered
        )
        self._policy = policy
        self._new_consumer = new_consumer
        self._replacing: asyncio.Future[None] | None = None  # makes the next consumer
        self._pull_subject = source.subject
        self._pin_id = ""  # by which the server knows the reader that a group is pinned to
        options = policy.options
        if options.group:
            self._inbox.observe()
        if is_ordered:
            self._inbox.expect_from_start()
        policy.begin(self._inbox)
        if policy.is_finite:
            self._set_timer("guard", options.expires + EXPIRES_GRACE, self._finish)
        self._refill()
        if options.idle_heartbeat:
            self._start_beat(options.idle_heartbeat)

    # ------------------------------------------------------------------ requests

    def _refill(self) -> None:
        """Request what the policy wants, unless a retry or a new consumer will."""
        if self._finished.is_set() or not self._connection.is_connected:
            return
        if self._replacing is not None or "retry" in self._timers:
            return
        if (wanted := self._policy.wanted(self._inbox)) is not None:
            self._pull(*wanted)
        elif self._policy.is_finite:
            self._finish()

    def _pull(self, count: int, size: int) -> None:
        """Ask for messages; `size` is 0 if bytes are not limited."""
        options = self._policy.options
        # With a time limit the server would wait for a first message.
        expires_ns = 0 if options.no_wait else to_ns(self._policy.expires())
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

    def _try_pull(self) -> None:
        """Ask again for what is missing, without waiting for a retry."""
        self._cancel_timer("retry")
        self._refill()

    def _forget_requests(self) -> None:
        """Called when the server will not answer the requests that are open."""
        self._inbox.returned(self._inbox.wanted_messages, self._inbox.wanted_bytes)

    def _retry_later(self, seconds: float) -> None:
        if not self._finished.is_set():
            self._set_timer("retry", seconds, self._try_pull)

    def _on_message(self, message: Msg) -> None:
        self._pin_id = message.headers.get("Nats-Pin-Id", self._pin_id)

    def _on_served(self) -> None:
        self._finish()

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
            self._forget_requests()
        description = message.description
        reason = description.lower()
        if code in EXPIRED:
            self._go_on(RequestEnd.EXPIRED)
        elif code == NO_RESPONDERS:
            self._tell(NoResponders())
            self._start(self._find_out())
        elif code == WRONG_PIN:
            self._pin_id = ""
            self._try_pull()
        elif code == BAD_REQUEST or reason.startswith(_FINAL):
            self._on_gone(description)
        elif reason == "batch completed":
            self._go_on(RequestEnd.COMPLETED)
        elif reason.startswith("message size exceeds"):
            self._go_on(RequestEnd.TOO_LARGE)
        else:
            self._tell(ServerNotice(code, description))
            self._retry_later(RETRY_WAIT)

    def _go_on(self, end: RequestEnd) -> None:
        """Called when a request has come to its end in a normal way."""
        match self._policy.after(end, self._inbox):
            case PullStep.PULL:
                self._try_pull()
            case PullStep.FINISH:
                self._finish()
            case PullStep.FAIL:
                size = self._policy.options.max_bytes
                self._fail(
                    ConsumerGoneError(
                        f"the next message is larger than max_bytes ({size}): raise it"
                    )
                )

    def _on_gone(self, description: str) -> None:
        """Called when no further request to this consumer can succeed."""
        source = self._source
        self._tell(ConsumerDeleted(description))
        if not self._replace(description):
            self._fail(
                ConsumerGoneError(
                    f"consumer {source.name!r} of stream {source.stream!r}: {description}"
                )
            )

    async def _find_out(self) -> None:
        """Called when requests have no responder: is the consumer gone, or only its server?"""
        if self._replace("no server accepts its requests"):
            return
        is_there = await self._look_for_consumer()
        if not self.is_ended:
            self._retry_later(RETRY_WAIT if is_there else RETRY_WAIT_MAX)

    # ------------------------------------------------------------------ interruptions

    def _is_idle(self) -> bool:
        return not self._inbox.wanted_messages or "retry" in self._timers

    def _on_heartbeats_missed(self) -> None:
        """The requests are lost; others take their place."""
        if not self._replace("heartbeats were missed"):
            self._forget_requests()
            self._try_pull()

    def _on_gap(self) -> None:
        self._replace("a message was missing")

    def _on_link(self) -> None:
        """Called when the connection was lost, or is back."""
        if not self._connection.is_connected or self.is_ended:
            return
        if self._replacing is not None:  # its request may be lost
            self._replacing.cancel()
            self._replacing = None
        if not self._replace("the connection was lost"):
            self._forget_requests()
            self._tell(Resumed())
            self._try_pull()

    def _replace(self, reason: str) -> bool:
        """Go on with a new consumer after the last message in order; False if there is none."""
        if self._new_consumer is None:
            return False
        if self._replacing is None and not self._finished.is_set():
            self._forget_requests()
            self._replacing = self._start(self._make_consumer(self._new_consumer, reason))
        return True

    async def _make_consumer(self, new_consumer: NewConsumer, reason: str) -> None:
        connection = self._connection
        connection._unsubscribe(self._inbox)
        self._delete_consumer()  # whether it was still there does not matter
        wait = RETRY_WAIT
        while True:
            try:
                info = await new_consumer(self._inbox.last_sequence)
                break
            except JetStreamApiError as error:
                self._fail(error)
                return
            except ConnectionClosedError:
                return
            except ClientError:
                await asyncio.sleep(wait)
                wait = min(wait * 2, RETRY_WAIT_MAX)
        self._source = DeliverySource.of(self._source.api, info)
        self._pull_subject = self._source.subject
        self._inbox.move(connection.new_inbox())
        connection._subscribe(self._inbox)
        self._replacing = None
        self._tell(Recreated(reason, self._inbox.last_sequence))
        self._inbox.expect_from_start()
        self._try_pull()


class FetchedMessages(PulledMessages):
    """The messages of one `fetch`: at most as many as it asked for, in at most the time given."""


class ConsumerMessages(PulledMessages):
    """The messages of `consume`: an async iterator that asks for more before it runs dry.

    >>> async with consumer.consume() as messages:
    ...     async for message in messages:
    ...         message.ack()

    The messages continue after reconnects and restarts of the server, and end with `stop`, `drain`,
    the end of the connection, or an error if the consumer is deleted.
    """


def check_positive(**values: float) -> None:
    """An error that names the first argument that is not above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise OptionsError(f"{name} must be a number above 0, not {value!r}")
