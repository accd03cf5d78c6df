"""A streaming query and what it has read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from spark_kit import run_query


class Query:
    """A streaming query whose runs each end when everything is read; batches are written down."""

    def __init__(self, spark: SparkSession, base: Path, root: Path | None, **options: Any) -> None:
        self.spark = spark
        self.base = base
        self.root = root
        self.column = options.pop("column", "seq")
        self.options = options
        self.batches: list[list[int]] = []

    def run(self, stream: str = "ORDERS", fail: Callable[[int], bool] | None = None) -> None:
        """What is there is read, as far as the checkpoint has not come yet."""
        source = self.spark.readStream.format("jetstream")
        if self.root is not None:
            source = source.option("storeDir", str(self.root))
        if stream:
            source = source.option("stream", stream)
        frame = source.options(**self.options).load()

        def write(batch: DataFrame, number: int) -> None:
            rows = [row[self.column] for row in batch.select(self.column).collect()]
            if fail is not None and fail(number):
                raise RuntimeError("the sink has failed")
            self.batches.append(sorted(rows))

        run_query(
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self.base / "checkpoint"))
            .trigger(availableNow=True)
        )
