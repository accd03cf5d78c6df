"""The output of the demo while it runs and when it ends.

Owns the texts and the layout. The module displays figures and statuses, and never starts anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tradewind.pipelines.demo.figures import DemoFigures, DemoTotals
from tradewind.pipelines.notation.text_charts import bar, sparkline
from tradewind.pipelines.running.display import since_text
from tradewind.pipelines.state.status import PipelineStatus
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from rich.console import Group

    from tradewind.pipelines.tables.table_status import TableStatus

CURVE_MINUTES: Final = 20
BAR_WIDTH: Final = 34
SPINNER: Final = "|/-\\"
SPINS_PER_SECOND: Final = 5
STREAM_SQL: Final = "select subject, sum(amount) as revenue from ORDERS group by 1"
LAKE_SQL: Final = "select * from lake order by minute, region"
COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue")


@dataclass(frozen=True)
class Places:
    """Where everything is."""

    url: str
    monitor_url: str
    folder: str
    program: str
    dashboard_url: str = ""

    def hints(self) -> list[tuple[str, str]]:
        """Commands to try in another terminal, and what they show."""
        server = f"{self.program} -s {self.url}"
        file = f"{self.folder}/revenue.yaml"
        lake = f"{self.folder}/lake/revenue"
        return [
            (f"{server} sub 'orders.*'", "the orders as they arrive"),
            (f"{server} stream info ORDERS", "the stream they are kept in"),
            (f"{self.program} pipeline status {file}", "rows per second and lag"),
            (f"{server} sql '{STREAM_SQL}' --chart", "SQL on the stream"),
            (f"{server} sql '{LAKE_SQL}' --table lake={lake}", "SQL on the lake"),
            (f"{server} table status", "the table of all orders"),
            (f"curl {self.monitor_url}/jsz", "the server's own figures"),
        ]


@dataclass
class DemoMoment:
    """The figures and statuses at one moment of the run."""

    places: Places
    published: int
    status: PipelineStatus
    figures: DemoFigures
    seconds_left: float | None = None
    is_stopping: bool = False
    notes: list[str] = field(default_factory=list)
    tables: Sequence[TableStatus] = ()


def starting_line(seconds: float, published: int) -> str:
    """How long Spark has been starting, and the orders meanwhile."""
    turn = SPINNER[int(seconds * SPINS_PER_SECOND) % len(SPINNER)]
    return f"{turn} Spark is starting: {seconds:.0f} s; {published:,} orders published meanwhile"


def table_line(moment: DemoMoment) -> str:
    """The table of the orders; empty before it has begun."""
    parts = []
    for status in moment.tables:
        figures = status.figures
        behind = status.behind_messages
        text = f"Table of {status.stream}: {figures.rows:,} rows in {figures.files:,} files"
        text += f", version {figures.version}" if figures.version else ""
        text += f", {behind:,} messages behind" if behind is not None else ""
        parts.append(f"{text} ({status.error})" if status.error else text)
    return "; ".join(parts)


def flow_line(moment: DemoMoment) -> str:
    """From the publisher to the sinks in one line."""
    parts = [f"{moment.published:,} orders published"]
    for query in moment.status.queries:
        lag = next((one for one in query.lags if one.messages is not None), None)
        behind = f", {lag.messages:,} behind" if lag is not None else ""
        parts.append(f"{query.name}: {query.rows:,} rows at {query.rows_per_second:,.0f}/s{behind}")
    note = f" [{moment.status.note}]" if moment.status.note else ""
    return " -> ".join(parts[:1]) + " -> " + "; ".join(parts[1:]) + note


def chart_lines(figures: DemoFigures, *, is_plain: bool = False) -> list[str]:
    """Bars of the latest minute, and a curve over the last ones, for each region."""
    minutes = figures.minutes()
    if not minutes:
        return ["(the first figures arrive with the first batch)"]
    latest = figures.of_minute(minutes[-1])
    largest = max(float(figure.revenue) for figure in latest.values())
    width = max(len(visible(region)) for region in latest)
    lines = [f"Revenue by region in the minute {minute_text(minutes[-1])}"]
    for region, figure in latest.items():
        drawn = bar(float(figure.revenue), largest, BAR_WIDTH)
        curve = sparkline(figures.curve(region, minutes[-CURVE_MINUTES:]))
        if is_plain:
            drawn, curve = "#" * len(drawn), ""
        number = f"{figure.revenue:,.2f}"
        lines.append(
            f"{visible(region):<{width}}  "
            f"{drawn:<{BAR_WIDTH}}  {number:>10}  {figure.orders:>5} orders"
            f"  {curve}".rstrip()
        )
    return lines


def minute_text(minute: str) -> str:
    """A minute as it is in keys (a colon cannot be in one), for people."""
    day, _, clock = minute.partition("T")
    return f"{day} {clock.replace('-', ':')} UTC"


def picture(moment: DemoMoment) -> Group:
    """Everything, for a terminal that is drawn again and again."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    head = Text(f"Tradewind at {moment.places.url}", style="bold")
    head.append(f", running for {since_text(moment.status.started_ns)}", style="")
    if moment.seconds_left is not None:
        head.append(f", {max(moment.seconds_left, 0):.0f} s to go", style="dim")
    if moment.is_stopping:
        head.append("; it stops when the pipeline has read everything (Ctrl-C: at once)")
    title, *rows = chart_lines(moment.figures)
    chart = Text(f"{title}\n\n" if rows else title)
    for index, row in enumerate(rows):
        chart.append(row, style=COLOURS[index % len(COLOURS)])
        chart.append("\n" if index < len(rows) - 1 else "")
    if moment.places.dashboard_url:
        head.append(f"\nDashboard: {moment.places.dashboard_url}", style="bold cyan")
    totals = moment.figures.totals()
    chart.append(f"\n\n{totals_line(totals)}", style="bold")
    hints = Text("Ctrl-C stops it. In another terminal:", style="dim")
    for command, what in moment.places.hints():
        hints.append(f"\n  {command}", style="dim")
        hints.append(f"   # {what}", style="dim italic")
    flow = Text(flow_line(moment))
    if kept := table_line(moment):
        flow.append(f"\n{visible(kept)}")
    return Group(head, flow, Panel(chart, expand=False), hints)


def totals_line(totals: DemoTotals) -> str:
    """All that was sold so far."""
    return (
        f"In all: {totals.revenue:,.2f} from {totals.orders:,} orders in {totals.minutes:,} minutes"
    )


def summary_lines(
    moment: DemoMoment, stream_messages: int, stream_revenue: Decimal | None, lake_rows: int
) -> list[str]:
    """The summary of a run. `stream_revenue` is the sum over the stream itself, if known."""
    totals = moment.figures.totals()
    published = f"Published {moment.published:,} orders in this run"
    lines = ["", f"{published}; stream ORDERS has {stream_messages:,} messages."]
    lines += [*chart_lines(moment.figures), totals_line(totals)]
    if stream_revenue is not None:
        word = "the same as" if stream_revenue == totals.revenue else "NOT the same as"
        lines.append(
            f"Checked: the bucket has {totals.revenue:,.2f}, {word} the sum over the stream"
            f" ({stream_revenue:,.2f})."
        )
    folder = moment.places.folder
    lines.append(f"The lake has {lake_rows:,} rows of finished minutes in {folder}/lake/revenue.")
    if kept := table_line(moment):
        lines.append(f"{kept}; in {folder}/tables.")
    lines += [*moment.notes, f"Everything is kept in {folder}; the next run continues."]
    return lines
