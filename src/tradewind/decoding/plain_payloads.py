"""Payloads that are one value: a text, or bytes that are not decoded.

Owns the names of their columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tradewind.decoding.column_growth import joined_schema
from tradewind.decoding.decoder_contract import DecodedPayloads
from tradewind.decoding.row_decoding import ReadRow, built, one_line, plan_of

TEXT_COLUMN: Final = "text"
RAW_COLUMN: Final = "data"


@dataclass(frozen=True)
class TextDecoder:
    """Payloads as UTF-8, in the column `text`."""

    def fields(self, payloads: pa.BinaryArray, known: pa.Schema) -> pa.Schema:  # noqa: ARG002
        """The one column."""
        return joined_schema(known, pa.schema([(TEXT_COLUMN, pa.string())]))

    def decode(self, payloads: pa.BinaryArray, fields: pa.Schema) -> DecodedPayloads:
        """The payloads as texts; one that is not UTF-8 has a reason."""
        if fields.equals(pa.schema([(TEXT_COLUMN, pa.string())])):
            try:
                # Checks all of them at once.
                texts = pc.cast(payloads, pa.string())
            except pa.ArrowInvalid:
                pass
            else:
                nothing = pa.nulls(len(payloads), pa.string())
                columns = pa.StructArray.from_arrays([texts], fields=list(fields))
                return DecodedPayloads(columns, nothing, nothing)
        rows = [_text_row(payload) for payload in payloads.to_pylist()]
        return built(rows, plan_of(fields, ()))


def _text_row(payload: bytes | None) -> ReadRow:
    if payload is None:
        return ReadRow()
    try:
        return ReadRow({TEXT_COLUMN: payload.decode()})
    except UnicodeDecodeError as error:
        return ReadRow(reason=one_line(error))


@dataclass(frozen=True)
class RawDecoder:
    """Payloads as they are, in the column `data`."""

    def fields(self, payloads: pa.BinaryArray, known: pa.Schema) -> pa.Schema:  # noqa: ARG002
        """The one column."""
        return joined_schema(known, pa.schema([(RAW_COLUMN, pa.binary())]))

    def decode(self, payloads: pa.BinaryArray, fields: pa.Schema) -> DecodedPayloads:
        """The payloads themselves."""
        if fields.equals(pa.schema([(RAW_COLUMN, pa.binary())])):
            nothing = pa.nulls(len(payloads), pa.string())
            columns = pa.StructArray.from_arrays([payloads], fields=list(fields))
            return DecodedPayloads(columns, nothing, nothing)
        rows = [
            ReadRow(None if payload is None else {RAW_COLUMN: payload})
            for payload in payloads.to_pylist()
        ]
        return built(rows, plan_of(fields, ()))
