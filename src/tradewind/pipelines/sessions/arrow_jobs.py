"""Runs functions on Arrow batches in executors.

Owns applying a function on record batches to a frame. Spark's own `mapInArrow` requires pandas
without using it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
TASKS_PER_CORE = 2


def map_in_arrow(
    frame: DataFrame, function: Callable[[Batches], Batches], schema: Any
) -> DataFrame:
    """A frame of what the function makes of each part; it runs in the executors."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import _create_udf
    from pyspark.util import PythonEvalType

    work = _create_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = work(*(frame[name] for name in _quoted(frame.columns)))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def _quoted(names: Sequence[str]) -> list[str]:
    """Names as Spark takes them, whatever is in them."""
    return [f"`{name.replace('`', '``')}`" for name in names]


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as its batches have them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
    return found


def spread(spark: SparkSession, texts: Sequence[str]) -> DataFrame:
    """A frame of one column of texts, in as many parts as the cluster can work on."""
    parts = max(1, min(len(texts), spark.sparkContext.defaultParallelism * TASKS_PER_CORE))
    rows = spark.sparkContext.parallelize([(text,) for text in texts], parts)
    return spark.createDataFrame(rows, "item string")
