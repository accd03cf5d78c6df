"""How messages get from stream to stream and from server to server: copies and leaf connections.

Owns the requests, and the order of streams by the number of copies before them. Leaf connections
are known to a login of the system account only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.errors import ClientError, NoRespondersError, OperationTimeoutError
from tradewind.dashboard.data.load_and_usage import ask_all, number_of, part_of, text_of

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo, StreamSource, StreamSourceInfo
    from tradewind.client.connection import Connection

LEAFS: Final = "$SYS.REQ.SERVER.PING.LEAFZ"
STREAMS_MAX: Final = 5000
LEAFS_MAX: Final = 500
DEPTH_MAX: Final = 6


class LeafLink(msgspec.Struct, frozen=True):
    """A leaf connection of a server."""

    server: str
    name: str
    account: str = ""
    ip: str = ""
    rtt: str = ""
    messages_in: int = 0
    messages_out: int = 0


class StreamCopy(msgspec.Struct, frozen=True):
    """A copy from one stream to another; `api` is the prefix of another domain or account."""

    origin: str
    api: str
    target: str
    is_mirror: bool
    lag: int | None = None
    active_ns: int = 0
    error: str = ""

    @property
    def key(self) -> str:
        """The key of the origin: streams elsewhere may have the same name."""
        return place_key(self.origin, self.api)


class CopyMap(msgspec.Struct, frozen=True):
    """All copies and leaf connections; `leafs` is None if the login may not see them."""

    copies: tuple[StreamCopy, ...] = ()
    leafs: tuple[LeafLink, ...] | None = None
    is_cut: bool = False


def place_key(name: str, api: str = "") -> str:
    """The key of a stream here, or behind the prefix of an API."""
    return f"{api} {name}"


async def ask_map(connection: Connection) -> CopyMap:
    """Request streams and leaf connections at the same time."""
    (copies, is_cut), leafs = await asyncio.gather(_copies(connection), _leafs(connection))
    return CopyMap(copies, leafs, is_cut)


async def _copies(connection: Connection) -> tuple[tuple[StreamCopy, ...], bool]:
    found: list[StreamCopy] = []
    seen = 0
    try:
        pages = connection.jetstream().manager.streams.list()
        while seen < STREAMS_MAX and (page := await pages.next_page()):
            seen += len(page)
            for info in page:
                found += copies_of(info)
    except ClientError:
        if not found:
            return (), False  # no JetStream, or no permission: the leaf connections remain
        return tuple(found), True
    return tuple(found), seen >= STREAMS_MAX


def copies_of(info: StreamInfo) -> list[StreamCopy]:
    """The copies into one stream."""
    config = info.config
    wanted = [config.mirror] if config.mirror is not None else config.sources
    states = {_place(each): each for each in (*info.sources, info.mirror) if each is not None}
    made = []
    for source in wanted:
        state = states.get(_place(source))
        made.append(
            StreamCopy(
                source.name,
                source.external.api if source.external is not None else "",
                config.name,
                config.mirror is not None,
                state.lag if state is not None else None,
                state.active if state is not None else 0,
                state.error.description if state is not None and state.error is not None else "",
            )
        )
    return made


def _place(source: StreamSource | StreamSourceInfo) -> str:
    return place_key(source.name, source.external.api if source.external is not None else "")


async def _leafs(connection: Connection) -> tuple[LeafLink, ...] | None:
    try:
        answers = await ask_all(connection, LEAFS)
    except (OperationTimeoutError, NoRespondersError, ClientError):
        return None
    return leafs_of(answers)


def leafs_of(answers: Sequence[Mapping[str, Any]]) -> tuple[LeafLink, ...] | None:
    """The leaf connections in the answers of all servers; None if no answer has any list."""
    found: list[LeafLink] = []
    is_told = False
    for answer in answers:
        data = part_of(dict(answer), "data")
        server = text_of(part_of(dict(answer), "server").get("name"))
        listed = data.get("leafs")
        is_told = is_told or "leafnodes" in data
        for each in listed if isinstance(listed, list) else []:
            if isinstance(each, dict) and len(found) < LEAFS_MAX:
                found.append(
                    LeafLink(
                        server,
                        text_of(each.get("name")) or text_of(each.get("ip")),
                        text_of(each.get("account")),
                        text_of(each.get("ip")),
                        text_of(each.get("rtt")),
                        number_of(each, "in_msgs"),
                        number_of(each, "out_msgs"),
                    )
                )
    return tuple(found) if is_told or found else None


def depths(copies: Sequence[StreamCopy]) -> dict[str, int]:
    """The column of each stream: one more than the last of its origins, as far as there is no
    circle.
    """
    found: dict[str, int] = {}
    for each in copies:
        found.setdefault(each.key, 0)
        found.setdefault(place_key(each.target), 0)
    for _ in range(DEPTH_MAX):
        changed = False
        for each in copies:
            target = place_key(each.target)
            wanted = min(found[each.key] + 1, DEPTH_MAX)
            if found[target] < wanted:
                found[target], changed = wanted, True
        if not changed:
            break
    return found
