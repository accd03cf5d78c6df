"""How the rows of a table are divided: by a column as it is, or by something derived from one.

Owns the notation of `partition_by`: `region`, `month(time)`, `day(time)`, `hour(time)` and
`bucket(16, key)`, the names of what is derived, and its values. An Iceberg table has these as
partition transforms, which no reader sees as columns; a Delta table and a folder of Parquet files
have a column with the derived value. Times are in UTC. The module loads Arrow only for rows and
types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from tradewind.extra_packages import install_command
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.column_templates import quoted_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PartitionTransform = Literal["identity", "month", "day", "hour", "bucket"]
BUCKETS_MAX: Final = 4096
MONTHS: Final = 12
EPOCH_YEAR: Final = 1970
_TIMES: Final = ("month", "day", "hour")
_CALL: Final = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_SQL: Final = {
    "day": "to_date({})",
    "month": "date_format({}, 'yyyy-MM')",
    "hour": "date_format({}, 'yyyy-MM-dd-HH')",
}


@dataclass(frozen=True)
class PartitionField:
    """One entry of `partition_by`; `buckets` is 0 unless the column is divided by its hash."""

    column: str
    transform: PartitionTransform = "identity"
    buckets: int = 0

    @property
    def name(self) -> str:
        """The name of the partition: the column, or one such as `time_day`."""
        if self.transform == "identity":
            return self.column
        suffix = f"_{self.buckets}" if self.buckets else ""
        return f"{self.column}_{self.transform}{suffix}"

    @property
    def notation(self) -> str:
        """The entry as a file has it."""
        if self.transform == "identity":
            return self.column
        inner = f"{self.buckets}, {self.column}" if self.buckets else self.column
        return f"{self.transform}({inner})"

    @property
    def stored_type(self) -> pa.DataType:
        """The type of the derived column, where there is one."""
        import pyarrow as pa

        kinds = {"day": pa.date32(), "bucket": pa.int32()}
        return kinds.get(self.transform, pa.string())

    def check(self, schema: pa.Schema) -> None:
        """Raise PipelineError unless rows of this schema can be divided so."""
        if (index := schema.get_field_index(self.column)) < 0:
            raise PipelineError(
                f"partition_by: there is no column {self.column!r} for {self.notation}"
            )
        if self.transform == "identity":
            return
        if schema.get_field_index(self.name) >= 0:
            raise PipelineError(
                f"partition_by: {self.notation} is called {self.name}, and the rows have a column"
                " of that name; rename it, or partition by it"
            )
        kind = schema.field(index).type
        if not _fits(self.transform, kind):
            wanted = {
                "hour": "a timestamp",
                "bucket": "an integer, a string, a binary, a date or a timestamp",
            }.get(self.transform, "a timestamp or a date")
            raise PipelineError(
                f"partition_by: {self.notation} needs {wanted}, and {self.column} is {kind}"
            )

    def values(self, column: pa.Array) -> pa.Array:
        """The partition of each row, as a value that is equal for rows of the same one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.transform == "identity":
            return column
        if self.transform == "bucket":
            return _buckets(column, self.buckets)
        if self.transform == "hour":
            hours = pc.floor_temporal(column.cast(_micros(column.type)), unit="hour")
            return pc.divide(hours.cast(pa.int64()), 3_600_000_000)
        if self.transform == "month":
            years = pc.multiply(pc.subtract(pc.year(column), EPOCH_YEAR), MONTHS)
            return pc.subtract(pc.add(years, pc.month(column)), 1)
        return column if pa.types.is_date(column.type) else pc.floor_temporal(column, unit="day")

    def text(self, value: Any) -> str | None:
        """The name of a partition by its value: that of `values`, or that of an Iceberg table."""
        if value is None:
            return None
        if self.transform == "month":
            year, month = divmod(value, MONTHS)
            return f"{EPOCH_YEAR + year:04}-{month + 1:02}"
        if self.transform == "hour":
            moment = datetime(EPOCH_YEAR, 1, 1, tzinfo=UTC) + timedelta(hours=value)
            return moment.strftime("%Y-%m-%d-%H")
        if self.transform == "day":
            if isinstance(value, int):
                value = date(EPOCH_YEAR, 1, 1) + timedelta(days=value)
            return f"{value:%Y-%m-%d}"
        return str(value)


def _fits(transform: PartitionTransform, kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_time = pa.types.is_timestamp(kind) or (transform != "hour" and pa.types.is_date(kind))
    if transform in _TIMES:
        return bool(is_time)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return bool(
        is_time
        or pa.types.is_signed_integer(kind)
        or pa.types.is_large_binary(kind)
        or any(is_kind(kind) for is_kind in texts)
    )


def partition_fields(entries: Sequence[str]) -> list[PartitionField]:
    """The entries of `partition_by`; PipelineError says what would be right."""
    found = [_parsed(entry) for entry in entries]
    names = [field.name for field in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise PipelineError(f"partition_by: {twice[0]} is there twice")
    timed = [field.column for field in found if field.transform in _TIMES]
    if twice := [column for column in timed if timed.count(column) > 1]:
        raise PipelineError(
            f"partition_by: only one of month, day and hour of {twice[0]}: the finer one is enough"
        )
    return found


def _parsed(entry: str) -> PartitionField:
    call = _CALL.fullmatch(entry)
    if call is None:
        if "(" in entry or ")" in entry:
            raise PipelineError(
                f"partition_by: {entry!r} is not complete; in a list, quote an entry that has a"
                ' comma: ["bucket(16, key)"]'
            )
        if not entry.strip():
            raise PipelineError("partition_by: an entry is empty; give the name of a column")
        return PartitionField(entry)
    transform, inner = call[1].lower(), call[2].strip()
    if transform in _TIMES and inner and "," not in inner:
        return PartitionField(inner, transform)  # type: ignore[arg-type]  # one of _TIMES
    if transform == "bucket":
        count, _, column = (part.strip() for part in inner.partition(","))
        if count.isdecimal() and column and 1 <= int(count[:9]) <= BUCKETS_MAX:
            return PartitionField(column, "bucket", int(count))
        raise PipelineError(
            f"partition_by: {entry!r} is not bucket(N, COLUMN) with N of 1 to {BUCKETS_MAX}"
        )
    raise PipelineError(
        f"partition_by: {entry!r} is not known; use a column, month(COLUMN), day(COLUMN),"
        " hour(COLUMN) or bucket(N, COLUMN)"
    )


def with_derived(rows: pa.Schema, fields: Sequence[PartitionField]) -> pa.Schema:
    """The columns of rows with those that a table of derived columns has as well."""
    import pyarrow as pa

    derived = [
        pa.field(field.name, field.stored_type) for field in fields if field.transform != "identity"
    ]
    return pa.schema([*rows, *derived])


def frame_with_derived(
    frame: DataFrame, entries: Sequence[str], what: str
) -> tuple[DataFrame, list[str]]:
    """A frame of Spark with the derived columns, and the names that it is partitioned by."""
    from pyspark.sql.functions import expr

    fields = partition_fields(entries)
    for field in fields:
        if field.transform == "bucket":
            raise PipelineError(
                f"partition_by: {field.notation} is for tables of Delta and Iceberg, not {what}"
            )
        if field.transform != "identity":
            sql = _SQL[field.transform].format(quoted_sql(field.column))
            frame = frame.withColumn(field.name, expr(sql))
    return frame, [field.name for field in fields]


def _micros(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("us", tz=kind.tz)


def _buckets(column: pa.Array, count: int) -> pa.Array:
    """The buckets of Iceberg: a hash of each value, as its specification has it."""
    import pyarrow as pa

    try:
        from mmh3 import hash as murmur
    except ImportError:
        raise PipelineError(
            f"mmh3 is not installed, which bucket(N, COLUMN) needs: {install_command('iceberg')}"
        ) from None
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(_micros(values.type)).cast(pa.int64())
    numbers = []
    for value in values.to_pylist():
        data = value.to_bytes(8, "little", signed=True) if isinstance(value, int) else value
        numbers.append((murmur(data) & 0x7FFFFFFF) % count)
    return pa.array(numbers, pa.int32()).take(encoded.indices)
