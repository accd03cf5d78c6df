"""The sinks of a pipeline: streams, buckets, files and the terminal.

Owns writing a table to each of them. Every sink stores its rows exactly once across restarts:
streams and buckets with the sink of `tradewind.spark`, Parquet by moving finished files
(`parquet_lakes`; in an object store with Spark's list of files), Delta and Iceberg with a mark that
is committed with the rows (`lake_tables`). The terminal never stores anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tradewind.client.errors import ClientError
from tradewind.pipelines.definition.model import DeadLetter, Pipeline, Sink, texts
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.flow.frames import timeout_option
from tradewind.pipelines.lake.lake_partitions import (
    PartitionField,
    frame_with_derived,
    partition_fields,
)
from tradewind.pipelines.lake.lakes import BatchWriter, SinkQuery
from tradewind.pipelines.lake.parquet_lakes import parquet_writer
from tradewind.pipelines.lake.upserts import KEY_TYPES, Upsert
from tradewind.pipelines.notation.column_templates import (
    column_sql,
    parse_template,
    quoted_sql,
    template_sql,
)
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ID_COLUMN: Final = "id"
BatchPrinter = Callable[[str, Sink, "DataFrame", int], None]


def sink_writer(
    pipeline: Pipeline,
    name: str,
    frame: DataFrame,
    address: PipelineAddress,
    show: BatchPrinter,
) -> DataStreamWriter:
    """A writer that only has to be started; `show` prints the rows of a console sink."""
    sink = pipeline.sinks[name]
    if name in pipeline.writers:
        query = SinkQuery(f"{pipeline.name}.{name}", pipeline.query_checkpoint(name))
        batches = frame.writeStream.foreachBatch(pipeline.writers[name](query))
        return batches.outputMode(sink.spark_mode)
    if sink.kind in ("stream", "bucket"):
        rows = sink_messages(frame, sink)
        options = write_options(pipeline, sink, address)
        if sink.mode == "append":
            return rows.writeStream.format("jetstream").options(**options).outputMode("append")
        # Spark lets no sink of Python have rows that change, but it calls a function with them.
        query = SinkQuery(f"{pipeline.name}.{name}", pipeline.query_checkpoint(name))
        return rows.writeStream.foreachBatch(_changes_writer(options, query)).outputMode(sink.mode)
    if sink.kind == "parquet" and "://" in sink.parquet:
        what = "folders of Parquet files"
        rows, columns = frame_with_derived(frame, texts(sink.partition_by), what)
        writer = rows.writeStream.format("parquet").option("path", pipeline.place(sink.parquet))
        if columns:
            writer = writer.partitionBy(*columns)
        return writer.outputMode(sink.mode)
    query = SinkQuery(f"{pipeline.name}.{name}", pipeline.query_checkpoint(name))
    writer = frame.writeStream.foreachBatch(batch_writer(pipeline, name, show, query))
    return writer.outputMode(sink.spark_mode)


def dead_letter_writer(
    pipeline: Pipeline, source: str, frame: DataFrame, address: PipelineAddress
) -> DataStreamWriter:
    """The writer of rows that do not fit."""
    rows = letter_messages(pipeline, source, frame)
    options = letter_options(pipeline, source, address)
    return rows.writeStream.format("jetstream").options(**options).outputMode("append")


def letter_messages(pipeline: Pipeline, source: str, frame: DataFrame) -> DataFrame:
    """The messages of rows that do not fit: their payload as it is, the reason as a header."""
    letter = letter_of(pipeline, source)
    is_bucket = pipeline.sources[source].kind == "bucket"
    place = "`bucket`" if is_bucket else "`stream`"
    number = "revision" if is_bucket else "seq"
    data = "value" if is_bucket else "data"
    return frame.selectExpr(
        f"{template_sql(letter.subject)} as subject",
        f"`{data}` as data",
        "map('Tradewind-Reason', array(reason), "
        f"'Tradewind-Pipeline', array('{pipeline.name}'), "
        f"'Tradewind-Stream', array({place}), "
        f"'Tradewind-Sequence', array(cast({number} as string))) as headers",
    )


def letter_of(pipeline: Pipeline, source: str) -> DeadLetter:
    """Where the dead letters of a source go, which has some."""
    payload = pipeline.sources[source].payload
    assert payload is not None
    assert payload.dead_letter is not None
    return payload.dead_letter


def letter_options(pipeline: Pipeline, source: str, address: PipelineAddress) -> dict[str, str]:
    """The options of the format `jetstream` for the stream of dead letters."""
    where = PipelineAddress.first_of(pipeline.sources[source], pipeline.head, address)
    options = where.spark_options() | timeout_option(pipeline.sources[source].timeout)
    return options | {"stream": letter_of(pipeline, source).stream}


def prepare_targets(pipeline: Pipeline, address: PipelineAddress) -> None:
    """Make the streams and buckets that the file says to create; all others must exist."""
    from tradewind.pipelines.flow.targets import ensure_bucket, ensure_stream

    for name, sink in pipeline.sinks.items():
        if sink.kind not in ("stream", "bucket"):
            continue
        where = PipelineAddress.first_of(sink, pipeline.head, address)
        try:
            if sink.kind == "bucket":
                ensure_bucket(where, sink.bucket, may_create=sink.create is True)
            else:
                subjects = sink.create if isinstance(sink.create, list) else []
                ensure_stream(where, sink.stream, subjects)
        except (PipelineError, ClientError) as error:
            raise pipeline.document.error(("sinks", name, sink.kind), str(error)) from None
    for name, source in pipeline.sources.items():
        letter = source.payload.dead_letter if source.payload else None
        if letter is not None:
            where = PipelineAddress.first_of(source, pipeline.head, address)
            keys = ("sources", name, "payload", "dead_letter")
            try:
                ensure_stream(where, letter.stream, letter.create)
            except (PipelineError, ClientError) as error:
                raise pipeline.document.error(keys, str(error)) from None


def check_columns(pipeline: Pipeline, name: str, frame: DataFrame) -> None:
    """The columns that a sink names must be there."""
    from tradewind.pipelines.definition.loading import near

    sink = pipeline.sinks[name]
    named: list[tuple[str, str]] = []
    templates = {"subject": sink.subject, "key": sink.key if sink.kind == "bucket" else ""}
    for key, template in templates.items():
        assert isinstance(template, str)
        named += [(key, part) for kind, part in parse_template(template) if kind != "text"]
    named += [(key, getattr(sink, key)) for key in ("data", "value", "headers", "id")]
    fields = _partitions(pipeline, name)
    named += [("partition_by", field.column) for field in fields]
    if sink.console is not None:
        named += [("console", sink.console.label), ("console", sink.console.chart)]
    for key, column in named:
        if column and column.split(".")[0] not in frame.columns:
            text = f"{sink.input} has no column {column!r}{near(column, frame.columns)}"
            raise pipeline.document.error(("sinks", name, key), text)
    _check_partitions(pipeline, name, frame, fields)
    if upsert := upsert_of(sink):
        _check_upsert(pipeline, name, frame, upsert)


def _partitions(pipeline: Pipeline, name: str) -> list[PartitionField]:
    """How the files of a sink are divided; the error names the line of what cannot be meant."""
    sink = pipeline.sinks[name]
    place = ("sinks", name, "partition_by")
    try:
        fields = partition_fields(texts(sink.partition_by))
    except PipelineError as error:
        raise pipeline.document.error(place, str(error)) from None
    if sink.kind == "parquet" and any(field.buckets for field in fields):
        text = "partition_by: bucket(N, COLUMN) is for Delta and Iceberg tables"
        raise pipeline.document.error(place, text)
    return fields


def _check_partitions(
    pipeline: Pipeline, name: str, frame: DataFrame, fields: Sequence[PartitionField]
) -> None:
    """Check that a derived column fits the type of its column, and has a name of its own."""
    if all(field.transform == "identity" for field in fields):
        return
    from tradewind.pipelines.sessions.arrow_jobs import arrow_schema

    schema = arrow_schema(frame)
    for field in fields:
        try:
            field.check(schema)
        except PipelineError as error:
            raise pipeline.document.error(("sinks", name, "partition_by"), str(error)) from None


def upsert_of(sink: Sink) -> Upsert | None:
    """How rows of a sink replace others; None if they do not."""
    if sink.mode != "upsert":
        return None
    return Upsert(tuple(texts(sink.key)), sink.delete_when, sink.order_by)


def _check_upsert(pipeline: Pipeline, name: str, frame: DataFrame, upsert: Upsert) -> None:
    """The columns of a key are there and can be compared, and the condition is SQL."""
    from pyspark.errors import PySparkException

    from tradewind.pipelines.definition.loading import near

    kinds = {column.name: column.dataType.simpleString() for column in frame.schema.fields}
    wanted = [("key", column) for column in upsert.key]
    wanted += [("order_by", upsert.order_by)] if upsert.order_by else []
    for key, column in wanted:
        place = ("sinks", name, key)
        if column not in kinds:
            text = f"{pipeline.sinks[name].input} has no column {column!r}{near(column, kinds)}"
            raise pipeline.document.error(place, text)
        is_decimal = kinds[column].startswith("decimal")
        if key == "key" and kinds[column] not in KEY_TYPES and not is_decimal:
            text = f"column {column!r} is {kinds[column]}, which cannot be a key"
            raise pipeline.document.error(place, text)
    if upsert.delete_when:
        try:
            frame.where(upsert.delete_when)
        except PySparkException as error:
            place = ("sinks", name, "delete_when")
            raise pipeline.document.error(place, short_reason(error)) from None


def letter_columns(letter: DeadLetter) -> list[str]:
    """The columns that the subject of a dead letter names."""
    return [part for kind, part in parse_template(letter.subject) if kind != "text"]


def sink_messages(frame: DataFrame, sink: Sink) -> DataFrame:
    """The columns that the sink of `tradewind.spark` takes."""
    if sink.ordered:
        # One task publishes in the order of the source; several could not keep it.
        frame = frame.coalesce(1)
    everything = f"to_json(struct({', '.join(quoted_sql(name) for name in frame.columns)}))"
    if sink.kind == "bucket":
        assert isinstance(sink.key, str)
        value = column_sql(sink.value) if sink.value else everything
        return frame.selectExpr(
            f"{template_sql(sink.key)} as key", f"cast({value} as binary) as value"
        )
    data = column_sql(sink.data) if sink.data else everything
    columns = [f"{template_sql(sink.subject)} as subject", f"cast({data} as binary) as data"]
    if sink.headers:
        columns.append(f"{column_sql(sink.headers)} as headers")
    if sink.id:
        columns.append(f"cast({column_sql(sink.id)} as string) as {ID_COLUMN}")
    return frame.selectExpr(*columns)


def write_options(pipeline: Pipeline, sink: Sink, address: PipelineAddress) -> dict[str, str]:
    """The options of the format `jetstream` for a stream or bucket that is written."""
    where = PipelineAddress.first_of(sink, pipeline.head, address)
    options = (
        where.spark_options()
        | {sink.kind: sink.stream or sink.bucket}
        | timeout_option(sink.timeout)
    )
    if sink.id:
        options["idColumn"] = ID_COLUMN
    if not sink.fail_on_unknown:
        options["failOnUnknown"] = "false"
    return options


def _changes_writer(options: Mapping[str, str], query: SinkQuery) -> Callable[[Any, int], None]:
    """Writes batches under the id that Spark gave to the query, so that none is written twice."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.format("jetstream").mode("append").options(
            **options, txnAppId=query.query_id, txnVersion=str(number)
        ).save()

    return write


def batch_writer(
    pipeline: Pipeline, name: str, show: BatchPrinter, query: SinkQuery
) -> BatchWriter:
    """The function that is called with each micro-batch."""
    sink = pipeline.sinks[name]
    if sink.console is not None:
        return lambda batch, number: show(name, sink, batch, number)
    columns = texts(sink.partition_by)
    if sink.kind == "parquet":
        return parquet_writer(pipeline.place(sink.parquet), query, columns)
    from tradewind.pipelines.lake.lake_tables import TableSink, table_writer
    from tradewind.pipelines.lake.opening import lake_table

    how = TableSink(columns, sink.mode == "complete", upsert_of(sink))
    return table_writer(lake_table(pipeline, sink), query, how)
