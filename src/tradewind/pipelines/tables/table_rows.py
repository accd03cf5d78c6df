"""Messages of a stream as rows of its table.

Owns the step that executors run on Arrow batches: payloads are decoded into the fields that the
table has, and what a payload has beside them is looked at once more, for fields that the table
should have. The module never writes, and never asks a server.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.decoding.decoder_contract import RESCUED_COLUMN
from tradewind.pipelines.lake.lake_schemas import fitted
from tradewind.pipelines.tables.table_columns import (
    TIME_TYPE,
    joined_fields,
    own_columns,
    table_columns,
)
from tradewind.pipelines.tables.table_spec import (
    DATA_COLUMN,
    DAY,
    HOUR,
    TableSpec,
    is_bucket,
)

if TYPE_CHECKING:
    from tradewind.decoding.decoder_contract import DecodedPayloads, Decoder

PUT: Final = "PUT"
HOUR_US: Final = 3_600_000_000
LETTERS: Final = "subject string, data binary, headers map<string,array<string>>"
# In `_rescued` of a row whose payload could not be decoded.
PAYLOAD_KEY, REASON_KEY = "_payload", "_reason"
_HEADERS_TYPE: Final = pa.map_(pa.string(), pa.list_(pa.string()))


class RowsNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """The findings in one part of a batch: fields, if there are new ones, and counts of rows."""

    fields: bytes = b""
    rows: int = 0
    rescued: int = 0
    undecoded: int = 0


def notes_of(texts: Sequence[str]) -> list[RowsNote]:
    """The notes of all parts of a batch."""
    return [msgspec.json.decode(text, type=RowsNote) for text in texts]


@dataclass(frozen=True)
class TableRowStep:
    """How messages of one stream become rows; without a decoder they stay as they are.

    One that `is_learning` makes no rows; it only looks for fields.
    """

    stream: str
    spec: TableSpec
    decoder: Decoder | None
    fields: pa.Schema = field(default_factory=lambda: pa.schema([]))
    is_learning: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return table_columns(self.stream, self.spec, self.fields)

    @property
    def is_blind(self) -> bool:
        """Whether nothing is known of the payloads yet."""
        return self.is_learning

    def task(self) -> TableRowTask:
        """The step for one part of a batch."""
        return TableRowTask(self)

    def payloads(self, batch: pa.RecordBatch) -> pa.Array:
        """The payloads; those that a deletion in a bucket has are none."""
        if not is_bucket(self.stream):
            return batch.column("data").cast(pa.binary())
        values = batch.column("value").cast(pa.binary())
        is_put = pc.equal(batch.column("operation"), PUT)
        return pc.if_else(is_put, values, pa.scalar(None, pa.binary()))

    def with_notes(self, notes: Sequence[RowsNote]) -> TableRowStep | None:
        """The step with the fields that were found; None if it is right as it is."""
        found = [pa.ipc.read_schema(pa.BufferReader(note.fields)) for note in notes if note.fields]
        joined = joined_fields(found, self.fields)
        if joined == self.fields and not self.is_learning:
            return None
        return TableRowStep(self.stream, self.spec, self.decoder, joined)


class TableRowTask:
    """The step for one part of a batch. Once it has found a new field it makes no more rows."""

    def __init__(self, step: TableRowStep) -> None:
        self._step = step
        self._fields = step.fields
        self._rows = self._rescued = self._undecoded = 0

    def note(self) -> str:
        """The note about the rows so far."""
        is_same = self._fields == self._step.fields
        packed = b"" if is_same else self._fields.serialize().to_pybytes()
        note = RowsNote(packed, self._rows, self._rescued, self._undecoded)
        return msgspec.json.encode(note).decode()

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows of some messages; None if the table needs more fields for them."""
        step = self._step
        if step.decoder is None:
            self._rows += batch.num_rows
            return self._assembled(batch, None, None)
        payloads = step.payloads(batch)
        if step.is_blind or self._fields != step.fields:
            self._learn(payloads)
            return None
        decoded = step.decoder.decode(payloads, step.fields)
        is_rescued = pc.is_valid(decoded.rescued)
        if pc.any(is_rescued).as_py():
            self._learn(payloads.filter(is_rescued))
            if self._fields != step.fields:
                return None
        is_bad = pc.is_valid(decoded.reasons)
        bad_count = pc.sum(is_bad).as_py() or 0
        self._rescued += pc.sum(is_rescued).as_py() or 0
        self._undecoded += bad_count
        rescued = decoded.rescued
        if bad_count:
            rescued = self._with_reasons(payloads, decoded)
        rows = self._assembled(batch, decoded.columns, rescued)
        if bad_count and not step.spec.keeps_undecoded:
            rows = rows.filter(pc.invert(is_bad))
        self._rows += rows.num_rows
        return rows

    def _learn(self, payloads: pa.Array) -> None:
        assert self._step.decoder is not None
        found = self._step.decoder.fields(payloads, self._fields)
        self._fields = joined_fields([self._fields, found], self._step.fields)

    def _with_reasons(self, payloads: pa.Array, decoded: DecodedPayloads) -> pa.Array:
        """The texts for payloads that could not be decoded, beside what others have left over."""
        texts = decoded.rescued.to_pylist()
        reasons = decoded.reasons.to_pylist()
        for index, reason in enumerate(reasons):
            if reason is not None:
                kept: dict[str, Any] = {REASON_KEY: reason}
                if not self._step.spec.has_data:
                    payload = payloads[index].as_py() or b""
                    kept[PAYLOAD_KEY] = base64.b64encode(payload).decode()
                texts[index] = msgspec.json.encode(kept).decode()
        return pa.array(texts, pa.string())

    def _assembled(
        self, batch: pa.RecordBatch, decoded: pa.StructArray | None, rescued: pa.Array | None
    ) -> pa.RecordBatch:
        step, schema = self._step, self._step.schema
        own = {name: _own_column(step, name, batch, rescued) for name in self._own_names()}
        parts = decoded.flatten() if decoded is not None and step.fields.names else []
        fields = iter(parts)
        columns = [
            fitted(own[one.name] if one.name in own else next(fields), one.type) for one in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _own_names(self) -> list[str]:
        return own_columns(self._step.stream, self._step.spec)


def _own_column(
    step: TableRowStep, name: str, batch: pa.RecordBatch, rescued: pa.Array | None
) -> pa.Array:
    if name == RESCUED_COLUMN:
        return rescued if rescued is not None else pa.nulls(batch.num_rows, pa.string())
    if name == DATA_COLUMN:
        return batch.column("value" if is_bucket(step.stream) else "data")
    if name == "seq" and is_bucket(step.stream):
        return batch.column("revision")
    if name in (DAY, HOUR):
        moments = batch.column("time").cast(TIME_TYPE)
        if name == DAY:
            return moments.cast(pa.date32())
        hours = pc.divide(moments.cast(pa.int64()), HOUR_US)
        return pc.multiply(hours, HOUR_US).cast(TIME_TYPE)
    return batch.column(name)


@dataclass(frozen=True)
class DeadLetterJob:
    """Makes dead letters of messages that cannot be decoded; runs in an executor."""

    step: TableRowStep
    subject: str

    def __call__(self, batches: Any) -> Any:
        """Letters with the payload as it was, and the reason as a header."""
        step = self.step
        assert step.decoder is not None
        number = "revision" if is_bucket(step.stream) else "seq"
        for batch in batches:
            payloads = step.payloads(batch)
            reasons = step.decoder.decode(payloads, step.fields).reasons
            is_bad = pc.is_valid(reasons)
            bad = payloads.filter(is_bad)
            pairs = zip(
                reasons.filter(is_bad).to_pylist(),
                batch.column(number).filter(is_bad).to_pylist(),
                strict=True,
            )
            headers = [
                [
                    ("Tradewind-Reason", [_header_text(reason)]),
                    ("Tradewind-Pipeline", [letters_name(step.stream)]),
                    ("Tradewind-Stream", [step.stream]),
                    ("Tradewind-Sequence", [str(seq)]),
                ]
                for reason, seq in pairs
            ]
            yield pa.RecordBatch.from_pydict(
                {
                    "subject": pa.repeat(self.subject, len(bad)),
                    "data": bad,
                    "headers": pa.array(headers, _HEADERS_TYPE),
                }
            )


def letters_name(stream: str) -> str:
    """The name that dead letters and queries have for the table of a stream."""
    return f"table.{stream}"


def _header_text(reason: str) -> str:
    """A reason as a header can hold it: one line."""
    return " ".join(reason.split())
