"""Types for authentication: the credentials of a connection, and the decision of the gate.

Owns the types between the broker and the gate (`server.auth`), which decides. Every kind of
listener presents `Credentials` to the same gate. It never checks anything.
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
    """All that a connection has shown of itself when it sent CONNECT (or, without CONNECT, its
    first operation).
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
    has_connected: bool = True  # false: nothing was sent yet

    def __repr__(self) -> str:
        """Without anything that is secret."""
        return (
            f"Credentials(user={self.user!r}, nkey={self.nkey!r},"
            f" connection_type={self.connection_type!r})"
        )


class UserLimits(msgspec.Struct, frozen=True):
    """What one connection may use, below the limits of the server; -1: no limit of its own."""

    subscriptions_max: int = -1
    payload_bytes_max: int = -1


class Identity(msgspec.Struct, frozen=True):
    """An accepted connection: its account, the name that monitoring shows, and what it may do.

    The rest is known of those who have entered by a JWT: until when it holds (wall clock, 0: for
    ever), and what it says.
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
    is_called_out: bool = False  # a service has decided


class ShownClaims(msgspec.Struct, frozen=True):
    """What monitoring shows of somebody who has entered by a key, a JWT or an auth callout."""

    issuer_key: str
    name: str = ""
    account_title: str = ""
    tags: tuple[str, ...] = ()


def shown_claims(identity: Identity | None) -> ShownClaims | None:
    """What is shown of an identity; nothing of one with a password or token."""
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
    """Refused. `reason` is for the server's log; the peer only ever learns "Authorization
    Violation".

    A connection that had entered and may not stay is told `live_error` instead (empty: nothing),
    and monitoring shows `live_reason`. Members of `told_account` are told the reason in an event.
    """

    reason: str
    live_error: str = ops.ERROR_AUTHORIZATION
    live_reason: str = ops.CLOSED_AUTHENTICATION_FAILURE
    told_account: str = ""


class PendingLogin(msgspec.Struct, frozen=True):
    """It depends on something that has to be fetched first.

    `start` begins that and later calls what it was given, in the event loop: then ask again. It
    gives false when nothing more can be fetched now.
    """

    start: Callable[[Callable[[], None]], bool]


class Consultation(msgspec.Struct, frozen=True):
    """A service decides, which is asked by a message (an auth callout).

    `start` asks it about a connection and later calls what it was given, once, in the event loop;
    it gives a function that takes the question back, or why it cannot be asked. When the time for
    an answer is over, `overdue` says so. Who was decided about need not be asked again while `key`
    is the same.
    """

    start: Callable[
        [Session, Callable[[Identity | Rejection], None]], Callable[[], None] | Rejection
    ]
    overdue: Rejection
    key: object = None

    def __repr__(self) -> str:
        """Without what the functions know."""
        return "Consultation()"


class Deferred(msgspec.Struct, frozen=True):
    """The answer costs too much for the event loop (bcrypt): run `decide` in a worker thread.

    `user` is the configured name whose password it is; None: there is no such name, and the answer
    will be no. `identity` is what a connection is that has matched `secret` before: it need not be
    checked again while the secret is the same.
    """

    decide: Callable[[], Identity | Rejection | Consultation]
    user: str | None = None
    identity: Identity | None = None
    secret: object = None

    def __repr__(self) -> str:
        """Without anything that is secret."""
        return f"Deferred(user={self.user!r}, identity={self.identity!r})"


Decision = Identity | Rejection | Deferred | PendingLogin | Consultation


class Gate(Protocol):
    """The single authorise gate; replaced as a whole when the configuration is reloaded."""

    @property
    def auth_required(self) -> bool:
        """Whether the first INFO says `auth_required`, not if `no_auth_user` lets anyone in."""

    @property
    def is_required(self) -> bool:
        """Whether anything is configured that a login is compared with."""

    @property
    def nonce_required(self) -> bool:
        """Whether INFO carries a nonce to sign."""

    def check(self, credentials: Credentials) -> Decision:
        """Decide who this is. Never raises, never blocks."""
