"""`tradewind sql`: SQL on streams, buckets and lakes.

Owns the flags and the formats of the result; `tradewind.pipelines.queries` does the work.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.failures import CommandError
from tradewind.cli.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.output import is_terminal, line, note
from tradewind.cli.spark_flags import MasterFlag, spark_address

if TYPE_CHECKING:
    from tradewind.pipelines.queries import Result

app = CommandApp("SQL on streams, buckets and lakes")
SPARK_SETTINGS = {"spark.sql.shuffle.partitions": "4"}


@app.command()
def run_sql(
    query: Annotated[str, Argument(help="The query; streams and buckets are tables")],
    csv: Annotated[bool, Option("--csv", help="Print CSV")] = False,
    json: JsonFlag = False,
    chart: Annotated[bool, Option("--chart", help="Bars: first column by last number")] = False,
    table: Annotated[
        list[str] | None,
        Option("--table", "-t", help="NAME=FOLDER of Parquet, JSON, CSV or Delta; may be repeated"),
    ] = None,
    store: Annotated[str, Option("--store", help="Read streams from this store folder")] = "",
    limit: Annotated[int, Option("--limit", help="Rows to show", min=1, max=1_000_000)] = 1000,
    master: MasterFlag = "local[*]",
) -> None:
    """Run a query: tradewind sql "select subject, count(*) from ORDERS group by 1"."""
    from tradewind.pipelines.queries import run_query
    from tradewind.pipelines.session import using_session

    if csv + json + chart > 1:
        raise CommandError("give one of --csv, --json and --chart")
    folders = dict(_folder(text) for text in table or [])
    with tempfile.TemporaryDirectory(prefix="tradewind-sql-") as scratch:
        log_file = Path(scratch) / "spark.log"
        with using_session(master, log_file, SPARK_SETTINGS) as session:
            result = run_query(session, query, spark_address(), folders, limit, store)
    _print(result, csv=csv, json=json, chart=chart)
    if result.has_more:
        note(f"(the first {limit} rows; --limit shows more)")


def _folder(text: str) -> tuple[str, str]:
    name, separator, place = text.partition("=")
    if not separator or not name.isidentifier() or not place:
        raise CommandError(f"--table {text!r}: NAME=FOLDER, such as lake=data/lake")
    return name, place


def _print(result: Result, *, csv: bool, json: bool, chart: bool) -> None:
    from tradewind.pipelines.tables import cell_text, plain, table_lines

    if json:
        import msgspec

        for row in result.rows:
            values = {name: plain(row[name]) for name in result.columns}
            line(msgspec.json.encode(values).decode())
    elif csv:
        from csv import writer

        out = writer(sys.stdout, lineterminator="\n")
        out.writerow(result.columns)
        out.writerows([cell_text(value) for value in row] for row in result.rows)
    elif chart:
        for each in _chart(result):
            line(each)
    else:
        for each in table_lines(result.columns, result.rows):
            line(each)


def _chart(result: Result) -> list[str]:
    from shutil import get_terminal_size

    from tradewind.pipelines.charts import bars
    from tradewind.pipelines.tables import cell_text, is_number, number_of

    if not result.rows:
        return ["(no rows)"]
    numbers = [
        index
        for index in range(len(result.columns))
        if all(value is None or is_number(value) for value in _column(result, index))
        and any(value is not None for value in _column(result, index))
    ]
    if not numbers:
        raise CommandError("a chart needs a column of numbers", "for example: count(*) as orders")
    shown = numbers[-1]
    labels = [index for index in range(len(result.columns)) if index not in numbers] or [
        index for index in numbers if index != shown
    ]
    points = [
        (" ".join(cell_text(row[index]) for index in labels), number_of(row[shown]))
        for row in result.rows
    ]
    width = get_terminal_size((100, 24)).columns if is_terminal(sys.stdout) else 100
    return bars(points, width)


def _column(result: Result, index: int) -> list[Any]:
    return [row[index] for row in result.rows]
