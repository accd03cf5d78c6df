"""Runs the statements that write: rows to a stream or bucket, and a query to a new lake.

Owns what a statement leaves behind, however it ends. Rows of an insert are written under the id of
the statement, so a task that Spark repeats writes none of them twice, and neither does the same
statement that is sent again because the SQL service has ended. Rows that are in a stream stay there
when a statement fails or is cancelled; the error says how many there are. A lake is made beside its
place and moved there when it is complete, so it is either there or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.names import KV_STREAM, KV_SUBJECTS
from tradewind.client.errors import BucketNotFoundError
from tradewind.errors import TradewindError
from tradewind.pipelines.definition.loading import near
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import QueryResult, explained
from tradewind.pipelines.sessions.spark_errors import short_reason, sql_line
from tradewind.pipelines.sql.new_lakes import create_lake
from tradewind.pipelines.sql.wire import StatementError
from tradewind.pipelines.sql.write_plans import (
    CreatePlan,
    InsertPlan,
    frame_of,
    parse,
    write_plan,
)
from tradewind.spark.errors import OptionError
from tradewind.spark.options.sink_options import MARKS_BUCKET, SinkOptions, parse_sink_options
from tradewind.spark.writes.outgoing_columns import plan_columns
from tradewind.spark.writes.partition_write import PartitionEpoch, run_key
from tradewind.spark.writes.stored_ids import find_stored
from tradewind.spark.writes.write_marks import WriteRun, query_token
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.api.stream_types import StreamInfo
    from tradewind.pipelines.relations.queries import TableCatalog
    from tradewind.pipelines.sql.query_session import SqlQuestion
    from tradewind.pipelines.tables.table_queries import ShownTable

# How long tasks that were cancelled may still write, and how often that is looked at.
_SETTLE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.5
# Makes the tables that a text names known to Spark; not those that are only written to.
Prepare = Callable[[str, str], "tuple[TableCatalog, list[ShownTable]]"]


@dataclass(frozen=True, slots=True)
class InsertTarget:
    """The stream or bucket that rows go to."""

    name: str
    is_bucket: bool
    info: StreamInfo

    @property
    def stream(self) -> str:
        """The stream, which a bucket is, too."""
        return f"{KV_STREAM}{self.name}" if self.is_bucket else self.name


class StatementWriter:
    """One statement; `prepare` makes its tables known, and says which there are."""

    def __init__(
        self, spark: SparkSession, question: SqlQuestion, text: str, prepare: Prepare
    ) -> None:
        self._spark = spark
        self._question = question
        self._text = text
        self._prepare = prepare

    def run(self) -> QueryResult:
        """The number of rows that were written."""
        from pyspark.errors import PySparkException

        if self._question.store:
            raise PipelineError("--store only reads: leave it out to write")
        try:
            plan = write_plan(parse(self._spark, self._text))
        except PySparkException as error:
            raise _placed_error(error, []) from None
        catalog, tables = self._prepare(
            self._text, plan.table if isinstance(plan, InsertPlan) else ""
        )
        for table in tables:
            # Rows that are written cannot be written again with other types.
            table.settle()
            table.view()
        try:
            frame = frame_of(self._spark, plan.query)
        except PySparkException as error:
            raise _placed_error(error, [*self._question.folders, *catalog.names]) from None
        if isinstance(plan, InsertPlan):
            return self._insert(plan, frame, catalog)
        return self._create(plan, frame)

    # ---------------------------------------------------------------- insert

    def _insert(self, plan: InsertPlan, frame: DataFrame, catalog: TableCatalog) -> QueryResult:
        target = self._target(plan.table, catalog)
        rows = named_columns(frame, plan)
        kind = "bucket" if target.is_bucket else "stream"
        options = self._question.address.spark_options() | {
            kind: target.name,
            "txnAppId": f"tradewind-sql-{self._question.statement}",
            "txnVersion": "0",
        }
        if not target.is_bucket and "subject" not in rows.columns:
            options["subject"] = only_subject(target)
        sink = parse_sink_options(options)
        try:
            plan_columns(rows.schema, sink)
        except OptionError as error:
            text = str(error).removeprefix(f"option {error.option}: ")
            raise PipelineError(f"insert into {target.name}: {text}") from None
        # Spark looks for the format in the session of the thread, which may be a new thread.
        sessions = type(self._spark)._get_j_spark_session_class(self._spark._jvm)
        sessions.setActiveSession(self._spark._jsparkSession)
        try:
            rows.write.format("jetstream").mode("append").options(**options).save()
        except Exception as error:  # of Spark, and of Java below it
            raise self._stopped(target, sink, error) from None
        return QueryResult(["rows"], [(self._finished(target, sink),)], has_more=False)

    def _target(self, name: str, catalog: TableCatalog) -> InsertTarget:
        if name.lower() in (one.lower() for one in self._question.folders):
            raise PipelineError(
                f"{name} is a folder: insert is for streams and buckets; create table ... as"
                " select makes a lake"
            )
        same = [one for one in catalog.names if one.lower() == name.lower()]
        found = name if name in same else same[0] if len(same) == 1 else ""
        if not found:
            hint = near(name, catalog.names)
            raise PipelineError(f"stream or bucket {name!r} does not exist{hint}")
        if found.startswith(KV_STREAM) and found.removeprefix(KV_STREAM) in catalog.buckets:
            bucket = found.removeprefix(KV_STREAM)
            raise PipelineError(f"{found} is a bucket: insert into {bucket} (key, value)")
        is_bucket = found not in catalog.streams
        with self._question.address.connect() as connection:
            stream = KV_STREAM + found if is_bucket else found
            info = connection.jetstream_manager().streams.info(stream)
        return InsertTarget(found, is_bucket, info)

    def _finished(self, target: InsertTarget, sink: SinkOptions) -> int:
        """How many rows are stored, as the sink has noted; the note is not needed any more."""
        with self._question.address.connect() as connection:
            run = self._run_mark(connection, target, sink)
            self._forget(connection, target, sink)
        return run.rows if run is not None else 0

    def _stopped(
        self, target: InsertTarget, sink: SinkOptions, error: BaseException
    ) -> PipelineError:
        """The report about an insert that has not come to its end."""
        why = f"insert into {target.name} did not finish: {short_reason(error)}"
        try:
            with self._question.address.connect() as connection:
                run = self._run_mark(connection, target, sink)
                stored = self._stored(connection, target, sink, run) if run is not None else (0, 0)
                self._forget(connection, target, sink)
        except (TradewindError, OSError) as problem:
            return PipelineError(f"{why}; how many of its rows are there is unknown: {problem}")
        rows, unseen = stored
        if not rows and not unseen:
            return PipelineError(f"{why}; none of its rows was written")
        unknown = f"; {unseen:,} messages could not be looked at" if unseen else ""
        return PipelineError(
            f"{why}; {rows:,} of its rows were written to {target.name} and stay there, the"
            f" others were not{unknown}"
        )

    def _stored(
        self, connection: Any, target: InsertTarget, sink: SinkOptions, run: WriteRun
    ) -> tuple[int, int]:
        """How many rows are in the target once no task writes any more; and of how many messages
        that is not known.
        """
        scope = PartitionEpoch(_token(target, sink), 0, 0).epoch_scope
        deadline = time.monotonic() + _SETTLE_SECONDS
        before = -1
        while True:
            info = connection.jetstream_manager().streams.info(target.stream)
            last_seq = info.state.last_seq
            found = find_stored(sink.address, info, run.after_seq, last_seq, scope)
            if len(found.ids) == before or time.monotonic() >= deadline:
                return len(found.ids), found.missing
            before = len(found.ids)
            time.sleep(_LOOK_SECONDS)

    def _run_mark(
        self, connection: Any, target: InsertTarget, sink: SinkOptions
    ) -> WriteRun | None:
        try:
            bucket = connection.jetstream().kv.open(MARKS_BUCKET)
        except BucketNotFoundError:
            return None
        entry = bucket.get(run_key(_token(target, sink)))
        return None if entry is None else msgspec.json.decode(entry.value, type=WriteRun)

    def _forget(self, connection: Any, target: InsertTarget, sink: SinkOptions) -> None:
        """Remove the notes of a statement that cannot be repeated."""
        with suppress(TradewindError):  # notes that stay are small, and are never read
            connection.jetstream_manager().streams.purge(
                KV_STREAM + MARKS_BUCKET,
                filter=f"{KV_SUBJECTS}{MARKS_BUCKET}.{_token(target, sink)}.*",
            )

    # ---------------------------------------------------------------- create table

    def _create(self, plan: CreatePlan, frame: DataFrame) -> QueryResult:
        place, rows = create_lake(plan, frame, self._question.folder, self._question.statement)
        return QueryResult(["table", "place", "rows"], [(plan.name, place, rows)], has_more=False)


def named_columns(frame: DataFrame, plan: InsertPlan) -> DataFrame:
    """The rows with the columns that the statement names, or else their own names."""
    if not plan.columns:
        if plan.has_bare_values:
            raise PipelineError(
                f"name the columns of the values: insert into {plan.table} (subject, data) values"
            )
        _check_distinct(frame.columns)
        return frame
    if len(plan.columns) != len(frame.columns):
        raise PipelineError(
            f"insert into {plan.table} names {len(plan.columns)} columns"
            f" ({', '.join(plan.columns)}), and the query has {len(frame.columns)}"
            f" ({', '.join(frame.columns)})"
        )
    _check_distinct(plan.columns)
    return frame.toDF(*plan.columns)


def _check_distinct(columns: Sequence[str]) -> None:
    folded = [column.lower() for column in columns]
    for column in columns:
        if folded.count(column.lower()) > 1:
            raise PipelineError(f"column {column!r} is there twice; give one another name")


def only_subject(target: InsertTarget) -> str:
    """The subject of all rows, if the stream has only one; PipelineError otherwise."""
    subjects = list(target.info.config.subjects or [])
    if len(subjects) == 1 and is_valid_literal(subjects[0]):
        return subjects[0].replace("{", "{{").replace("}", "}}")
    shown = ", ".join(subjects[:5]) or "none of its own"
    raise PipelineError(
        f"the rows have no column subject, and stream {target.name} has the subjects {shown}: add"
        " one, such as 'orders.new' as subject"
    )


def _token(target: InsertTarget, sink: SinkOptions) -> str:
    return query_token(sink.txn_app_id, target.stream)


def _placed_error(error: BaseException, known: list[str]) -> StatementError:
    line, column = sql_line(error) or (-1, -1)
    return StatementError(explained(error, known), line + 1, column + 1)
