"""The table of streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tradewind.api.names import KV_STREAM, OBJECT_STREAM
from tradewind.api.stream_types import StreamConfig
from tradewind.dashboard.data.catalog import ROWS, chosen
from tradewind.dashboard.data.page_texts import count, size
from tradewind.dashboard.data.problems import Problem
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    absence,
    badge,
    card,
    heading,
    live,
    page,
    pager,
    problem_note,
    table,
)
from tradewind.dashboard.look.table_order import TableColumn, TableOrder, sorting_of
from tradewind.dashboard.look.time_texts import ago
from tradewind.dashboard.views.attention_card import state_badge
from tradewind.dashboard.views.call import (
    Answer,
    Call,
    PageAnswer,
    RedirectAnswer,
    number,
)

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.dashboard.data.survey import StreamSummary, Survey

COLUMNS = (
    TableColumn("State", "state"),
    TableColumn("Stream", "name"),
    TableColumn("Subjects"),
    TableColumn("Messages#", "messages"),
    TableColumn("Size#", "size"),
    TableColumn("Consumers#", "consumers"),
    TableColumn("Last message", "last"),
)
SUBJECTS_SHOWN = 3
# How long the first view waits for the first round of the survey.
SURVEY_SECONDS = 0.5
_ORDERS: dict[str, Callable[[StreamSummary], Any]] = {
    "state": lambda stream: stream.verdict.rank,
    "name": lambda stream: stream.name,
    "messages": lambda stream: stream.messages,
    "size": lambda stream: stream.bytes,
    "consumers": lambda stream: stream.consumers,
    "last": lambda stream: stream.last_ts,
}


async def show(call: Call) -> Answer:
    """Show all streams, or those whose name contains a text."""
    search = call.query.get("search", "")
    first = number(call.query, "first")
    if search and "go" not in call.query and (exact := await _exact(call, search)):
        return RedirectAnswer(address("streams", exact))
    content = live("streams", await _rows(call, search, first))
    find = tag(
        "form",
        tag(
            "input",
            type="search",
            name="search",
            value=search,
            placeholder="Part of a name",
            aria_label="Part of a name",
        ),
        tag("input", type="hidden", name="go", value="1"),
        tag("button", "Search"),
        action="/streams",
        method="get",
        class_="row",
    )
    new = tag("a", "New stream", href="/new-stream", class_="button main")
    back = tag("a", "Restore", href="/restore", class_="button")
    actions = [find] if call.visit.is_read_only else [find, back, new]
    top = heading("Streams", *actions)
    return PageAnswer(page(call.visit, "streams", "Streams", top, content))


async def _exact(call: Call, search: str) -> str:
    seen = await call.workspace.catalog.names()
    return search if seen.value is not None and search in set(seen.value.names) else ""


async def _rows(call: Call, search: str, first: int) -> list[Child]:
    catalog = call.workspace.catalog
    names = await catalog.names()
    if names.value is None:
        return [problem_note(names.problem)]
    survey = call.workspace.survey
    await survey.watched(SURVEY_SECONDS)
    sorting = sorting_of(call.query, ("streams",), COLUMNS, **_kept(search))
    found = sorted_names(chosen(names.value.names, search), survey, sorting)
    if not found:
        text = f"No stream has {search!r} in its name." if search else "There are no streams yet."
        return [problem_note(names.problem), tag("p", text, class_="empty")]
    seen = await catalog.stream_page(found[first : first + ROWS], first, len(found))
    rows = seen.value.streams if seen.value is not None else []
    now_ns = time.time_ns()
    return [
        problem_note(names.problem or seen.problem),
        card(
            "",
            table(
                COLUMNS,
                [_row(survey, name, info, now_ns) for name, info in rows],
                empty="Nothing here.",
                sorting=sorting,
            ),
            pager(("streams",), first, ROWS, len(found), sort=sorting.text, **_kept(search)),
            order_note(survey, len(found)),
        ),
    ]


def _kept(search: str) -> dict[str, str]:
    """The search, as links to other rows and orders repeat it."""
    return {"search": search, "go": "1"} if search else {}


def sorted_names(names: list[str], survey: Survey, sorting: TableOrder) -> list[str]:
    """The names in the order of a table; streams that were not examined yet come last."""
    known = survey.streams
    examined = [name for name in names if name in known]
    rest = [name for name in names if name not in known]
    key = _ORDERS[sorting.key]
    # TableOrder twice: equal ones stay in the order of their names.
    examined.sort(key=lambda name: key(known[name]), reverse=sorting.is_down)
    if sorting.key == "name":
        return sorted(names, reverse=sorting.is_down)
    return [*examined, *rest]


def order_note(survey: Survey, rows: int) -> Markup | None:
    """The note that the order is not final, while streams have not been examined."""
    if survey.is_whole or rows <= 1 or survey.problem is not None:
        return None
    known = len(survey.streams)
    text = f"{count(known)} of {count(max(survey.streams_total, rows))} streams were examined so "
    return tag("p", f"{text}far; the order changes until all are.", class_="faint")


def _row(survey: Survey, name: str, info: StreamInfo | Problem, now_ns: int) -> list[Child]:
    link = tag("a", name, href=address("streams", name))
    if isinstance(info, Problem):
        return ["", link, absence(info), "", "", "", ""]
    state = info.state
    return [
        state_badge(survey.verdict_of(info)),
        [link, " ", *marks(info)],
        subjects_text(info.config),
        count(state.messages),
        size(state.bytes),
        count(state.consumer_count),
        ago(state.last_ts, now_ns),
    ]


def subjects_text(config: StreamConfig) -> Child:
    """The subjects of a stream in a few words."""
    if config.mirror is not None:
        return [
            "mirror of ",
            tag("a", config.mirror.name, href=address("streams", config.mirror.name)),
        ]
    shown = ", ".join(config.subjects[:SUBJECTS_SHOWN])
    more = len(config.subjects) - SUBJECTS_SHOWN
    return tag("span", f"{shown} and {more} more" if more > 0 else shown, class_="mono")


def marks(info: StreamInfo) -> list[Markup]:
    """Badges for the special properties of a stream."""
    config, found = info.config, []
    if config.name.startswith(KV_STREAM):
        found.append(badge("key-value"))
    elif config.name.startswith(OBJECT_STREAM):
        found.append(badge("objects"))
    if config.sealed:
        found.append(badge("sealed", "warning"))
    if config.storage == "memory":
        found.append(badge("memory"))
    if info.state.lost is not None and info.state.lost.msgs:
        found.append(badge("lost messages", "bad"))
    return found
