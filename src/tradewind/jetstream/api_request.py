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
    """`call` is what the subject says, `content` the decoded body, `body` the bytes of it."""

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
        """The connection that sent it, None: none did."""
        return self.requester.session

    @property
    def client(self) -> EventClient:
        """Who sent it, for events."""
        name = self.engine.broker.server_name
        return client_info(name, self.tenant.account, self.session, self.header)

    def hosted(self) -> HostedStream:
        """The stream that the subject names; ApiError if there is none."""
        return self.tenant.stream(self.call.stream)


class Durable(msgspec.Struct, frozen=True):
    """An answer that leaves when all changes of a stream up to now are durable, or those of one of
    its consumers.

    Requests that follow do not wait for it. `failed` is the error if the disk fails, `then` is
    called when it has left and was none.
    """

    hosted: HostedStream
    response: ApiStruct
    failed: ErrorKind
    then: Callable[[], None] | None = None
    consumer: ServerConsumer | None = None
    header: bytes = b""

    def when_durable(self, done: Callable[[StoreError | None], None]) -> None:
        """Call `done` then, or with the error if it will not be."""
        if self.consumer is None:
            self.hosted.commits.when_durable(done)
        else:
            self.hosted.state_waiters.when_kept(self.consumer, done)


class Headed(msgspec.Struct, frozen=True):
    """An answer with a header block."""

    response: ApiStruct
    header: bytes


# None: nobody answers.
Answer: TypeAlias = ApiStruct | Durable | Headed | None
