"""SQL: a query, its progress, and its result as a table and a chart.

An address may contain a query, so that it can be shared. A query runs only when the visitor presses
the button, never by following a link.
"""

from __future__ import annotations

import math
from typing import Final

from tradewind.dashboard.data.page_texts import count, many
from tradewind.dashboard.data.sql_data import ROWS_MAX, TEXT_CHARACTERS_MAX, SqlQuery
from tradewind.dashboard.look.charts import bar_chart
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    card,
    field,
    form,
    heading,
    live,
    page,
    pager,
    table,
    tabs,
)
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    PageAnswer,
    RedirectAnswer,
    number,
)

ROWS_DEFAULT: Final = 1000
ROWS_SHOWN: Final = 100
BARS_MAX: Final = 40
CELL_LENGTH: Final = 300
# Longer queries make addresses that some programs do not accept.
SHARED_CHARACTERS_MAX: Final = 4000
EXAMPLES_MAX: Final = 3
EXAMPLES: Final = (
    "select subject, count(*) as messages from {} group by 1 order by 2 desc",
    "select * from {} order by seq desc limit 20",
)


async def show(call: Call) -> Answer:
    """Show the query box, and the result of the query in the page's address."""
    query = call.workspace.queries.find(call.query.get("run", ""))
    text = query.text if query is not None else call.query.get("query", "")[:TEXT_CHARACTERS_MAX]
    rows = query.rows_max if query is not None else number(call.query, "rows") or ROWS_DEFAULT
    content = [
        heading("SQL", note="Streams and buckets are tables; fields of JSON are columns."),
        _box(call, text, rows),
        live("sql", _answer(call, query)) if query is not None else await _examples(call),
    ]
    return PageAnswer(page(call.visit, "sql", "SQL", *content))


def _box(call: Call, text: str, rows: int) -> Markup:
    refusal = call.run_refusal()
    area = tag(
        "label",
        tag("span", "Query"),
        tag(
            "textarea",
            text,
            name="query",
            class_="low",
            required=True,
            maxlength=TEXT_CHARACTERS_MAX,
            placeholder="select subject, count(*) as messages from ORDERS group by 1",
            spellcheck="false",
            data_submits=True,
        ),
    )
    if refusal:
        note = tag("p", refusal, class_="notice locked", data_problem="denied")
        return card("", note, area)
    return card(
        "",
        form(
            call.visit,
            "/sql",
            area,
            tag(
                "div",
                field("Maximum rows", "rows", str(rows), kind="number"),
                tag("button", "Run", class_="main"),
                tag("span", "or Ctrl+Enter", class_="faint"),
                class_="row",
            ),
            class_="stack wide",
        ),
    )


async def _examples(call: Call) -> Markup | None:
    """Queries about existing streams, as examples."""
    seen = await call.workspace.catalog.names()
    names = [name for name in seen.value.names if name.isidentifier()] if seen.value else []
    found = ["show tables"]
    for name in names[:EXAMPLES_MAX]:
        found += [example.format(name) for example in EXAMPLES]
    items = [
        tag("li", tag("a", text, href=address("sql", query=text), class_="mono")) for text in found
    ]
    return card("For example", tag("ul", items, class_="plain-list"))


def _shared(query: SqlQuery, **more: str | int | None) -> str:
    """The address of a page with this query, so that other visitors can run it themselves."""
    text = query.text if len(query.text) <= SHARED_CHARACTERS_MAX else None
    return address("sql", query=text, run=query.key, rows=query.rows_max, **more)


# ---------------------------------------------------------------------- answers


def _answer(call: Call, query: SqlQuery) -> list[Child]:
    if not query.is_over:
        return [_progress(call, query)]
    if query.state == "cancelled":
        return [tag("p", "The query was cancelled.", class_="notice warning", role="status")]
    if query.state == "failed":
        return [_failure(query)]
    names = query.header.columns
    took = f"{many(len(query), 'row')} in {query.passed:.1f} s"
    more = f"; there are more than the {count(query.rows_max)} that were asked for"
    note = tag("p", took + (more if query.has_more else ""), class_="faint", id="sql-took")
    is_chart = call.query.get("view") == "chart"
    parts = tabs(
        [("Table", _shared(query), not is_chart), ("Chart", _shared(query, view="chart"), is_chart)]
    )
    if not names:
        return [card("", note, tag("p", "There is nothing to show.", class_="empty"))]
    shown = _chart(call, query) if is_chart else _table(call, query)
    return [parts, card("", note, shown)]


def _progress(call: Call, query: SqlQuery) -> Markup:
    done, whole = query.tasks
    text = (
        "Spark is starting, which takes a few seconds"
        if query.state == "starting"
        else f"{count(done)} of {count(whole)} tasks are done"
        if whole
        else "The query is running"
    )
    bar = (
        tag("progress", value=done, max=whole, aria_label=text)
        if whole
        else tag("progress", aria_label=text)
    )
    cancel = form(call.visit, f"/sql/{query.key}/cancel", tag("button", "Cancel"))
    return card("", tag("p", f"{text} ({query.passed:.0f} s)", role="status"), bar, cancel)


def _failure(query: SqlQuery) -> Markup:
    where: Child = None
    lines = query.text.split("\n")
    if 0 < query.line <= len(lines):
        shown = lines[query.line - 1]
        column = min(max(query.column, 1), len(shown) + 1)
        begin = max(column - 61, 0)
        piece = shown[begin : begin + 120]
        mark = " " * (column - 1 - begin) + "^"
        where = [
            tag("p", f"Line {query.line}, column {column}:", class_="faint"),
            tag("pre", f"{piece}\n{mark}"),
        ]
    text = tag("p", query.error, class_="notice bad", role="alert")
    return card("The query failed", text, where)


def _table(call: Call, query: SqlQuery) -> list[Child]:
    first = min(number(call.query, "first"), max(len(query) - 1, 0))
    names = [
        f"{name}#" if is_number else name.rstrip("#")
        for name, is_number in zip(query.header.columns, query.header.numbers, strict=True)
    ]
    rows: list[list[Child]] = [
        [_cut(cell) for cell in row] for row in query.rows(first, ROWS_SHOWN)
    ]
    more = {"query": query.text[:SHARED_CHARACTERS_MAX], "run": query.key}
    return [
        table(names, rows, empty="No rows."),
        pager(("sql",), first, ROWS_SHOWN, len(query), **more),
    ]


def _cut(cell: str) -> str:
    return cell if len(cell) <= CELL_LENGTH else f"{cell[:CELL_LENGTH]}…"


def _chart(call: Call, query: SqlQuery) -> list[Child]:
    columns, is_number = query.header.columns, query.header.numbers
    numbers = [index for index, found in enumerate(is_number) if found]
    if not numbers or not len(query):
        hint = "A chart needs a column of numbers; for example: count(*) as orders."
        return [tag("p", hint, class_="empty")]
    wanted = call.query.get("value", "")
    value = columns.index(wanted) if wanted in columns else numbers[-1]
    value = value if value in numbers else numbers[-1]
    labels = [index for index in range(len(columns)) if index not in numbers] or [
        index for index in numbers if index != value
    ]
    rows = query.rows(0, BARS_MAX)
    bars = [(" ".join(row[index] for index in labels), _number(row[value])) for row in rows]
    others = [
        tag("a", columns[index], href=_shared(query, view="chart", value=columns[index]))
        for index in numbers
        if index != value
    ]
    left_out = len(query) - len(rows)
    return [
        tag("p", "Instead: ", [[link, " "] for link in others], class_="faint") if others else None,
        bar_chart(columns[value], bars),
        tag("p", f"The first {BARS_MAX} of {count(len(query))} rows.", class_="faint")
        if left_out
        else None,
    ]


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0


# ---------------------------------------------------------------------- asking


async def run(call: Call) -> Answer:
    """Run a query with the NATS login of this visitor."""
    call.check_may_run()
    text = call.fields.get("query", "").strip()
    if not text:
        raise BadFormError("query must not be empty; for example: select * from ORDERS limit 10")
    if len(text) > TEXT_CHARACTERS_MAX:
        raise BadFormError(f"query must have at most {TEXT_CHARACTERS_MAX:,} characters")
    rows = number(call.fields, "rows") or ROWS_DEFAULT
    if rows > ROWS_MAX:
        raise BadFormError(f"rows must be from 1 to {ROWS_MAX:,}, not {rows}")
    return RedirectAnswer(_shared(call.workspace.queries.ask(text, rows)))


async def cancel(call: Call) -> Answer:
    """Cancel a query."""
    query = call.workspace.queries.find(call.parts["run"])
    if query is None:
        return RedirectAnswer("/sql", "That query is no longer known.")
    query.cancel()
    return RedirectAnswer(_shared(query))
