"""Shared flags of `tradewind auth`, and the claims that they change.

Owns the translation from flags to fields. A flag that is not given changes nothing, so `edit` has
the same flags as `add`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Final

from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Option
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size
from tradewind.durations import SECOND_NS
from tradewind.jwt.claims import (
    AccountClaimLimits,
    Claims,
    SubjectClaims,
    UserRestrictions,
)

FolderFlag = Annotated[
    str, Option("--folder", metavar="DIR", help="Folder with keys and JWTs ($TRADEWIND_AUTH)")
]
OperatorFlag = Annotated[
    str, Option("--operator", metavar="NAME", help="Operator; optional if there is only one")
]
AccountFlag = Annotated[
    str, Option("--account", "-a", metavar="NAME", help="Account; optional if there is only one")
]
UNLIMITED: Final = "unlimited"


@dataclass
class LimitFlags:
    """Limits of an account."""

    connections: Annotated[str, Option("--connections", help="Maximum number of connections")] = ""
    subscriptions: Annotated[
        str, Option("--subscriptions", help="Maximum subscriptions per connection")
    ] = ""
    payload: Annotated[str, Option("--payload", help="Maximum message size")] = ""
    memory: Annotated[str, Option("--js-memory", help="JetStream: memory limit")] = ""
    disk: Annotated[str, Option("--js-disk", help="JetStream: storage limit")] = ""
    streams: Annotated[str, Option("--js-streams", help="JetStream: maximum number of streams")] = (
        ""
    )
    consumers: Annotated[
        str, Option("--js-consumers", help="JetStream: maximum number of consumers")
    ] = ""
    bearer: Annotated[bool | None, Option("--bearer/--no-bearer", help="Allow bearer tokens")] = (
        None
    )

    def apply(self, limits: AccountClaimLimits) -> None:
        """Change what was given."""
        if self.connections:
            limits.conn = count(self.connections, "--connections")
        if self.subscriptions:
            limits.subs = count(self.subscriptions, "--subscriptions")
        if self.payload:
            limits.payload = size(self.payload, "--payload")
        if self.memory:
            limits.mem_storage = size(self.memory, "--js-memory")
        if self.disk:
            limits.disk_storage = size(self.disk, "--js-disk")
        if (self.memory or self.disk) and not limits.streams:
            limits.streams = limits.consumer = -1
        if self.streams:
            limits.streams = count(self.streams, "--js-streams")
        if self.consumers:
            limits.consumer = count(self.consumers, "--js-consumers")
        if self.bearer is not None:
            limits.disallow_bearer = not self.bearer


@dataclass
class UserFlags:
    """The permissions and limits of a user, or of all users of a role."""

    pub_allow: Annotated[
        list[str] | None, Option("--allow-pub", help="Allow publishing to this subject")
    ] = None
    pub_deny: Annotated[
        list[str] | None, Option("--deny-pub", help="Deny publishing to this subject")
    ] = None
    sub_allow: Annotated[
        list[str] | None, Option("--allow-sub", help="Allow subscribing to this subject")
    ] = None
    sub_deny: Annotated[
        list[str] | None, Option("--deny-sub", help="Deny subscribing to this subject")
    ] = None
    subscriptions: Annotated[
        str, Option("--subscriptions", help="Maximum number of subscriptions")
    ] = ""
    payload: Annotated[str, Option("--payload", help="Maximum message size")] = ""
    source: Annotated[
        list[str] | None,
        Option("--source", metavar="CIDR", help="Allow connections from this network only"),
    ] = None
    connection: Annotated[
        list[str] | None, Option("--connection", help="Connection type: STANDARD, WEBSOCKET, ...")
    ] = None
    bearer: Annotated[
        bool | None, Option("--bearer/--no-bearer", help="Bearer token: log in without a signature")
    ] = None

    def is_given(self) -> bool:
        """Whether any of them was."""
        return any(value not in (None, "") for value in vars(self).values())

    def apply(self, fields: UserRestrictions) -> None:
        """Change what was given; an empty text as the only entry of a list removes it."""
        fields.pub = _rules(fields.pub, self.pub_allow, self.pub_deny)
        fields.sub = _rules(fields.sub, self.sub_allow, self.sub_deny)
        if self.subscriptions:
            fields.subs = count(self.subscriptions, "--subscriptions")
        if self.payload:
            fields.payload = size(self.payload, "--payload")
        if self.source is not None:
            fields.src = _listed(self.source)
        if self.connection is not None:
            fields.allowed_connection_types = _listed([name.upper() for name in self.connection])
        if self.bearer is not None:
            fields.bearer_token = self.bearer


def _rules(rules: SubjectClaims, allow: list[str] | None, deny: list[str] | None) -> SubjectClaims:
    return SubjectClaims(
        allow=rules.allow if allow is None else _listed(allow),
        deny=rules.deny if deny is None else _listed(deny),
    )


def _listed(values: list[str]) -> list[str] | None:
    return [value for value in values if value] or None


def count(text: str, flag: str) -> int:
    """A number, or -1 for no limit."""
    if text in (UNLIMITED, "-1"):
        return -1
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise CommandError(f"{flag}: a number, or {UNLIMITED}, not {text!r}")
    return int(text)


def size(text: str, flag: str) -> int:
    """A size such as 10MB, or -1 for no limit."""
    return -1 if text in (UNLIMITED, "-1") else parse_size(text, flag)


def expire(claims: Claims, text: str) -> None:
    """Have claims expire after a duration; `never` takes that back."""
    if text == "never":
        claims.exp = 0
    elif text:
        duration_ns = parse_duration_ns(text, "--expires")
        if duration_ns < SECOND_NS:
            raise CommandError(f"--expires: a second or more, or never, not {text!r}")
        claims.exp = int(time.time()) + duration_ns // SECOND_NS
