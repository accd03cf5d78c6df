"""A stream as a dataset of Arrow, which query engines scan with their conditions and columns.

Owns the three things that DuckDB and others ask of a dataset: its schema, the columns that are
wanted, and the condition on rows. Reading is narrowed by what `narrowing` understands; Arrow itself
applies the whole condition, so that an answer never depends on that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from tradewind.frames.narrowing import arrow_conditions

if TYPE_CHECKING:
    from tradewind.frames.frame_columns import FrameColumns
    from tradewind.frames.narrowing import Condition
    from tradewind.spark.contract.filters import RowFilter


class RowScan(Protocol):
    """Rows that are read again for each call; see `FrameScan`."""

    def narrowed(self, conditions: Sequence[Condition]) -> RowFilter:
        """The rows that are read for some conditions; at least those that fulfil all of them."""

    def batches(
        self, columns: Sequence[str], rows: RowFilter | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read these columns of all rows, or of the wanted ones."""


class FrameRows:
    """The rows of one scan, with all columns that a frame has.

    `failure` is the first error of any read: engines pass errors on as texts.
    """

    def __init__(self, scan: RowScan, columns: FrameColumns) -> None:
        self.scan = scan
        self.columns = columns
        self.failure: BaseException | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.columns.schema

    def batches(
        self, columns: Sequence[str], rows: RowFilter | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read these columns of all rows, or of the wanted ones."""
        try:
            for batch in self.scan.batches(self.columns.inputs(columns), rows):
                yield self.columns.made(batch, columns)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def reader(
        self, columns: Sequence[str] | None = None, rows: RowFilter | None = None
    ) -> pa.RecordBatchReader:
        """The same as a reader of Arrow."""
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self.batches(names, rows))


class StreamDataset(ds.Dataset):
    """Rows that are read anew for each scan; it has no files, so only scans are offered."""

    def __init__(self, rows: FrameRows) -> None:
        self._rows = rows

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled; make the source anew where it is read")

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._rows.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the name that Arrow gives it
        batch_size: int | None = None,
        **others: Any,
    ) -> ds.Scanner:
        """A scan of these columns of the rows that fulfil an expression.

        The size of batches is that of the source, and `others` are about files.
        """
        del batch_size, others
        names = self.schema.names
        wanted = names if columns is None else list(columns)
        wanted = wanted if all(isinstance(name, str) for name in wanted) else names
        scan = self._rows.scan
        bounds = scan.narrowed(() if filter is None else arrow_conditions(filter))
        # The condition may be about columns that are not in the answer.
        used = names if filter is None else [name for name in names if name in str(filter)]
        read = [name for name in names if name in wanted or (filter is not None and name in used)]
        return ds.Scanner.from_batches(
            self._rows.reader(read, bounds), columns=columns, filter=filter
        )

    def to_table(self, **options: Any) -> pa.Table:
        """The rows of a scan as a table; see `scanner`."""
        return self.scanner(**options).to_table()

    def to_batches(self, **options: Any) -> Any:
        """The rows of a scan as batches; see `scanner`."""
        return self.scanner(**options).to_batches()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows of a scan; see `scanner`."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, **options: Any) -> int:
        """How many rows a scan has; see `scanner`."""
        return int(self.scanner(**options).count_rows())
