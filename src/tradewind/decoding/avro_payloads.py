"""Avro payloads: each is one record, without the header of a file.

Owns which Avro types are which columns, and which schemas are refused because a payload of a few
bytes could occupy the reader for hours or end the process: those that hold themselves, and lists of
items that take no bytes. Reading itself is fastavro's.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa

from tradewind.decoding.column_growth import COLUMNS_MAX, joined_schema
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.extras import require
from tradewind.decoding.payload_kinds import DEPTH_MAX
from tradewind.decoding.row_decoding import ReadRow, RowPlan, one_line
from tradewind.decoding.written_schemas import WrittenSchemas

DECIMAL_BYTES_MAX: Final = 64
_DECIMAL: Final = "tradewind-decimal"
_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# Types that fastavro reads as what the column holds; the values of others are as they were written.
_LOGICAL: Final = {
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("int", "date"): pa.date32(),
}
_NUMBERS: Final = (pa.int32(), pa.int64(), pa.float32(), pa.float64())


@dataclass(frozen=True)
class AvroReader:
    """Reads Avro records that were written with some schemas."""

    schemas: WrittenSchemas

    def read(self, payload: bytes, plan: RowPlan) -> ReadRow:  # noqa: ARG002
        """One record."""
        text, body = self.schemas.split(payload)
        return ReadRow(opened_schema(text).read(body))

    def schema(self, payloads: pa.BinaryArray) -> pa.Schema | None:
        """The fields of the newest schema, and those of all that payloads name."""
        fields = opened_schema(self.schemas.latest).fields
        for text in self.schemas.named_by(payloads):
            fields = joined_schema(fields, opened_schema(text).fields)
        return fields


@dataclass(frozen=True)
class OpenedAvro:
    """A schema that payloads can be read with."""

    parsed: Any
    fields: pa.Schema

    def read(self, body: bytes) -> dict[str, Any]:
        """The record in some bytes; ValueError if they are none, or more."""
        from fastavro import schemaless_reader

        source = io.BytesIO(body)
        try:
            record = schemaless_reader(source, self.parsed, None)
        except EOFError:
            raise ValueError(f"the record does not end within its {len(body)} bytes") from None
        except Exception as error:  # its readers raise whatever their bytes lead to
            raise ValueError(f"not a record of the schema: {one_line(error)}") from None
        if source.tell() < len(body):
            raise ValueError(f"{len(body) - source.tell()} bytes follow the record")
        assert isinstance(record, dict)
        return record


@lru_cache(maxsize=256)
def opened_schema(text: str) -> OpenedAvro:
    """A schema as JSON, checked; DecodingError says why it cannot be used."""
    require("fastavro", "avro")
    from fastavro import parse_schema
    from fastavro.read import LOGICAL_READERS

    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{_DECIMAL}"] = _decimal
    try:
        parsed = parse_schema(msgspec.json.decode(text))
    except RecursionError:
        raise DecodingError("the Avro schema is nested too deeply") from None
    except Exception as error:  # of a schema that is none, it raises whatever that leads to
        raise DecodingError(f"not an Avro schema: {one_line(error)}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise DecodingError('the Avro schema must be a record: {"type": "record", ...}')
    types = _AvroTypes(parsed.get("__named_schemas", {}))
    column, safe = types.column(parsed, DEPTH_MAX)
    return OpenedAvro(parse_schema(safe), pa.schema(list(column)))


def _decimal(data: bytes, writer_schema: Any, _: Any = None) -> Decimal:
    """A decimal from its bytes; a long one would take time by the square of its size."""
    if len(data) > DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {len(data)} bytes; at most {DECIMAL_BYTES_MAX}")
    scale = writer_schema.get("scale", 0)
    sign, digits, _ = Decimal(int.from_bytes(data, signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))


class _AvroTypes:
    """Walks through a schema once: the Arrow type of each part, and the part as it is read."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []
        self._defined: set[str] = set()
        self._count = 0

    def column(self, kind: Any, depth: int) -> tuple[pa.DataType, Any]:
        """The type of the column of a schema, and the schema to read with."""
        if depth < 0:
            raise DecodingError(f"the Avro schema is nested deeper than {DEPTH_MAX}")
        if isinstance(kind, list):
            return self._union(kind, depth)
        if isinstance(kind, str):
            if kind in _PRIMITIVES or kind == "null":
                return _PRIMITIVES.get(kind, pa.null()), kind
            if kind in self._open:
                raise DecodingError(f"the Avro schema {kind} holds itself, which no column can")
            found, safe = self.column(self._named[kind], depth)
            return found, kind if kind in self._defined else safe
        name = kind["type"]
        if not isinstance(name, str):
            return self.column(name, depth)
        readers: dict[str, Callable[[Any, int], tuple[pa.DataType, Any]]] = {
            "record": self._record,
            "error": self._record,
            "array": self._array,
            "map": self._map,
            "enum": self._enum,
            "fixed": self._fixed,
        }
        if name in readers:
            return readers[name](kind, depth)
        if "logicalType" in kind:
            return self._logical(kind, name)
        return self.column(name, depth)

    def _record(self, kind: Any, depth: int) -> tuple[pa.DataType, Any]:
        self._open.append(kind["name"])
        fields, safe = [], []
        for field in kind["fields"]:
            self._count += 1
            if self._count > COLUMNS_MAX:
                raise DecodingError(f"the Avro schema has more than {COLUMNS_MAX} fields")
            column, inner = self.column(field["type"], depth - 1)
            safe.append({"name": field["name"], "type": inner})
            if not pa.types.is_null(column):
                fields.append(pa.field(field["name"], column))
        self._open.pop()
        if kind["name"] in self._defined:
            return pa.struct(fields), kind["name"]
        self._defined.add(kind["name"])
        found = pa.struct(fields) if fields or not self._open else pa.null()
        return found, {"type": "record", "name": kind["name"], "fields": safe}

    def _array(self, kind: Any, depth: int) -> tuple[pa.DataType, Any]:
        column, inner = self.column(kind["items"], depth - 1)
        if not self._takes_bytes(kind["items"]):
            raise DecodingError("the Avro schema has a list of items that take no bytes")
        if pa.types.is_null(column):
            column = pa.string()
        return pa.list_(pa.field("element", column)), {"type": "array", "items": inner}

    def _takes_bytes(self, kind: Any) -> bool:
        """Whether each value has at least one byte. No part of a schema holds itself."""
        if isinstance(kind, str) and kind in self._named:
            kind = self._named[kind]
        if isinstance(kind, str):
            return kind != "null"
        if isinstance(kind, list):
            return True
        if kind["type"] in ("record", "error"):
            return any(self._takes_bytes(field["type"]) for field in kind["fields"])
        if kind["type"] == "fixed":
            return bool(kind["size"] > 0)
        return bool(kind["type"] != "null")

    def _map(self, kind: Any, depth: int) -> tuple[pa.DataType, Any]:
        column, inner = self.column(kind["values"], depth - 1)
        if pa.types.is_null(column):
            column = pa.string()
        return pa.map_(pa.string(), column), {"type": "map", "values": inner}

    def _enum(self, kind: Any, depth: int) -> tuple[pa.DataType, Any]:  # noqa: ARG002
        return pa.string(), self._once(kind, {"symbols": kind["symbols"]})

    def _fixed(self, kind: Any, depth: int) -> tuple[pa.DataType, Any]:  # noqa: ARG002
        column, more = pa.binary(), dict[str, Any]()
        if kind.get("logicalType") == "decimal":
            column, more = _decimal_column(kind)
        return column, self._once(kind, {"size": kind["size"], **more})

    def _once(self, kind: Any, more: dict[str, Any]) -> Any:
        """A type with a name, defined where it comes first."""
        if kind["name"] in self._defined:
            return kind["name"]
        self._defined.add(kind["name"])
        return {"type": kind["type"], "name": kind["name"], **more}

    def _logical(self, kind: Any, name: str) -> tuple[pa.DataType, Any]:
        logical = kind["logicalType"]
        if name == "bytes" and logical == "decimal":
            column, more = _decimal_column(kind)
            return column, {"type": "bytes", **more}
        if (name, logical) in _LOGICAL:
            return _LOGICAL[name, logical], {"type": name, "logicalType": logical}
        return self.column(name, 0)

    def _union(self, kinds: list[Any], depth: int) -> tuple[pa.DataType, Any]:
        found = [self.column(kind, depth) for kind in kinds]
        columns = list(dict.fromkeys(column for column, _ in found if not pa.types.is_null(column)))
        safe = [inner for _, inner in found]
        if len(columns) <= 1:
            return columns[0] if columns else pa.null(), safe
        if all(column in _NUMBERS[:2] for column in columns):
            return pa.int64(), safe
        if all(column in _NUMBERS for column in columns):
            return pa.float64(), safe
        # Any of several types: the JSON of the value.
        return pa.string(), safe


def _decimal_column(kind: Any) -> tuple[pa.DataType, dict[str, Any]]:
    precision, scale = kind.get("precision", 0), kind.get("scale", 0)
    more = {"logicalType": _DECIMAL, "precision": precision, "scale": scale}
    is_number = isinstance(precision, int) and isinstance(scale, int)
    if is_number and 0 <= scale <= precision and 1 <= precision <= 38:
        return pa.decimal128(precision, scale), more
    # Spark has no such numbers: the digits as text.
    return pa.string(), more
