"""`tradewind pipeline`: check, run, watch and explain data pipelines on Spark.

Owns the flags and the output; `tradewind.pipelines` does the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import flush, is_terminal, line, note, print_json, styled
from tradewind.cli.spark.spark_flags import spark_address
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from tradewind.pipelines.model import Pipeline, Sink
    from tradewind.pipelines.status import PipelineStatus

app = CommandApp("Data pipelines on Spark: streams, SQL and lakes")

PipelineFile = Annotated[Path, Argument(help="The YAML file of the pipeline")]
SinkName = Annotated[str, Option("--sink", help="Only this sink")]
PipelineMaster = Annotated[
    str,
    Option(
        "--master",
        help="Spark master, overriding the file: local[*], spark://HOST:7077",
    ),
]
LINE_SECONDS = 5.0


@app.command("check", aliases=("validate",))
def check_file(
    file: PipelineFile,
    offline: Annotated[bool, Option("--offline", help="Do not contact a server")] = False,
    no_spark: Annotated[bool, Option("--no-spark", help="Skip SQL and columns")] = False,
    master: PipelineMaster = "",
) -> None:
    """Validate a pipeline file without running it; errors name the line."""
    from tradewind.pipelines.checking import check_libraries_of, check_server, check_tables
    from tradewind.pipelines.loading import load_pipeline

    pipeline = load_pipeline(file)
    check_libraries_of(pipeline)
    address = spark_address()
    for problem in [] if offline else check_server(pipeline, address):
        note(f"{file}: {problem}")
    if not no_spark:
        check_tables(pipeline, _session(pipeline, master), address)
    checked = "file" if no_spark else "file, SQL and columns"
    line(
        f"{file}: {styled('right', 'green')} ({checked}): {len(pipeline.sources)} sources,"
        f" {len(pipeline.steps)} steps, {len(pipeline.sinks)} sinks"
    )


@app.command("run", aliases=("start",))
def run_file(
    file: PipelineFile,
    master: PipelineMaster = "",
    once: Annotated[
        bool, Option("--once", help="Stop when everything stored so far is processed")
    ] = False,
    seconds: Annotated[
        float | None, Option("--seconds", help="Stop after this time", min=0.1)
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Show no progress")] = False,
) -> None:
    """Run a pipeline; Ctrl-C stops it, and the next run resumes where it stopped."""
    from tradewind.pipelines.loading import load_pipeline
    from tradewind.pipelines.runner import Runner, running
    from tradewind.pipelines.signals import stop_event

    pipeline = load_pipeline(file)
    address = spark_address()
    if not quiet:
        note(f"pipeline {pipeline.name}: starting Spark (log: {_log_of(pipeline)})")
    session = _session(pipeline, master)
    if not quiet and pipeline.head.spark.ui is not False:
        note(f"pipeline {pipeline.name}: the Spark UI is at {session.sparkContext.uiWebUrl}")
    with _progress(is_shown=not quiet) as (update, show), stop_event() as stop:
        runner = Runner(pipeline, session, address, show, is_once=once)
        with running(runner, pipeline.checkpoint):
            runner.wait(stop, update, seconds)
    status = runner.status
    rows = sum(query.rows for query in status.queries)
    note(f"pipeline {pipeline.name} {status.state}: {rows:,} rows in this run")


@app.command("status", aliases=("ps",))
def show_status(
    file: PipelineFile,
    json: JsonFlag = False,
    watch: Annotated[bool, Option("--watch", "-w", help="Refresh every second")] = False,
) -> None:
    """Show the status of a pipeline: rows, rows per second and the lag of each stream."""
    from tradewind.cli.frame.failures import CommandError
    from tradewind.pipelines.display import status_table
    from tradewind.pipelines.loading import load_pipeline
    from tradewind.pipelines.status import read_status

    pipeline = load_pipeline(file)

    def read() -> PipelineStatus:
        status = read_status(pipeline.checkpoint)
        if status is None:
            raise CommandError(
                f"pipeline {pipeline.name} has not run yet",
                f"run it: tradewind pipeline run {file}",
            )
        return status

    if json:
        print_json(read())
        return
    if not watch:
        _console().print(status_table(read()))
        return
    from rich.live import Live

    with Live(status_table(read()), console=_console(), auto_refresh=False) as live:
        while True:
            time.sleep(1)
            live.update(status_table(read()), refresh=True)


@app.command("batches")
def show_batches(file: PipelineFile, json: JsonFlag = False) -> None:
    """Show the sequence ranges that recent batches have read from each stream."""
    from tradewind.cli.frame.failures import CommandError
    from tradewind.pipelines.loading import load_pipeline
    from tradewind.pipelines.query_batches import batch_documents, batches_of, batches_table

    pipeline = load_pipeline(file)
    found = batches_of(pipeline)
    if json:
        print_json(batch_documents(found))
    elif found:
        _console().print(batches_table(found))
    else:
        raise CommandError(
            f"pipeline {pipeline.name} has not read from any stream yet",
            f"run it: tradewind pipeline run {file}",
        )


@app.command("explain")
def explain_file(
    file: PipelineFile,
    no_spark: Annotated[bool, Option("--no-spark", help="Omit columns")] = False,
    plan: Annotated[bool, Option("--plan", help="Include Spark's plan of each sink")] = False,
    master: PipelineMaster = "",
) -> None:
    """Explain in words what a pipeline does, with the columns of every table."""
    from tradewind.pipelines.checking import check_tables
    from tradewind.pipelines.explaining import explain_lines, plan_lines
    from tradewind.pipelines.loading import load_pipeline

    pipeline = load_pipeline(file)
    frames = None
    if not no_spark:
        frames = check_tables(pipeline, _session(pipeline, master), spark_address())
    for each in explain_lines(pipeline, frames):
        line(each)
    if plan and frames is not None:
        for each in plan_lines(pipeline, frames):
            line(each)


@app.command("compact")
def compact_tables(
    file: PipelineFile,
    sink: SinkName = "",
    target_mib: Annotated[
        int, Option("--target-mib", help="Target file size", min=1, max=4096)
    ] = 128,
    orphan_hours: Annotated[
        int,
        Option("--orphan-hours", help="Remove orphaned files older than this", min=1),
    ] = 168,
    json: JsonFlag = False,
) -> None:
    """Compact small files of Delta and Iceberg tables and remove orphaned files."""
    from contextlib import nullcontext

    from tradewind.pipelines.compaction import SAFE_HOURS, compact
    from tradewind.pipelines.leases import locked
    from tradewind.pipelines.loading import load_pipeline
    from tradewind.pipelines.opening import lake_table

    pipeline = load_pipeline(file)
    names = _sinks_of(pipeline, sink, ("delta", "iceberg"), "small files cannot be compacted")
    # Younger files may be of a batch that is on its way, unless the pipeline is known to rest.
    resting = locked(pipeline.checkpoint) if orphan_hours < SAFE_HOURS else nullcontext()
    reports = []
    with resting:
        for name in names:
            table = lake_table(pipeline, pipeline.sinks[name])
            progress = _counter(f"groups of files of {name}")
            reports.append(compact(table, target_mib << 20, orphan_hours, progress))
    if json:
        print_json(reports)
        return
    for name, report in zip(names, reports, strict=True):
        line(
            f"{name}: {report.files_before:,} files became {report.files_after:,};"
            f" {report.removed:,} orphaned files were removed"
        )


@app.command("verify")
def verify_lakes(
    file: PipelineFile,
    sink: SinkName = "",
    columns: Annotated[
        str, Option("--columns", help="Compare only these columns, such as subject,data")
    ] = "",
    json: JsonFlag = False,
    master: PipelineMaster = "",
) -> int:
    """Verify that lakes match their streams; exit code 1 if they differ."""
    from tradewind.cli.frame.failures import EXIT_FAILED
    from tradewind.pipelines.loading import load_pipeline
    from tradewind.pipelines.verdicts import lines_of
    from tradewind.pipelines.verifying import LAKES, verify

    pipeline = load_pipeline(file)
    names = _sinks_of(pipeline, sink, LAKES, "there is no lake to compare")
    wanted = [name.strip() for name in columns.split(",") if name.strip()]
    note(f"pipeline {pipeline.name}: starting Spark (log: {_log_of(pipeline)})")
    session = _session(pipeline, master)
    verdicts = []
    for name in names:
        progress = _counter(f"tasks of this part of {name}")
        verdicts.append(verify(pipeline, session, spark_address(), name, wanted, progress))
        if not json:
            for each in lines_of(verdicts[-1]):
                line(each)
    if json:
        print_json(verdicts)
    outcomes = {verdict.outcome for verdict in verdicts}
    return 0 if "same" in outcomes and "different" not in outcomes else EXIT_FAILED


def _sinks_of(pipeline: Pipeline, wanted: str, kinds: tuple[str, ...], problem: str) -> list[str]:
    """The sinks of some kinds, or the one that is asked for."""
    from tradewind.cli.frame.failures import CommandError, near

    if wanted and wanted not in pipeline.sinks:
        raise CommandError(f"sink {wanted!r} does not exist{near(wanted, pipeline.sinks)}")
    chosen = [wanted] if wanted else list(pipeline.sinks)
    found = [name for name in chosen if pipeline.sinks[name].kind in kinds]
    if not found:
        kind = pipeline.sinks[wanted].kind if wanted else ""
        where = f"{wanted} is a {kind} sink" if wanted else f"{pipeline.name} has no such sink"
        raise CommandError(f"{where}: {problem}", f"this is for sinks of {', '.join(kinds)}")
    return found


def _counter(what: str) -> Callable[[int, int], None]:
    """Shows how far a long piece of work came, not too often."""
    due = [time.monotonic() + LINE_SECONDS]

    def show(done: int, whole: int) -> None:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + LINE_SECONDS
            note(f"{done:,} of {whole:,} {what}")

    return show


def _log_of(pipeline: Pipeline) -> Path:
    return pipeline.log_file


def _session(pipeline: Pipeline, master: str) -> Any:
    from tradewind.pipelines.pipeline_session import pipeline_session

    return pipeline_session(pipeline, master, _log_of(pipeline))


def _console() -> Any:
    from rich.console import Console

    wide = None if is_terminal(sys.stdout) else 200
    return Console(highlight=False, width=wide)


@contextmanager
def _progress(
    *, is_shown: bool
) -> Iterator[tuple[Callable[[PipelineStatus], None], Callable[[str, Sink, Any, int], None]]]:
    """What to call with each status, and with the rows of a console sink."""
    from tradewind.pipelines.display import status_line, status_table
    from tradewind.pipelines.row_text import batch_lines

    console = _console()

    def show(name: str, sink: Sink, batch: Any, number: int) -> None:
        for each in batch_lines(name, sink, batch, number, console.width):
            console.print(visible(each), markup=False, soft_wrap=True)
        flush()

    if not is_shown:
        yield lambda _status: None, show
    elif is_terminal(sys.stdout):
        from rich.live import Live

        with Live(console=console, auto_refresh=False) as live:
            yield lambda status: live.update(status_table(status), refresh=True), show
    else:
        due = [0.0]

        def log(status: PipelineStatus) -> None:
            if time.monotonic() >= due[0] or status.state != "running":
                due[0] = time.monotonic() + LINE_SECONDS
                note(status_line(status))

        yield log, show
