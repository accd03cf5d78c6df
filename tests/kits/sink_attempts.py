"""A process that makes one attempt at a partition of a sink, to be killed at any point.

The process takes a batch only on command, so that a test decides how far it gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from tradewind.spark.options.sink_options import parse_sink_options
from tradewind.spark.providers.network import ReadAddress
from tradewind.spark.writes.outgoing_columns import plan_columns
from tradewind.spark.writes.partition_write import PartitionEpoch, PartitionWrite, write_partition


def attempt(
    pipe: Connection,
    options: dict[str, str],
    names: tuple[str, ...],
    epoch: tuple[str, int, int],
    columns: list[dict[str, list[Any]]],
) -> None:
    """Write these batches. It sends "ask" before each batch, and at the end the outcome."""
    parsed = parse_sink_options(options)
    schema = StructType([StructField(name, StringType()) for name in names])
    plan = plan_columns(schema, parsed)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in columns:
            pipe.send("ask")
            pipe.recv()
            yield pa.RecordBatch.from_pydict(batch)

    write = PartitionWrite(parsed, plan, PartitionEpoch(*epoch))
    try:
        outcome: object = write_partition(write, ReadAddress(parsed.address), batches(), waits=True)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    pipe.send(outcome)
