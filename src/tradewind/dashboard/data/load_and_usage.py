"""Load and usage: of all servers for a login of the system account, otherwise of its own account.

Owns the two requests and the interpretation of their responses. In a cluster every server responds,
and the figures are added up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import msgspec

from tradewind.api.responses import AccountInfo
from tradewind.client.errors import NoRespondersError, OperationTimeoutError
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

SERVER_LOAD: Final = "$SYS.REQ.SERVER.PING.STATSZ"
ACCOUNT_LOAD: Final = "$SYS.REQ.ACCOUNT.PING.STATZ"
_SUMS: Final = (
    "connections",
    "subscriptions",
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "slow_consumers",
    "memory",
)
ANSWER_SECONDS: Final = 1.0
# Servers of a cluster answer one after the other; after this silence all have answered.
STALL_SECONDS: Final = 0.1
SERVERS_MAX: Final = 256
HEALTH: Final = "$SYS.REQ.SERVER.PING.HEALTHZ"
FIGURES: Final = (
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "connections",
    "slow_consumers",
)


# Connections that see only their own account, so that they do not ask in vain again.
_OWN_ACCOUNT_ONLY: Final[WeakSet[Connection]] = WeakSet()


class MachineLoad(msgspec.Struct, frozen=True):
    """One server as it describes itself; members that it does not send are empty."""

    name: str
    version: str = ""
    host: str = ""
    cluster: str = ""
    started: str = ""
    has_jetstream: bool = False
    connections: int = 0
    subscriptions: int = 0
    memory: int = 0
    processor: float = 0.0
    slow_consumers: int = 0
    messages_in: int = 0
    messages_out: int = 0


class Load(msgspec.Struct, frozen=True):
    """Message traffic; `is_whole` says whether of whole servers or of the own account."""

    machines: tuple[MachineLoad, ...] = ()
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


class AccountSnapshot(msgspec.Struct, frozen=True):
    """Load and usage at one time; each may be missing for its own reason."""

    load: Load
    answer_seconds: float = 0.0
    load_problem: Problem | None = None
    usage: AccountInfo | None = None
    usage_problem: Problem | None = None


def figures(account: AccountSnapshot) -> Sequence[float]:
    """The figures that charts store, in the order of FIGURES."""
    return load_figures(account.load)


def load_figures(load: Load) -> Sequence[float]:
    """The figures of a load, in the order of FIGURES."""
    return (
        load.messages_in,
        load.messages_out,
        load.bytes_in,
        load.bytes_out,
        load.connections,
        load.slow_consumers,
    )


async def ask_account(connection: Connection, system: Connection | None = None) -> AccountSnapshot:
    """Request load and usage concurrently, and measure the response time of the server. The load is
    requested with the login `system`, if there is one.
    """
    load, usage, passed = await asyncio.gather(
        ask_load(system or connection),
        connection.jetstream_manager().account_info(),
        connection.rtt(),
        return_exceptions=True,
    )
    return AccountSnapshot(
        load if isinstance(load, Load) else Load(),
        passed if isinstance(passed, float) else 0.0,
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


async def ask_load(connection: Connection) -> Load:
    """Request the load, of whole servers if the login may see that."""
    if connection not in _OWN_ACCOUNT_ONLY:
        try:
            return add_up(await ask_all(connection, SERVER_LOAD), is_whole=True)
        except NoRespondersError:
            # Not a login of the system account, and it never becomes one.
            _OWN_ACCOUNT_ONLY.add(connection)
        except OperationTimeoutError:
            pass
    return add_up(await ask_all(connection, ACCOUNT_LOAD), is_whole=False)


async def ask_all(
    connection: Connection, subject: str, body: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The answers of all servers; OperationTimeoutError if there is none."""
    answers = []
    async for message in connection.request_many(
        subject,
        msgspec.json.encode(body) if body else b"",
        timeout=ANSWER_SECONDS,
        stall=STALL_SECONDS,
        max_messages=SERVERS_MAX,
    ):
        try:
            answers.append(msgspec.json.decode(message.data, type=dict[str, Any]))
        except (msgspec.DecodeError, RecursionError):
            continue
    if not answers:
        raise OperationTimeoutError(f"{subject}: no server has responded")
    return answers


async def ask_health(connection: Connection) -> dict[str, str]:
    """The health of each server in its own words, by name: "ok", or the problem."""
    found = {}
    for answer in await ask_all(connection, HEALTH):
        data = part_of(answer, "data")
        name = text_of(part_of(answer, "server").get("name"))
        found[name] = text_of(data.get("error")) or text_of(data.get("status")) or "unknown"
    return found


def add_up(answers: list[dict[str, Any]], *, is_whole: bool) -> Load:
    """The load in the answers of all servers; missing members count as 0."""
    total = dict.fromkeys(_SUMS, 0)
    processor = 0.0
    machines = []
    for answer in answers:
        machines.append(_machine(answer))
        parts = [part_of(answer, "statsz")] if is_whole else _list(part_of(answer, "data"))
        for part in parts:
            received, sent = part_of(part, "received"), part_of(part, "sent")
            total["connections"] += number_of(part, "connections" if is_whole else "conns")
            total["subscriptions"] += number_of(
                part, "subscriptions" if is_whole else "num_subscriptions"
            )
            total["messages_in"] += number_of(received, "msgs")
            total["bytes_in"] += number_of(received, "bytes")
            total["messages_out"] += number_of(sent, "msgs")
            total["bytes_out"] += number_of(sent, "bytes")
            total["slow_consumers"] += number_of(part, "slow_consumers")
            total["memory"] += number_of(part, "mem")
            cpu = part.get("cpu", 0)
            processor += cpu if isinstance(cpu, int | float) else 0
    machines.sort(key=lambda machine: machine.name)
    return Load(machines=tuple(machines), is_whole=is_whole, processor=processor, **total)


def _machine(answer: dict[str, Any]) -> MachineLoad:
    server, figures = part_of(answer, "server"), part_of(answer, "statsz")
    cpu = figures.get("cpu", 0)
    return MachineLoad(
        text_of(server.get("name")),
        text_of(server.get("ver")),
        text_of(server.get("host")),
        text_of(server.get("cluster")),
        text_of(figures.get("start")),
        server.get("jetstream") is True,
        number_of(figures, "connections"),
        number_of(figures, "subscriptions"),
        number_of(figures, "mem"),
        float(cpu) if isinstance(cpu, int | float) else 0.0,
        number_of(figures, "slow_consumers"),
        number_of(part_of(figures, "received"), "msgs"),
        number_of(part_of(figures, "sent"), "msgs"),
    )


def part_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The member that is an object; empty otherwise."""
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _list(document: dict[str, Any]) -> list[dict[str, Any]]:
    parts = document.get("account_statz")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def number_of(document: dict[str, Any], name: str) -> int:
    """The member that is a whole number; 0 otherwise."""
    value = document.get(name)
    return value if isinstance(value, int) else 0


def text_of(value: object) -> str:
    """The value if it is a text; empty otherwise."""
    return value if isinstance(value, str) else ""
