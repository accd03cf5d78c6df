"""Load and use: of all servers if the login is of the system account, else of its own account.

Owns the two questions and what their answers mean. In a cluster every server answers, and the
figures are added up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.responses import AccountInfo
from tradewind.client.errors import NoRespondersError, OperationTimeoutError
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

SERVER_LOAD: Final = "$SYS.REQ.SERVER.PING.STATSZ"
ACCOUNT_LOAD: Final = "$SYS.REQ.ACCOUNT.PING.STATZ"
ANSWER_SECONDS: Final = 1.0
# Servers of a cluster answer one after the other; after this silence they all have.
STALL_SECONDS: Final = 0.1
SERVERS_MAX: Final = 256
FIGURES: Final = ("messages_in", "messages_out", "bytes_in", "bytes_out", "connections")


class Load(msgspec.Struct, frozen=True):
    """What passes through. `is_whole` says whether of whole servers or of the own account."""

    servers: tuple[str, ...] = ()
    is_whole: bool = False
    connections: int = 0
    subscriptions: int = 0
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    slow_consumers: int = 0
    memory: int = 0
    processor: float = 0.0


class Account(msgspec.Struct, frozen=True):
    """One look at both; each may be missing for a reason of its own."""

    load: Load
    load_problem: Problem | None = None
    usage: AccountInfo | None = None
    usage_problem: Problem | None = None


def figures(account: Account) -> Sequence[float]:
    """What charts remember, in the order of FIGURES."""
    load = account.load
    return (load.messages_in, load.messages_out, load.bytes_in, load.bytes_out, load.connections)


async def ask_account(connection: Connection) -> Account:
    """Ask for load and use at once."""
    load, usage = await asyncio.gather(
        _load(connection), connection.jetstream_manager().account_info(), return_exceptions=True
    )
    return Account(
        load if isinstance(load, Load) else Load(),
        _problem(load),
        usage if isinstance(usage, AccountInfo) else None,
        _problem(usage),
    )


def _problem(answer: object) -> Problem | None:
    if isinstance(answer, TradewindError):
        return problem_of(answer)
    if isinstance(answer, BaseException):
        raise answer
    return None


async def _load(connection: Connection) -> Load:
    try:
        return add_up(await _ask_all(connection, SERVER_LOAD), is_whole=True)
    except (NoRespondersError, OperationTimeoutError):
        return add_up(await _ask_all(connection, ACCOUNT_LOAD), is_whole=False)


async def _ask_all(connection: Connection, subject: str) -> list[dict[str, Any]]:
    answers = []
    async for message in connection.request_many(
        subject,
        timeout=ANSWER_SECONDS,
        stall=STALL_SECONDS,
        max_messages=SERVERS_MAX,
    ):
        try:
            answers.append(msgspec.json.decode(message.data, type=dict[str, Any]))
        except msgspec.DecodeError:
            continue
    if not answers:
        raise OperationTimeoutError(f"{subject}: no server has answered")
    return answers


def add_up(answers: list[dict[str, Any]], *, is_whole: bool) -> Load:
    """The load in the answers of all servers; members that are missing count as nothing."""
    total = dict.fromkeys(Load.__struct_fields__[2:-1], 0)
    processor = 0.0
    names = []
    for answer in answers:
        names.append(_text(_part(answer, "server").get("name")))
        parts = [_part(answer, "statsz")] if is_whole else _list(_part(answer, "data"))
        for part in parts:
            received, sent = _part(part, "received"), _part(part, "sent")
            total["connections"] += _number(part, "connections" if is_whole else "conns")
            total["subscriptions"] += _number(
                part, "subscriptions" if is_whole else "num_subscriptions"
            )
            total["messages_in"] += _number(received, "msgs")
            total["bytes_in"] += _number(received, "bytes")
            total["messages_out"] += _number(sent, "msgs")
            total["bytes_out"] += _number(sent, "bytes")
            total["slow_consumers"] += _number(part, "slow_consumers")
            total["memory"] += _number(part, "mem")
            cpu = part.get("cpu", 0)
            processor += cpu if isinstance(cpu, int | float) else 0
    return Load(servers=tuple(sorted(names)), is_whole=is_whole, processor=processor, **total)


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _list(document: dict[str, Any]) -> list[dict[str, Any]]:
    parts = document.get("account_statz")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _number(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
