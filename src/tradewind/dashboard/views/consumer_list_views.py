"""The tables of consumers: those of all streams, and those of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tradewind.dashboard.data.catalog import ROWS
from tradewind.dashboard.data.page_texts import count, short
from tradewind.dashboard.data.problems import Problem
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    absence,
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
from tradewind.dashboard.views.call import Answer, Call, PageAnswer, number
from tradewind.dashboard.views.stream_views import check_found, stream_heading

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.client.why.states import StateReason
    from tradewind.dashboard.data.survey import ConsumerSummary, Survey

SURVEY_SECONDS: Final = 0.5
STREAM_COLUMN: Final = TableColumn("Stream", "stream")
COLUMNS: Final = (
    TableColumn("State", "state"),
    TableColumn("Consumer", "name"),
    TableColumn("Kind", "kind"),
    TableColumn("Behind#", "behind"),
    TableColumn("Per second#", "rate"),
    TableColumn("Unacknowledged#", "unacked"),
    TableColumn("Redelivered#", "redelivered"),
    TableColumn("Last delivery", "last"),
)
ALL_COLUMNS: Final = (*COLUMNS[:2], STREAM_COLUMN, *COLUMNS[2:])
_ORDERS: Final[dict[str, Callable[[ConsumerSummary], Any]]] = {
    "state": lambda consumer: consumer.verdict.rank,
    "name": lambda consumer: consumer.name,
    "stream": lambda consumer: consumer.stream,
    "kind": lambda consumer: (consumer.is_push, consumer.is_durable),
    "behind": lambda consumer: consumer.pending,
    "rate": lambda consumer: consumer.delivered_rate or 0.0,
    "unacked": lambda consumer: consumer.ack_pending,
    "redelivered": lambda consumer: consumer.redelivered,
    "last": lambda consumer: consumer.last_active,
}


async def show_all(call: Call) -> Answer:
    """Show the consumers of all streams, fifty at a time, those that need attention first."""
    search = call.query.get("search", "").strip()
    find = tag(
        "form",
        tag(
            "input",
            type="search",
            name="search",
            value=search,
            placeholder="Part of a name",
            aria_label="Part of the name of a consumer or stream",
        ),
        tag("button", "Search"),
        action="/consumers",
        method="get",
        class_="row",
    )
    content = live("all-consumers", await _all(call, search))
    return PageAnswer(
        page(call.visit, "consumers", "Consumers", heading("Consumers", find), content)
    )


async def _all(call: Call, search: str) -> list[Child]:
    survey = call.workspace.survey
    await survey.watched(SURVEY_SECONDS)
    wanted = search.casefold()
    found = [
        consumer
        for known in survey.consumers.values()
        for consumer in known.values()
        if wanted in consumer.name.casefold() or wanted in consumer.stream.casefold()
    ]
    sorting = sorting_of(call.query, ("consumers",), ALL_COLUMNS, search=search)
    empty = f"No consumer has {search!r} in its name." if search else "There are no consumers yet."
    if not survey.is_whole:
        empty = "The consumers are being examined."
    return [
        problem_note(survey.problem),
        await _table(call, found, sorting, ALL_COLUMNS, empty, search=search),
        _coverage(survey),
    ]


def _coverage(survey: Survey) -> Markup | None:
    """The note about consumers that are not in the table."""
    known = count(survey.consumers_known)
    if survey.is_cut:
        text = f"The table has the first {known} consumers; the pages of streams show the others."
    elif not survey.is_whole and survey.problem is None:
        text = f"{known} consumers were examined so far; the table grows until all are."
    else:
        return None
    return tag("p", text, class_="faint", role="status")


async def show_of_stream(call: Call) -> Answer:
    """Show the consumers of a stream."""
    name = call.parts["stream"]
    stream = await call.workspace.catalog.stream(name)
    check_found(stream)
    survey = call.workspace.survey
    await survey.watched(SURVEY_SECONDS)
    found = list(survey.consumers.get(name, {}).values())
    total = stream.value.state.consumer_count if stream.value is not None else 0
    if len(found) >= total:
        sorting = sorting_of(call.query, ("streams", name, "consumers"), COLUMNS)
        made = await _table(call, found, sorting, COLUMNS, "It has no consumers.")
        content: list[Child] = [problem_note(stream.problem), made]
    else:
        content = await _unsorted(call, name)
    target = address("streams", name, "new-consumer")
    new = tag("a", "New consumer", href=target, class_="button main")
    top = stream_heading(call.visit, name, "consumers", new)
    return PageAnswer(
        page(call.visit, "streams", f"{name}: consumers", top, live("consumers", content))
    )


async def _unsorted(call: Call, stream: str) -> list[Child]:
    """The consumers of a stream that were not all examined, in the order of the server."""
    first = number(call.query, "first")
    seen = await call.workspace.catalog.consumer_page(stream, first)
    if seen.value is None:
        return [problem_note(seen.problem)]
    survey = call.workspace.survey
    rows = [
        consumer_row(info, seen.value.rates, survey.verdict_of(info))
        for info in seen.value.consumers
    ]
    path = ("streams", stream, "consumers")
    return [
        problem_note(seen.problem),
        card(
            "",
            table(COLUMNS, rows, empty="It has no consumers."),
            pager(path, first, ROWS, seen.value.total),
        ),
    ]


async def _table(
    call: Call,
    found: list[ConsumerSummary],
    sorting: TableOrder,
    columns: tuple[TableColumn, ...],
    empty: str,
    **query: str,
) -> Markup:
    """The consumers on screen, with what the server says of them now."""
    first = number(call.query, "first")
    found.sort(key=lambda consumer: (consumer.stream, consumer.name))
    found.sort(key=_ORDERS[sorting.key], reverse=sorting.is_down)
    shown = found[first : first + ROWS]
    seen = await call.workspace.catalog.consumer_rows([(row.stream, row.name) for row in shown])
    has_stream = STREAM_COLUMN in columns
    infos = seen.value or {}
    rows = [
        _row(call.workspace.survey, row, infos.get((row.stream, row.name)), has_stream=has_stream)
        for row in shown
    ]
    return card(
        "",
        problem_note(seen.problem),
        table(columns, rows, empty=empty, sorting=sorting),
        pager(sorting.path, first, ROWS, len(found), sort=sorting.text, **query),
    )


def _row(
    survey: Survey,
    summary: ConsumerSummary,
    info: ConsumerInfo | Problem | None,
    *,
    has_stream: bool,
) -> list[Child]:
    target = address("streams", summary.stream, "consumers", summary.name)
    stream = [tag("a", summary.stream, href=address("streams", summary.stream))]
    link = tag("a", summary.name, href=target)
    row: list[Child]
    if info is None:  # not answered yet
        row = [state_badge(summary.verdict), link, *[""] * 6]
    elif isinstance(info, Problem):
        row = ["", link, absence(info), *[""] * 5]
    else:
        known = summary.delivered_rate
        rates = {} if known is None else {info.name: known}
        row = consumer_row(info, rates, survey.verdict_of(info))
    return [*row[:2], *stream, *row[2:]] if has_stream else row


def consumer_row(
    info: ConsumerInfo, rates: Mapping[str, float], verdict: StateReason
) -> list[Child]:
    """A consumer as a row of a table."""
    link = tag("a", info.name, href=address("streams", info.stream_name, "consumers", info.name))
    return [
        state_badge(verdict, is_paused=info.paused),
        link,
        consumer_kind(info),
        count(info.num_pending),
        short(rates[info.name]) if info.name in rates else "-",
        count(info.num_ack_pending),
        count(info.num_redelivered),
        ago(info.delivered.last_active),
    ]


def consumer_kind(info: ConsumerInfo) -> str:
    """The kind of a consumer: pull or push, durable or ephemeral."""
    way = "push" if info.config.deliver_subject else "pull"
    return f"{way}, {'durable' if info.config.durable_name else 'ephemeral'}"
