"""The columns of a frame, and how they are made of batches as the source gives them.

Owns which columns of the source are read for those that are wanted: all of them as they are, or
with the fields of decoded payloads beside them. It never reads anything itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from tradewind.decoding.decoder_contract import RESCUED_COLUMN
from tradewind.decoding.decoder_registry import INFER, open_decoder
from tradewind.frames.schema_buckets import scan_context
from tradewind.spark.columnar.arrow import arrow_schema
from tradewind.spark.errors import OptionError

if TYPE_CHECKING:
    from tradewind.decoding.decoder_contract import Decoder
    from tradewind.frames.frame_scan import FrameScan
    from tradewind.spark.columnar.columns import Column

# Why a payload could not be decoded.
REASON_COLUMN: Final = "_reason"
SAMPLE_MESSAGES: Final = 1000
SAMPLE_BYTES_MAX: Final = 16 << 20


class FrameColumns(Protocol):
    """All columns of a frame."""

    @property
    def schema(self) -> pa.Schema:
        """Their names and types, in order."""

    def inputs(self, columns: Collection[str]) -> list[str]:
        """The columns of the source that these columns need."""

    def made(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """The batch with these columns, made of one with their inputs."""


class PlainColumns:
    """The columns of the source as they are."""

    def __init__(self, table: Mapping[str, Column[Any]]) -> None:
        self.schema = arrow_schema(table, table)

    def inputs(self, columns: Collection[str]) -> list[str]:
        """See `FrameColumns`. Without any column there is no way to count rows."""
        return [name for name in self.schema.names if name in columns] or self.schema.names[1:2]

    def made(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """See `FrameColumns`."""
        return batch.select(list(columns))


class DecodedColumns:
    """The columns of the source, then the fields of payloads, and what those do not hold."""

    def __init__(
        self, table: Mapping[str, Column[Any]], payload: str, decoder: Decoder, fields: pa.Schema
    ) -> None:
        own = arrow_schema(table, table)
        self._own = set(own.names)
        self._payload = payload
        self._decoder = decoder
        self._fields = fields
        extra = [pa.field(RESCUED_COLUMN, pa.string()), pa.field(REASON_COLUMN, pa.string())]
        self.schema = pa.schema([*own, *fields, *extra])

    def inputs(self, columns: Collection[str]) -> list[str]:
        """See `FrameColumns`."""
        needs_payload = any(name not in self._own for name in columns)
        found = [
            name
            for name in self.schema.names
            if name in self._own and (name in columns or (needs_payload and name == self._payload))
        ]
        return found or self.schema.names[1:2]

    def made(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """See `FrameColumns`."""
        if all(name in self._own for name in columns):
            return batch.select(list(columns))
        decoded = self._decoder.decode(batch.column(self._payload), self._fields)
        values = dict(zip(self._fields.names, decoded.columns.flatten(), strict=True))
        values |= {RESCUED_COLUMN: decoded.rescued, REASON_COLUMN: decoded.reasons}
        arrays = [batch.column(name) if name in self._own else values[name] for name in columns]
        schema = pa.schema([self.schema.field(name) for name in columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decoded_columns(
    scan: FrameScan, decode: str, schema: str | Mapping[str, str]
) -> DecodedColumns:
    """The columns with decoded payloads; fields that are not given are those of a sample."""
    options = scan.options
    if options.object_store:
        raise OptionError("decode", "the content of objects is not decoded")
    table = options.table_columns
    payload = "value" if options.bucket else "data"
    reserved = (*table, RESCUED_COLUMN, REASON_COLUMN)
    context = scan_context(scan, schema)
    decoder = open_decoder(decode, schema, reserved=reserved, widens=True, context=context)
    given = decoder.fields(pa.array([], pa.binary()), pa.schema([]))
    if schema == INFER:
        given = decoder.fields(pa.array(sample(scan, payload), pa.binary()), given)
    return DecodedColumns(table, payload, decoder, given)


def sample(scan: FrameScan, payload: str) -> list[bytes]:
    """The first and the last payloads of each stream."""
    rows = scan.narrowed(())
    found: list[bytes] = []
    half = SAMPLE_MESSAGES // 2
    for state in scan.states:
        first = (state.first_seq, min(state.first_seq + half - 1, state.last_seq))
        last = (max(first[1] + 1, state.last_seq - half + 1), state.last_seq)
        # The end of a backup is not known.
        bounds = [(1, half)] if scan.options.archive else [first, last]
        for low, high in bounds:
            if low <= high:
                found += _payloads(scan.batches((payload,), rows.between(low, high)))
    return found


def _payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    size = 0
    for batch in batches:
        for value in batch.column(0).to_pylist():
            if value:
                yield value
                size += len(value)
                if size > SAMPLE_BYTES_MAX:
                    return


class ChosenColumns:
    """Some of the columns of a frame, in an order of one's own."""

    def __init__(self, inner: FrameColumns, names: Sequence[str]) -> None:
        check_columns(names, inner.schema.names)
        self._inner = inner
        self.schema = pa.schema([inner.schema.field(name) for name in names])

    def inputs(self, columns: Collection[str]) -> list[str]:
        """See `FrameColumns`."""
        return self._inner.inputs(columns)

    def made(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """See `FrameColumns`."""
        return self._inner.made(batch, columns)


def check_columns(names: Sequence[str], known: Collection[str]) -> None:
    """Check that columns exist, and that none is named twice."""
    for name in names:
        if name not in known:
            raise OptionError("columns", f"no column {name!r}; available: {', '.join(known)}")
        if list(names).count(name) > 1:
            raise OptionError("columns", f"{name!r} is named twice")
