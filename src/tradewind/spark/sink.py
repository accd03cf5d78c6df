"""Writes: what Spark calls for `write` and `writeStream` with the format `jetstream`.

Owns the writers, which the driver makes and the executors run, and what an epoch is: that of the
streaming query, that of the options `txnAppId` and `txnVersion`, or the only one of a batch.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvloop
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tradewind.client.bucket_settings import KV_STREAM
from tradewind.spark.errors import OptionError
from tradewind.spark.marks import query_token
from tradewind.spark.network import Address
from tradewind.spark.partition_write import PartitionEpoch, PartitionWrite

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.spark.outgoing_columns import ColumnPlan
    from tradewind.spark.sink_options import SinkOptions


@dataclass
class Written(WriterCommitMessage):
    """What an executor tells the driver."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """For `frame.write`. A task that Spark repeats goes on where the first one ended."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode", "use append; to begin anew, purge the stream first")
        self._options = options
        self._plan = plan
        self._is_named = bool(options.txn_app_id)
        query = options.txn_app_id or str(uuid.uuid4())
        self._token = query_token(query, options.target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition, on an executor."""
        epoch = PartitionEpoch(self._token, self._options.txn_version or 0, _task().partitionId())
        return Written(_run(self._options, self._plan, epoch, iterator, waits=self._is_named))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are stored. If nobody can repeat this write, its marks can go."""
        del messages
        if not self._is_named:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._forget())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The write has failed; what is stored stays. A named one can be repeated."""
        self.commit(messages)

    async def _forget(self) -> None:
        name = self._options.marks_bucket
        async with Address(self._options.address).connected() as connection:
            await connection.jetstream_manager().streams.purge(
                KV_STREAM + name, filter=f"$KV.{name}.{self._token}.*"
            )


class StreamWriter(DataSourceStreamArrowWriter):
    """For `frame.writeStream`."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan, *, overwrite: bool) -> None:
        if options.txn_app_id:
            raise OptionError("txnAppId", "a streaming query has epochs of its own")
        if overwrite and not options.bucket:
            raise OptionError(
                "outputMode",
                "complete would append all rows again with each batch; use update or append, or"
                " write to a bucket",
            )
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of one epoch, on an executor."""
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        number = task.getLocalProperty("streaming.sql.batchId")
        assert query, "Spark sets it for the tasks of a streaming query"
        assert number, "Spark sets it for the tasks of a streaming query"
        token = query_token(query, self._options.target)
        epoch = PartitionEpoch(token, int(number), task.partitionId())
        return Written(_run(self._options, self._plan, epoch, iterator, waits=True))

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """The marks say already what is stored."""

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """The next attempt finds what is stored."""


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark runs writers in tasks"
    return task


def _run(
    options: SinkOptions,
    plan: ColumnPlan,
    epoch: PartitionEpoch,
    batches: Iterator[pa.RecordBatch],
    *,
    waits: bool,
) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(PartitionWrite(options, plan, epoch, waits=waits).run(batches))
