"""The parts of the page of one pipeline: its graph, charts, lags, batches and dead letters."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tradewind.api.names import KV_STREAM
from tradewind.dashboard.data.page_texts import count, many, short, span
from tradewind.dashboard.data.pipeline_data import SLOTS, PipelineLook, written_ranges
from tradewind.dashboard.data.series import KEPT_SECONDS, Point
from tradewind.dashboard.look.charts import Line, line_chart
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.graphs import Box, flow_graph
from tradewind.dashboard.look.page_layout import badge, card, figure_card, grid, table
from tradewind.pipelines.checks.explaining import explain_lines
from tradewind.pipelines.state.status import DEAD_SUFFIX, RECENT_MAX

if TYPE_CHECKING:
    from tradewind.dashboard.data.series import Series
    from tradewind.dashboard.views.call import Call
    from tradewind.pipelines.definition.model import Pipeline, Sink, Source, Step
    from tradewind.pipelines.state.status import BatchStatus, QueryStatus
    from tradewind.spark.progress.stream_lag import StreamLag

# The time that one bar of the chart of rows per second covers.
BIN_SECONDS: Final = 5.0
_SQL_WORD: Final = re.compile(r"\w{1,256}|[^\w\s`]")
QUERY_COLUMNS: Final = (
    "Sink",
    "Goes to",
    "Rows#",
    "In all#",
    "Rows per second#",
    "Batches#",
    "Last batch#",
    "Bad rows#",
    "Remembered rows#",
)
LAG_COLUMNS: Final = ("Sink", "Stream", "Read up to#", "Behind#", "Oldest unread#")
BATCH_COLUMNS: Final = (
    "Sink",
    "Batch#",
    "Stream",
    "Read#",
    "Rows#",
    "Took#",
    "Written#",
    "Planned",
    "State",
)
BATCHES_SHOWN: Final = 20


async def pipeline_content(call: Call, look: PipelineLook, series: Series) -> list[Child]:
    """Everything about a pipeline whose file is valid."""
    pipeline = look.known.pipeline
    if pipeline is None:
        return []
    return [
        _numbers(look),
        card("Data flow", _graph(pipeline, look)),
        _charts(look),
        _behind(look, series),
        _queries(look),
        await _dead_letters(call, pipeline, look),
        _batches(look),
        card(
            "Summary",
            tag("pre", "\n".join(explain_lines(pipeline))),
            tag("p", f"File: {look.known.path}", class_="faint"),
        ),
    ]


def _numbers(look: PipelineLook) -> Markup | None:
    queries = look.queries
    if not queries:
        return None
    behind = look.behind
    rate = sum(query.rows_per_second for query in queries) if look.is_alive else 0
    bad = sum(query.bad_rows for query in queries)
    return tag(
        "div",
        figure_card("Rows per second", short(rate)),
        figure_card("Rows in this run", count(sum(query.rows for query in queries))),
        figure_card("Rows in all", count(sum(query.rows_total for query in queries))),
        figure_card("Behind", "unknown" if behind is None else count(behind), "messages"),
        figure_card("Last batch", seconds_text(max(query.batch_ms for query in queries) / 1000)),
        figure_card("Bad rows", count(bad), "in this run", "warning" if bad else ""),
        class_="numbers",
    )


# ---------------------------------------------------------------------- the picture


def _graph(pipeline: Pipeline, look: PipelineLook) -> Markup:
    """The graph: sources, then steps by how many others they depend on, then sinks."""
    queries = {query.name: query for query in look.queries}
    lags = {lag.stream: lag for query in look.queries for lag in query.lags}
    depths = dict.fromkeys(pipeline.sources, 0)
    columns: list[list[Box]] = [
        [_source_box(name, source, lags) for name, source in pipeline.sources.items()]
    ]
    edges: list[tuple[str, str]] = []
    for name, step in pipeline.steps.items():
        used = _fed_by(step, sorted(pipeline.uses.get(name, ())))
        depths[name] = 1 + max((depths[each] for each in used), default=0)
        edges += [(f"table {each}", f"table {name}") for each in used]
        while len(columns) <= depths[name]:
            columns.append([])
        under = {"sql": "SQL", "python": step.python, "window": f"windows of {step.window}"}
        columns[depths[name]].append(Box(f"table {name}", name, under[step.kind]))
    last: list[Box] = []
    for name, sink in pipeline.sinks.items():
        last.append(_sink_box(name, sink, queries.get(name) if look.is_alive else None))
        edges.append((f"table {sink.input}", f"sink {name}"))
    for name, source in pipeline.sources.items():
        if source.payload is not None and source.payload.dead_letter is not None:
            stream = source.payload.dead_letter.stream
            href = address("streams", stream)
            last.append(Box(f"dead {name}", f"bad rows of {name}", f"stream {stream}", href, "bad"))
            edges.append((f"table {name}", f"dead {name}"))
    return flow_graph(f"The flow of {pipeline.name}", [*columns, last], edges)


def _fed_by(step: Step, used: list[str]) -> list[str]:
    """The tables that a step reads, without names that only stand for a column in its SQL."""
    tables = _tables_in(step.sql)
    return [name for name in used if name.lower() in tables] or used


def _tables_in(sql: str) -> set[str]:
    """The names after FROM and JOIN, also those of a list with its aliases, in lower case."""
    found: set[str] = set()
    behind: list[str] | None = None  # the words since the last name of a list
    is_name_next = is_list = False
    for word in _SQL_WORD.findall(sql.lower()):
        if word in ("from", "join"):
            is_name_next, is_list, behind = True, word == "from", None
        elif is_name_next:
            found.add(word)
            is_name_next, behind = False, [] if is_list else None
        elif behind is not None:
            is_alias = len(behind) < 2 or (len(behind) == 2 and behind[0] == "as")
            is_name_next = word == "," and is_alias
            behind = [*behind, word] if len(behind) < 2 and word != "," else None
    return found


def _source_box(name: str, source: Source, lags: dict[str, StreamLag]) -> Box:
    where = ", ".join(source.streams) or str(getattr(source, source.kind))
    under, href = f"{source.kind} {where}", ""
    stream = f"{KV_STREAM}{source.bucket}" if source.bucket else where
    if source.bucket:
        href = address("kv", source.bucket)
    elif len(source.streams) == 1 and not any(sign in where for sign in "*?["):
        href = address("streams", where)
    lag = lags.get(stream)
    if lag is not None and lag.messages is not None:
        under += f", {short(lag.messages)} behind" if lag.messages else ", all read"
    return Box(f"table {name}", name, under, href, "self")


def _sink_box(name: str, sink: Sink, query: QueryStatus | None) -> Box:
    where = "" if sink.console else sink.iceberg.table if sink.iceberg else getattr(sink, sink.kind)
    under = f"{sink.kind} {where}".rstrip()
    if query is not None and query.rows_per_second:
        under += f", {short(query.rows_per_second)}/s"
    href = address("streams", sink.stream) if sink.stream else ""
    if sink.bucket:
        href = address("kv", sink.bucket)
    return Box(f"sink {name}", name, under, href, "self")


# ---------------------------------------------------------------------- charts


def _charts(look: PipelineLook) -> Markup | None:
    if not look.queries:
        return None
    now = time.time()
    is_alive = look.is_alive
    rates = [Line(query.name, _rates(query, now, is_alive=is_alive)) for query in look.queries]
    times = [
        Line(
            query.name,
            [Point(one.done_ms / 1000, one.took_ms / 1000) for one in _charted(query, now)],
        )
        for query in look.queries
    ]
    if not any(line.points for line in (*rates, *times)):
        return None  # its last batch was long ago
    return grid(
        card("", line_chart("Rows per second", rates, now=now)),
        card("", line_chart("Time of a batch", times, label=seconds_text, now=now)),
    )


def _behind(look: PipelineLook, series: Series) -> Markup | None:
    """A chart of unread messages over time, with the present number."""
    if not any(query.lags for query in look.queries):
        return None
    if not look.is_alive:
        return _lags(look)
    lines = [
        Line(query.name, series.levels(f"behind{index}"))
        for index, query in enumerate(look.queries[:SLOTS])
        if query.lags
    ]
    chart = line_chart("Messages behind", lines, whole=True, now=time.time())
    return grid(card("", chart), _lags(look))


def _charted(query: QueryStatus, now: float) -> list[BatchStatus]:
    return [one for one in query.recent if one.done_ms / 1000 >= now - KEPT_SECONDS]


def _rates(query: QueryStatus, now: float, *, is_alive: bool) -> list[Point]:
    """The rows per second over periods of some seconds; no points where nothing is known."""
    batches = _charted(query, now)
    if not batches:
        return []
    first = batches[0].done_ms / 1000
    # The time before the oldest remembered batch is unknown.
    is_cut = len(query.recent) >= RECENT_MAX
    last = now if is_alive else batches[-1].done_ms / 1000
    bins = max(int((last - first) // BIN_SECONDS), 0) + 1
    rows = [0] * bins
    for one in batches[1:] if is_cut else batches:
        place = min(int((one.done_ms / 1000 - first) // BIN_SECONDS), bins - 1)
        rows[max(place, 0)] += one.rows
    # The newest period is not over yet.
    whole = rows[:-1] if is_alive and bins > 1 else rows
    return [
        Point(first + (index + 1) * BIN_SECONDS, number / BIN_SECONDS)
        for index, number in enumerate(whole)
    ]


def seconds_text(seconds: float) -> str:
    """A short duration in few characters."""
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.2g} s"


# ---------------------------------------------------------------------- tables


def _queries(look: PipelineLook) -> Markup | None:
    if not look.queries:
        return None
    rows: list[list[Child]] = [
        [
            [query.name, tag("small", f"late before {query.watermark}") if _is_late(query) else ""],
            query.target,
            count(query.rows),
            count(query.rows_total),
            short(query.rows_per_second) if look.is_alive else "",
            [count(query.batches), _restarts(query)],
            seconds_text(query.batch_ms / 1000) if query.batches else "",
            badge(count(query.bad_rows), "warning") if query.bad_rows else "0",
            count(query.state_rows),
        ]
        for query in look.queries
    ]
    return card("Sinks", table(QUERY_COLUMNS, rows, empty=""))


def _is_late(query: QueryStatus) -> bool:
    return bool(query.watermark) and not query.watermark.startswith("1970")


def _restarts(query: QueryStatus) -> Markup | None:
    return tag("small", many(query.restarts, "restart")) if query.restarts else None


def _lags(look: PipelineLook) -> Markup:
    rows: list[list[Child]] = [
        [
            query.name,
            tag("a", lag.stream, href=address("streams", lag.stream)),
            count(lag.seq) + ("" if lag.last_seq is None else f" of {count(lag.last_seq)}"),
            "unknown" if lag.messages is None else count(lag.messages),
            "unknown" if lag.seconds is None else span(lag.seconds) if lag.messages else "none",
        ]
        for query in look.queries
        for lag in query.lags
    ]
    return card("Streams that are read", table(LAG_COLUMNS, rows, empty=""))


async def _dead_letters(call: Call, pipeline: Pipeline, look: PipelineLook) -> Markup | None:
    """Where bad rows are sent, and how many there are."""
    bad = {query.name: query.bad_rows for query in look.queries}
    sent = {query.name: query.rows for query in look.queries}
    rows: list[list[Child]] = []
    notes: list[str] = []
    for name, source in pipeline.sources.items():
        payload = source.payload
        if payload is None:
            continue
        if payload.dead_letter is None:
            way = {"fail": "stop the pipeline", "skip": "are counted and skipped"}[payload.bad]
            notes.append(f"Bad rows of {name} {way}.")
            continue
        stream = payload.dead_letter.stream
        seen = await call.workspace.catalog.stream(stream)
        stored = count(seen.value.state.messages) if seen.value is not None else "unknown"
        link = tag("a", f"stream {stream}", href=address("streams", stream, "messages"))
        rows.append([name, link, count(sent.get(f"{name}{DEAD_SUFFIX}", 0)), stored])
    if not rows and not notes:
        return None
    total = sum(bad.values())
    notes.append(f"{many(total, 'bad row')} in this run." if total else "No bad rows in this run.")
    columns = ("Source", "Goes to", "In this run#", "Stored#")
    return card(
        "Dead letters",
        table(columns, rows, empty="") if rows else None,
        tag("p", " ".join(notes), class_="faint"),
    )


def _batches(look: PipelineLook) -> Markup | None:
    """The sequences that the last batches have read, and how far their targets have grown."""
    known = {query.name: query for query in look.queries}
    rows: list[list[Child]] = []
    for query, ranges in look.batches.items():
        status = known.get(query)
        told = {one.batch: one for one in status.recent} if status is not None else {}
        written = written_ranges(status) if status is not None else {}
        for one in reversed(ranges):
            batch = told.get(one.batch)
            is_done = one.state == "committed"
            rows.append(
                [
                    query,
                    str(one.batch),
                    tag(
                        "a",
                        one.stream,
                        href=address("streams", one.stream, "messages", start=one.first_seq),
                    ),
                    _range(one.first_seq, one.last_seq),
                    count(batch.rows) if batch is not None else "",
                    seconds_text(batch.took_ms / 1000) if batch is not None else "",
                    _range(*written[one.batch]) if one.batch in written else "",
                    _moment(one.planned_at),
                    badge(one.state, "good" if is_done else "warning"),
                ]
            )
    if not rows:
        return None
    newest = sorted(rows, key=_by_time, reverse=True)[:BATCHES_SHOWN]
    note = (
        "Read: sequences of the stream. Written: sequences by which the stream of the "
        "sink has grown"
        " in the meantime, where known."
    )
    return card("Batches", table(BATCH_COLUMNS, newest, empty=""), tag("p", note, class_="faint"))


def _by_time(row: Sequence[Child]) -> str:
    return str(row[7])


def _range(first: int, last: int) -> str:
    return f"{count(first)} to {count(last)}" if last > first else count(first)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
