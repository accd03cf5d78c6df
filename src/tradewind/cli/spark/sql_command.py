"""`tradewind sql`: SQL on streams, buckets and lakes.

Owns the flags, and the choice of the mode: one query, a script from a pipe, a shell on a terminal,
or the service that keeps Spark warm for later calls.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import is_terminal, line, note
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.cli.spark.spark_flags import MasterFlag, spark_address
from tradewind.durations import SECOND_NS
from tradewind.pipelines.sql.engines import DUCKDB, ENGINES, engine_of_environment
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from tradewind.cli.spark.sql_answers import Answers
    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
    from tradewind.pipelines.sql.wire import Ask

app = CommandApp("Query streams, buckets and lakes with SQL")
IDLE_DEFAULT: Final = "30m"
IDLE_SECONDS_MAX: Final = 7 * 24 * 3600
WIDTH: Final = 100
READ_ONLY_VARIABLE: Final = "TRADEWIND_SQL_READ_ONLY"
EngineFlag = Annotated[
    str,
    Option(
        "--engine",
        help="duckdb, spark, or auto: DuckDB if installed and no --master is named, Spark for"
        " statements that write; also $TRADEWIND_SQL_ENGINE",
    ),
]
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("", "0", "false", "no", "off")


@app.command()
def run_sql(
    query: Annotated[
        str | None,
        Argument(help="Query; streams and buckets are tables. Starts a shell if omitted"),
    ] = None,
    csv: Annotated[bool, Option("--csv", help="Print CSV")] = False,
    json: JsonFlag = False,
    chart: Annotated[
        bool, Option("--chart", help="Draw a bar chart: first column by last number")
    ] = False,
    table: Annotated[
        list[str] | None,
        Option(
            "--table",
            "-t",
            help="NAME=FOLDER of Parquet, JSON, CSV or Delta, or NAME=iceberg:WAREHOUSE#TABLE;"
            " may be repeated",
        ),
    ] = None,
    store: Annotated[str, Option("--store", help="Read streams from this store folder")] = "",
    limit: Annotated[
        int, Option("--limit", help="Maximum number of rows to show", min=1, max=1_000_000)
    ] = 1000,
    read_only: Annotated[
        bool,
        Option("--read-only", help="Refuse statements that write; also $TRADEWIND_SQL_READ_ONLY"),
    ] = False,
    engine: EngineFlag = "",
    master: MasterFlag = LOCAL_MASTER,
    serve: Annotated[
        bool, Option("--serve", help="Keep Spark running in the background for later calls")
    ] = False,
    stop: Annotated[bool, Option("--stop", help="Stop the session that --serve started")] = False,
    idle: Annotated[
        str, Option("--idle", help="With --serve: stop after this long without a query")
    ] = IDLE_DEFAULT,
    foreground: Annotated[
        bool, Option("--foreground", help="With --serve: stay in the foreground")
    ] = False,
) -> None:
    """Run a query: tradewind sql "select subject, count(*) from ORDERS group by 1".

    Without a query, starts a shell on a terminal, or runs the statements from standard input.
    """
    if csv + json + chart > 1:
        raise CommandError("use only one of --csv, --json and --chart")
    chosen = _engine(engine)
    if serve or stop:
        _check_service(chosen, has_query=query is not None, is_twice=serve and stop)
    if stop:
        _stop()
        return
    if serve:
        _serve(master, _idle_seconds(idle), foreground=foreground)
        return
    address = spark_address()
    format_ = "csv" if csv else "json" if json else "chart" if chart else "table"
    template = _template(address, table or [], store, limit, format_)
    template.may_write = not (read_only or is_read_only())
    from tradewind.cli.spark.sql_answers import Answers

    answers = Answers(master, note, chosen)
    try:
        _run(query, answers, template, address)
    finally:
        answers.close()


def _run(query: str | None, answers: Answers, template: Ask, address: PipelineAddress) -> None:
    from tradewind.cli.spark.sql_shell import (
        Shell,
        prompt_session,
        statements_of,
        visible_errors,
        write_out,
    )

    shell = Shell(answers, template, write_out, note)
    if query is not None:
        # An empty text is a question too, to which the answer says what would be right.
        for statement in list(statements_of([query])) or [query]:
            shell.ask(statement)
    elif is_terminal(sys.stdin) and is_terminal(sys.stdout):
        prompt = prompt_session(address, template.store, template.folders)
        with visible_errors():
            answers.warm_up(template)
            line("SQL on streams and buckets. \\h for help, \\q to quit.")
            shell.run(prompt.prompt)
    else:
        for statement in statements_of(sys.stdin):
            shell.ask(statement)


def _template(
    address: PipelineAddress, tables: list[str], store: str, limit: int, format_: str
) -> Ask:
    """The question without its text; its files are found from everywhere."""
    from tradewind.pipelines.sql.wire import Ask

    width = get_terminal_size((WIDTH, 24)).columns if is_terminal(sys.stdout) else WIDTH
    return Ask(
        text="",
        server=address.server,
        context=address.context,
        login={name: _found(name, text) for name, text in address.login.given().items()},
        folders=dict(_folder(text) for text in tables),
        store=_absolute(store) if store else "",
        rows_max=limit,
        format=format_,
        width=width,
        directory=str(Path.cwd()),
    )


def _check_service(engine: str, *, has_query: bool, is_twice: bool) -> None:
    """Check that flags about the service stand alone."""
    if has_query or is_twice:
        raise CommandError(
            "--serve and --stop take no query and exclude each other", exit_code=EXIT_USAGE
        )
    if engine == DUCKDB:
        raise CommandError("--serve keeps Spark; DuckDB needs no service", exit_code=EXIT_USAGE)


def _engine(text: str) -> str:
    """The engine of the flag, or else of the environment."""
    if text and text not in ENGINES:
        raise CommandError(f"--engine {text}: one of {', '.join(ENGINES)}", exit_code=EXIT_USAGE)
    return text or engine_of_environment()


def is_read_only() -> bool:
    """Whether the environment says that nothing is to be written."""
    text = os.environ.get(READ_ONLY_VARIABLE, "").strip().lower()
    if text not in (*_YES, *_NO):
        raise CommandError(f"{READ_ONLY_VARIABLE}={text!r}: 1 or 0", exit_code=EXIT_USAGE)
    return text in _YES


def _folder(text: str) -> tuple[str, str]:
    name, separator, place = text.partition("=")
    if not separator or not name.isidentifier() or not place:
        raise CommandError(f"--table {text!r}: NAME=FOLDER, such as lake=data/lake")
    kind, colon, path = place.partition(":")
    if colon and not Path(place).exists():
        # FORMAT:PATH, or an address such as s3://bucket/lake.
        return name, place if path.startswith("/") else f"{kind}:{_absolute(path)}"
    return name, _absolute(place)


def _found(name: str, text: str) -> str:
    """A value of a login, with a file that can be found from everywhere."""
    if text.startswith("file:"):
        return f"file:{_absolute(text.removeprefix('file:'))}"
    is_path = name == "credentials" or name.endswith("_file")
    return _absolute(text) if is_path and not text.startswith("env:") else text


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


# -------------------------------------------------------------------------- the service


def _idle_seconds(text: str) -> float:
    seconds = parse_duration_ns(text, "--idle") / SECOND_NS
    if not 1 <= seconds <= IDLE_SECONDS_MAX:
        raise CommandError(f"--idle {text}: from 1s to 7d", exit_code=EXIT_USAGE)
    return seconds


def _serve(master: str, idle_seconds: float, *, foreground: bool) -> None:
    if foreground:
        from tradewind.pipelines.sql.service import serve

        serve(master, idle_seconds)
        return
    from tradewind._version import __version__
    from tradewind.pipelines.sql import caller
    from tradewind.pipelines.sql.wire import place_of_process

    running = caller.Caller.connect("state")
    if running is not None:
        welcome = running.welcome
        running.close()
        same = (welcome.version, welcome.place, welcome.master)
        if same == (__version__, place_of_process(), master):
            line(f"the SQL service is already running, process {running.process}")
            return
        note("(the running SQL service has other settings; restarting it)")
        caller.stop()
    process = caller.start(caller.service_command(master, idle_seconds))
    line(f"the SQL service is running, process {process}; stop it with: tradewind sql --stop")


def _stop() -> None:
    from tradewind.pipelines.sql import caller

    line("the SQL service has stopped" if caller.stop() else "no SQL service is running")
