"""Record batches of the tables in `columns`.

Owns the schema of a batch and its size. The module never knows a column by name, and never copies
or selects data, which is up to the decoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tradewind.spark.columnar.columns import MESSAGES, Column, MessageRows, RowsT, column_of

if TYPE_CHECKING:
    from tradewind.spark.columnar.rows import RowDecoder

# A task costs Spark about 0.1 s, a batch about 1 ms; below 10,000 rows the latter shows.
BATCH_ROWS_MAX: Final = 65_536
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024


def arrow_schema(columns: Iterable[str], table: Mapping[str, Column[Any]] = MESSAGES) -> pa.Schema:
    """The schema of batches with these columns."""
    return pa.schema([(name, column_of(table, name).arrow) for name in columns])


def record_batch(
    schema: pa.Schema, table: Mapping[str, Column[RowsT]], rows: RowsT
) -> pa.RecordBatch:
    """Make a batch of rows of a table, with the columns of a schema."""
    arrays = [table[field.name].extract(rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches(decoder: RowDecoder, stream: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows that the decoder holds, in batches of a size that suits Spark."""
    schema = arrow_schema(columns)
    start = 0
    while start < decoder.row_count:
        end = decoder.batch_end(start, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
        yield record_batch(schema, MESSAGES, MessageRows(decoder, stream, start, end))
        start = end
