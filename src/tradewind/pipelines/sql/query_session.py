"""A Spark session that runs queries one after the other.

Owns the state between queries: the tables that were used, as long as their streams have not
changed, and their names in the session. Two concurrent queries need two sessions. `PendingAnswer`
is a query that runs in its own thread and can be cancelled.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tradewind.errors import TradewindError
from tradewind.pipelines.definition.loading import names_in
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.column_templates import quoted_sql
from tradewind.pipelines.relations.queries import (
    SHOW_TABLES,
    SHOW_VIEWS,
    WIDENINGS_MAX,
    QueryResult,
    QueryTable,
    TableCatalog,
    checked,
    explained,
    folder_frame,
    local_catalog,
    needs_server,
    read_catalog,
    tables_result,
)
from tradewind.pipelines.relations.statements import is_writing
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason, sql_line
from tradewind.pipelines.sql.plans import FiguresPlan, FirstRowsPlan, recognise
from tradewind.pipelines.sql.wire import Ask, StatementError
from tradewind.pipelines.sql.write_plans import check_reads, parse
from tradewind.pipelines.tables.pinned_streams import StreamPlace
from tradewind.pipelines.tables.small_streams import small_frame
from tradewind.pipelines.tables.table_queries import (
    ShownTable,
    StreamLake,
    StreamQueryTable,
    count_rows,
    lake_of_query,
)
from tradewind.spark.connections.logins import JobLogin
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.reads.stream_figures import Figures, ask_figures, server_figures, store_figures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.api.stream_types import StreamInfo

ROWS_MAX: Final = 1000
# One server's streams need no 200 shuffle partitions.
SPARK_SETTINGS: Final = {"spark.sql.shuffle.partitions": "4"}
# A table that is kept costs a plan of Spark and its sample.
# Statements that show a plan or columns.
ABOUT_WORDS: Final = ("explain", "describe", "desc")
TABLES_KEPT_MAX: Final = 32
CANCEL_AGAIN_SECONDS: Final = 1.0
CANCELS_MAX: Final = 600


AnyTable = TypeVar("AnyTable", bound=ShownTable)


class SessionLostError(PipelineError):
    """The Java of a session has ended; nothing can be asked there."""


class CancelledError(PipelineError):
    """The question was cancelled."""


@dataclass(frozen=True, slots=True)
class SqlQuestion:
    """A query, and where its tables are.

    `folders` are tables by name, `store` is a store folder to read streams from instead of the
    server. Statements that write are refused unless `may_write`; `statement` is an id, under which
    rows are written once, and `folder` is where relative places begin.
    """

    text: str
    address: PipelineAddress = field(default_factory=PipelineAddress)
    folders: Mapping[str, str] = field(default_factory=dict)
    store: str = ""
    rows_max: int = ROWS_MAX
    may_write: bool = False
    statement: str = field(default_factory=lambda: uuid.uuid4().hex)
    folder: str = ""

    @property
    def has_rows(self) -> bool:
        """Whether the answer depends on messages, not only on how they would be read."""
        words = checked(self.text, may_write=True).split(None, 1)
        return words[0].lower() not in ABOUT_WORDS

    @property
    def is_writing(self) -> bool:
        """Whether something may be left behind when it is stopped."""
        return self.may_write and is_writing(self.text)


def question_of(ask: Ask) -> SqlQuestion:
    """The question that a caller sends, with a new id if the one that was sent is not valid."""
    is_id = re.fullmatch(r"[0-9a-f]{32}", ask.statement) is not None
    return SqlQuestion(
        ask.text,
        PipelineAddress(ask.server, ask.context, JobLogin(**ask.login)),
        ask.folders,
        ask.store,
        ask.rows_max,
        ask.may_write,
        ask.statement if is_id else uuid.uuid4().hex,
        ask.directory,
    )


class QuerySession:
    """One session; asked by one thread at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._views: set[str] = set()
        # By address, name, and whether rows are read: the state of the stream at its last look.
        self._kept: dict[tuple[PipelineAddress, str, bool], tuple[object, ShownTable]] = {}

    def begin(self, group: str, text: str) -> None:
        """Make all later queries of this thread part of a group, which can be cancelled."""
        self._spark.sparkContext.setJobGroup(group, text, interruptOnCancel=True)

    def cancel(self, group: str) -> None:
        """Have Spark stop what belongs to a group, from any thread."""
        context = self._spark.sparkContext
        try:
            # Also what is not planned yet.
            context._jsc.sc().cancelJobGroupAndFutureJobs(group)
        except Exception:  # an older Spark, or none any more
            with suppress(Exception):
                context.cancelJobGroup(group)

    def progress(self, group: str) -> tuple[int, int]:
        """How many tasks of a group are done, and how many there are so far, from any thread."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
            stages = [tracker.getStageInfo(number) for number in numbers]
            known = [stage for stage in stages if stage is not None]
        except Exception:  # of Java; the answer itself says what is wrong
            return 0, 0
        return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)

    def ask(self, question: SqlQuestion) -> QueryResult:
        """The first rows of an answer; PipelineError says what is wrong with the question."""
        from py4j.protocol import Py4JError, Py4JNetworkError

        try:
            return self._ask(question)
        except StatementError as error:
            raise placed(error, question.text) from None
        except (Py4JNetworkError, ConnectionError) as error:
            raise SessionLostError(
                "Spark has stopped in the meantime; run the query again"
            ) from error
        except Py4JError as error:
            raise PipelineError(short_reason(error)) from None

    def _ask(self, question: SqlQuestion) -> QueryResult:
        text, folders = checked(question.text, may_write=question.may_write), question.folders
        if SHOW_VIEWS.fullmatch(text) or is_writing(text):
            return self._write(question, text)
        self._check_reads(text)
        catalog, tables = TableCatalog((), ()), list[ShownTable]()
        used = names_in(text, folders)
        if needs_server(text, folders):
            catalog = catalog_of(question, text)
            if SHOW_TABLES.fullmatch(text):
                return tables_result(catalog, folders)
            named = one_spelling(text, names_in(text, catalog.names) - used)
            shape = self._shape(text, named, catalog)
            if isinstance(shape, FiguresPlan):
                answer = answer_from_state(question, catalog, named[0], shape)
                if answer is not None:
                    return answer
            tables = [self._table(question, catalog, name, shape) for name in named]
        self._forget_views({*used, *(table.name for table in tables)})
        for name in used:
            folder_frame(self._spark, name, folders[name]).createOrReplaceTempView(quoted_sql(name))
            self._views.add(name)
        return self._answer(text, tables, [*folders, *catalog.names], question.rows_max)

    def _check_reads(self, text: str) -> None:
        """Check that a query only reads: `with` or `from` may precede an insert."""
        try:
            plan = parse(self._spark, text)
        except Exception:  # Spark itself says later what is wrong with the text
            return
        check_reads(plan)

    def _write(self, question: SqlQuestion, text: str) -> QueryResult:
        from tradewind.pipelines.sql.view_statement_runner import ViewStatementRunner
        from tradewind.pipelines.sql.view_statements import parse_view_statement
        from tradewind.pipelines.sql.writing import StatementWriter

        def followed(catalog: TableCatalog, name: str) -> QueryTable:
            """A view follows the stream itself, whatever table it has."""
            is_bucket = name not in catalog.streams
            return QueryTable(self._spark, name, where_of(question), is_bucket=is_bucket)

        def read(catalog: TableCatalog, name: str) -> ShownTable:
            return self._table(question, catalog, name, None)

        about_view = parse_view_statement(text)
        if about_view is not None:
            prepare_followed = partial(self._prepared, question, followed)
            return ViewStatementRunner(self._spark, question, prepare_followed).run(about_view)
        prepare = partial(self._prepared, question, read)
        return StatementWriter(self._spark, question, text, prepare).run()

    def _prepared(
        self,
        question: SqlQuestion,
        table_of: Callable[[TableCatalog, str], AnyTable],
        text: str,
        target: str,
    ) -> tuple[TableCatalog, list[AnyTable]]:
        """The tables that a text names, of which that of `target` may be written to only."""
        folders = question.folders
        written = rf"\binto\s+(table\s+)?`?{re.escape(target)}\b`?"
        rest = re.sub(written, " ", text, count=1, flags=re.IGNORECASE) if target else text
        used = names_in(rest, folders)
        catalog = read_catalog(question.address, rest)
        named = names_in(rest, catalog.names) - used
        tables = [table_of(catalog, one) for one in one_spelling(text, named)]
        self._forget_views({*used, *(table.name for table in tables)})
        for name in used:
            folder_frame(self._spark, name, folders[name]).createOrReplaceTempView(quoted_sql(name))
        for table in tables:
            table.view()
        self._views |= {*used, *(table.name for table in tables)}
        return catalog, tables

    def _shape(
        self, text: str, named: Sequence[str], catalog: TableCatalog
    ) -> FiguresPlan | FirstRowsPlan | None:
        """Whether a query about one stream is one of those that need not read all of it."""
        if len(named) != 1 or named[0] not in catalog.streams:
            return None
        try:
            parser = self._spark._jsparkSession.sessionState().sqlParser()
            shape = recognise(text, parser.parsePlan(text).toJSON())
        except Exception:  # Spark itself says later what is wrong with the text
            return None
        return shape if shape is not None and shape.table.lower() == named[0].lower() else None

    def _answer(
        self, text: str, tables: Sequence[ShownTable], known: list[str], rows_max: int
    ) -> QueryResult:
        from pyspark.errors import PySparkException

        for _ in range(WIDENINGS_MAX):
            try:
                for table in tables:
                    table.view()
                    self._views.add(table.name)
                frame = self._spark.sql(text)
                rows = self._rows(frame, rows_max + 1)
            except PySparkException as error:
                if not any(table.widen(error) for table in tables):
                    line, column = sql_line(error) or (-1, -1)
                    raise StatementError(explained(error, known), line + 1, column + 1) from None
            else:
                return QueryResult(frame.columns, rows[:rows_max], len(rows) > rows_max)
        raise PipelineError(
            f"the messages of {', '.join(table.name for table in tables)} have too many different"
            " shapes; use get_json_object(data, '$.field')"
        )

    def _rows(self, frame: DataFrame, count: int) -> list[Any]:
        rows: list[Any] = frame.limit(count).collect()
        return rows

    def _table(
        self,
        question: SqlQuestion,
        catalog: TableCatalog,
        name: str,
        shape: FiguresPlan | FirstRowsPlan | None,
    ) -> ShownTable:
        """The table of a stream or bucket; the same as before if the stream is the same."""
        is_bucket = name not in catalog.streams
        info = catalog.infos.get(name)
        lake = lake_of(question, catalog, name)
        version = lake.version() if lake is not None else None
        state = (_state_of(info), version) if info is not None else None
        has_rows = question.has_rows
        key = (question.address, name, has_rows)
        found = None if question.store else self._kept.pop(key, None)
        if found is None or state is None or found[0] != state:
            options = where_of(question)
            pinned = lake.pin() if lake is not None and version is not None else None
            if lake is not None and pinned is not None:
                found = (state, StreamQueryTable(self._spark, lake, pinned, options))
            elif isinstance(shape, FirstRowsPlan):
                rows = question.rows_max + 1
                rows = rows if shape.limit is None else min(shape.limit, rows)
                ending = _ending_seq(question, name, info, rows)
                if ending:
                    # The frame is for this question only.
                    options["endingSeq"] = str(ending)
                    return self._made(name, options, is_bucket=is_bucket, has_rows=has_rows)
            if pinned is None:
                found = (state, self._made(name, options, is_bucket=is_bucket, has_rows=has_rows))
        assert found is not None
        if isinstance(found[1], StreamQueryTable):
            found[1].begin()
        if not question.store:
            self._kept[key] = found
        while len(self._kept) > TABLES_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return found[1]

    def _made(
        self, name: str, options: Mapping[str, str], *, is_bucket: bool, has_rows: bool
    ) -> QueryTable:
        """The table of a stream or bucket; if rows are wanted of a small one, it is read now."""
        named = {**options, "bucket" if is_bucket else "stream": name}
        frame = small_frame(self._spark, named) if has_rows else None
        return QueryTable(self._spark, name, options, is_bucket=is_bucket, frame=frame)

    def _forget_views(self, wanted: set[str]) -> None:
        """No table of an earlier question can be taken for one that is there."""
        for name in self._views - wanted:
            self._spark.catalog.dropTempView(name)
        self._views &= wanted


def placed(error: StatementError, text: str) -> StatementError:
    """An error with its place in the whole text, of which Spark was given only the statement."""
    if not error.line:
        return error
    before = text[: max(text.find(checked(text, may_write=True)), 0)]
    column = error.column + (len(before.rpartition("\n")[2]) if error.line == 1 else 0)
    return StatementError(str(error), error.line + before.count("\n"), column)


def one_spelling(text: str, names: set[str]) -> list[str]:
    """The tables that a text names; Spark cannot distinguish names that differ by case only."""
    spelled: dict[str, list[str]] = {}
    for name in sorted(names):
        spelled.setdefault(name.lower(), []).append(name)
    found = []
    for same in spelled.values():
        exact = [name for name in same if name in text] if len(same) > 1 else same
        if len(exact) != 1:
            raise PipelineError(
                f"{' and '.join(same)} differ by case only, which SQL cannot tell apart; ask for"
                " one of them, as it is spelled"
            )
        found += exact
    return found


def catalog_of(question: SqlQuestion, text: str) -> TableCatalog:
    """The tables that a statement may name: those of a folder, or of a server."""
    if question.store:
        return local_catalog(question.store)
    return read_catalog(question.address, text)


def where_of(question: SqlQuestion) -> dict[str, str]:
    """The options of Spark that say where tables are."""
    return StreamPlace(question.address, question.store).options | {"usedBy": "sql"}


def lake_of(question: SqlQuestion, catalog: TableCatalog, name: str) -> StreamLake | None:
    """The lake table that a stream or bucket has; None if the query reads the stream itself."""
    where = StreamPlace(question.address, question.store)
    is_bucket = name not in catalog.streams
    return lake_of_query(name, where, catalog.infos.get(name), is_bucket=is_bucket)


def answer_from_state(
    question: SqlQuestion, catalog: TableCatalog, name: str, plan: FiguresPlan
) -> QueryResult | None:
    """The answer that the state of a stream holds; None if it does not hold it exactly."""
    figures: Figures | None
    lake = lake_of(question, catalog, name)
    pinned = lake.pin() if lake is not None else None
    if pinned is not None:
        # The table may have what the stream no longer has.
        counted_rows = count_rows(pinned)
        figures = Figures(*counted_rows) if counted_rows is not None else None
    elif question.store:
        counted = store_figures(parse_options({**where_of(question), "stream": name}))
        figures = counted[0] if counted is not None else None
    else:
        with question.address.connect() as connection:
            figures = ask_figures(connection, name)
    if figures is None:
        return None
    if not figures.has_last and any(one.function == "max" for one in plan.figures):
        return None
    values = {"count": figures.messages, "min": figures.first_seq, "max": figures.last_seq}
    row = tuple(values[one.function] for one in plan.figures)
    return QueryResult([one.name for one in plan.figures], [row], has_more=False)


def _ending_seq(question: SqlQuestion, name: str, info: StreamInfo | None, rows: int) -> int:
    """The sequence up to which a stream has this many rows at least; 0 if that is all of it."""
    if question.store:
        counted = store_figures(parse_options({**where_of(question), "stream": name}))
        if counted is None:
            return 0
        figures, last_seq = counted
    elif info is not None:
        figures, last_seq = server_figures(info), info.state.last_seq
    else:
        return 0
    ending = figures.ending_seq(max(rows, 1), last_seq)
    return ending if ending < last_seq else 0


def _state_of(info: StreamInfo) -> object:
    """A value that is another one after every change of the messages of a stream."""
    state = info.state
    return (
        info.created,
        state.messages,
        state.bytes,
        state.first_seq,
        state.last_seq,
        state.num_deleted,
        info.config.subjects,
        info.config.metadata,
    )


class QueryRunner(Protocol):
    """Runs queries one after the other, for `PendingAnswer`."""

    def begin(self, group: str, text: str) -> None:
        """Make all later queries of this thread part of a group."""

    def cancel(self, group: str) -> None:
        """Stop what belongs to a group."""

    def progress(self, group: str) -> tuple[int, int]:
        """How many tasks of a group are done, and how many there are so far."""

    def ask(self, question: SqlQuestion) -> QueryResult:
        """The answer."""


class PendingAnswer:
    """A question on its way; `done` is called in its thread when it has been answered."""

    def __init__(
        self, runner: QueryRunner, question: SqlQuestion, done: Callable[[], None] = lambda: None
    ) -> None:
        self._runner = runner
        self._question = question
        self._done = done
        self._group = f"tradewind-sql-{uuid.uuid4().hex}"
        self.is_writing = question.is_writing
        self._finished = threading.Event()
        self._is_cancelled = False
        self._result: QueryResult | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tradewind-sql", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._runner.begin(self._group, self._question.text[:100])
            if not self._is_cancelled:
                self._result = self._runner.ask(self._question)
        except BaseException as error:  # passed on to the caller
            self._error = error
        finally:
            self._finished.set()
            self._done()

    def wait(self, seconds: float) -> bool:
        """Whether it has been answered by then."""
        return self._finished.wait(seconds)

    def cancel(self) -> None:
        """Have Spark stop; a query that cannot be stopped continues, and its result is ignored."""
        self._is_cancelled = True
        if not self._finished.is_set():
            self._runner.cancel(self._group)
            threading.Thread(target=self._cancel_again, daemon=True).start()

    def _cancel_again(self) -> None:
        """Cancel what began in the meantime.

        Spark 4.3 forgets that a group was cancelled when a query that it was still planning begins
        with a shuffle, and would run it to its end.
        """
        for _ in range(CANCELS_MAX):
            if self._finished.wait(CANCEL_AGAIN_SECONDS):
                return
            self._runner.cancel(self._group)

    def progress(self) -> tuple[int, int]:
        """How many of its tasks are done, and how many there are so far."""
        return self._runner.progress(self._group)

    def outcome(self) -> str:
        """The outcome of a statement that writes and was cancelled; empty if it was a query."""
        if not self.is_writing:
            return ""
        if not self._finished.is_set():
            return "the statement was cancelled, but has not stopped yet: it may still write"
        if self._error is not None:
            return str(self._error)
        if self._result is None:
            return "the statement was cancelled before it wrote anything"
        shown = [dict(zip(self._result.columns, row, strict=True)) for row in self._result.rows]
        return f"the statement was complete before it could be cancelled: {shown}"

    def result(self) -> QueryResult:
        """The answer, once there is one."""
        assert self._finished.is_set()
        # A statement that has written something reports how far it came.
        has_ended = self._result is not None or isinstance(self._error, TradewindError)
        if self._is_cancelled and not (self.is_writing and has_ended):
            raise CancelledError("the query was cancelled")
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result
