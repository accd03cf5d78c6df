"""What Spark itself costs for rows of a source in Python: batches that are there already.

A source that reads nothing: each of its tasks gives one and the same Arrow batch again and again.
No source in Python can be faster than that, whatever it reads from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 2


def premade(spark: Any, batch: pa.RecordBatch, columns: str, rows: int) -> Any:
    """A frame of so many rows, all from a part of one batch."""
    count = -(-rows // (TASKS * batch.num_rows))
    part = batch.slice(0, rows // (TASKS * count))
    register(spark, part, columns)
    return spark.read.format("premade").option("batches", count).load()


def register(spark: Any, batch: pa.RecordBatch, columns: str) -> None:
    """Make the format `premade`; a read of it has the option `batches`, for each task."""
    # Spark is imported late, and the classes are made here, so that they travel to its workers by
    # value: those do not know this package.
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, count: int) -> None:
            self._count = count

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(TASKS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            del partition
            for _ in range(self._count):
                yield batch

    class Premade(DataSource):
        @classmethod
        def name(cls) -> str:
            return "premade"

        def schema(self) -> str:
            return columns

        def reader(self, schema: Any) -> DataSourceReader:
            del schema
            return Reader(int(self.options["batches"]))

    spark.dataSource.register(Premade)
