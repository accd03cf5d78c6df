"""A stream and its table as one relation of Spark.

Owns `read_stream`: the files of the table, by Spark's own Parquet reader, and the tail of the
stream after them, at one point (`pinned_streams`). Spark prunes columns and pushes conditions into
the files by itself. The frame stays at its point, however often and however late it is used.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.column_templates import quoted_sql
from tradewind.pipelines.sessions.arrow_jobs import map_in_arrow
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.tables.pinned_streams import (
    PinnedStream,
    StreamPlace,
    latest_puts,
    pin_stream,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tradewind.pipelines.tables.table_points import TablePoint

_KEY: Final = "key"
_BATCH_ROWS: Final = 10_000
# Tails that are kept as files; an older frame than so many cannot be used any more.
TAILS_MAX: Final = 256


def read_stream(
    spark: SparkSession,
    stream: str,
    address: PipelineAddress | str = "",
    *,
    store: str = "",
) -> DataFrame:
    """All rows of a stream that has a table: those of the table, and those that it lacks yet.

    `address` is the server, as `nats://host:4222` or with a login; `store` is a store folder to
    read the tail from instead. PipelineError if the stream has no table, or another one's.
    """
    given = PipelineAddress(address) if isinstance(address, str) else address
    where = StreamPlace(given, store)
    pinned = pin_stream(stream, where)
    if pinned is None:
        raise PipelineError(
            f"stream {stream} has no table, or none that was written yet: `tradewind table add"
            f" {stream} --to FOLDER` asks for one, and `tradewind table run` writes it"
        )
    return stream_frame(spark, pinned)


def stream_frame(spark: SparkSession, pinned: PinnedStream) -> DataFrame:
    """The frame of a pinned stream, with the columns of its table."""
    from pyspark.sql.types import StructType

    point, rows = pinned.point, pinned.rows
    schema = spark_schema(point.schema)
    if rows is None:
        tail = _read_tail(spark, pinned, schema)
        return tail if pinned.spec.rows == "latest" else table_frame(spark, point).union(tail)
    if not rows.num_rows:
        return table_frame(spark, point)
    if pinned.spec.rows == "latest":
        keys = local_frame(spark, rows.select([_KEY]), StructType([schema[_KEY]]))
        table = table_frame(spark, point).join(keys, _KEY, "left_anti").select(*schema.names)
        return table.union(local_frame(spark, latest_puts(rows), schema))
    spilled = spill(spark, rows)
    if spilled and not (point.in_folders and point.partition_by):
        # One more file of the same scan.
        return table_frame(spark, point, (spilled,))
    tail = (
        spark.read.schema(schema).parquet(spilled) if spilled else local_frame(spark, rows, schema)
    )
    return table_frame(spark, point).union(tail)


def spill(spark: SparkSession, rows: pa.Table) -> str:
    """A file with a tail, as long as Spark runs, or until there are too many; empty on a cluster.

    Spark reads it as it reads the table: with fewer columns, and not at all where conditions
    exclude it.
    """
    import pyarrow.parquet as pq

    if not re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master):
        return ""
    folder = Path(str(spark.sparkContext._temp_dir)) / "tails"
    folder.mkdir(exist_ok=True)
    for old in sorted(folder.iterdir())[: -TAILS_MAX + 1]:
        old.unlink(missing_ok=True)
    path = folder / f"{time.time_ns()}-{token_hex(4)}.parquet"
    pq.write_table(rows, path, compression="none")
    return str(path)


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a table as Spark has them; each may be null."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    found = from_arrow_schema(schema)
    return StructType([StructField(one.name, one.dataType, True) for one in found.fields])


def table_frame(spark: SparkSession, point: TablePoint, more: Sequence[str] = ()) -> DataFrame:
    """The rows of a pinned table and of more files, by Spark's own reader of Parquet."""
    schema = spark_schema(point.schema)
    paths = [*(spark_path(file.path) for file in point.files), *more]
    if not paths:
        return local_frame(spark, point.schema.empty_table(), schema)
    # Names of files are no patterns, whatever is in them.
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    if point.in_folders and point.partition_by:
        reader = reader.option("basePath", spark_path(point.folder))
    else:
        # All columns are in the files, also those that folders are named by.
        reader = reader.option("recursiveFileLookup", "true")
    frame = reader.parquet(*paths)
    return frame.select(*(quoted_sql(name) for name in schema.names))


def spark_path(path: str) -> str:
    """A path as Hadoop takes it, which calls S3 by another name."""
    return re.sub(r"^s3n?://", "s3a://", path)


def local_frame(spark: SparkSession, rows: pa.Table, schema: Any) -> DataFrame:
    """Rows that this process has; Spark filters them when it plans, and ships what is left."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import to_arrow_schema

    java: Any = spark._jvm
    fitting = rows.cast(to_arrow_schema(schema, timezone="UTC"))
    batches = spark.sparkContext._serialize_to_jvm(
        fitting.to_batches(max_chunksize=_BATCH_ROWS),
        ArrowStreamSerializer(),
        java.PythonSQLUtils.readArrowStreamFromFile,
        java.ArrowIteratorServer,
    )
    made = java.PythonSQLUtils.toDataFrame(batches, schema.json(), spark._jsparkSession)
    return DataFrame(made, spark)


def _read_tail(spark: SparkSession, pinned: PinnedStream, schema: StructType) -> DataFrame:
    """A tail that is too large for this process, read by the executors."""
    options: Mapping[str, str] = {
        **pinned.options,
        "columns": ",".join(pinned.tail.input_columns),
    }
    frame = spark.read.format("jetstream").options(**options).load()
    return map_in_arrow(frame, pinned.tail, schema)
