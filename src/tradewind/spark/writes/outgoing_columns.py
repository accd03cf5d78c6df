"""Maps the columns of a frame to the parts of a message.

Owns the rules, which are checked in the driver when a write is planned, and the Arrow columns for
the compiled code: subject, payload, headers, id and operation. Templates and constants are computed
by column, JSON by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.api.names import KV_SUBJECTS
from tradewind.spark.errors import OptionError, RowError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tradewind.spark.options.sink_options import SinkOptions, Template

_TEXT_TYPES: Final = ("string", "binary")
_HEADER_TYPES: Final = ("map<string,array<string>>", "map<string,string>")
# Columns that a read gives and a write has no use for.
_OF_READS: Final = {"stream": ("stream", "seq", "time"), "bucket": ("bucket", "revision", "time")}
_json = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True, slots=True)
class OutgoingColumns:
    """The Arrow columns of one batch; those that there are none of are None."""

    subjects: pa.Array
    payloads: pa.Array
    headers: pa.Array | None
    ids: pa.Array | None
    operations: pa.Array | None


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Where the parts of a message are: names of columns, "" for those that there are none of.

    `json_columns` make the payload if `payload` is "".
    """

    prefix: str
    template: Template
    payload: str
    json_columns: tuple[str, ...]
    headers: str
    ids: str
    operations: str

    def outgoing(self, batch: pa.RecordBatch) -> OutgoingColumns:
        """The parts of all messages of a batch."""
        operations = batch.column(self.operations) if self.operations else None
        if self.payload:
            payloads = batch.column(self.payload)
            if self.prefix and payloads.null_count:
                operations = _deletions(payloads, operations)
            payloads = pc.fill_null(payloads, b"" if pa.types.is_binary(payloads.type) else "")
        else:
            rows = batch.select(list(self.json_columns)).to_pylist(maps_as_pydicts="strict")
            payloads = pa.array([_json.encode(row) for row in rows], pa.binary())
        return OutgoingColumns(
            _joined(batch, ((self.prefix, None), *self.template)),
            payloads,
            batch.column(self.headers) if self.headers else None,
            batch.column(self.ids) if self.ids else None,
            operations,
        )


def _deletions(payloads: pa.Array, operations: pa.Array | None) -> pa.Array:
    """A key without a value is one to delete, unless its operation is given."""
    implied = pc.if_else(pc.is_null(payloads), "DEL", pa.scalar(None, pa.string()))
    return implied if operations is None else pc.coalesce(operations, implied)


def _joined(batch: pa.RecordBatch, template: Template) -> pa.Array:
    pieces: list[object] = []
    for literal, column in template:
        if literal:
            pieces.append(pa.scalar(literal, pa.string()))
        if column is not None:
            values = batch.column(column)
            pieces.append(values if values.type == pa.string() else _as_text(column, values))
    if len(pieces) == 1 and isinstance(pieces[0], pa.Scalar):
        return pa.repeat(pieces[0], batch.num_rows)
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, pa.scalar("", pa.string()))


def _as_text(column: str, values: pa.Array) -> pa.Array:
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid as error:
        raise RowError(f"column {column}: its values are not text: {error}") from None


def plan_columns(schema: StructType, options: SinkOptions) -> ColumnPlan:
    """The use of the columns of a frame; OptionError if one is missing or too many."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    return plan_kinds(kinds, options)


def plan_kinds(kinds: dict[str, str], options: SinkOptions) -> ColumnPlan:
    """The same for columns whose types are given as Spark writes them."""
    place, content = ("key", "value") if options.bucket else ("subject", "data")
    template = options.template
    if not template:
        if place not in kinds:
            raise OptionError(
                place,
                f"the frame has no column {place}: add one, or give a template such as"
                f" orders.{{region}} (columns: {', '.join(kinds)})",
            )
        template = (("", place),)
    inserted = [column for _, column in template if column is not None]
    for column in inserted:
        if column not in kinds:
            raise OptionError(place, f"no column {column!r}; available: {', '.join(kinds)}")
        if kinds[column].startswith(("struct", "array", "map", "binary")):
            raise OptionError(place, f"column {column} is {kinds[column]}, not a text or number")
    if options.id_column and options.id_column not in kinds:
        raise OptionError(
            "idColumn", f"no column {options.id_column!r}; available: {', '.join(kinds)}"
        )
    plan = ColumnPlan(
        prefix=f"{KV_SUBJECTS}{options.bucket}." if options.bucket else "",
        template=template,
        payload=_typed(kinds, content, _TEXT_TYPES),
        json_columns=(),
        headers="" if options.bucket else _typed(kinds, "headers", _HEADER_TYPES),
        ids=_typed(kinds, options.id_column, ("string",)),
        operations=_typed(kinds, "operation", ("string",)) if options.bucket else "",
    )
    special = {place, content, plan.headers, plan.operations}
    if plan.payload:
        _check_unused([name for name in kinds if name not in {*special, *inserted}], options)
        return plan
    chosen = tuple(name for name in kinds if name not in special)
    if not chosen:
        raise OptionError(content, f"there is no column for the payload: add {content} or others")
    return replace(plan, json_columns=chosen)


def _typed(kinds: dict[str, str], name: str, allowed: Sequence[str]) -> str:
    """The column if there is one; it has one of these types then."""
    if name in kinds and kinds[name] not in allowed:
        raise OptionError(name, f"column {name} is {kinds[name]}, not {' or '.join(allowed)}")
    return name if name in kinds else ""


def _check_unused(others: list[str], options: SinkOptions) -> None:
    """Nothing is left out without a word, but for what every read gives."""
    of_reads = _OF_READS["bucket" if options.bucket else "stream"]
    unused = [name for name in others if name not in (*of_reads, options.id_column)]
    if unused:
        content = "value" if options.bucket else "data"
        raise OptionError(
            unused[0],
            f"column {unused[0]} would not be written: drop it, or drop {content}, so that"
            " all columns become JSON",
        )
