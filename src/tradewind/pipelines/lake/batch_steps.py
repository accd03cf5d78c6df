"""Steps between the rows of a batch and the files that they are written to.

Owns the contract of a step that runs while files are written: it makes other rows of those of the
source, in the executors, and notifies the driver of what it has learned on the way. If it has
learned of columns, the batch is written again with them. A step never commits, and may run any
number of times for one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RowTask(Protocol):
    """A step over one part of a batch, in an executor."""

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows to write; None if there will be another attempt, so that none is needed."""

    def note(self) -> str:
        """A note for the driver at the end of the part."""


class RowStep(Protocol):
    """A step with its columns; it travels to the executors."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    @property
    def is_blind(self) -> bool:
        """Whether it must learn its columns before any row can be written."""

    def task(self) -> RowTask:
        """The step for one part of a batch."""


class BatchStep(Protocol):
    """The part of the driver in each batch of a sink."""

    def begin(self, columns: pa.Schema | None) -> RowStep:
        """The step for a table with these columns; None if there is no table yet."""

    def again(self, step: RowStep, notes: Sequence[str]) -> RowStep | None:
        """The step of another attempt with more columns; None if this one was right.

        A blind step is never right: the one that follows it is not blind.
        """

    def settle(self, batch: DataFrame, number: int, step: RowStep, notes: Sequence[str]) -> None:
        """Called when all rows are written, before they are committed; maybe more than once."""

    def committed(self, notes: Sequence[str]) -> None:
        """Called once the rows are in the table."""
