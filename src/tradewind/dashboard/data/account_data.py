"""Accounts: all of them for a login of the system account, otherwise its own; and the login itself.

Owns the requests and which parts of their responses are shown. In a cluster every server responds
with its own part, and the parts are added up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.errors import NoRespondersError, OperationTimeoutError
from tradewind.dashboard.data.load_and_usage import (
    ACCOUNT_LOAD,
    ask_all,
    number_of,
    part_of,
    text_of,
)

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

USER: Final = "$SYS.REQ.USER.INFO"
USAGE: Final = "$SYS.REQ.SERVER.PING.JSZ"
DETAIL: Final = "$SYS.REQ.ACCOUNT.{}.INFO"
ACCOUNTS_MAX: Final = 1000
SUBJECTS_SHOWN: Final = 100
# The limits in an account's token that are shown, with their labels.
LIMITS: Final = {
    "conn": "Connections",
    "leaf": "Leaf connections",
    "subs": "Subscriptions",
    "data": "Bytes",
    "payload": "Largest message",
    "imports": "Imports",
    "exports": "Exports",
    "mem_storage": "JetStream memory",
    "disk_storage": "JetStream disk",
    "streams": "Streams",
    "consumer": "Consumers",
}


class Row(msgspec.Struct, frozen=True):
    """One account. JetStream figures are None if no server reports them."""

    name: str
    connections: int = 0
    leafnodes: int = 0
    subscriptions: int = 0
    messages_in: int = 0
    messages_out: int = 0
    slow_consumers: int = 0
    memory: int | None = None
    storage: int | None = None


class AccountLogin(msgspec.Struct, frozen=True):
    """The dashboard's login at the server, and its permissions; empty lists: no rule."""

    user: str = ""
    account: str = ""
    publish_allow: tuple[str, ...] = ()
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] = ()
    subscribe_deny: tuple[str, ...] = ()


class Accounts(msgspec.Struct, frozen=True):
    """The visible accounts, sorted by name, and the own login."""

    rows: tuple[Row, ...]
    login: AccountLogin


async def ask_accounts(connection: Connection, *, is_whole: bool) -> Accounts:
    """Request accounts and login concurrently."""
    loads, usage, login = await asyncio.gather(
        ask_all(connection, ACCOUNT_LOAD, {"include_unused": True} if is_whole else None),
        _usage(connection) if is_whole else _nothing(),
        _login(connection),
    )
    return Accounts(rows_of(loads, usage), login)


async def ask_detail(connection: Connection, name: str) -> dict[str, Any]:
    """All details of one account, which only the system account may request."""
    answers = await ask_all(connection, DETAIL.format(name))
    return part_of(answers[0], "data")


def limits_of(detail: dict[str, Any]) -> list[tuple[str, int]]:
    """The labelled limits in an account's token; -1 is none. Empty without a token."""
    claims = part_of(part_of(detail, "decoded_jwt"), "nats")
    limits = part_of(claims, "limits")
    return [
        (label, number_of(limits, member)) for member, label in LIMITS.items() if member in limits
    ]


async def _nothing() -> list[dict[str, Any]]:
    return []


async def _usage(connection: Connection) -> list[dict[str, Any]]:
    try:
        return await ask_all(connection, USAGE, {"accounts": True, "limit": ACCOUNTS_MAX})
    except (OperationTimeoutError, NoRespondersError):
        return []


async def _login(connection: Connection) -> AccountLogin:
    try:
        answers = await ask_all(connection, USER)
    except (OperationTimeoutError, NoRespondersError):
        return AccountLogin()
    data = part_of(answers[0], "data")
    rules = part_of(data, "permissions")
    publish, subscribe = part_of(rules, "publish"), part_of(rules, "subscribe")
    return AccountLogin(
        text_of(data.get("user")),
        text_of(data.get("account")),
        _subjects(publish, "allow"),
        _subjects(publish, "deny"),
        _subjects(subscribe, "allow"),
        _subjects(subscribe, "deny"),
    )


def _subjects(rules: dict[str, Any], name: str) -> tuple[str, ...]:
    listed = rules.get(name)
    if not isinstance(listed, list):
        return ()
    return tuple(each for each in listed[:SUBJECTS_SHOWN] if isinstance(each, str))


def rows_of(loads: list[dict[str, Any]], usage: list[dict[str, Any]]) -> tuple[Row, ...]:
    """The accounts in the answers of all servers; missing members count as 0."""
    rows: dict[str, Row] = {}
    for part in _parts(loads, "account_statz"):
        name = text_of(part.get("acc"))
        old = rows.get(name) or Row(name)
        rows[name] = msgspec.structs.replace(
            old,
            connections=old.connections + number_of(part, "conns"),
            leafnodes=old.leafnodes + number_of(part, "leafnodes"),
            subscriptions=old.subscriptions + number_of(part, "num_subscriptions"),
            messages_in=old.messages_in + number_of(part_of(part, "received"), "msgs"),
            messages_out=old.messages_out + number_of(part_of(part, "sent"), "msgs"),
            slow_consumers=old.slow_consumers + number_of(part, "slow_consumers"),
        )
    for part in _parts(usage, "account_details"):
        name = text_of(part.get("name"))
        old = rows.get(name) or Row(name)
        rows[name] = msgspec.structs.replace(
            old,
            memory=(old.memory or 0) + number_of(part, "memory"),
            storage=(old.storage or 0) + number_of(part, "storage"),
        )
    return tuple(sorted(rows.values(), key=lambda row: row.name))[:ACCOUNTS_MAX]


def _parts(answers: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    found = []
    for answer in answers:
        listed = part_of(answer, "data").get(name)
        if isinstance(listed, list):
            found += [part for part in listed if isinstance(part, dict)]
    return found
