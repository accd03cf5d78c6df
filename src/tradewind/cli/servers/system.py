"""Requests to all servers through the system account.

Owns the subjects and the number of responses to wait for: the first response contains the number of
servers. Only a user of the system account may send these requests.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.cli.frame.failures import CommandError, near
from tradewind.client.errors import NoRespondersError

if TYPE_CHECKING:
    from tradewind.sync import Connection

PING: Final = "$SYS.REQ.SERVER.PING"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Statistics:
    """A server's answer to a ping, and how long it took."""

    server: Document
    stats: Document
    rtt_ns: int

    @property
    def name(self) -> str:
        """The name of the server."""
        return str(self.server.get("name", ""))

    @property
    def id(self) -> str:
        """The id of the server."""
        return str(self.server.get("id", ""))


class SystemRequests:
    """Asks all servers, or one of them. `connection` must be one of the system account."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._known: list[Statistics] = []

    def ping(self, expect: int = 0) -> list[Statistics]:
        """The statistics of all servers that know each other; at most `expect` if given."""
        found: list[Statistics] = []
        began_ns = time.perf_counter_ns()
        try:
            for message in self._connection.request_many(PING, b"", timeout=self._timeout):
                document = _decode(message.data)
                rtt_ns = time.perf_counter_ns() - began_ns
                stats = document.get("statsz", {})
                found.append(Statistics(document.get("server", {}), stats, rtt_ns))
                there = int(stats.get("active_servers", 0)) or expect or 1
                if len(found) >= min(expect or there, there):
                    break
        except NoRespondersError:
            raise _not_allowed() from None
        if not found:
            raise CommandError(f"no server answered within {self._timeout:g} s", "--timeout 30s")
        self._known = found
        return found

    def ask(self, endpoint: str, options: Document | None = None) -> list[Document]:
        """The answers of all servers to a request such as VARZ, CONNZ or JSZ."""
        count = len(self._known or self.ping())
        answers = self._connection.request_many(
            f"{PING}.{endpoint}",
            msgspec.json.encode(options or {}),
            timeout=self._timeout,
            max_messages=count,
        )
        return [_checked(endpoint, _decode(message.data)) for message in answers]

    def ask_one(self, server: str, endpoint: str, options: Document | None = None) -> Document:
        """The answer of one server, given by name or id; by default, the connected one."""
        found = self._find(server)
        message = self._connection.request(
            f"$SYS.REQ.SERVER.{found.id}.{endpoint}",
            msgspec.json.encode(options or {}),
            timeout=self._timeout,
        )
        return _checked(endpoint, _decode(message.data))

    def _find(self, server: str) -> Statistics:
        known = self._known or self.ping()
        if not server:
            connected = self._connection.info.server_id
            return next((each for each in known if each.id == connected), known[0])
        for each in known:
            if server in (each.name, each.id):
                return each
        names = [each.name for each in known]
        raise CommandError(
            f"server {server!r} does not exist{near(server, names)} (available: {', '.join(names)})"
        )


def _decode(data: bytes) -> Document:
    try:
        return msgspec.json.decode(data, type=Document)
    except msgspec.DecodeError as error:
        raise CommandError(f"a server's response is not JSON: {error}") from None


def _checked(endpoint: str, document: Document) -> Document:
    if error := document.get("error"):
        text = error.get("description", error) if isinstance(error, dict) else error
        name = document.get("server", {}).get("name", "the server")
        raise CommandError(f"{name} refuses {endpoint}: {text}")
    return document


def _not_allowed() -> CommandError:
    return CommandError(
        "no server answers: only a user of the system account may ask this",
        "log in as one:  tradewind --user NAME --password PASSWORD ...",
        "or by context:  tradewind --context NAME_system ...  (`tradewind server run` makes it)",
    )
