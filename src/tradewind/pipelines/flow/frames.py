"""Builds Spark frames for the tables of a pipeline.

Owns turning a source into columns, and chaining steps. The module builds plans only and never reads
a row, except for the sample from which a schema is inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.definition.model import Payload, Pipeline, Source, Watermark
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.flow.steps import step_frame
from tradewind.pipelines.notation.column_templates import quoted_sql
from tradewind.pipelines.notation.intervals import parse_interval_ms, spark_interval
from tradewind.pipelines.payloads.schema_reasons import Field, reason_of
from tradewind.pipelines.payloads.schemas import (
    declared_ddl,
    freeze,
    infer_from_source,
    read_frozen,
)
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BAD_COLUMN: Final = "__bad"
PARSED_COLUMN: Final = "__parsed"
PAYLOAD_COLUMN: Final = {"stream": "data", "bucket": "value"}
SHOWN_CHARACTERS: Final = 100


@dataclass
class Frames:
    """Tables by name; of sources with a dead letter also the rows that do not fit.

    `raw` has the rows of sources before their payloads are decoded, and `decoders` what does that.
    """

    tables: dict[str, DataFrame] = field(default_factory=dict)
    bad: dict[str, DataFrame] = field(default_factory=dict)
    raw: dict[str, DataFrame] = field(default_factory=dict)
    decoders: dict[str, Callable[[DataFrame, Frames], None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """Rows for sources, as these would read them, and the schemas of their payloads."""

    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)


def build_frames(
    pipeline: Pipeline,
    spark: SparkSession,
    address: PipelineAddress,
    *,
    may_freeze: bool,
    extra: Mapping[str, Mapping[str, str]] | None = None,
    samples: Samples | None = None,
) -> Frames:
    """All tables of a pipeline; an error names the line. `address` is what the user's command says.

    Without `may_freeze` an inferred schema is not written down. `extra` are more options for the
    streams of some sources. Rows of `samples` are taken instead of what sources would read.
    """
    from pyspark.errors import PySparkException

    frames = Frames()
    for name, source in pipeline.sources.items():
        try:
            builder = _FrameBuilder(pipeline, spark, address, name, source, (extra or {}).get(name))
            builder.build(frames, samples or Samples(), may_freeze=may_freeze)
        except PySparkException as error:
            raise pipeline.document.error(("sources", name), short_reason(error)) from None
        frames.tables[name].createOrReplaceTempView(name)
    build_steps(pipeline, spark, frames, pipeline.steps)
    return frames


def build_steps(
    pipeline: Pipeline, spark: SparkSession, frames: Frames, names: Iterable[str]
) -> None:
    """Add the tables of steps, each made from tables that are there."""
    for name in names:
        step = pipeline.steps[name]
        frame = step_frame(pipeline, spark, name, step, frames.tables)
        if step.watermark is not None:
            keys = ("steps", name, "watermark")
            frame = with_watermark(pipeline, frame, step.watermark, keys)
        frames.tables[name] = frame
        frame.createOrReplaceTempView(name)


def with_watermark(
    pipeline: Pipeline, frame: DataFrame, watermark: Watermark, keys: tuple[str, ...]
) -> DataFrame:
    """The frame with rows later than the watermark given up."""
    kinds = {column.name: column.dataType.simpleString() for column in frame.schema.fields}
    kind = kinds.get(watermark.column)
    if kind not in ("timestamp", "timestamp_ntz"):
        what = f"is {kind}, not a timestamp" if kind else f"is not among {', '.join(kinds)}"
        raise pipeline.document.error(keys, f"column {watermark.column!r} {what}")
    return frame.withWatermark(watermark.column, spark_interval(watermark.delay))


def source_options(pipeline: Pipeline, source: Source, address: PipelineAddress) -> dict[str, str]:
    """The options of the format `jetstream` for a stream or a bucket."""
    options = PipelineAddress.first_of(source, pipeline.head, address).spark_options()
    if source.store:
        options["storeDir"] = pipeline.place(source.store)
    if source.read_mode != "auto":
        options["readMode"] = source.read_mode
    options |= timeout_option(source.timeout)
    options["usedBy"] = "pipeline"
    if source.bucket:
        return options | {"bucket": source.bucket}
    options["stream"] = ",".join(source.streams)
    if subjects := source.subjects:
        options["filterSubjects"] = subjects if isinstance(subjects, str) else ",".join(subjects)
    if source.start_seq:
        options["startingSeq"] = str(source.start_seq)
    elif source.start in ("earliest", "latest"):
        if source.is_followed:
            options["startingOffsets"] = source.start
    else:
        options["startingTime"] = source.start
    if not source.is_followed:
        # Table and tail are one relation, whether or not the stream still has all of it.
        options["tiers"] = "any"
    if source.data_loss is not None:
        options["failOnDataLoss"] = "false" if source.data_loss == "continue" else "true"
    return options


def trigger_options(source: Source) -> dict[str, str]:
    """The options of a source that is followed: how much a batch has, and who acknowledges it."""
    numbers = {
        "maxMsgsPerTrigger": source.batch,
        "maxBytesPerTrigger": source.batch_bytes,
        "minMsgsPerTrigger": source.batch_min,
    }
    options = {name: str(number) for name, number in numbers.items() if number}
    if source.batch_wait:
        options["maxTriggerDelay"] = f"{parse_interval_ms(source.batch_wait)}ms"
    if source.ack_consumer:
        options["ackConsumer"] = source.ack_consumer
    return options


def timeout_option(timeout: str) -> dict[str, str]:
    """How long a server that is away is waited for, if the file says it."""
    return {"timeoutSeconds": str(parse_interval_ms(timeout) // 1000)} if timeout else {}


class _FrameBuilder:
    """Makes the frame of one source."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        address: PipelineAddress,
        name: str,
        source: Source,
        extra: Mapping[str, str] | None,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._address = address
        self._name = name
        self._source = source
        self._extra = dict(extra or {})
        # The schema of the payloads as soon as it is known.
        self._schema_text = ""

    def build(self, frames: Frames, samples: Samples, *, may_freeze: bool) -> None:
        """Add the table of the source, whose rows a sample may have."""
        self._schema_text = samples.schemas.get(self._name, "")
        if self._name in samples.frames:
            frame = samples.frames[self._name]
        elif self._source.payload is not None and self._source.payload.format == "table":
            frames.tables[self._name] = frames.raw[self._name] = self._table()
            return
        elif self._source.kind in PAYLOAD_COLUMN:
            frame = self._jetstream()
        else:
            frame = self._folder()
        frames.raw[self._name] = frame
        frames.decoders[self._name] = partial(self.decode, may_freeze=may_freeze)
        self.decode(frame, frames, may_freeze=may_freeze)

    def decode(self, frame: DataFrame, frames: Frames, *, may_freeze: bool) -> None:
        """Add the table that is made from rows of the source."""
        source = self._source
        is_early = source.watermark is not None and source.watermark.column in frame.columns
        if is_early:
            frame = self._late(frame)
        if source.payload is not None:
            frame = self._payload(frame, source.payload, frames, may_freeze=may_freeze)
        if source.watermark is not None and not is_early:
            frame = self._late(frame)
        frames.tables[self._name] = frame

    def _late(self, frame: DataFrame) -> DataFrame:
        assert self._source.watermark is not None
        keys = ("sources", self._name, "watermark")
        return with_watermark(self._pipeline, frame, self._source.watermark, keys)

    def _folder(self) -> DataFrame:
        source = self._source
        path = self._pipeline.place(getattr(source, source.kind))
        ddl = declared_ddl(source.schema) if source.schema else ""
        reader: Any = self._spark.readStream if source.is_followed else self._spark.read
        if source.is_followed and source.kind == "parquet" and not ddl:
            ddl = self._spark.read.parquet(path).schema
        if source.kind == "csv":
            reader = reader.option("header", "true").option("inferSchema", str(not ddl).lower())
        if source.batch:
            reader = reader.option("maxFilesPerTrigger", str(source.batch))
        if ddl:
            reader = reader.schema(ddl)
        frame: DataFrame = reader.format(source.kind).load(path)
        return frame

    def _jetstream(self) -> DataFrame:
        source = self._source
        options = source_options(self._pipeline, source, self._address)
        options |= self._extra
        if source.is_followed:
            options |= trigger_options(source)
        reader: Any = self._spark.readStream if source.is_followed else self._spark.read
        frame: DataFrame = reader.format("jetstream").options(**options).load()
        return frame

    def _table(self) -> DataFrame:
        """The table of the stream with its tail, as they are when the pipeline starts."""
        from tradewind.pipelines.tables.table_queries import named_columns
        from tradewind.pipelines.tables.table_reading import read_stream

        source, (stream,) = self._source, self._source.streams
        address = PipelineAddress.first_of(source, self._pipeline.head, self._address)
        store = self._pipeline.place(source.store) if source.store else ""
        try:
            frame = read_stream(self._spark, stream, address, store=store)
        except PipelineError as error:
            keys = ("sources", self._name, "payload", "format")
            raise self._pipeline.document.error(keys, str(error)) from None
        frame = named_columns(frame, stream, is_bucket=False)
        return self._late(frame) if source.watermark is not None else frame

    # ---------------------------------------------------------------- payloads

    def _payload(
        self, frame: DataFrame, payload: Payload, frames: Frames, *, may_freeze: bool
    ) -> DataFrame:
        column = PAYLOAD_COLUMN[self._source.kind]
        others = [f"`{name}`" for name in frame.columns if name != column]
        if payload.format == "text":
            into = payload.into or column
            return frame.selectExpr(*others, f"cast(`{column}` as string) as `{into}`")
        schema = self._schema(payload, may_freeze=may_freeze)
        taken = [] if payload.into else [item.name for item in schema.fields]
        for name in taken:
            if name.lower() in [other.strip("`").lower() for other in others]:
                text = (
                    f"field {name!r} has the name of a column of the source; add `into: order` (or"
                    " another name) to have the fields in a column of their own"
                )
                raise self._pipeline.document.error(("sources", self._name, "payload"), text)
        parsed = frame.withColumn(PARSED_COLUMN, _from_json(column, schema))
        is_bad = self._bad_sql(column, schema)
        good = (
            [f"`{PARSED_COLUMN}`.{quoted_sql(name)} as {quoted_sql(name)}" for name in taken]
            if taken
            else [_struct_sql(schema, payload.into)]
        )
        if payload.dead_letter is not None:
            frames.bad[self._name] = self._dead(parsed.where(is_bad), column, schema)
            return parsed.where(f"not ({is_bad})").selectExpr(*others, *good)
        if payload.bad == "skip":
            counted = parsed.observe(f"bad_{self._name}", _count_if(is_bad))
            return counted.where(f"not ({is_bad})").selectExpr(*others, *good)
        return parsed.where(self._raise_sql(is_bad, column)).selectExpr(*others, *good)

    def _schema(self, payload: Payload, *, may_freeze: bool) -> StructType:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        pipeline, name = self._pipeline, self._name
        keys = ("sources", name, "payload", "schema")
        ddl = declared_ddl(payload.schema) or self._schema_text
        if not ddl:
            frozen = read_frozen(pipeline.checkpoint, name)
            if frozen is None:
                options = source_options(pipeline, self._source, self._address)
                for key in ("startingOffsets", "failOnDataLoss"):
                    options.pop(key, None)
                try:
                    column = PAYLOAD_COLUMN[self._source.kind]
                    inferred = infer_from_source(name, options, column)
                except PipelineError as error:
                    raise pipeline.document.error(keys, str(error)) from None
                ddl = inferred.ddl
                if may_freeze:
                    freeze(pipeline.checkpoint, name, inferred)
            else:
                ddl = frozen.schema
        self._schema_text = ddl
        try:
            return StructType.fromDDL(ddl)
        except PySparkException as error:
            raise pipeline.document.error(keys, f"no schema: {short_reason(error)}") from None

    def _bad_sql(self, column: str, schema: StructType) -> str:
        """The condition that a payload does not fit. A deletion in a bucket has no payload."""
        parsed = f"`{PARSED_COLUMN}`"
        reasons = [
            f"{parsed} is null",
            f"{parsed}.`{BAD_COLUMN}` is not null",
            f"not is_valid_utf8(cast(`{column}` as string))",
        ]
        reasons += [
            f"{parsed}.{quoted_sql(item.name)} is null"
            for item in schema.fields
            if not item.nullable
        ]
        is_bad = f"({' or '.join(reasons)})"
        return f"(operation = 'PUT' and {is_bad})" if self._source.kind == "bucket" else is_bad

    def _raise_sql(self, is_bad: str, column: str) -> str:
        place = (
            "concat('bucket ', bucket, ' key ', key)"
            if self._source.kind == "bucket"
            else "concat('stream ', stream, ' sequence ', seq)"
        )
        shown = f"left(cast(`{column}` as string), {SHOWN_CHARACTERS})"
        text = (
            f"concat('source {self._name}: ', {place}, ': the payload does not match the schema: ',"
            f" coalesce({shown}, ''), '; use `bad: skip` or a `dead_letter` to continue "
            "without it')"
        )
        return f"if({is_bad}, raise_error({text}), true)"

    def _dead(self, bad: DataFrame, column: str, schema: StructType) -> DataFrame:
        from pyspark.sql.functions import col, udf

        fields: list[Field] = [
            (item.name, item.dataType.simpleString(), not item.nullable) for item in schema.fields
        ]
        why = udf(partial(_reason, fields), "string", useArrow=False)
        return bad.withColumn("reason", why(col(column))).drop(PARSED_COLUMN)


def _reason(fields: list[Field], payload: bytearray | None) -> str:
    return reason_of(bytes(payload) if payload else None, fields)


def _from_json(column: str, schema: StructType) -> Any:
    from pyspark.sql.functions import col, from_json
    from pyspark.sql.types import StringType, StructField, StructType

    # Spark takes a missing field for null, and only then can we tell which one was missing.
    relaxed = [StructField(item.name, item.dataType, True) for item in schema.fields]
    whole = StructType([*relaxed, StructField(BAD_COLUMN, StringType(), True)])
    return from_json(col(column).cast("string"), whole, {"columnNameOfCorruptRecord": BAD_COLUMN})


def _struct_sql(schema: StructType, into: str) -> str:
    fields = ", ".join(
        f"`{PARSED_COLUMN}`.{quoted_sql(item.name)} as {quoted_sql(item.name)}"
        for item in schema.fields
    )
    return f"struct({fields}) as {quoted_sql(into)}"


def _count_if(condition: str) -> Any:
    from pyspark.sql.functions import count_if, expr

    return count_if(expr(condition)).alias("rows")
