"""Checks across all options, after file and flags are merged: the conditions for a start.

Owns rules between settings. nats-server checks these only when it starts; here `-t` runs them too,
so that every file that passes `-t` also starts. It never changes a setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tradewind.durations import format_duration
from tradewind.errors import ConfigError
from tradewind.options import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, ServerOptions, UserOptions

# A host, possibly in brackets, and possibly a port up to 65535.
_ADVERTISED = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+)"
    r"(?::(?:6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]?\d{1,4}))?",
    re.ASCII,
)
_ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/]+\Z")


def check_options(options: ServerOptions) -> None:
    """Raise ConfigError if these options cannot start a server."""
    for problem in _problems(options):
        raise ConfigError(problem, options.config_file)


def _problems(options: ServerOptions) -> Iterator[str]:
    if options.max_payload_bytes > options.max_pending_bytes:
        yield (
            f"max_payload ({options.max_payload_bytes}) cannot be higher than "
            f"max_pending ({options.max_pending_bytes})"
        )
    if options.lame_duck_grace_ns >= options.lame_duck_duration_ns:
        yield (
            f"lame_duck_grace_period ({format_duration(options.lame_duck_grace_ns)}) must be below "
            f"lame_duck_duration ({format_duration(options.lame_duck_duration_ns)})"
        )
    if options.operator is not None or (options.websocket and options.websocket.jwt_cookie):
        # Loaded when it is needed: servers without an operator start sooner.
        from tradewind.server.operators.start_checks import operator_mode_problems

        yield from operator_mode_problems(options)
    yield from _access_problems(options)
    yield from _address_problems(options)
    yield from _websocket_problems(options)
    yield from _remote_problems(options)
    yield from _leaf_problems(options)


def _access_problems(options: ServerOptions) -> Iterator[str]:
    authorization = options.authorization
    users = _users(options)
    account_users = any(account.users for account in options.accounts.values())
    if account_users and (authorization.user or authorization.token):
        what = "token" if authorization.token else "single user"
        yield f"a {what} cannot be combined with users in accounts: put it into an account"
    if authorization.callout is not None:
        known = {options.system_account, GLOBAL_ACCOUNT, *options.accounts}
        for name in sorted(authorization.callout.allowed_accounts - known):
            yield f'auth_callout allowed account "{name}" not found in configured accounts'
    if options.no_auth_user:
        yield from _no_auth_user_problems("no_auth_user", options.no_auth_user, users)
    known = {SYSTEM_ACCOUNT, GLOBAL_ACCOUNT, "", *options.accounts}
    if options.operator is None and options.system_account not in known:
        yield f"system_account {options.system_account!r} is not defined under accounts"
    system_account = options.accounts.get(options.system_account)
    if system_account and system_account.jetstream:
        yield f"JetStream cannot be enabled on the system account {options.system_account!r}"


def _remote_problems(options: ServerOptions) -> Iterator[str]:
    domain = options.jetstream.domain
    others = [name for name in options.accounts if name != options.system_account]
    seen: dict[tuple[str, str], str] = {}
    for remote in options.jetstream.remotes:
        place = f"jetstream.remotes.{remote.name}"
        if remote.account not in (others or [GLOBAL_ACCOUNT]):
            yield (
                f"{place}: account {remote.account!r} is not defined under accounts; `account`"
                " names the one whose streams may use this remote"
            )
        if domain and remote.prefix == f"$JS.{domain}.API":
            yield f"{place}: prefix {remote.prefix!r} is the prefix of this server's own domain"
        other = seen.setdefault((remote.account, remote.prefix), remote.name)
        if other != remote.name:
            yield f"{place}: prefix {remote.prefix!r} is already used by remote {other!r}"


def _leaf_problems(options: ServerOptions) -> Iterator[str]:
    leafnodes = options.leafnodes
    if leafnodes is None or options.operator is not None:
        return
    known = {GLOBAL_ACCOUNT, options.system_account, *options.accounts}
    authorization = leafnodes.authorization
    accounts = [authorization.account, *(user.account for user in authorization.users)]
    for name in accounts:
        if name and name not in known:
            yield f"leafnodes.authorization: account {name!r} is not defined under accounts"
    for remote in leafnodes.remotes:
        if remote.account not in known:
            yield f"leafnodes.remotes: account {remote.account!r} is not defined under accounts"
    for name in options.default_js_domain:
        if name not in known:
            yield f"default_js_domain: account {name!r} is not defined under accounts"


def _no_auth_user_problems(key: str, name: str, users: list[UserOptions]) -> Iterator[str]:
    if not users:
        yield f"{key} {name!r} is set, but no users or nkeys are defined"
    elif not any(name in (user.user, user.nkey) for user in users):
        yield f"{key} {name!r} is not a user or nkey under authorization or accounts"


def _users(options: ServerOptions) -> list[UserOptions]:
    users = list(options.authorization.users)
    for account in options.accounts.values():
        users.extend(account.users)
    return users


def _address_problems(options: ServerOptions) -> Iterator[str]:
    if options.http_port and options.https_port:
        yield f"http_port ({options.http_port}) and https_port ({options.https_port}) are both set"
    if options.https_port and not options.tls:
        yield "https_port needs a tls block with a certificate"
    websocket, leafnodes = options.websocket, options.leafnodes
    known = {"known_servers": options.known_servers}
    if websocket is not None:
        known["websocket known_servers"] = websocket.known_servers
    for key, places in known.items():
        if places:
            from tradewind.server.config.known_servers import known_servers_problems

            yield from known_servers_problems(key, places)
    hosts = {"host": options.host, "http host": options.http_host}
    advertised = {"client_advertise": options.client_advertise}
    if websocket is not None:
        hosts["websocket host"] = websocket.host
        advertised["websocket advertise"] = websocket.advertise
    if leafnodes is not None:
        hosts["leafnodes host"] = leafnodes.host
        advertised["leafnodes advertise"] = leafnodes.advertise
    for key, host in hosts.items():
        if host.startswith("["):
            yield f"{key} {host!r} must be without brackets: {host.strip('[]')}"
    for key, place in advertised.items():
        if place and not _ADVERTISED.fullmatch(place):
            yield (
                f"{key} {place!r} must be a host or host:port, with an IPv6 address in brackets,"
                ' such as "[fd00::1]:4222"'
            )


def _websocket_problems(options: ServerOptions) -> Iterator[str]:
    websocket = options.websocket
    if websocket is None or not websocket.port:
        return
    if not websocket.no_tls and websocket.tls is None:
        yield "websocket needs a tls block with a certificate, or no_tls: true"
    if websocket.no_auth_user:
        yield from _no_auth_user_problems(
            "websocket no_auth_user", websocket.no_auth_user, _users(options)
        )
    for origin in websocket.allowed_origins:
        if not _ORIGIN.match(origin):
            yield f"websocket allowed origin {origin!r} is not a URL such as https://example.com"
