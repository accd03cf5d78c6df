"""Types for authentication: the credentials of a connection, and the decision of the gate.

Owns the types between the broker and the gate (`server.auth`), which decides. Every kind of
listener presents `Credentials` to the same gate. It makes no checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from tradewind.route.permission_rules import PermissionRules
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.session import Session
    from tradewind.jwt.claims import UserClaims, UserScope


class Credentials(msgspec.Struct):
    """All credentials that a connection has presented when it sent CONNECT (or, without CONNECT,
    its first operation).
    """

    user: str = ""
    password: str = ""
    token: str = ""
    nkey: str = ""
    signature: str = ""
    jwt: str = ""
    nonce: bytes = b""
    connection_type: str = "STANDARD"  # or WEBSOCKET, IN_PROCESS
    certificate: bytes | None = None  # peer's leaf certificate, DER, verified
    address: str = ""  # of the peer
    proxy_key: str = ""  # of the trusted proxy that has signed its nonce
    has_connected: bool = True  # False: nothing was sent yet

    def __repr__(self) -> str:
        """A text without the secrets."""
        return (
            f"Credentials(user={self.user!r}, nkey={self.nkey!r},"
            f" connection_type={self.connection_type!r})"
        )


class UserLimits(msgspec.Struct, frozen=True):
    """The limits of one connection, below those of the server; -1: no limit of its own."""

    subscriptions_max: int = -1
    payload_bytes_max: int = -1


class Identity(msgspec.Struct, frozen=True):
    """An accepted connection: its account, the name that monitoring shows, and its permissions.

    The other fields are set for connections with a JWT: when it expires (wall clock, 0: never), and
    its claims.
    """

    account: str
    user: str = ""
    permissions: PermissionRules | None = None
    limits: UserLimits | None = None
    expires_ns: int = 0
    account_expires_ns: int = 0
    claims: UserClaims | None = None
    scope: UserScope | None = None
    account_title: str = ""
    is_called_out: bool = False  # accepted by an auth callout


class ShownClaims(msgspec.Struct, frozen=True):
    """The facts that monitoring shows about a client with an nkey, a JWT or an auth callout."""

    issuer_key: str
    name: str = ""
    account_title: str = ""
    tags: tuple[str, ...] = ()


def shown_claims(identity: Identity | None) -> ShownClaims | None:
    """The shown facts of an identity; None for one with a password or token."""
    if identity is None:
        return None
    if identity.claims is None:
        return ShownClaims(identity.account)
    return ShownClaims(
        identity.claims.iss,
        identity.claims.name,
        identity.account_title,
        tuple(identity.claims.nats.tags or ()),
    )


class Rejection(msgspec.Struct, frozen=True):
    """A refusal. `reason` is for the server's log; the peer only ever learns "Authorization
    Violation".

    A connection that was accepted before and may not stay receives `live_error` instead (empty:
    nothing), and monitoring shows `live_reason`; it shows `closed_reason` of one that was never
    accepted. Members of `told_account` receive the reason in an event.
    """

    reason: str
    live_error: str = ops.ERROR_AUTHORIZATION
    live_reason: str = ops.CLOSED_AUTHENTICATION_FAILURE
    told_account: str = ""
    closed_reason: str = ops.CLOSED_AUTHENTICATION_FAILURE


class PendingLogin(msgspec.Struct, frozen=True):
    """A login that depends on something to be fetched first.

    `start` begins fetching and later calls its argument, in the event loop: then ask the gate
    again. False means that nothing more can be fetched now.
    """

    start: Callable[[Callable[[], None]], bool]


class Consultation(msgspec.Struct, frozen=True):
    """A decision by a service, which is asked by a message (an auth callout).

    `start` sends the request about a connection and later calls its argument, once, in the event
    loop; it returns a function that cancels the request, or the reason why it cannot be sent. After
    the time for a response, `overdue` is the decision. A connection need not be decided again while
    `key` stays equal.
    """

    start: Callable[
        [Session, Callable[[Identity | Rejection], None]], Callable[[], None] | Rejection
    ]
    overdue: Rejection
    key: object = None

    def __repr__(self) -> str:
        """A text without the state of the functions."""
        return "Consultation()"


class DeferredCheck(msgspec.Struct, frozen=True):
    """A decision that costs too much for the event loop (bcrypt): run `decide` in a worker thread.

    `user` is the configured name with that password; None if there is no such name, and the login
    will be refused. `identity` is that of a connection that has matched `secret` before: the
    password need not be checked again while the secret stays the same.
    """

    decide: Callable[[], Identity | Rejection | Consultation]
    user: str | None = None
    identity: Identity | None = None
    secret: object = None

    def __repr__(self) -> str:
        """A text without the secrets."""
        return f"DeferredCheck(user={self.user!r}, identity={self.identity!r})"


Decision = Identity | Rejection | DeferredCheck | PendingLogin | Consultation


class Gate(Protocol):
    """The only gate that decides about logins; replaced as a whole by a reload."""

    @property
    def auth_required(self) -> bool:
        """Whether the first INFO says `auth_required`; False if `no_auth_user` admits all
        clients.
        """

    @property
    def is_required(self) -> bool:
        """Whether any credentials are configured."""

    @property
    def nonce_required(self) -> bool:
        """Whether INFO carries a nonce to sign."""

    def check(self, credentials: Credentials) -> Decision:
        """Decide who the client is. Never raises, never blocks."""
