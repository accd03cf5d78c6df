"""The `authorization` and `accounts` blocks.

Owns users, passwords, nkeys, account limits, and the rule that names are unique. It never checks a
login, which is up to `server.auth`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tradewind.errors import ConfigError
from tradewind.options import (
    GLOBAL_ACCOUNT,
    AccountOptions,
    AuthorizationOptions,
    CalloutOptions,
    TraceRule,
    UserOptions,
)
from tradewind.route.permission_rules import PermissionRules
from tradewind.server.config.mappings import MappingsReader
from tradewind.server.config.permission_config import PermissionsReader
from tradewind.server.config.reader import (
    Reader,
    expect,
    fault,
    ignored,
    integer_from,
    seconds,
    secret,
    size,
    text,
    texts,
    truth,
)
from tradewind.server.config.sharing_config import SharingReader
from tradewind.server.config.tree import ConfigNode
from tradewind.subjects import is_valid_literal

CONNECTION_TYPES = (
    "STANDARD",
    "WEBSOCKET",
    "LEAFNODE",
    "LEAFNODE_WS",
    "MQTT",
    "MQTT_WS",
    "IN_PROCESS",
)


class AccessReader:
    """Reads both blocks; users and nkeys are unique over the whole server."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._permissions = PermissionsReader(reader)
        self._mappings = MappingsReader(reader)
        self._sharing = SharingReader(reader)
        self._names: set[str] = set()

    def authorization(self, node: ConfigNode, key: str) -> AuthorizationOptions:
        """The options of the top-level `authorization` block."""
        users = ("users", self._users)
        default_permissions = ("default_permissions", self._permissions.read)
        fields = self._reader.fields(
            node,
            key,
            {
                **_LOGIN,
                "users": users,
                "default_permissions": default_permissions,
                "default_permission": default_permissions,
                "permissions": default_permissions,
                "auth_callout": ("callout", self._callout),
                "auth_hook": ("callout", self._callout),
                "proxy_required": ("proxy_required", truth),
            },
        )
        options = AuthorizationOptions(**fields, defined=True)
        if (options.user or options.password) and options.token:
            raise fault(node, f"{key} has both a user and a token: choose one")
        if "users" in fields and options.user:
            raise fault(node, f"{key} has both a single user and a users list: choose one")
        if "users" in fields and options.token:
            raise fault(node, f"{key} has both a token and a users list: choose one")
        if options.proxy_required and not (options.user or options.token):
            # nats-server ignores the key here, and is less safe than its configuration looks.
            raise fault(
                node,
                f"{key}: proxy_required is about the user or the token of this block; set it for"
                " each of users",
            )
        return replace(options, users=_with_default(options.users, options.default_permissions))

    def _callout(self, node: ConfigNode, key: str) -> CalloutOptions:
        """The service that decides about logins instead of this file."""
        users, xkey = ("users", texts), ("xkey", _curve_key)
        account = ("account", text)
        fields = self._reader.fields(
            node,
            key,
            {
                "issuer": ("issuer", _account_nkey),
                "account": account,
                "acc": account,
                "auth_users": users,
                "users": users,
                "xkey": xkey,
                "key": xkey,
                "allowed_accounts": ("allowed_accounts", _names),
            },
        )
        if "issuer" not in fields:
            raise fault(node, f"{key} needs an issuer: the public nkey of an account (A...)")
        if not fields.get("users"):
            raise fault(node, f"{key} needs auth_users: the users of the service itself")
        return CalloutOptions(**fields)

    def simple_authorization(self, node: ConfigNode, key: str) -> AuthorizationOptions:
        """The options of the smaller block of a websocket listener."""
        return AuthorizationOptions(**self._reader.fields(node, key, _LOGIN))

    def accounts(self, node: ConfigNode, key: str) -> dict[str, AccountOptions]:
        """The accounts of a block, or of a list of names."""
        accounts: dict[str, AccountOptions] = {}
        if isinstance(node.value, list):
            for item in node.value:
                name = text(item, "an account name")
                if name in accounts:
                    raise fault(item, f"account {name!r} is listed twice")
                accounts[name] = AccountOptions(_account_name(item, name))
            return accounts
        for name, child in expect(node, key, dict, "a block of accounts").items():
            if child.used:
                continue
            try:
                accounts[name] = self._account(child, _account_name(child, name))
            except ConfigError as error:
                self._reader.errors.append(error)
        if not self._reader.errors:
            self._sharing.check(accounts)
        return accounts

    def _account(self, node: ConfigNode, name: str) -> AccountOptions:
        trace = ("trace_rule", self._trace_rule)
        fields = self._reader.fields(
            node,
            f"account {name}",
            {
                "users": ("users", self._users),
                "default_permissions": ("default_permissions", self._permissions.read),
                "limits": ("limits", self._limits),
                "jetstream": ("jetstream", self._jetstream),
                "nkey": ("nkey", _account_nkey),
                "mappings": ("mappings", self._mappings.read),
                "maps": ("mappings", self._mappings.read),
                "exports": ("exports", self._sharing.exports),
                "imports": ("imports", self._sharing.imports),
                "msg_trace": trace,
                "trace_dest": trace,
            },
        )
        enabled, jetstream_limits = fields.pop("jetstream", (False, {}))
        options = AccountOptions(
            name,
            jetstream=enabled,
            jetstream_limits=jetstream_limits,
            **fields.pop("limits", {}),
            **fields,
        )
        return replace(options, users=_with_default(options.users, options.default_permissions))

    def _trace_rule(self, node: ConfigNode, key: str) -> TraceRule | None:
        """The rule of a subject alone, or of a block with `dest` and `sampling`."""
        if isinstance(node.value, str):
            return TraceRule(_trace_destination(node, key))
        fields = self._reader.fields(
            node,
            key,
            {
                "dest": ("destination", _trace_destination),
                "sampling": ("sampling", _trace_sampling),
            },
        )
        if "sampling" in fields and "destination" not in fields:
            raise fault(node, f"{key} has a sampling, but no dest: name a subject")
        return TraceRule(**fields) if "destination" in fields else None

    def _limits(self, node: ConfigNode, key: str) -> dict[str, Any]:
        number = integer_from(-1)
        connections = ("max_connections", number)
        subscriptions = ("max_subscriptions", number)
        payload = ("max_payload_bytes", number)
        leafnodes = ("max_leafnodes", number)
        return self._reader.fields(
            node,
            key,
            {
                "max_connections": connections,
                "max_conn": connections,
                "max_subscriptions": subscriptions,
                "max_subs": subscriptions,
                "max_payload": payload,
                "max_pay": payload,
                "max_leafnodes": leafnodes,
                "max_leafs": leafnodes,
            },
        )

    def _jetstream(self, node: ConfigNode, key: str) -> tuple[bool, dict[str, int]]:
        if not isinstance(node.value, dict):
            return enabled_or_disabled(node, key), {}
        table = {
            name: (field, size if field.endswith(_SIZES) else integer_from(-1))
            for field, names in _JETSTREAM_LIMITS.items()
            for name in names
        }
        required = ("max_bytes_required", truth)
        limits = self._reader.fields(
            node,
            key,
            {
                **table,
                "max_bytes_required": required,
                "max_stream_bytes": required,
                "max_bytes": required,
                "cluster_traffic": ("", ignored),
            },
        )
        return True, {field: int(value) for field, value in limits.items()}

    def _users(self, node: ConfigNode, key: str) -> tuple[UserOptions, ...]:
        users = []
        for item in expect(node, key, list, "a list of users: [ {user: ..., password: ...} ]"):
            try:
                users.append(self._user(item))
            except ConfigError as error:
                self._reader.errors.append(error)
        return tuple(users)

    def _user(self, node: ConfigNode) -> UserOptions:
        permissions = ("permissions", self._permissions.read)
        connection_types = ("connection_types", _connection_types)
        fields = self._reader.fields(
            node,
            "a user",
            {
                "user": ("user", text),
                "username": ("user", text),
                "pass": ("password", secret),
                "password": ("password", secret),
                "nkey": ("nkey", _user_nkey),
                "permission": permissions,
                "permissions": permissions,
                "authorization": permissions,
                "allowed_connection_types": connection_types,
                "connection_types": connection_types,
                "clients": connection_types,
                "proxy_required": ("proxy_required", truth),
            },
        )
        user = UserOptions(**fields)
        if user.nkey and (user.user or user.password):
            raise fault(node, "a user has either an nkey or a name and password, not both")
        name = user.nkey or user.user
        if not name:
            raise fault(node, "a user entry needs a user name or an nkey")
        if name in self._names:
            raise fault(node, f"user {name!r} is defined twice")
        self._names.add(name)
        return user


_LOGIN = {
    "user": ("user", text),
    "username": ("user", text),
    "pass": ("password", secret),
    "password": ("password", secret),
    "token": ("token", secret),
    "timeout": ("timeout_ns", seconds),
}
_SIZES = ("max_memory", "max_file", "stream_bytes")
_JETSTREAM_LIMITS = {
    "max_memory": ("max_memory", "max_mem", "mem", "memory"),
    "max_file": ("max_store", "max_file", "max_disk", "store", "disk"),
    "max_streams": ("max_streams", "streams"),
    "max_consumers": ("max_consumers", "consumers"),
    "max_template_streams": ("max_template_streams",),
    "max_ack_pending": ("max_ack_pending",),
    "memory_max_stream_bytes": ("memory_max_stream_bytes", "mem_max_stream_bytes"),
    "store_max_stream_bytes": ("store_max_stream_bytes", "disk_max_stream_bytes"),
}


def enabled_or_disabled(node: ConfigNode, key: str) -> bool:
    """The value of a boolean, or of one of the words `enabled` and `disabled`."""
    if isinstance(node.value, bool):
        return node.value
    word = node.value.lower() if isinstance(node.value, str) else ""
    if word in ("enabled", "enable"):
        return True
    if word in ("disabled", "disable"):
        return False
    raise fault(node, f"{key} must be a block, true, false, enabled or disabled")


def _with_default(
    users: tuple[UserOptions, ...], default: PermissionRules | None
) -> tuple[UserOptions, ...]:
    return tuple(
        replace(user, permissions=default) if user.permissions is None else user for user in users
    )


def _trace_destination(node: ConfigNode, key: str) -> str:
    subject = text(node, key)
    if not is_valid_literal(subject):
        raise fault(node, f'Trace destination "{subject}" is not valid: name a subject')
    return subject


def _trace_sampling(node: ConfigNode, key: str) -> int:
    value = node.value
    if isinstance(value, str) and value.removesuffix("%").isdecimal():
        value = int(value.removesuffix("%")[:9])
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100:
        raise fault(node, f"{key} must be a percentage from 1 to 100")
    return value


def _account_name(node: ConfigNode, name: str) -> str:
    if name == GLOBAL_ACCOUNT:
        raise fault(node, f"account {name!r} is reserved")
    return name


def _names(node: ConfigNode, key: str) -> frozenset[str]:
    return frozenset(texts(node, key))


def _curve_key(node: ConfigNode, key: str) -> str:
    return _nkey(node, key, "X", "a curve key")


def _user_nkey(node: ConfigNode, key: str) -> str:
    return _nkey(node, key, "U", "a user")


def _account_nkey(node: ConfigNode, key: str) -> str:
    return _nkey(node, key, "A", "an account")


def _nkey(node: ConfigNode, key: str, kind: str, what: str) -> str:
    # Imported here because it brings the signature library, which few configurations need.
    from tradewind.nkeys import is_public

    public_key = text(node, key)
    if not is_public(public_key, kind):
        raise fault(
            node, f"{key} must be the public nkey of {what}: 56 letters that begin with {kind}"
        )
    return public_key


def _connection_types(node: ConfigNode, key: str) -> frozenset[str]:
    types = frozenset(name.upper() for name in texts(node, key))
    unknown = sorted(types.difference(CONNECTION_TYPES))
    if unknown:
        raise fault(
            node,
            f"{key}: {', '.join(unknown)} unknown; valid values: {', '.join(CONNECTION_TYPES)}",
        )
    return types
