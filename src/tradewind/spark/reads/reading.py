"""Batch reads, for `spark.read.format("jetstream")`.

Owns the reader that plans in the driver and reads on executors. With the option `pushdown`,
conditions on sequence, time, subject and stream are evaluated while decoding. This is not the
default: Spark 4.3 applies the conditions of one use of a frame to all later uses and to other
branches of the same query, and silently returns wrong rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tradewind.spark.contract.filters import bounds_of, filter_of, push_filters
from tradewind.spark.contract.tiers import all_tasks
from tradewind.spark.errors import OptionError
from tradewind.spark.options.positions import check_named
from tradewind.spark.processes.features import HAS_PUSHDOWN, need
from tradewind.spark.processes.worker import spare_modules
from tradewind.spark.providers.provider_choice import open_provider

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.spark.contract.provider_contract import ReadTask
    from tradewind.spark.options.source_options import SourceOptions


class TaskPartition(InputPartition):
    """A task on its way to an executor."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(None)
        self.task = task


class PushFilters:
    """The method `pushFilters` of a reader.

    Spark refuses a reader that has one of its own while the setting is off, and the reader cannot
    ask for the setting. Spark takes this one for that of the base class and simply does not call it
    then.
    """

    if HAS_PUSHDOWN:
        __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        """See `BatchReader.push`."""
        return self._reader.push(filters)


class BatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._rows = filter_of(options)
        _check_batch(options)
        if options.pushdown:
            need("the option pushdown works", "4.1", is_there=HAS_PUSHDOWN)
            self.pushFilters = PushFilters(self)

    def push(self, filters: list[Any]) -> Iterable[Any]:
        """Take over what can be; returns the rest."""
        self._rows, left = push_filters(self._rows, filters, self._options)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the read; one empty task if there is nothing to do."""
        spare_modules()
        if self._rows.is_empty:
            return [TaskPartition(EmptyTask())]
        provider = open_provider(self._options)
        found: list[InputPartition] = []
        try:
            states = provider.states()
            names = {state.name for state in states}
            check_named("startingOffsets", self._options.starting, names)
            check_named("endingOffsets", self._options.ending, names)
            for state in states:
                rows = bounds_of(self._options, state.name, self._rows)
                if rows.has_stream(state.name) and not rows.is_empty:
                    tasks = all_tasks(self._options, provider, state, rows)
                    found += [TaskPartition(task) for task in tasks]
        finally:
            provider.close()
        return found or [TaskPartition(EmptyTask())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Do one part, on an executor."""
        assert isinstance(partition, TaskPartition)
        spare_modules()
        return partition.task.batches(self._columns)


def _check_batch(options: SourceOptions) -> None:
    if options.ack_consumer:
        raise OptionError("ackConsumer", "only a streaming query (readStream) acknowledges")
    if options.starting is not None and options.starting.has_word("latest"):
        raise OptionError("startingOffsets", "a batch that begins at the latest message is empty")
    if options.ending is not None and options.ending.has_word("earliest"):
        raise OptionError("endingOffsets", "a batch that ends at the earliest message is empty")


class EmptyTask:
    """Spark wants at least one partition."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """No rows."""
        del columns
        return iter(())
