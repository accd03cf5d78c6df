"""The output of `tradewind pipeline run` and `status`.

Owns the display of a status: a table that is redrawn on a terminal, one line everywhere else.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tradewind.pipelines.state.status import PipelineStatus, QueryStatus
from tradewind.visible_text import visible, visible_lines

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {"starting": "yellow", "running": "green", "done": "green", "failed": "red"}


def status_table(status: PipelineStatus) -> Table:
    """A status as a table of its queries and streams."""
    from rich.table import Table
    from rich.text import Text

    title = Text(visible(f"pipeline {status.pipeline}: "))
    title.append(state_text(status), style=_COLOURS.get(status.state, ""))
    title.append(f", {since_text(status.started_ns)}")
    table = Table(title=title, title_justify="left")
    table.add_column("sink")
    table.add_column("to")
    for name in ("rows", "in all", "rows/s", "batches", "last batch", "bad"):
        table.add_column(name, justify="right")
    table.add_column("stream")
    table.add_column("lag", justify="right")
    table.add_column("behind", justify="right")
    for query in status.queries:
        cells = [
            query.name,
            query.target,
            f"{query.rows:,}",
            f"{query.rows_total:,}",
            f"{query.rows_per_second:,.0f}",
            f"{query.batches:,}",
            f"{query.batch_ms:,} ms" if query.batches else "",
            f"{query.bad_rows:,}",
        ]
        lags = [lag_texts(query, index) for index in range(len(query.lags))] or [("", "", "")]
        for index, lag in enumerate(lags):
            texts = [*(cells if index == 0 else [""] * len(cells)), *lag]
            table.add_row(*(Text(visible(text)) for text in texts))
    if status.error or status.note:
        shown = visible_lines(status.error or status.note)
        table.caption = Text(shown, style="red" if status.error else "yellow")
    return table


def lag_texts(query: QueryStatus, index: int) -> tuple[str, str, str]:
    """Stream, messages and seconds of one lag."""
    lag = query.lags[index]
    messages = "?" if lag.messages is None else f"{lag.messages:,}"
    seconds = "?" if lag.seconds is None else f"{lag.seconds:,.1f} s"
    return lag.stream, messages, seconds


def state_text(status: PipelineStatus) -> str:
    """The state; of a runner that was killed the file still says that it runs."""
    if status.state in ("starting", "running") and not status.is_alive:
        return f"gone (process {status.pid} no longer exists)"
    return status.state


def status_line(status: PipelineStatus) -> str:
    """A status as one line, for a log."""
    moment = datetime.fromtimestamp(status.updated_ns / 1e9, UTC).strftime("%H:%M:%S")
    parts = []
    for query in status.queries:
        lag = [one.messages for one in query.lags if one.messages is not None]
        behind = f", {max(lag):,} behind" if lag else ""
        parts.append(f"{query.name} {query.rows:,} rows ({query.rows_per_second:,.0f}/s{behind})")
    note = f" [{status.note}]" if status.note else ""
    return f"{moment} {status.pipeline} {state_text(status)}: {'; '.join(parts)}{note}"


def since_text(started_ns: int) -> str:
    """How long ago something was."""
    seconds = max(int(time.time() - started_ns / 1e9), 0)
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
