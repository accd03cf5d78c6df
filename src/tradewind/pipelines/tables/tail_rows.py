"""The rows that messages become which are not in the table yet.

Owns making them with the columns of the table as it was pinned, by the step that the table's writer
uses. A field that the table has no column for is left to `_rescued` here, until the writer adds the
column. The rows are made by a value that travels to executors, and uses Arrow only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tradewind.pipelines.lake.lake_schemas import aligned
from tradewind.pipelines.tables.table_rows import TableRowStep, TableRowTask
from tradewind.pipelines.tables.table_spec import is_bucket

_MESSAGE_INPUT: Final = ("seq", "subject", "time", "headers", "data")
_BUCKET_INPUT: Final = ("revision", "key", "operation", "time", "value")


class TailTask(TableRowTask):
    """The step for some messages, which learns nothing."""

    def _learn(self, payloads: pa.Array) -> None:
        """The table has the columns that it has."""


class TailStep(TableRowStep):
    """The step of the writer with the columns of one point, whatever the messages hold."""

    def task(self) -> TailTask:
        """See `TableRowStep`."""
        return TailTask(self)


@dataclass(frozen=True)
class TailRows:
    """Rows of one table; `schema` are the columns that it has."""

    step: TailStep
    schema: pa.Schema

    @property
    def input_columns(self) -> Sequence[str]:
        """The columns of the format `jetstream` that the rows are made of."""
        return _BUCKET_INPUT if is_bucket(self.step.stream) else _MESSAGE_INPUT

    def table(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """All rows of some batches."""
        return pa.Table.from_batches(list(self(iter(batches))), self.schema)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each batch of messages; runs in an executor."""
        task = self.step.task()
        for batch in batches:
            rows = task.rows(batch)
            assert rows is not None
            # A column that another writer has added is null, as in the rows that the runner adds.
            yield aligned(rows, self.schema)
