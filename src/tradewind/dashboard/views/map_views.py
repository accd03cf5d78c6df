"""One diagram of mirrors, sources and leaf connections, with how far each copy is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.map_data import (
    CopyMap,
    LeafLink,
    StreamCopy,
    ask_map,
    depths,
    place_key,
)
from tradewind.dashboard.data.page_texts import count, span_ns
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.graphs import Box, flow_graph
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    heading,
    live,
    page,
    problem_note,
    table,
)
from tradewind.dashboard.views.call import Answer, Call, PageAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS: Final = 10.0
COPIES_SHOWN: Final = 200
COLUMNS: Final = ("From", "Domain or prefix", "To", "Kind", "Behind#", "Last heard", "Problem")
LEAF_COLUMNS: Final = ("Leaf", "Server", "Account", "Address", "Round-trip time", "In#", "Out#")


async def show(call: Call) -> Answer:
    """Show how messages are copied."""

    async def ask() -> CopyMap:
        return await ask_map(call.workspace.connection)

    seen = await call.workspace.samplers.see(Question("map", ask, SECONDS))
    content: list[Child] = [problem_note(seen.problem)]
    if seen.value is not None:
        content += _content(seen.value)
    note = "Mirrors, sources and leaf connections"
    top = heading("Map", note=note)
    return PageAnswer(page(call.visit, "map", "Map", top, live("map", content)))


def _content(found: CopyMap) -> list[Child]:
    leafs = found.leafs or ()
    parts: list[Child] = []
    if found.is_cut:
        parts.append(tag("p", "Only some of the streams were asked.", class_="notice warning"))
    if not found.copies and not leafs:
        text = "No stream is a mirror or has sources, and there is no leaf connection."
        parts.append(card("", tag("p", text, class_="empty")))
    else:
        parts.append(card("", _picture(found.copies, leafs)))
    if found.copies:
        rows = [_row(each) for each in found.copies[:COPIES_SHOWN]]
        left = len(found.copies) - len(rows)
        more = tag("p", f"and {count(left)} more", class_="faint") if left else None
        parts.append(card("Copies", table(COLUMNS, rows, empty=""), more))
    if found.leafs is None:
        text = "Leaf connections are shown to a login of the system account."
        parts.append(tag("p", text, class_="notice locked"))
    elif leafs:
        rows = [_leaf_row(each) for each in leafs]
        parts.append(card("Leaf connections", table(LEAF_COLUMNS, rows, empty="")))
    return parts


def _domain(api: str) -> str:
    return api.removeprefix("$JS.").removesuffix(".API")


def _picture(copies: Sequence[StreamCopy], leafs: Sequence[LeafLink]) -> Markup:
    column = depths(copies)
    here = {place_key(each.target) for each in copies}
    targets = {place_key(each.target): each.target for each in copies}
    boxes: dict[str, Box] = {}
    for each in copies:
        elsewhere = _domain(each.api)
        if each.key not in here:
            link = "" if each.api else address("streams", each.origin)
            under = f"in {elsewhere}" if elsewhere else "origin"
            boxes[each.key] = Box(each.key, each.origin, under, link)
    for key, name in targets.items():
        mine = [each for each in copies if place_key(each.target) == key]
        is_bad = any(each.error for each in mine)
        boxes[key] = Box(
            key, name, _state(mine), address("streams", name), "bad" if is_bad else "self"
        )
    columns: list[list[Box]] = [[] for _ in range(max(column.values(), default=0) + 1)]
    for key, box in boxes.items():
        columns[column[key]].append(box)
    edges = [(each.key, place_key(each.target)) for each in copies]
    remote = {each.name: each for each in leafs}
    servers = {each.server for each in leafs}
    left = [Box(f"leaf {name}", name, f"leaf, {each.rtt}") for name, each in remote.items()]
    right = [Box(f"server {name}", name, "this server") for name in sorted(servers)]
    edges += [(f"leaf {each.name}", f"server {each.server}") for each in leafs]
    # A domain has the name of a leaf where its operator has chosen so.
    edges += [
        (f"leaf {_domain(each.api)}", each.key) for each in copies if _domain(each.api) in remote
    ]
    if leafs:
        columns = [left, [*right, *columns[0]], *columns[1:]]
    return flow_graph("How messages are copied", columns, edges)


def _state(copies: Sequence[StreamCopy]) -> str:
    for each in copies:
        if each.error:
            return each.error
    known = [each.lag for each in copies if each.lag is not None]
    if len(known) < len(copies):
        return "nothing known yet"
    return f"{count(sum(known))} behind" if sum(known) else "up to date"


def _row(each: StreamCopy) -> list[Child]:
    origin: Child = each.origin
    if not each.api:
        origin = tag("a", each.origin, href=address("streams", each.origin))
    behind = "" if each.lag is None else count(each.lag)
    heard = f"{span_ns(each.active_ns)} ago" if each.active_ns > 0 else ""
    return [
        origin,
        _domain(each.api),
        tag("a", each.target, href=address("streams", each.target)),
        "mirror" if each.is_mirror else "source",
        behind,
        heard,
        badge(each.error[:80], "bad") if each.error else "",
    ]


def _leaf_row(each: LeafLink) -> list[Child]:
    return [
        each.name,
        each.server,
        each.account,
        each.ip,
        each.rtt,
        count(each.messages_in),
        count(each.messages_out),
    ]
