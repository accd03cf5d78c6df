"""Runs the statements about materialized views.

Owns everything that is checked before a view is stored: that Spark can keep its query up to date,
which columns distinguish its rows, and the types of the fields it reads. The module never runs a
view, which is up to `views.view_runner`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.documents import Place
from tradewind.pipelines.definition.document import PipelineDocument
from tradewind.pipelines.definition.loading import names_in, near, pipeline_of
from tradewind.pipelines.errors import PipelineError, PipelineFileError
from tradewind.pipelines.flow.frames import build_frames
from tradewind.pipelines.relations.queries import QueryResult, QueryTable, TableCatalog, explained
from tradewind.pipelines.sessions.spark_errors import short_reason, sql_line
from tradewind.pipelines.sql.view_grouping import Grouping, grouping_of
from tradewind.pipelines.sql.view_statements import (
    AlterView,
    CreateView,
    DropView,
    ShowViews,
    ViewStatement,
)
from tradewind.pipelines.sql.wire import StatementError
from tradewind.pipelines.views.view_spec import (
    BATCH_MESSAGES,
    EVERY,
    RESULT_STEP,
    SourceKind,
    ViewKind,
    ViewSource,
    ViewSpec,
    checked_batch,
    checked_every,
    pipeline_values,
    source_problem,
)
from tradewind.pipelines.views.view_store import ViewStore, state_of
from tradewind.spark.columnar.columns import BUCKET, MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.pipelines.sql.query_session import SqlQuestion

FOLDER_KINDS: Final = ("parquet", "json", "csv")
Prepare = Callable[[str, str], tuple[TableCatalog, list[QueryTable]]]


class ViewStatementRunner:
    """One statement; `prepare` makes the tables of a query known to Spark."""

    def __init__(self, spark: SparkSession, question: SqlQuestion, prepare: Prepare) -> None:
        self._spark = spark
        self._question = question
        self._prepare = prepare

    def run(self, statement: ViewStatement) -> QueryResult:
        """The effect of a statement, or all views."""
        if self._question.store:
            raise PipelineError("--store only reads files: views are on a server")
        with self._question.address.connect() as connection:
            store = ViewStore(connection)
            if isinstance(statement, ShowViews):
                return listed_views(store)
            if isinstance(statement, CreateView):
                return self._create(store, statement)
            if isinstance(statement, DropView):
                return _drop(store, statement)
            return _alter(store, statement)

    def _create(self, store: ViewStore, statement: CreateView) -> QueryResult:
        if store.has(statement.name):
            found = store.find(statement.name).view
            if not statement.may_exist and found.token != self._question.statement:
                raise PipelineError(f"materialized view {statement.name!r} exists already")
            return _told(found, "exists already")
        catalog, tables = self._prepare(statement.query, "")
        batch = self._checked_query(statement, catalog)
        sources = self._sources(statement, catalog, tables)
        view = ViewSpec(
            name=statement.name,
            token=self._question.statement,
            query=statement.query,
            kind=_kind(statement.kind),
            sources=sources,
            columns=batch.columns,
            location=self._location(statement),
            every=checked_every(statement.options.get("every", EVERY)),
            batch=checked_batch(statement.options.get("batch", str(BATCH_MESSAGES))),
            created_ns=time.time_ns(),
        )
        frame = self._followed(view)
        view = keyed(view, statement.options.get("key", ""), grouping_of(frame))
        self._check_kept_up(view, frame)
        store.create(view)
        return _told(view, "created; `tradewind view run` keeps it up to date")

    def _checked_query(self, statement: CreateView, catalog: TableCatalog) -> DataFrame:
        """The query over what is there now; StatementError has the place of what is wrong."""
        from pyspark.errors import PySparkException

        try:
            frame = self._spark.sql(statement.query)
        except PySparkException as error:
            known = [*self._question.folders, *catalog.names]
            line, column = sql_line(error) or (0, 0)
            shift = statement.column if not line else 1
            text = explained(error, known)
            raise StatementError(text, statement.line + line, column + shift) from None
        folded = [name.lower() for name in frame.columns]
        for name in frame.columns:
            if folded.count(name.lower()) > 1:
                raise PipelineError(f"column {name!r} is there twice; give one another name")
        return frame

    def _sources(
        self, statement: CreateView, catalog: TableCatalog, tables: list[QueryTable]
    ) -> list[ViewSource]:
        found = []
        for table in tables:
            kind: SourceKind = "stream" if table.name in catalog.streams else "bucket"
            columns = list(MESSAGES if kind == "stream" else BUCKET)
            inferred = table.settle()
            fields = list(inferred.names) if inferred is not None else []
            ddl = inferred.ddl if inferred is not None else ""
            found.append(ViewSource(table.name, kind, table.name, columns, fields, ddl))
        for name in sorted(names_in(statement.query, self._question.folders)):
            place = self._question.folders[name]
            format_, _, path = place.partition(":")
            if format_ not in FOLDER_KINDS:
                raise PipelineError(
                    f"table {name}: a view takes folders as --table {name}=FORMAT:FOLDER, of"
                    f" {', '.join(FOLDER_KINDS)}"
                )
            found.append(ViewSource(name, _folder_kind(format_), path))
        for source in found:
            if problem := source_problem(source):
                raise PipelineError(problem)
        if not any(source.kind == "stream" for source in found):
            raise PipelineError(
                "a materialized view follows a stream, and its query names none; buckets and"
                " folders are looked up as they are"
            )
        return found

    def _location(self, statement: CreateView) -> str:
        if statement.kind == "bucket":
            if statement.location:
                raise PipelineError(
                    "location is for delta and parquet; a bucket has the view's name"
                )
            return ""
        place = statement.location or statement.name
        if "://" in place:
            return place
        folder = Path(self._question.folder or ".").absolute()
        return str(folder / Path(place).expanduser())

    def _followed(self, view: ViewSpec) -> DataFrame:
        """The query over streams that are followed, as the runner will have it."""
        # How its results are kept does not matter yet.
        plain = msgspec.structs.replace(view, kind="parquet", location="/")
        document = PipelineDocument(Path(f"/{view.name}"))
        document.value = pipeline_values(plain, "checkpoint")
        document.places[()] = Place(1, 1, 1)
        try:
            pipeline = pipeline_of(document)
            frames = build_frames(pipeline, self._spark, self._question.address, may_freeze=False)
        except PipelineFileError as error:
            raise PipelineError(f"this query cannot be kept up to date: {error.text}") from None
        for name in (*pipeline.sources, *pipeline.steps):
            # The next query is not about streams that are followed.
            self._spark.catalog.dropTempView(name)
        return frames.tables[RESULT_STEP]

    def _check_kept_up(self, view: ViewSpec, frame: DataFrame) -> None:
        """Have Spark say whether it can; it would only when the view is run."""
        from pyspark.errors import PySparkException

        java: Any = self._spark._jvm
        modes = java.org.apache.spark.sql.streaming.OutputMode
        checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        mode = modes.Update() if view.is_grouped else modes.Append()
        try:
            checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
        except PySparkException as error:
            reason = short_reason(error).partition(";")[0]
            raise PipelineError(f"this query cannot be kept up to date: {reason}") from None


def keyed(view: ViewSpec, key: str, grouping: Grouping | None) -> ViewSpec:
    """The view with the columns that distinguish its rows; PipelineError if none do."""
    named = [column.strip() for column in key.split(",") if column.strip()]
    for column in named:
        if column not in view.columns:
            raise PipelineError(
                f"option key: the query has no column {column!r}{near(column, view.columns)}"
            )
    if len(set(named)) < len(named):
        raise PipelineError("option key: a column is named twice")
    if grouping is None:
        if named or view.kind == "bucket":
            raise PipelineError(
                "rows are kept by key only if the query groups them: add group by, with"
                " max_by(column, seq) for the latest value of a column; or use delta or parquet"
                " without a key, which get every row"
            )
        return view
    if view.kind == "parquet":
        raise PipelineError("files of a parquet folder are not changed: use a bucket or delta")
    for cover in grouping.covers:
        if not cover.columns:
            raise PipelineError(
                f"the query groups by {cover.expression}, which is none of its columns: add it, so"
                " that its rows can be told apart"
            )
        if named and not set(named) & set(cover.columns):
            raise PipelineError(
                f"option key: {', '.join(named)} does not tell groups apart by {cover.expression}:"
                f" add {' or '.join(cover.columns)}"
            )
    chosen = named or list(dict.fromkeys(cover.columns[0] for cover in grouping.covers))
    if not chosen and view.kind == "delta":
        raise PipelineError("a delta table needs a key: group by a column, or use a bucket")
    return msgspec.structs.replace(view, key=chosen, is_grouped=True)


def _kind(text: str) -> ViewKind:
    found: ViewKind = msgspec.convert(text, ViewKind)
    return found


def _folder_kind(text: str) -> SourceKind:
    found: SourceKind = msgspec.convert(text, SourceKind)
    return found


def _told(view: ViewSpec, what: str) -> QueryResult:
    row = (view.name, what, view.target, ", ".join(view.key))
    return QueryResult(["view", "state", "results", "key"], [row], has_more=False)


def _drop(store: ViewStore, statement: DropView) -> QueryResult:
    if statement.may_be_missing and not store.has(statement.name):
        row = (statement.name, "does not exist")
    else:
        view = store.drop(statement.name)
        stays = "" if view.kind == "bucket" else f"; {view.location} stays"
        row = (view.name, f"dropped{stays}")
    return QueryResult(["view", "state"], [row], has_more=False)


def _alter(store: ViewStore, statement: AlterView) -> QueryResult:
    def change(view: ViewSpec) -> ViewSpec:
        return msgspec.structs.replace(view, is_paused=statement.is_paused)

    view = store.change(statement.name, change)
    return _told(view, "paused" if view.is_paused else "resumed")


def listed_views(store: ViewStore) -> QueryResult:
    """All views, and how they are."""
    reports = store.reports()
    rows = []
    for stored in store.all():
        view = stored.view
        report = reports.get(view.name)
        is_ours = report is not None and report.token == view.token
        rows.append(
            (
                view.name,
                state_of(view, report),
                view.target,
                ", ".join(view.key),
                report.rows if is_ours and report is not None else 0,
                report.error if is_ours and report is not None else "",
                " ".join(view.query.split()),
            )
        )
    columns = ["view", "state", "results", "key", "rows_read", "error", "query"]
    return QueryResult(columns, rows, has_more=False)
