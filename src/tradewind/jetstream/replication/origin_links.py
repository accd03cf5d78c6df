"""Links to an origin: a stream of this account, or of another server.

Owns the interface of a link and the choice of the link for a source. A link carries API requests
and the messages that consumers deliver; it never knows about streams. `LocalLink` leads into the
same account, `RoutedLink` through it to a server behind a leaf connection or to another account,
as far as that exports its API. Links to other servers use connections that the engine never
creates: its owner supplies them (`Remotes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from tradewind.api.endpoint_row import PREFIX
from tradewind.api.source_rules import is_local

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamSource
    from tradewind.broker.accounts import InternalMessage
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.jetstream.replication.inbox import Inbox

# Called with the header block, the body, and what went wrong; the last is empty if nothing did.
Answered = Callable[[bytes, bytes, str], None]

FLOW_PREFIX: Final = "$JS.FC."
# The reply that `answered` gets for a request without a receiver.
UNHEARD: Final = "no response from there"


class OriginLink(Protocol):
    """A way to the API of an account, here or elsewhere. Callbacks run in the loop of the engine,
    at the present time, and a turn follows.
    """

    @property
    def name(self) -> str:
        """The name of the server at the other end, for messages; empty for this server."""

    @property
    def server_id(self) -> str:
        """The id of the server at the other end; empty if it is not known."""

    @property
    def problem(self) -> str:
        """The reason why no request can be sent now; empty if one can."""

    @property
    def on_arrival(self) -> Callable[[], None] | None:
        """The function that an inbox calls before it wakes its owner."""

    def ask(self, request: str, header: bytes, body: bytes, answered: Answered) -> None:
        """Send a request of the API (`STREAM.INFO.X`); `answered` is called once, or never."""

    def publish(self, subject: str, header: bytes) -> None:
        """Send a message without a body."""

    def listen(self, subject: str, inbox: Inbox) -> Callable[[], None]:
        """Put all messages of a subject into the inbox; returns a function that stops it."""

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever `problem` changes; returns a function that stops it."""


class Remotes(Protocol):
    """The links that a configuration names."""

    def find(self, account: str, prefix: str) -> OriginLink | None:
        """The link by which streams of an account reach the API with this prefix."""

    def prefixes(self, account: str) -> list[str]:
        """The prefixes that `find` knows."""


class NoRemotes:
    """The links of a server that knows no other server."""

    def find(self, account: str, prefix: str) -> OriginLink | None:  # noqa: ARG002
        """Find nothing."""
        return None

    def prefixes(self, account: str) -> list[str]:  # noqa: ARG002
        """No prefixes."""
        return []


class LocalLink:
    """A link into the same account, for consumers that a user has created there."""

    name = ""
    server_id = ""
    problem = ""
    on_arrival = None

    def __init__(
        self, engine: JetStreamEngine, tenant: JetStreamAccount, prefix: str = PREFIX
    ) -> None:
        self._names = engine.names
        self._account = tenant.account
        self._prefix = prefix
        self._token: int | None = None  # of the reply to the latest request

    def ask(self, request: str, header: bytes, body: bytes, answered: Answered) -> None:
        """Send a request as a client would. An earlier request is no longer answered."""
        account = self._account

        def take(message: InternalMessage) -> None:
            account.unsubscribe(token)
            answered(message.header, message.payload, "")

        self.give_up()
        reply = f"$JSC.R.{self._names.event_id()}"
        token = self._token = account.subscribe(reply, take)
        if not account.ask(self._prefix + request, body, reply, header):
            account.unsubscribe(token)
            self.unheard(request)
            answered(b"", b"", UNHEARD)

    def give_up(self) -> None:
        """Stop waiting for an answer."""
        if self._token is not None:
            self._account.unsubscribe(self._token)
            self._token = None

    def unheard(self, request: str) -> None:
        """Called when a request has reached no server."""

    def publish(self, subject: str, header: bytes) -> None:
        """Send a message without a body. The origin has chosen the subject: only an answer of flow
        control is taken by a consumer here.
        """
        send = self._account.ask if subject.startswith(FLOW_PREFIX) else self._account.publish
        send(subject, b"", header=header)

    def listen(self, subject: str, inbox: Inbox) -> Callable[[], None]:
        """Attach the inbox to the subject by a hook."""
        token = inbox.listen(self._account, subject.encode("utf-8", "surrogateescape"))
        return lambda: self._account.unsubscribe(token)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Do nothing: this link never changes."""
        return self.give_up


class RoutedLink(LocalLink):
    """A link to the server or account that answers requests with this prefix: the server behind a
    leaf connection, or an account that this one imports them from.
    """

    def __init__(self, engine: JetStreamEngine, tenant: JetStreamAccount, api: str) -> None:
        super().__init__(engine, tenant, f"{api}.")
        self.name = api
        self._changed: Callable[[], None] | None = None
        self._cancel: Callable[[], None] | None = None

    def unheard(self, request: str) -> None:
        """Called when the other end is not connected or not imported: continue as soon as it is."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        subject = self._prefix + request
        if self._changed is not None and not self._account.has_interest(subject):
            self._cancel = self._account.watch_interest(subject, self._returned)

    def _returned(self) -> None:
        self._cancel = None
        if self._changed is not None:
            self._changed()

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` when the server is reachable again."""
        self._changed = changed
        return self._unwatch

    def _unwatch(self) -> None:
        self._changed = None
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self.give_up()


def is_in_process(engine: JetStreamEngine, source: StreamSource) -> bool:
    """Whether a source is copied directly from store to store."""
    return source.consumer is None and is_local(source, engine.domain)


def link_to(engine: JetStreamEngine, tenant: JetStreamAccount, source: StreamSource) -> OriginLink:
    """The link to the origin of a source."""
    if is_local(source, engine.domain):
        return LocalLink(engine, tenant)
    assert source.external is not None
    remote = engine.remotes.find(tenant.name, source.external.api)
    return remote or RoutedLink(engine, tenant, source.external.api)
