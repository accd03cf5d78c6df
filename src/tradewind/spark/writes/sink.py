"""Writes: the sink for `write` and `writeStream` with the format `jetstream`.

Owns the writers, which the driver creates and the executors run, and the definition of an epoch:
that of the streaming query, that of the options `txnAppId` and `txnVersion`, or the only one of a
batch.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import uvloop
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tradewind.api.names import KV_STREAM, KV_SUBJECTS
from tradewind.spark.connections.patience import patiently
from tradewind.spark.errors import OptionError
from tradewind.spark.processes.features import StreamArrowWriter
from tradewind.spark.processes.worker import spare_modules
from tradewind.spark.providers.network import ReadAddress
from tradewind.spark.writes.partition_write import (
    PartitionEpoch,
    PartitionWrite,
    report_unknown,
    run_key,
    write_partition,
)
from tradewind.spark.writes.write_marks import KeptMark, WriteRun, open_marks, query_token

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.spark.options.sink_options import SinkOptions
    from tradewind.spark.writes.outgoing_columns import ColumnPlan


@dataclass
class WriteReport(WriterCommitMessage):
    """The report of an executor to the driver; see `PartitionWrite` for the last two."""

    rows: int
    earlier: int | None = None
    claimed: int = 0


class BatchWriter(DataSourceArrowWriter):
    """For `frame.write`. A task that Spark repeats continues where the first one ended."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode", "use append; to start over, purge the stream first")
        self._options = options
        self._plan = plan
        self._is_named = bool(options.txn_app_id)
        query = options.txn_app_id or str(uuid.uuid4())
        self._token = query_token(query, options.target)
        # With the same partitions each time, their own marks say all, as in a streaming query.
        self._has_run = self._is_named and not options.txn_same_partitions
        self._run = str(uuid.uuid4()) if self._has_run else ""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition, on an executor."""
        version = self._options.txn_version or 0
        epoch = PartitionEpoch(self._token, version, _task().partitionId(), self._run)
        return _run(self._options, self._plan, epoch, iterator, waits=self._is_named)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called when all rows are stored. Marks of a write that cannot be repeated are removed."""
        written = [message for message in messages if isinstance(message, WriteReport)]
        if self._is_named and not self._has_run:
            return
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._finish(written) if self._is_named else self._forget())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called when the write has failed. Stored rows stay; a named write can be repeated."""
        del messages
        if not self._is_named:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._forget())

    async def _finish(self, written: list[WriteReport]) -> None:
        """Note that a version is done, if each row that was stored before is one of it."""
        options = self._options
        name = f"txnVersion {options.txn_version} of {options.txn_app_id}"
        rows = sum(message.rows for message in written)
        earlier = max((one.earlier for one in written if one.earlier is not None), default=None)
        claimed = sum(message.claimed for message in written)
        if earlier is not None and claimed > earlier:
            report_unknown(
                options,
                f"{name} was started before with other partitions, and "
                f"{claimed - earlier} rows that"
                " are equal to stored ones were skipped; give the rows an idColumn",
            )
        if earlier is not None and claimed < earlier:
            report_unknown(
                options,
                f"{name} was started before with other rows: {earlier - claimed} that are in the"
                " target were not repeated",
            )
        seconds = options.timeout_seconds
        async with ReadAddress(options.address).connected(seconds) as connection:
            js = connection.jetstream()
            info = await patiently(lambda: js.manager.streams.info(options.target), seconds)
            bucket = await open_marks(js, options.marks_bucket, info, seconds)
            kept = KeptMark(bucket, run_key(self._token), WriteRun, seconds)
            run = await kept.load()
            if run is None or run.epoch != options.txn_version:
                return  # no rows, or a later version is done
            if not run.is_done:
                await kept.store(msgspec.structs.replace(run, is_done=True, rows=rows))
            elif run.rows != rows:
                report_unknown(
                    options,
                    f"{name} was already written with {run.rows} rows; none of the {rows} "
                    "rows given now"
                    " were written; use another version for them",
                )

    async def _forget(self) -> None:
        name = self._options.marks_bucket
        async with ReadAddress(self._options.address).connected() as connection:
            await connection.jetstream_manager().streams.purge(
                KV_STREAM + name, filter=f"{KV_SUBJECTS}{name}.{self._token}.*"
            )


class StreamWriter(StreamArrowWriter):
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
        return _run(self._options, self._plan, epoch, iterator, waits=True)

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
) -> WriteReport:
    spare_modules()
    write = PartitionWrite(options, plan, epoch)
    rows = write_partition(write, ReadAddress(options.address), batches, waits=waits)
    return WriteReport(rows, write.earlier, write.claimed)
