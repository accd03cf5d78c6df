"""Who is on the other end: what a connection presents, and what the gate answers.

Owns the types between the broker, which asks, and the gate (`server.auth`), which decides. Every
listener kind presents `Credentials` to the same gate: there is no second way in. Nothing here
checks anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tradewind.route.rules import PermissionRules


@dataclass(slots=True)
class Credentials:
    """All that a connection has shown of itself when it sent CONNECT (or, without CONNECT, its
    first operation).
    """

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    signature: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    nonce: bytes = field(default=b"", repr=False)
    connection_type: str = "STANDARD"  # or WEBSOCKET, IN_PROCESS
    certificate: bytes | None = field(
        default=None, repr=False
    )  # peer's leaf certificate, DER, verified


@dataclass(frozen=True, slots=True)
class Identity:
    """An accepted connection: its account, the name that monitoring shows, and what it may do."""

    account: str
    user: str = ""
    permissions: PermissionRules | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Refused. `reason` is for the server's log; the peer only ever learns "Authorization
    Violation".
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """The answer costs too much for the event loop (bcrypt): run `decide` in a worker thread.

    `user` is the configured name whose password it is; None: there is no such name, and the answer
    will be no. `identity` is what a connection is that has matched `secret` before: it need not be
    checked again while the secret is the same.
    """

    decide: Callable[[], Identity | Rejection]
    user: str | None = None
    identity: Identity | None = None
    secret: object = field(default=None, repr=False)


class Gate(Protocol):
    """The single authorise gate; replaced as a whole when the configuration is reloaded."""

    @property
    def auth_required(self) -> bool:
        """Whether INFO says `auth_required` (false when `no_auth_user` lets anyone in)."""

    @property
    def nonce_required(self) -> bool:
        """Whether INFO carries a nonce to sign."""

    def check(self, credentials: Credentials) -> Identity | Rejection | Deferred:
        """Decide who this is. Never raises, never blocks."""
