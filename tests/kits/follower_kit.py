"""Follows a stream in the way of a streaming query of Spark, without Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from tradewind.spark.options.source_options import parse_options
from tradewind.spark.reads.streaming import StreamReader


class Follower:
    """A query that has planned nothing yet; each `plan` is a micro-batch."""

    def __init__(self, columns: tuple[str, ...], **options: str) -> None:
        self.reader = StreamReader(parse_options(options), columns)
        self.offset = self.reader.initialOffset()

    def plan(self) -> tuple[Any, Any]:
        start = self.offset
        self.offset = self.reader.latestOffset(start, ReadAllAvailable())
        return start, self.offset

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_reason: object) -> None:
        self.reader.stop()

    def read(self, start: Any, end: Any) -> list[dict[str, Any]]:
        return [
            row
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]


def publish(connection: Any, subject: str, count: int) -> None:
    js = connection.jetstream()
    for number in range(count):
        js.publish_async(subject, b"%d" % number)
    js.publish_async_completed()
