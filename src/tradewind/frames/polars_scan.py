"""A stream as a lazy frame of polars.

Owns what polars hands over to a source: the columns that are wanted, the condition, and how many
rows are enough. Reading is narrowed by what `narrowing` understands of the condition; the whole
condition is applied to each batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from tradewind.frames.narrowing import polars_conditions

if TYPE_CHECKING:
    from tradewind.frames.stream_dataset import FrameRows


def polars_frame(rows: FrameRows) -> pl.LazyFrame:
    """The rows, read anew each time that the frame is collected."""
    names = rows.schema.names

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        used = set(names if with_columns is None else with_columns)
        if predicate is not None:
            used |= set(predicate.meta.root_names())
        read_columns = [name for name in names if name in used]
        bounds = rows.scan.narrowed(() if predicate is None else polars_conditions(predicate))
        left = n_rows
        for batch in rows.batches(read_columns, bounds):
            frame: Any = pl.from_arrow(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            if with_columns is not None:
                frame = frame.select(with_columns)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame
            if left == 0:
                return

    empty: Any = pl.from_arrow(pa.Table.from_batches([], rows.schema))
    return register_io_source(read, schema=empty.schema)
