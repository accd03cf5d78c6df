"""Small streams as files for Spark: one process reads them faster than Spark plans to.

Owns the frame of a stream or bucket that is read at once by this process, up to a size, and left to
Spark as one Parquet file. A read by the format `jetstream` starts several Python processes, plans
in one of them for each query, and hands each row over; that costs a second before the first row.
Larger streams are read by it.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tradewind.pipelines.tables.table_reading import spark_schema, spill
from tradewind.spark.columnar.arrow import arrow_schema
from tradewind.spark.contract.filters import bounds_of, filter_of
from tradewind.spark.contract.tiers import all_tasks
from tradewind.spark.errors import DataLossError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.providers.provider_choice import open_provider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.spark.contract.filters import RowFilter
    from tradewind.spark.contract.provider_contract import ReadState
    from tradewind.spark.options.source_options import SourceOptions

logger = logging.getLogger(__name__)
SMALL_BYTES_MAX: Final = 32 << 20


def small_frame(spark: SparkSession, given: Mapping[str, str]) -> DataFrame | None:
    """The rows that the format `jetstream` has with these options now; None if they are many.

    The file lives as long as the frame.
    """
    options = parse_options(given)
    try:
        rows = _rows(options)
    except DataLossError as error:  # Spark plans anew, and says it if it happens again
        logger.info("%s is left to Spark: %s", ", ".join(options.stream), error)
        return None
    path = spill(spark, rows) if rows is not None else ""
    if rows is None or not path:
        return None
    frame = spark.read.schema(spark_schema(rows.schema)).parquet(path)
    weakref.finalize(frame, Path(path).unlink, missing_ok=True)
    return frame


def _rows(options: SourceOptions) -> pa.Table | None:
    """All rows; None if there are too many, or if that is not known."""
    columns = tuple(options.table_columns)
    provider = open_provider(options)
    found: list[pa.RecordBatch] = []
    size = 0
    try:
        states = provider.states()
        parts = [(state, bounds_of(options, state.name, filter_of(options))) for state in states]
        if not all(_may_be_small(state, rows) for state, rows in parts):
            return None
        for state, rows in parts:
            for task in () if rows.is_empty else all_tasks(options, provider, state, rows):
                for batch in task.batches(columns):
                    found.append(batch)
                    size += batch.nbytes
                    if size > SMALL_BYTES_MAX:  # these messages are larger than the average
                        return None
    finally:
        provider.close()
    return pa.Table.from_batches(found, arrow_schema(columns, options.table_columns))


def _may_be_small(state: ReadState, rows: RowFilter) -> bool:
    """Whether a part of a stream is small, by the average size of its messages."""
    if state.table or not state.messages or state.bytes is None:
        return not state.table and state.messages == 0
    first, last = max(rows.first_seq, state.first_seq), min(rows.last_seq, state.last_seq)
    count = min(max(last - first + 1, 0), state.messages)
    return count * state.bytes // state.messages <= SMALL_BYTES_MAX
