"""All configured users: users and nkeys of `authorization {}` and of every account, by name.

Owns turning options into members and rejecting contradictory options, so that servers embedded
without a configuration file get the same checks. It never compares a credential.
"""

from __future__ import annotations

import msgspec

from tradewind import nkeys
from tradewind.broker.identity import Identity
from tradewind.errors import ConfigError
from tradewind.options import GLOBAL_ACCOUNT, Secret, ServerOptions, UserOptions
from tradewind.route.permission_rules import PermissionRules

CONNECTION_TYPES = frozenset(
    {"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}
)


class Member(msgspec.Struct, frozen=True):
    """One configured user. `key` is the raw public key of an nkey user and empty for all others."""

    identity: Identity
    password: Secret
    key: bytes
    connection_types: frozenset[str]
    proxy_required: bool

    def may_use(self, connection_type: str) -> bool:
        """Whether the user may connect with this kind of connection."""
        return not self.connection_types or connection_type in self.connection_types


class Members(msgspec.Struct, frozen=True):
    """All members, by user name and by public nkey; each name occurs once on a server."""

    users: dict[str, Member] = msgspec.field(default_factory=dict)
    nkeys: dict[str, Member] = msgspec.field(default_factory=dict)

    def add(
        self, user: UserOptions, account: str, default_permissions: PermissionRules | None
    ) -> None:
        """Add one user of `account`; ConfigError if the entry is wrong or the name is taken."""
        table = self.nkeys if user.nkey else self.users
        name = user.nkey or user.user
        if not name:
            raise ConfigError(f"a user of account {account!r} has neither a user name nor an nkey")
        # This precedes every message that repeats the name: it could be a seed, pasted by mistake.
        key = _public_key(user.nkey) if user.nkey else b""
        if user.nkey and (user.user or user.password):
            raise ConfigError(f"nkey user {name!r} takes no user name and no password: remove them")
        if name in table:
            raise ConfigError(f"user {name!r} is configured twice: names are unique on a server")
        table[name] = Member(
            identity=Identity(account, name, user.permissions or default_permissions),
            password=user.password,
            key=key,
            connection_types=_connection_types(name, user.connection_types),
            proxy_required=user.proxy_required,
        )


def collect_members(options: ServerOptions) -> Members:
    """Every configured user with its account and permissions."""
    members = Members()
    authorization = options.authorization
    for user in authorization.users:
        members.add(user, GLOBAL_ACCOUNT, authorization.default_permissions)
    for account in options.accounts.values():
        for user in account.users:
            members.add(user, account.name, account.default_permissions)
    return members


def _public_key(text: str) -> bytes:
    try:
        return nkeys.decode_public(text, nkeys.USER)[1]
    except nkeys.NkeyError as error:
        raise ConfigError(
            f"nkey {text[:4] + '...'!r} is not a valid public nkey of a user: {error}"
        ) from error


def _connection_types(name: str, configured: frozenset[str]) -> frozenset[str]:
    types = frozenset(kind.upper() for kind in configured)
    if unknown := sorted(types - CONNECTION_TYPES):
        raise ConfigError(
            f"user {name!r}: unknown connection type {unknown[0]!r}; "
            f"it is one of {', '.join(sorted(CONNECTION_TYPES))}"
        )
    return types
