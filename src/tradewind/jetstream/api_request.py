"""An API request on its way through the engine: the arguments of a handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.endpoint_row import EndpointCall
from tradewind.api.errors import ErrorKind
from tradewind.api.event_types import EventClient
from tradewind.jetstream.clients import client_info

if TYPE_CHECKING:
    from tradewind.broker.session import Session
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.errors import StoreError
    from tradewind.jetstream.deeds import Requester
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount


class ApiRequest(msgspec.Struct, frozen=True):
    """A request: `call` is parsed from its subject, `content` is the decoded body."""

    engine: JetStreamEngine
    tenant: JetStreamAccount
    call: EndpointCall
    content: Any
    body: bytes
    reply: str
    requester: Requester
    header: bytes = b""

    @property
    def session(self) -> Session | None:
        """The connection that sent the request; None if no connection did."""
        return self.requester.session

    @property
    def client(self) -> EventClient:
        """The sender of the request, as events describe it."""
        name = self.engine.broker.server_name
        return client_info(name, self.tenant.account, self.session, self.header)

    def hosted(self) -> HostedStream:
        """The stream that the subject names; ApiError if there is none."""
        return self.tenant.stream(self.call.stream)


class DurableAnswer(msgspec.Struct, frozen=True):
    """An answer that is sent when all changes of a stream up to now, or those of one of its
    consumers, are durable.

    With `others`, also the changes of these streams; without any stream, it is sent at once. Later
    requests do not wait for it. `failed` makes the error if the disk fails; `then` is called
    after the answer was sent without an error.
    """

    hosted: HostedStream | None
    response: ApiStruct
    failed: ErrorKind
    then: Callable[[], None] | None = None
    consumer: ServerConsumer | None = None
    header: bytes = b""
    others: tuple[HostedStream, ...] = ()

    def when_durable(self, done: Callable[[StoreError | None], None]) -> None:
        """Call `done` when the changes are durable, or with the error if they cannot be."""
        if self.hosted is None:
            done(None)
        elif self.others:
            waiting = _AllDurable(done, 1 + len(self.others))
            for hosted in (self.hosted, *self.others):
                hosted.commits.when_durable(waiting.one)
        elif self.consumer is None:
            self.hosted.commits.when_durable(done)
        else:
            self.hosted.state_waiters.when_kept(self.consumer, done)


class _AllDurable:
    """Calls `done` after `left` streams are durable, with the first error if there is one."""

    def __init__(self, done: Callable[[StoreError | None], None], left: int) -> None:
        self._done = done
        self._left = left
        self._error: StoreError | None = None

    def one(self, error: StoreError | None) -> None:
        """Called when one of the streams is durable, or cannot be."""
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._done(self._error)


class HeadedAnswer(msgspec.Struct, frozen=True):
    """An answer with a header block."""

    response: ApiStruct
    header: bytes


# None: there is no answer.
Answer: TypeAlias = ApiStruct | DurableAnswer | HeadedAnswer | None
