"""Connections: of all servers for a login of the system account, otherwise of its own account.

Owns the request and which parts of its response are shown. It requests one page, sorted by the
server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.errors import OperationTimeoutError
from tradewind.dashboard.data.load_and_usage import ANSWER_SECONDS, STALL_SECONDS
from tradewind.own_addresses import address_text

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

# Any login may request this; without the system account, the answer covers its own account only.
SUBJECT: Final = "$SYS.REQ.SERVER.PING.CONNZ"
ROWS: Final = 50
SUBSCRIBERS_MAX: Final = 5
ORDERS: Final = {
    "cid": "newest or oldest",
    "pending": "bytes waiting",
    "msgs_to": "messages to it",
    "msgs_from": "messages from it",
    "subs": "subscriptions",
}


class Client(msgspec.Struct, frozen=True):
    """A connection as a server describes it; members that it does not send are empty."""

    cid: int = 0
    name: str = ""
    ip: str = ""
    port: int = 0
    account: str = ""
    authorized_user: str = ""
    lang: str = ""
    version: str = ""
    uptime: str = ""
    idle: str = ""
    rtt: str = ""
    pending_bytes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0


class Clients(msgspec.Struct, frozen=True):
    """One page of connections, and how many there are on all servers."""

    clients: list[tuple[str, Client]]
    total: int


class _Answer(msgspec.Struct):
    """The answer of one server."""

    class Server(msgspec.Struct):
        """The name of the server."""

        name: str = ""

    class Data(msgspec.Struct):
        """The connections of the server."""

        total: int = 0
        connections: list[Client] = []

    server: Server = msgspec.field(default_factory=Server)
    data: Data = msgspec.field(default_factory=Data)


async def ask_clients(connection: Connection, order: str, first: int) -> Clients:
    """The connections from an offset on."""
    body = {"sort": order, "limit": ROWS, "offset": first, "auth": True}
    return read_clients(await _ask(connection, SUBJECT, body))


async def ask_subscribers(connection: Connection, subject: str) -> list[str]:
    """The names of some clients that subscribe to a subject, each with its address."""
    body = {"filter_subject": subject, "limit": SUBSCRIBERS_MAX, "subscriptions": True}
    found = read_clients(await _ask(connection, SUBJECT, body))
    named = [
        f"{client.name or f'connection {client.cid}'} ({address_text(client.ip, client.port)})"
        for _, client in found.clients
    ]
    return named[:SUBSCRIBERS_MAX]


async def _ask(connection: Connection, subject: str, body: dict[str, Any]) -> list[bytes]:
    answers = [
        message.data
        async for message in connection.request_many(
            subject, msgspec.json.encode(body), timeout=ANSWER_SECONDS, stall=STALL_SECONDS
        )
    ]
    if not answers:
        raise OperationTimeoutError(f"{subject}: no server has responded")
    return answers


def read_clients(answers: list[bytes]) -> Clients:
    """The connections in the answers of all servers; invalid answers are skipped."""
    clients: list[tuple[str, Client]] = []
    total = 0
    for data in answers:
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except msgspec.DecodeError:
            continue
        total += answer.data.total
        clients += [(answer.server.name, client) for client in answer.data.connections[:ROWS]]
    return Clients(clients, total)
