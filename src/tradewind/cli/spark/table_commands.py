"""`tradewind table`: streams and buckets as lake tables, kept up to date by themselves.

Owns the flags and the output; `tradewind.pipelines.tables` does the work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import (
    Argument,
    CommandApp,
    ForceFlag,
    JsonFlag,
    Option,
    with_flags,
)
from tradewind.cli.frame.output import Columns, Table, line, note, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, manager
from tradewind.cli.frame.text_formats import size_text
from tradewind.cli.spark.spark_flags import MasterFlag, spark_address
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from tradewind.pipelines.tables.stream_tables import StreamTable
    from tradewind.pipelines.tables.table_spec import TableSpec
    from tradewind.pipelines.tables.table_status import TableStatus

app = CommandApp("Streams and buckets as lake tables")
LINE_SECONDS = 5.0
TableStream = Annotated[str, Argument(metavar="STREAM", help="Stream name")]


@dataclass
class TableFlags:
    """The definition of a table; the names are those of the metadata."""

    to: Annotated[
        str, Option("--to", metavar="PLACE", help="Folder or URL; the warehouse of Iceberg tables")
    ] = ""
    format: Annotated[str, Option("--format", help="iceberg, delta or parquet")] = "iceberg"
    table: Annotated[
        str, Option("--table", metavar="NAMESPACE.NAME", help="Name in the Iceberg catalog")
    ] = ""
    catalog: Annotated[
        list[str] | None,
        Option("--catalog", metavar="KEY=VALUE", help="Iceberg catalog; SQLite in the warehouse"),
    ] = None
    payload: Annotated[str, Option("--payload", help="Format of payloads")] = "json"
    schema: Annotated[str, Option("--schema", help="infer, raw, file:PATH, or names and types")] = (
        "infer"
    )
    partition: Annotated[
        str, Option("--partition", metavar="COLUMNS", help="Such as day,subject")
    ] = ""
    every: Annotated[str, Option("--every", metavar="DURATION", help="Time between commits")] = "1m"
    rows: Annotated[
        str, Option("--rows", help="messages; of a bucket latest (default) or changes")
    ] = "messages"
    keep_data: Annotated[
        bool, Option("--keep-data", help="Store payloads beside their columns")
    ] = False
    tier: Annotated[
        bool, Option("--tier", help="Let the table stand for messages that limits removed")
    ] = False
    tier_limit: Annotated[
        list[str] | None,
        Option("--tier-limit", metavar="KEY=VALUE", help="Limit of verified messages: max_age=7d"),
    ] = None
    dead_letters: Annotated[
        str, Option("--dead-letters", metavar="STREAM", help="Stream for invalid payloads")
    ] = ""
    data_loss: Annotated[
        str, Option("--data-loss", help="If messages were removed unread: fail or continue")
    ] = "fail"


@app.command("add", aliases=("create", "new"))
@with_flags(TableFlags)
def add_table(
    stream: Annotated[str, Argument(metavar="[STREAM]", help="Stream name")] = "",
    *,
    bucket: Annotated[str, Option("--bucket", help="A key-value bucket instead")] = "",
    force: ForceFlag = False,
    flags: TableFlags,
) -> None:
    """Keep a stream or bucket as a table; `tradewind table run` does the work."""
    from tradewind.pipelines.tables.stream_tables import find_table, put_table
    from tradewind.pipelines.tables.table_decoders import table_decoder
    from tradewind.pipelines.tables.tier_limits import removing_limits

    name = _named(stream, bucket)
    spec = _spec(name, flags)
    table_decoder(name, spec, spark_address())
    with connect() as connection:
        streams = manager(connection)
        before = _present(find_table, streams, name)
        if before is not None and before.spec != spec:
            confirm_or_stop(f"Really change the table of {name}; its files are kept", force=force)
        put_table(streams, name, spec)
        removing = removing_limits(streams.streams.info(name).config) if spec.tiers else []
    word = "was added" if before is None else "was changed"
    if before is not None and before.spec == spec:
        word = "is the same as before"
    line(f"Table of {name} {word}: {spec.format} in {spec.to}")
    if removing:
        note(
            f"not protected: {', '.join(removing)} of the stream may remove messages before the"
            " table has them; see --tier-limit"
        )
    if before is None:
        note("keep it up to date with: tradewind table run")


def _present(find: Callable[..., StreamTable], streams: Any, name: str) -> StreamTable | None:
    from tradewind.pipelines.errors import PipelineError

    try:
        return find(streams, name)
    except PipelineError as error:
        if "has no table" in str(error):
            return None
        raise


def _named(stream: str, bucket: str) -> str:
    from tradewind.api.names import KV_STREAM

    if bool(stream) == bool(bucket):
        raise CommandError(
            "specify a stream or --bucket NAME",
            "for example:  tradewind table add ORDERS --to lake/orders",
            exit_code=EXIT_USAGE,
        )
    return stream or KV_STREAM + bucket


def _spec(stream: str, flags: TableFlags) -> TableSpec:
    """The table that the flags say; relative paths are of the current folder."""
    import msgspec

    from tradewind.pipelines.tables.table_spec import TableSpec, for_stream, problem_with

    if not flags.to:
        raise CommandError("specify where the table is: --to FOLDER", exit_code=EXIT_USAGE)
    schema = flags.schema
    if schema.startswith("file:"):
        schema = f"file:{Path(schema.removeprefix('file:')).absolute()}"
    values = {
        "to": flags.to if "://" in flags.to else str(Path(flags.to).absolute()),
        "format": flags.format,
        "table": flags.table,
        "catalog": _pairs("--catalog", flags.catalog or []),
        "payload": flags.payload,
        "schema": schema,
        "partition": [name.strip() for name in flags.partition.split(",") if name.strip()],
        "every": flags.every,
        "rows": flags.rows,
        "keeps_data": flags.keep_data,
        "tiers": flags.tier,
        "tier_limits": _pairs("--tier-limit", flags.tier_limit or []),
        "dead_letters": flags.dead_letters,
        "data_loss": flags.data_loss,
    }
    try:
        spec = for_stream(stream, msgspec.convert(values, TableSpec))
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$.")
        raise CommandError(
            f"{_flag(at.rstrip('`'))}: {problem[0].lower()}{problem[1:]}", exit_code=EXIT_USAGE
        ) from None
    key, problem = problem_with(stream, spec)
    if problem:
        raise CommandError(f"{_flag(key)}: {problem}", exit_code=EXIT_USAGE)
    return spec


def _flag(key: str) -> str:
    renamed = {"keeps_data": "keep-data", "tiers": "tier", "tier_limits": "tier-limit"}
    return f"--{renamed.get(key, key).replace('_', '-')}"


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, is_pair, value = text.partition("=")
        if not is_pair or not key:
            raise CommandError(f"{flag} {text!r} is not KEY=VALUE", exit_code=EXIT_USAGE)
        found[key] = value
    return found


@app.command("ls", aliases=("list", "l"))
def list_all(json: JsonFlag = False) -> None:
    """List the streams and buckets that have a table."""
    from tradewind.pipelines.tables.stream_tables import list_tables

    with connect() as connection:
        found = list_tables(manager(connection))
    if json:
        print_json([_document(table) for table in found])
        return
    if not found:
        line("No tables; add one with: tradewind table add STREAM --to FOLDER")
        return
    table = Table(
        "Tables",
        *("Stream", "Format", "Place", "Rows", "Every", "Partition"),
        shorten=("Place",),
        drop=("Rows", "Partition", "Every"),
    )
    for one in found:
        if one.spec is None:
            table.row(one.stream, "", one.problem, "", "", "")
            continue
        spec = one.spec
        parts = ", ".join(spec.partition)
        place = f"{spec.to} ({one.problem})" if one.problem else spec.to
        table.row(one.stream, spec.format, place, spec.rows, spec.every, parts)
    table.print()


def _document(table: StreamTable) -> dict[str, Any]:
    import msgspec

    spec = {} if table.spec is None else msgspec.structs.asdict(table.spec)
    if spec.get("catalog"):
        spec["catalog"] = _shown_catalog(spec["catalog"])
    return {"stream": table.stream, **spec, "problem": table.problem}


def _shown_catalog(catalog: dict[str, str]) -> dict[str, str]:
    from tradewind.pipelines.definition.spark_settings import HIDDEN, is_secret

    return {key: HIDDEN if is_secret(key) else value for key, value in catalog.items()}


@app.command("info", aliases=("show",))
def show_table(stream: TableStream, json: JsonFlag = False) -> None:
    """Show the table of a stream: what was asked for, and what is there."""
    from tradewind.pipelines.tables.stream_tables import find_table
    from tradewind.pipelines.tables.table_spec import table_name
    from tradewind.pipelines.tables.table_status import (
        TableFigureReader,
        read_table_status,
        state_place,
    )

    with connect() as connection:
        table = find_table(manager(connection), stream)
    if table.spec is None or table.problem:
        raise CommandError(f"table of {stream}: {table.problem}")
    spec = table.spec
    figures = TableFigureReader(stream, spec).read()
    status = read_table_status(state_place(stream, spec))
    if json:
        print_json({**_document(table), "figures": figures, "status": status})
        return
    columns = Columns(f"Table of {stream}")
    columns.row("Place", spec.to)
    columns.row("Format", spec.format)
    if spec.format == "iceberg":
        columns.row("Name", table_name(stream, spec))
    for key, value in _shown_catalog(spec.catalog).items():
        columns.row(f"Catalog {key}", value)
    columns.row("Payload", spec.payload)
    columns.row("Schema", str(spec.schema))
    columns.row_if("Partition", spec.partition)
    columns.row("Rows", spec.rows)
    columns.row("Every", spec.every)
    columns.row("Payloads Kept", spec.has_data)
    columns.row_if("Dead Letters", spec.dead_letters)
    for key, limit in spec.tier_limits.items():
        columns.row(f"Tier Limit {key}", limit)
    columns.section("State")
    columns.row("Rows", figures.rows)
    columns.row("Files", figures.files)
    columns.row("Size", size_text(figures.bytes))
    columns.row_if("Version", figures.version)
    columns.row("Runner", _state_text(status))
    if status is not None:
        _add_status(columns, status)
    columns.print()


def _add_status(columns: Columns, status: TableStatus) -> None:
    columns.row("Behind", _behind_text(status))
    columns.row("Rescued Rows", status.rescued)
    columns.row("Undecoded Rows", status.undecoded)
    columns.row("Dead Letters", status.dead_letters)
    if status.tier is not None:
        mark, unprotected = status.tier.mark, ", ".join(status.tier.unprotected)
        columns.row("Protected", f"no: {unprotected}" if unprotected else "yes")
        if mark is not None:
            columns.row("Verified Up To", mark.seq)
            columns.row("Messages Compared", mark.compared)
            columns.row("Gone Before That", mark.gone)
            columns.row("Absent Sequences", mark.absent)
            columns.row("Messages Released", mark.released)
    columns.row_if("Error", status.error)


@app.command("status", aliases=("ps",))
def show_status(
    names: Annotated[list[str] | None, Argument(metavar="[STREAM]...", show_default=False)] = None,
    json: JsonFlag = False,
    watch: Annotated[bool, Option("--watch", "-w", help="Refresh every second")] = False,
) -> None:
    """Show how far the tables are: rows, files, the last commit, and how far behind."""
    from tradewind.cli.frame.live import LiveScreen

    if watch and not json:
        with suppress(KeyboardInterrupt), LiveScreen() as screen:
            while True:
                screen.show(_status_table(_statuses(names or [])).lines())
                if not screen.is_live:
                    return
                time.sleep(1)
        return
    found = _statuses(names or [])
    if json:
        print_json([_status_document(stream, status) for stream, status in found])
    else:
        _status_table(found).print()


def _statuses(names: Sequence[str]) -> list[tuple[str, TableStatus | str]]:
    """The status of each table, or why there is none."""
    from tradewind.cli.frame.failures import near
    from tradewind.pipelines.errors import PipelineError
    from tradewind.pipelines.tables.stream_tables import list_tables
    from tradewind.pipelines.tables.table_status import read_table_status, state_place

    with connect() as connection:
        tables = list_tables(manager(connection))
    known = [table.stream for table in tables]
    for name in names:
        if name not in known:
            raise CommandError(f"stream {name!r} has no table{near(name, known)}")
    found: list[tuple[str, TableStatus | str]] = []
    for table in tables:
        if names and table.stream not in names:
            continue
        status: TableStatus | str | None = table.problem
        if not status and table.spec is not None:
            try:
                status = read_table_status(state_place(table.stream, table.spec))
            except PipelineError as error:
                status = str(error)
        found.append((table.stream, status or "has not run yet, or not on this machine"))
    return found


def _status_document(stream: str, status: TableStatus | str) -> dict[str, Any]:
    import msgspec

    if isinstance(status, str):
        return {"stream": stream, "state": "unknown", "error": status}
    return {**msgspec.to_builtins(status), "is_alive": status.is_alive}


def _status_table(found: Sequence[tuple[str, TableStatus | str]]) -> Table:
    table = Table(
        *("Tables", "Stream", "State", "Rows", "Files", "Size", "Version", "Committed", "Behind"),
        *("Rescued", "Dead", "Note"),
        shorten=("Note",),
        drop=("Version", "Files", "Size", "Rescued", "Dead", "Committed"),
    )
    for stream, status in found:
        if isinstance(status, str):
            table.row(stream, "unknown", 0, 0, "", "", "", "", 0, 0, status)
            continue
        figures = status.figures
        table.row(
            stream,
            _state_text(status),
            figures.rows,
            figures.files,
            size_text(figures.bytes),
            figures.version,
            _ago_text(figures.committed_ns),
            _behind_text(status),
            status.rescued,
            status.dead_letters,
            status.error,
        )
    return table


def _state_text(status: TableStatus | None) -> str:
    if status is None:
        return "has not run yet"
    if status.state in ("starting", "running", "failed") and not status.is_alive:
        return f"gone (process {status.pid} no longer exists)"
    return status.state


def _ago_text(moment_ns: int) -> str:
    from tradewind.pipelines.running.display import since_text

    return f"{since_text(moment_ns)} ago" if moment_ns else ""


def _behind_text(status: TableStatus) -> str:
    if status.behind_messages is None:
        return "unknown"
    if not status.behind_messages:
        return "nothing"
    seconds = "" if status.behind_seconds is None else f", {status.behind_seconds:,.0f} s"
    return f"{status.behind_messages:,} messages{seconds}"


@app.command("rm", aliases=("remove", "delete"))
def remove(
    stream: TableStream,
    drop: Annotated[bool, Option("--drop", help="Remove the files of the table, too")] = False,
    force: ForceFlag = False,
) -> None:
    """Stop keeping a stream as a table; the files are kept."""
    from tradewind.pipelines.tables.stream_tables import find_table, remove_table
    from tradewind.pipelines.tables.table_dropping import check_droppable, drop_table

    with connect() as connection:
        streams = manager(connection)
        spec = find_table(streams, stream).spec
        if drop and spec is None:
            raise CommandError(f"the table of {stream} cannot be read, so nothing can be dropped")
        if drop and spec is not None:
            check_droppable(stream, spec)
            question = f"Really remove the table of {stream} and its files in {spec.to}"
        else:
            question = f"Really remove the table of {stream}; its files are kept"
        confirm_or_stop(question, force=force)
        remove_table(streams, stream)
    if drop and spec is not None:
        drop_table(stream, spec)
    kept = "" if drop or spec is None else f"; its files are kept in {spec.to}"
    line(f"Table of {stream} was removed{kept}")


@app.command("run", aliases=("start",))
def run_tables(
    names: Annotated[list[str] | None, Argument(metavar="[STREAM]...", show_default=False)] = None,
    once: Annotated[
        bool, Option("--once", help="Stop when everything stored so far is in the tables")
    ] = False,
    store: Annotated[
        Path | None, Option("--store", help="Read block files in this store folder of the server")
    ] = None,
    conf: Annotated[
        list[str] | None,
        Option("--conf", metavar="KEY=VALUE", help="Spark setting, such as spark.driver.memory=4g"),
    ] = None,
    seconds: Annotated[
        float | None, Option("--seconds", help="Stop after this time", min=0.1)
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Show no progress")] = False,
    master: MasterFlag = LOCAL_MASTER,
) -> int:
    """Keep the tables of all streams of the account up to date, or those of some streams."""
    from tradewind.pipelines.machine.signals import stop_event
    from tradewind.pipelines.sessions.pipeline_session import using_session
    from tradewind.pipelines.table_runs.table_job import TableWork
    from tradewind.pipelines.table_runs.table_runner import TableRunner

    settings = _conf(conf or [])
    log_file = Path(gettempdir(), f"tradewind-{os.getuid()}", "tables", "spark.log")
    if not quiet:
        note(f"starting Spark (log: {log_file})")
    with using_session(master, log_file, settings) as session, stop_event() as stop:
        folder = "" if store is None else str(store.absolute())
        work = TableWork(session, spark_address(), folder, is_once=once)
        runner = TableRunner(work, names or [], _silent if quiet else note)
        runner.wait(stop, _silent if quiet else _progress(), seconds)
        statuses = runner.statuses
    if once and not statuses:
        note("no stream has a table; add one with: tradewind table add STREAM --to FOLDER")
    for status in statuses if once else []:
        note(_status_line(status))
    return EXIT_FAILED if once and any(one.state == "failed" for one in statuses) else 0


@app.command("maintain", aliases=("compact",))
def maintain_tables(
    names: Annotated[list[str] | None, Argument(metavar="[STREAM]...", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """Join small files, expire old snapshots and remove orphaned files, also while tables run."""
    from tradewind.pipelines.tables.stream_tables import find_table, list_tables
    from tradewind.pipelines.tables.table_upkeep import maintain_table

    with connect() as connection:
        streams = manager(connection)
        found = [find_table(streams, name) for name in names] if names else list_tables(streams)
    reports = {}
    for table in found:
        if table.spec is None or table.problem:
            raise CommandError(table.problem)
        report = maintain_table(table.stream, table.spec)
        reports[table.stream] = report
        if report is None and not json:
            note(f"table of {table.stream}: nothing was written yet")
        elif report is not None and not json:
            line(
                f"table of {table.stream}: {report.files_joined} files joined to"
                f" {report.files_written}, {report.snapshots_expired} snapshots expired,"
                f" {report.removed} orphaned files removed; {report.figures.files} files of"
                f" {report.figures.average_file_bytes:,} bytes on average"
            )
    if json:
        print_json(reports)


@app.command("verify")
def verify_tables(
    names: Annotated[list[str] | None, Argument(metavar="[STREAM]...", show_default=False)] = None,
    json: JsonFlag = False,
) -> int:
    """Compare tables that keep payloads with what their streams still have, message by message."""
    from tradewind.pipelines.tables.pinned_streams import StreamPlace
    from tradewind.pipelines.tables.stream_tables import find_table, list_tables
    from tradewind.pipelines.tables.table_proof import TableMismatchError
    from tradewind.pipelines.tables.tier_keeping import verify_table

    with connect() as connection:
        streams = manager(connection)
        found = [find_table(streams, name) for name in names] if names else list_tables(streams)
    reports: dict[str, dict[str, Any]] = {}
    for table in found:
        if table.spec is None or table.problem:
            raise CommandError(table.problem)
        if not names and not table.spec.tiers:
            continue
        try:
            until, counts = verify_table(table.stream, table.spec, StreamPlace(spark_address()))
        except TableMismatchError as error:
            reports[table.stream] = {"is_same": False, "error": str(error)}
            text = f"does NOT match its stream: {error}"
        else:
            reports[table.stream] = {"is_same": True, "until_seq": until, **asdict(counts)}
            text = (
                f"matches its stream: {counts.compared:,} messages up to sequence {until:,} were"
                f" compared, {counts.gone:,} rows have no message any more"
            )
        if not json:
            line(f"table of {table.stream} {text}")
    if json:
        print_json(reports)
    elif not reports:
        line("No stream is in two tiers; name the tables to verify")
    return 0 if all(report["is_same"] for report in reports.values()) else EXIT_FAILED


def _conf(texts: Sequence[str]) -> dict[str, str]:
    from tradewind.pipelines.definition.spark_settings import FORBIDDEN

    found = {}
    for text in texts:
        key, is_pair, value = text.partition("=")
        if not is_pair or not key.startswith("spark."):
            raise CommandError(f"--conf: {key!r} is not spark.NAME=VALUE", exit_code=EXIT_USAGE)
        if key in FORBIDDEN and key != "spark.jars.packages":
            raise CommandError(f"--conf: {key} cannot be set here", exit_code=EXIT_USAGE)
        found[key] = value
    return found


def _silent(_what: object) -> None:
    """Show nothing."""


def _progress() -> Callable[[Sequence[TableStatus]], None]:
    due = [time.monotonic() + LINE_SECONDS]

    def show(statuses: Sequence[TableStatus]) -> None:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + LINE_SECONDS
            for status in statuses:
                note(_status_line(status))

    return show


def _status_line(status: TableStatus) -> str:
    figures = status.figures
    text = f"table of {status.stream} {status.state}: {figures.rows:,} rows in {figures.files:,}"
    text += f" files, behind by {_behind_text(status)}"
    return f"{text}: {status.error}" if status.error else text
