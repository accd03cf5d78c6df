"""SQL questions answered by DuckDB in this process, without Spark and Java.

Owns one question at a time: its tables as they are now, the settings of the engine, and what a
question may do. A question only reads the tables that it names: the engine has no access to files,
networks, extensions or settings, and to nothing of the program that it runs in.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import duckdb
import pyarrow as pa

from tradewind.pipelines.definition.loading import names_in, near
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import (
    SHOW_TABLES,
    WIDENINGS_MAX,
    QueryResult,
    TableCatalog,
    checked,
    needs_server,
    tables_result,
)
from tradewind.pipelines.sql.duck_lakes import TAIL_BYTES_MAX, DuckLake
from tradewind.pipelines.sql.duck_tables import DuckTable, folder_dataset
from tradewind.pipelines.sql.engines import check_engine, duck_text
from tradewind.pipelines.sql.plans import figures_in
from tradewind.pipelines.sql.query_session import (
    SqlQuestion,
    answer_from_state,
    catalog_of,
    lake_of,
    one_spelling,
    placed,
    where_of,
)
from tradewind.pipelines.sql.wire import StatementError

if TYPE_CHECKING:
    from pyarrow import dataset

THREADS_MAX: Final = 8
MEMORY: Final = "2GB"
# Spark says so, and so do we: a table by its name alone.
_DESCRIBE: Final = re.compile(r"(?:describe|desc)\s+(?:table\s+)?[`\"]?([\w-]+)[`\"]?", re.I)
_PLACE: Final = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_NO_TABLE: Final = re.compile(r"Table with name \"?(.+?)\"? does not exist")
_KIND: Final = re.compile(r"^(?:[A-Z][A-Za-z-]* )+Error: ")
_DIALECT_ERRORS: Final = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
)
_READING: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
# What a question can do is settled here; see the tests of the sandbox.
_SETTINGS: Final[Mapping[str, str]] = {
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "memory_limit": MEMORY,
    "python_enable_replacements": "false",
    "temp_directory": "",
}


class AnyDuckTable(Protocol):
    """A table of a question, under its name."""

    name: str

    @property
    def failure(self) -> BaseException | None:
        """Why the last read of it failed, if that is known."""

    def register(self, engine: duckdb.DuckDBPyConnection) -> None:
        """Make the table known under its name."""

    def widen(self, error: Exception) -> bool:
        """Whether this is why a query failed; then the next `register` is another one."""

    def close(self) -> None:
        """Close its connections."""


class DuckRunner:
    """Answers questions; asked by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: duckdb.DuckDBPyConnection | None = None
        self._cancelled = ""
        self._group = ""

    def begin(self, group: str, text: str) -> None:
        """See `QueryRunner`."""
        del text
        self._group = group

    def cancel(self, group: str) -> None:
        """See `QueryRunner`."""
        with self._lock:
            self._cancelled = group
            if self._engine is not None and group == self._group:
                self._engine.interrupt()

    def progress(self, group: str) -> tuple[int, int]:
        """See `QueryRunner`; nothing is known before the answer."""
        del group
        return 0, 0

    def ask(self, question: SqlQuestion) -> QueryResult:
        """The first rows of an answer; PipelineError says what is wrong with the question."""
        try:
            return self._ask(question)
        except StatementError as error:
            raise placed(error, question.text) from None

    def _ask(self, question: SqlQuestion) -> QueryResult:
        check_engine(question.text)
        text, folders = checked(question.text), question.folders
        catalog, known = TableCatalog((), ()), duck_text(text, "`")
        used = names_in(known, folders)
        named: list[str] = []
        if needs_server(known, folders):
            catalog = catalog_of(question, known)
            if SHOW_TABLES.fullmatch(text):
                return tables_result(catalog, folders)
            named = one_spelling(text, names_in(known, catalog.names) - used)
        with ExitStack() as closing:
            plan = figures_in(known)
            if plan is not None and [plan.table] == named and plan.table in catalog.streams:
                answer = answer_from_state(question, catalog, plan.table, plan)
                if answer is not None:
                    return answer
            tables = []
            for name in named:
                table = _opened_table(question, catalog, name)
                closing.callback(table.close)
                tables.append(table)
            others = {name: folder_dataset(name, folders[name]) for name in sorted(used)}
            names = [*folders, *catalog.names]
            return self._answer(text, tables, others, names, question.rows_max)

    def _answer(
        self,
        text: str,
        tables: Sequence[AnyDuckTable],
        folders: Mapping[str, dataset.Dataset],
        known: list[str],
        rows_max: int,
    ) -> QueryResult:
        if found := _DESCRIBE.fullmatch(text):
            shown = {table.name.lower(): table.name for table in tables}
            shown |= {name.lower(): name for name in folders}
            if found[1].lower() not in shown:
                raise PipelineError(f"table {found[1]!r} does not exist{near(found[1], known)}")
        for _ in range(WIDENINGS_MAX):
            with _Engine(self, tables, folders) as engine:
                try:
                    if found:
                        return _described(engine, shown[found[1].lower()])
                    return _result(engine, duck_text(text, '"'), rows_max)
                except duckdb.Error as error:
                    if any(table.widen(error) for table in tables):
                        continue
                    raise self._failure(error, tables, known, text) from None
        raise PipelineError(
            f"the messages of {', '.join(table.name for table in tables)} have too many different"
            " shapes; use json_extract(data, '$.field')"
        )

    def _failure(
        self, error: duckdb.Error, tables: Sequence[AnyDuckTable], known: list[str], asked: str
    ) -> Exception:
        """An error of the engine in one line, or that of a table which the engine passed on."""
        for table in tables:
            if isinstance(table.failure, Exception):
                return table.failure
        if isinstance(error, duckdb.InterruptException):
            return PipelineError("the query was cancelled")
        text = str(error)
        line, column = _place_in(text, asked)
        reason = _KIND.sub("", text.partition("\n")[0]).strip()
        if no_table := _NO_TABLE.search(reason):
            reason = f"table {no_table[1]!r} does not exist{near(no_table[1], known)}"
        elif isinstance(error, duckdb.OutOfMemoryException):
            reason = (
                f"the query needs more than {MEMORY} of memory; --engine spark has no such limit"
            )
        elif isinstance(error, _DIALECT_ERRORS):
            reason += "; this is DuckDB's SQL, and --engine spark knows that of Spark"
        return StatementError(reason, line, column)


def _opened_table(question: SqlQuestion, catalog: TableCatalog, name: str) -> AnyDuckTable:
    """The table of a stream or bucket: its lake table with the tail, or the stream itself."""
    lake = lake_of(question, catalog, name)
    pinned = lake.pin(TAIL_BYTES_MAX) if lake is not None else None
    if lake is not None and pinned is not None:
        return DuckLake(lake, pinned, where_of(question))
    return DuckTable(name, where_of(question), is_bucket=name not in catalog.streams)


def _place_in(text: str, asked: str) -> tuple[int, int]:
    """The line and column that an error says, or else those of the name in it; 0 if unknown."""
    if place := _PLACE.search(text):
        return int(place[1]), max(len(place[3]) - len(f"LINE {place[1]}: ") + 1, 1)
    named = re.search(r'"([^"]+)"|name (\w+)', text.partition("\n")[0])
    word = (named[1] or named[2]) if named else ""
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", asked) if word else None
    if found is None:
        return 0, 0
    before = asked[: found.start()]
    return before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


class _Engine:
    """A DuckDB for one run of a question, closed to everything but its tables."""

    def __init__(
        self,
        runner: DuckRunner,
        tables: Sequence[AnyDuckTable],
        folders: Mapping[str, dataset.Dataset],
    ) -> None:
        self._runner = runner
        self._tables = tables
        self._folders = folders

    def __enter__(self) -> duckdb.DuckDBPyConnection:
        threads = str(min(os.cpu_count() or 1, THREADS_MAX))
        self._engine = duckdb.connect(":memory:", config={**_SETTINGS, "threads": threads})
        for table in self._tables:
            table.register(self._engine)
        for name, folder in self._folders.items():
            self._engine.register(name, folder)
        self._engine.execute("set lock_configuration = true")
        runner = self._runner
        with runner._lock:
            runner._engine = self._engine
            if runner._cancelled and runner._cancelled == runner._group:
                raise PipelineError("the query was cancelled")
        return self._engine

    def __exit__(self, *_: object) -> None:
        with self._runner._lock:
            self._runner._engine = None
        self._engine.close()


def _described(engine: duckdb.DuckDBPyConnection, name: str) -> QueryResult:
    quoted = name.replace('"', '""')
    found = engine.execute(f'describe "{quoted}"').fetchall()
    rows = [(row[0], str(row[1]).lower(), None) for row in found]
    return QueryResult(["col_name", "data_type", "comment"], rows, has_more=False)


def _result(engine: duckdb.DuckDBPyConnection, text: str, rows_max: int) -> QueryResult:
    """The first rows; a text that is not one statement which reads is refused before it runs."""
    statements = engine.extract_statements(text)
    if len(statements) != 1 or statements[0].type not in _READING:
        raise PipelineError("a query is one statement that reads, such as select")
    relation = engine.sql(text)
    if relation is None:
        return QueryResult([], [], has_more=False)
    columns = list(relation.columns)
    rows: list[tuple[Any, ...]] = []
    reader = relation.limit(rows_max + 1).to_arrow_reader(rows_max + 1)
    for batch in reader:
        rows += zip(*(_values(column) for column in batch.columns), strict=True)
    return QueryResult(columns, rows[:rows_max], len(rows) > rows_max)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column as the formats know them."""
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        # Sums of whole numbers.
        return [int(value) if isinstance(value, Decimal) else value for value in values]
    if pa.types.is_interval(column.type):
        return [None if value is None else str(value) for value in values]
    return [value.astimezone() if isinstance(value, datetime) else value for value in values]
