"""Starts the parts of the demo in order, keeps them running, and stops them in reverse.

Owns the order. The folder contains the server's streams, the pipeline's file and checkpoint, and
the lake; a second run continues with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from importlib.resources import files
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import tradewind.sync
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.demo.demo_server import (
    Companion,
    DemoSettings,
    Screen,
    ensure_stream,
    start_server,
)
from tradewind.pipelines.demo.demo_table import DemoTable, ask_for_table
from tradewind.pipelines.demo.figures import DemoFigures
from tradewind.pipelines.demo.orders import STREAM, OrderPublisher
from tradewind.pipelines.demo.screen import DemoMoment, Places, starting_line, summary_lines
from tradewind.pipelines.errors import JobError
from tradewind.pipelines.jobs.job_pipelines import reached_seq
from tradewind.pipelines.machine.signals import stop_event
from tradewind.pipelines.running.runner import POLL_SECONDS, Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.pipeline_session import using_session
from tradewind.spark.processes.java import short_session_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.sync import Connection

PIPELINE_FILE: Final = "revenue.yaml"
LIVE_SINK: Final = "live"
CATCH_UP_SECONDS_MAX: Final = 120.0
WAIT_SECONDS: Final = 0.2
INTERRUPTED_SECONDS_MAX: Final = 15.0
SPARK_SETTINGS: Final = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


def run_demo(settings: DemoSettings, screen: Screen, dashboard: Companion | None = None) -> None:
    """Run until Ctrl-C or for `settings.seconds`; JobError if it fails or does not agree."""
    folder = settings.folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / PIPELINE_FILE
    if not file.exists():
        file.write_text(files("tradewind.pipelines.demo").joinpath(PIPELINE_FILE).read_text())
    pipeline = load_pipeline(file)
    with ExitStack() as opened:
        server = start_server(settings, opened, screen)
        dashboard_url = (
            ""
            if dashboard is None
            else opened.enter_context(dashboard(server.url, server.system_url))
        )
        if dashboard_url:
            screen.say(f"The dashboard is on {dashboard_url}")
        places = Places(
            server.url, server.monitor_url, str(folder), settings.program, dashboard_url
        )
        connection = opened.enter_context(tradewind.sync.connect(server.url, name="orders"))
        ensure_stream(connection)
        ask_for_table(connection.jetstream_manager(), folder)
        log_file = pipeline.log_file
        screen.say(f"Spark is starting, which takes a few seconds (log: {log_file})")
        java = {"spark.driver.extraJavaOptions": short_session_options(), **SPARK_SETTINGS}
        # Orders come at once, so that there is something to see while Spark starts.
        publisher = OrderPublisher(connection, settings.orders_per_second, time.time_ns())
        opened.callback(publisher.stop)
        publisher.start()
        with _shown_waiting(screen, publisher):
            spark = opened.enter_context(using_session(settings.master, log_file, java))
        stop = opened.enter_context(stop_event())
        runner = Runner(pipeline, spark, PipelineAddress(server.url), _no_console)
        with running(runner, pipeline.checkpoint):
            figures = DemoFigures(connection)
            moment = DemoMoment(places, 0, runner.status, figures)
            table = DemoTable(spark, PipelineAddress(server.url))
            opened.callback(table.close)
            try:
                _show_until(settings, runner, publisher, moment, screen, stop, table)
            finally:
                publisher.stop()
            moment.published = publisher.published.count
            last_seq = connection.jetstream_manager().streams.info(STREAM).state.last_seq
            _catch_up(runner, moment, screen, stop, last_seq)
            moment.tables = table.close()
            runner.stop("stopped")
            lines = _summary(connection, spark, settings, moment)
            figures.stop()
    for line in lines:
        screen.say(line)
    if any("NOT the same" in line for line in lines):
        raise JobError("the bucket and the stream do not agree")


@contextmanager
def _shown_waiting(screen: Screen, publisher: OrderPublisher) -> Iterator[None]:
    """Show how long Spark has been starting, and the orders meanwhile."""
    stop = Event()
    began = time.monotonic()

    def show() -> None:
        while not stop.wait(WAIT_SECONDS):
            passed = time.monotonic() - began
            screen.wait(starting_line(passed, publisher.published.count))

    thread = Thread(target=show, name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _no_console(*_arguments: object) -> None:
    """The pipeline of this job has no console sink, unless the user adds one."""


def _show_until(
    settings: DemoSettings,
    runner: Runner,
    publisher: OrderPublisher,
    moment: DemoMoment,
    screen: Screen,
    stop: Event,
    table: DemoTable,
) -> None:
    """Draw until the time is over or Ctrl-C; JobError if orders cannot be published."""
    deadline = None if settings.seconds is None else time.monotonic() + settings.seconds
    while runner.poll():
        moment.published = publisher.published.count
        moment.seconds_left = None if deadline is None else deadline - time.monotonic()
        moment.tables = table.poll(may_begin=moment.figures.totals().orders > 0)
        screen.draw(moment)
        if publisher.published.error:
            raise JobError(f"orders cannot be published: {publisher.published.error}")
        if stop.wait(POLL_SECONDS) or (deadline is not None and time.monotonic() >= deadline):
            return


def _catch_up(
    runner: Runner, moment: DemoMoment, screen: Screen, stop: Event, last_seq: int
) -> None:
    """Let the pipeline read up to `last_seq`, so that the summary is about all that was published.

    A lag of 0 is no proof: it may have been measured before the last orders came. After Ctrl-C
    the wait is short, and another Ctrl-C ends it.
    """
    was_stopped = stop.is_set()
    patience = INTERRUPTED_SECONDS_MAX if was_stopped else CATCH_UP_SECONDS_MAX
    deadline = time.monotonic() + patience
    moment.seconds_left = None
    moment.is_stopping = True
    while runner.poll():
        screen.draw(moment)
        live = next(query for query in runner.status.queries if query.name == LIVE_SINK)
        if reached_seq(live, STREAM) >= last_seq:
            return
        if time.monotonic() >= deadline or (stop.is_set() and not was_stopped):
            moment.notes.append("The pipeline had not read all of them yet; the next run does.")
            return
        time.sleep(POLL_SECONDS)


def _summary(
    connection: Connection, spark: SparkSession, settings: DemoSettings, moment: DemoMoment
) -> list[str]:
    """Count the stream itself, and compare."""
    state = connection.jetstream_manager().streams.info(STREAM).state
    is_whole = state.messages > 0 and state.first_seq == 1 and not moment.notes
    revenue = _stream_revenue(spark, moment.places.url) if is_whole else None
    if revenue is not None:
        _await_figures(moment.figures, revenue)
    lake = settings.folder / "lake" / "revenue"
    rows = spark.read.parquet(str(lake)).count() if any(lake.rglob("*.parquet")) else 0
    return summary_lines(moment, state.messages, revenue, rows)


def _stream_revenue(spark: SparkSession, url: str) -> Decimal:
    frame = spark.read.format("jetstream").options(servers=url, stream=STREAM).load()
    schema = "id bigint, item string, amount decimal(12,2)"
    row = frame.selectExpr(
        f"sum(from_json(cast(data as string), '{schema}').amount) as revenue"
    ).first()
    return Decimal(row["revenue"] or 0) if row else Decimal(0)


def _await_figures(figures: DemoFigures, revenue: Decimal) -> None:
    """The last changes of the bucket may still be on their way to us."""
    deadline = time.monotonic() + 10
    while figures.totals().revenue != revenue and time.monotonic() < deadline:
        time.sleep(0.05)
