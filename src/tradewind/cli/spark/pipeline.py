"""`tradewind pipeline`: check, run, watch and explain data pipelines on Spark.

Owns the flags and the output; `tradewind.pipelines` does the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import flush, is_terminal, line, note, print_json, styled
from tradewind.cli.spark.spark_flags import spark_address
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from tradewind.pipelines.definition.model import Pipeline, Sink
    from tradewind.pipelines.lake.maintenance import MaintenanceReport
    from tradewind.pipelines.state.status import PipelineStatus

app = CommandApp("Data pipelines on Spark: streams, SQL and lakes")

PipelineFile = Annotated[Path, Argument(help="The YAML file of the pipeline")]
PipelineFiles = Annotated[
    list[Path], Argument(metavar="FILE...", help="The YAML files of pipelines")
]
ParameterFlag = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Value of a parameter ${NAME}; repeatable"),
]
SinkName = Annotated[str, Option("--sink", help="Only this sink")]
PipelineMaster = Annotated[
    str,
    Option(
        "--master",
        help="Spark master, overriding the file: local[*,4], spark://HOST:7077",
    ),
]
LINE_SECONDS = 5.0


@app.command("check", aliases=("validate",))
def check_file(
    file: PipelineFile,
    offline: Annotated[bool, Option("--offline", help="Do not contact a server")] = False,
    no_spark: Annotated[bool, Option("--no-spark", help="Skip SQL and columns")] = False,
    master: PipelineMaster = "",
    parameters: ParameterFlag = None,
) -> int:
    """Validate a pipeline file without running it; exit code 1 if a server cannot be asked."""
    from tradewind.cli.frame.failures import EXIT_FAILED
    from tradewind.pipelines.checks.checking import check_libraries_of, check_server, check_tables
    from tradewind.pipelines.payloads.schema_types import check_types

    pipeline = _load(file, parameters)
    check_types(pipeline)
    check_libraries_of(pipeline)
    address = spark_address()
    problems = [] if offline else check_server(pipeline, address)
    for problem in problems:
        note(f"{file}: {problem}")
    if not no_spark:
        check_tables(pipeline, _session(pipeline, master), address)
    checked = "file" if no_spark else "file, SQL and columns"
    what = (
        f"{len(pipeline.sources)} sources, {len(pipeline.steps)} steps, {len(pipeline.sinks)} sinks"
    )
    if problems:
        note(f"{file}: not all of it was checked ({checked}): {what}; --offline leaves servers out")
        return EXIT_FAILED
    line(f"{file}: {styled('right', 'green')} ({checked}): {what}")
    return 0


@app.command("run", aliases=("start",))
def run_files(
    files: PipelineFiles,
    master: PipelineMaster = "",
    once: Annotated[
        bool, Option("--once", help="Stop when everything stored so far is processed")
    ] = False,
    seconds: Annotated[
        float | None, Option("--seconds", help="Stop after this time", min=0.1)
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Show no progress")] = False,
    parameters: ParameterFlag = None,
) -> int:
    """Run pipelines; Ctrl-C stops them, and the next run resumes where they stopped."""
    from tradewind.cli.frame.failures import EXIT_FAILED
    from tradewind.errors import TradewindError
    from tradewind.pipelines.machine.signals import stop_event
    from tradewind.pipelines.running.runner import Runner
    from tradewind.pipelines.running.together import check_together, own_session, run_together

    pipelines = _load_all(files, parameters)
    check_together(pipelines)
    address = spark_address()
    session = _run_session(pipelines, master, quiet=quiet)
    failures: list[TradewindError] = []

    def fail(error: TradewindError) -> None:
        failures.append(error)
        if len(pipelines) > 1:
            note(str(error))

    with _progress(is_shown=not quiet) as (update, show), stop_event() as stop:

        def make(pipeline: Pipeline) -> Runner:
            own = session if len(pipelines) == 1 else own_session(pipeline, session)
            return Runner(pipeline, own, address, show, is_once=once)

        makers = [partial(make, pipeline) for pipeline in pipelines]
        runners = run_together(makers, stop, update, fail, seconds)
    if failures and len(pipelines) == 1:
        raise failures[0]
    for status in (runner.status for runner in runners):
        rows = sum(query.rows for query in status.queries)
        note(f"pipeline {status.pipeline} {status.state}: {rows:,} rows in this run")
    return EXIT_FAILED if failures else 0


@app.command("test")
def run_tests(
    files: PipelineFiles,
    only: Annotated[list[str] | None, Option("--only", help="Only this test; repeatable")] = None,
    master: PipelineMaster = "",
    parameters: ParameterFlag = None,
) -> int:
    """Run the tests of pipeline files: sample messages in, expected rows out, no server."""
    from tradewind.cli.frame.failures import EXIT_FAILED
    from tradewind.pipelines.checks.case_runs import case_session, run_case
    from tradewind.pipelines.definition.case_messages import check_chosen

    pipelines = _load_all(files, parameters, with_tests=True)
    chosen = {pipeline.document.path: check_chosen(pipeline, only or []) for pipeline in pipelines}
    failed = 0
    for pipeline in pipelines:
        session = case_session(_session(pipeline, master))
        for name in chosen[pipeline.document.path]:
            result = run_case(pipeline, session, name)
            state = styled("failed", "red") if result.problems else styled("ok", "green")
            place = f"{result.file}:{result.line}"
            line(f"{state} {visible(name)} ({place}, {result.seconds:.1f} s)")
            for problem in result.problems:
                line(f"  {visible(problem)}")
            failed += bool(result.problems)
    count = sum(map(len, chosen.values()))
    line(f"{count - failed} of {count} tests passed")
    return EXIT_FAILED if failed else 0


@app.command("status", aliases=("ps",))
def show_status(
    file: PipelineFile,
    json: JsonFlag = False,
    watch: Annotated[bool, Option("--watch", "-w", help="Refresh every second")] = False,
    parameters: ParameterFlag = None,
) -> None:
    """Show the status of a pipeline: rows, rows per second and the lag of each stream."""
    from tradewind.cli.frame.failures import CommandError
    from tradewind.pipelines.running.display import status_table
    from tradewind.pipelines.state.status import read_status

    pipeline = _load(file, parameters)

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
def show_batches(
    file: PipelineFile, json: JsonFlag = False, parameters: ParameterFlag = None
) -> None:
    """Show the sequence ranges that recent batches have read from each stream."""
    from tradewind.cli.frame.failures import CommandError
    from tradewind.pipelines.state.query_batches import batch_documents, batches_of, batches_table

    pipeline = _load(file, parameters)
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
    parameters: ParameterFlag = None,
) -> None:
    """Explain in words what a pipeline does, with the columns of every table."""
    from tradewind.pipelines.checks.checking import check_tables
    from tradewind.pipelines.checks.explaining import explain_lines, plan_lines
    from tradewind.pipelines.definition.pipeline_parameters import hide

    pipeline = _load(file, parameters)
    frames = None
    if not no_spark:
        frames = check_tables(pipeline, _session(pipeline, master), spark_address())
    secrets = pipeline.document.secrets
    for each in explain_lines(pipeline, frames):
        line(hide(each, secrets))
    if plan and frames is not None:
        for each in plan_lines(pipeline, frames):
            line(hide(each, secrets))


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
    expire: Annotated[
        str,
        Option("--expire", help="Expire snapshots that were replaced longer ago, such as 7d"),
    ] = "",
    keep_snapshots: Annotated[
        int, Option("--keep-snapshots", help="Never expire the latest ones", min=1)
    ] = 10,
    max_seconds: Annotated[
        int,
        Option("--max-seconds", help="Leave the rest for the next time; 0 for no limit", min=0),
    ] = 0,
    json: JsonFlag = False,
    parameters: ParameterFlag = None,
) -> None:
    """Compact small files of Delta and Iceberg tables, expire snapshots, remove orphaned files."""
    from contextlib import nullcontext

    from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
    from tradewind.cli.frame.text_formats import parse_duration_ns
    from tradewind.durations import SECOND_NS
    from tradewind.pipelines.lake.compaction import SAFE_HOURS
    from tradewind.pipelines.lake.maintenance import MaintenancePolicy, maintain
    from tradewind.pipelines.lake.opening import lake_table
    from tradewind.pipelines.state.leases import locked

    age_ns = parse_duration_ns(expire, "--expire")
    if expire and age_ns <= 0:
        text = f"--expire: {expire!r} is not longer than 0; use 12h or 7d"
        raise CommandError(text, exit_code=EXIT_USAGE)
    policy = MaintenancePolicy(
        target_mib << 20,
        age_ns / SECOND_NS if expire else None,
        keep_snapshots,
        orphan_hours * 3600,
        max_seconds or None,
        None,
        is_thorough=True,
    )
    pipeline = _load(file, parameters)
    names = _sinks_of(pipeline, sink, ("delta", "iceberg"), "small files cannot be compacted")
    # Younger files may be of a batch that is on its way, unless the pipeline is known to rest.
    resting = locked(pipeline.checkpoint) if orphan_hours < SAFE_HOURS else nullcontext()
    reports = []
    with resting:
        for name in names:
            table = lake_table(pipeline, pipeline.sinks[name])
            progress = _counter(f"groups of files of {name}")
            reports.append(maintain(table, policy, progress))
    if json:
        print_json(reports)
        return
    for name, report in zip(names, reports, strict=True):
        for each in _maintenance_lines(name, report):
            line(each)


@app.command("verify")
def verify_lakes(
    file: PipelineFile,
    sink: SinkName = "",
    columns: Annotated[
        str, Option("--columns", help="Compare only these columns, such as subject,data")
    ] = "",
    json: JsonFlag = False,
    master: PipelineMaster = "",
    parameters: ParameterFlag = None,
) -> int:
    """Verify that lakes match their streams; exit code 1 if they differ."""
    from tradewind.cli.frame.failures import EXIT_FAILED
    from tradewind.pipelines.checks.verifying import LAKES, verify
    from tradewind.pipelines.state.verdicts import lines_of

    pipeline = _load(file, parameters)
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


def _load(file: Path, given: list[str] | None) -> Pipeline:
    return _load_all([file], given)[0]


def _load_all(
    files: list[Path], given: list[str] | None, *, with_tests: bool = False
) -> list[Pipeline]:
    """The pipelines of files with the parameters of the command line, all of which are used."""
    from tradewind.pipelines.definition.loading import cases_file_of, load_pipeline
    from tradewind.pipelines.definition.pipeline_parameters import Parameters, parse_settings

    values = Parameters(parse_settings(given or []))
    pipelines = [
        load_pipeline(file, values, cases_file_of(file) if with_tests else None) for file in files
    ]
    values.check_used()
    return pipelines


def _run_session(pipelines: list[Pipeline], master: str, *, quiet: bool) -> Any:
    """The session of one pipeline, or a common one."""
    from tradewind.pipelines.running.together import common_session

    first = pipelines[0]
    names = ", ".join(pipeline.name for pipeline in pipelines)
    what = f"pipeline{'s' if len(pipelines) > 1 else ''} {names}"
    if not quiet:
        note(f"{what}: starting Spark (log: {_log_of(first)})")
    if len(pipelines) == 1:
        session = _session(first, master)
    else:
        session = common_session(pipelines, master, _log_of(first))
    if not quiet and any(pipeline.head.spark.ui is not False for pipeline in pipelines):
        note(f"{what}: the Spark UI is at {session.sparkContext.uiWebUrl}")
    return session


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


def _maintenance_lines(name: str, report: MaintenanceReport) -> Iterator[str]:
    """Lines about the maintenance of a table, and the table in numbers."""
    from tradewind.cli.frame.text_formats import counted, size_text

    found = report.figures
    expired = f" {counted(report.snapshots_expired, 'snapshot')} expired;"
    yield (
        f"{name}: {report.files_before:,} files became {report.files_after:,};"
        f"{expired if report.snapshots_expired else ''}"
        f" {report.removed:,} orphaned files were removed"
    )
    rows = f"{counted(found.rows, 'row')}, " if found.is_exact else ""
    yield (
        f"  {rows}{size_text(found.bytes)} in {counted(found.files, 'file')} of"
        f" {size_text(found.average_file_bytes)} on average, {found.small_files:,} of them small;"
        f" {counted(found.snapshots, 'snapshot')}"
    )
    if report.groups_left:
        groups = counted(report.groups_left, "group")
        yield f"  {groups} of small files left for the next time"


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
    from tradewind.pipelines.sessions.pipeline_session import pipeline_session

    return pipeline_session(pipeline, master, _log_of(pipeline))


def _console() -> Any:
    from rich.console import Console

    wide = None if is_terminal(sys.stdout) else 200
    return Console(highlight=False, width=wide)


@contextmanager
def _progress(
    *, is_shown: bool
) -> Iterator[tuple[Callable[[PipelineStatus], None], Callable[[str, Sink, Any, int], None]]]:
    """The functions to call with each status, and with the rows of a console sink."""
    from tradewind.pipelines.notation.row_text import batch_lines
    from tradewind.pipelines.running.display import status_line, status_table

    console = _console()

    def show(name: str, sink: Sink, batch: Any, number: int) -> None:
        for each in batch_lines(name, sink, batch, number, console.width):
            console.print(visible(each), markup=False, soft_wrap=True)
        flush()

    if not is_shown:
        yield lambda _status: None, show
    elif is_terminal(sys.stdout):
        from rich.console import Group
        from rich.live import Live

        tables: dict[str, Any] = {}
        with Live(console=console, auto_refresh=False) as live:

            def draw(status: PipelineStatus) -> None:
                tables[status.pipeline] = status_table(status)
                live.update(Group(*tables.values()), refresh=True)

            yield draw, show
    else:
        due: dict[str, float] = {}

        def log(status: PipelineStatus) -> None:
            is_due = time.monotonic() >= due.get(status.pipeline, 0.0)
            if is_due or status.state != "running":
                due[status.pipeline] = time.monotonic() + LINE_SECONDS
                note(status_line(status))

        yield log, show
