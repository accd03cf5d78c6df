"""Rows that replace others by key (`mode: upsert`).

Owns which row of a key wins within a batch (the last in the order of the source), which rows delete
instead, and which files of a table may contain a key. Batches are applied in order, so a later one
always wins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_files import LakeFile
from tradewind.pipelines.notation.column_templates import quoted_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETED: Final = "__tradewind_deleted"
RANK: Final = "__tradewind_rank"
# The order of what a stream or a bucket gives, if the file does not name another.
ORDERS: Final = ("seq", "revision")
KEY_TYPES: Final = (
    *("tinyint", "smallint", "int", "bigint", "string", "binary", "boolean", "date"),
    *("timestamp", "timestamp_ntz"),
)


class Upsert(msgspec.Struct, frozen=True):
    """The columns that a row is known by, the SQL condition of rows that delete, and the order."""

    key: tuple[str, ...]
    delete_when: str = ""
    order_by: str = ""


def order_of(upsert: Upsert, columns: Sequence[str]) -> str:
    """The column by which the last row of a key is known; empty if there is none."""
    return upsert.order_by or next((name for name in ORDERS if name in columns), "")


def latest_rows(batch: DataFrame, upsert: Upsert) -> DataFrame:
    """The last row of each key, with a column that says whether it deletes.

    Rows that come equally late all stay, so that `check_unique` finds them. A key that is null is
    an error of the row that has it.
    """
    from pyspark.sql.functions import expr

    order = order_of(upsert, batch.columns)
    keys = [quoted_sql(name) for name in upsert.key]
    condition = f"coalesce(cast({upsert.delete_when} as boolean), false)"
    rows = batch.withColumn(DELETED, expr(condition if upsert.delete_when else "false"))
    for name, key in zip(upsert.key, keys, strict=True):
        text = f"column {name} of the key is null; leave such rows out in a step"
        rows = rows.where(f"if({key} is null, raise_error('{text}'), true)")
    if not order:
        return rows.repartition(*(expr(key) for key in keys))
    ranked = f"rank() over (partition by {', '.join(keys)} order by {quoted_sql(order)} desc)"
    return rows.withColumn(RANK, expr(ranked)).where(f"{RANK} = 1").drop(RANK)


def check_unique(keys: pa.Table) -> None:
    """PipelineError if a key is there twice, so that it is unknown which of its rows counts."""
    counts = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    if twice.num_rows:
        row = twice.slice(0, 1).to_pylist()[0]
        named = ", ".join(f"{name}={row[name]!r}" for name in keys.column_names)
        raise PipelineError(
            f"a batch has several rows of the key {named} and nothing tells which is the last: add"
            " `order_by` with a column that does, or columns to `key`"
        )


class KeyBounds:
    """Keys in their order, to find which files may have a row of one of them."""

    def __init__(self, keys: pa.Table) -> None:
        self._sorted: dict[str, list[Any]] = {}
        for name in keys.column_names:
            kind = keys.schema.field(name).type
            if pa.types.is_integer(kind) or pa.types.is_string(kind):
                self._sorted[name] = sorted(pc.unique(keys[name]).to_pylist())

    def may_hold(self, file: LakeFile) -> bool:
        """Whether a file may have one, by its bounds; if in doubt, it may.

        The columns are looked at one by one: some key has to be inside of the bounds of each.
        """
        for name, values in self._sorted.items():
            low, high = file.bounds.get(name, (None, None))
            if type(low) is not type(values[0]) or type(high) is not type(values[0]):
                continue
            if bisect_left(values, low) >= bisect_right(values, high):
                return False
        return True
