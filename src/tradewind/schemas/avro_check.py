"""Avro payloads against their schema: each is one record, without the header of a file.

Owns which Avro schemas are refused because a payload of a few bytes could occupy the reader for
hours or end the process: those that hold themselves, and lists of items that take no bytes. Logical
types are left out, since they do not change what bytes are valid. Reading is fastavro's.
"""

from __future__ import annotations

import io
from typing import Any, Final

import msgspec

from tradewind.errors import JSON_ERRORS
from tradewind.schemas.schema_errors import SchemaError, one_line, require_library

DEPTH_MAX: Final = 32
PARTS_MAX: Final = 2000
PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
# Reading a value of Avro makes an object for each byte, which takes about this many units.
VALUE_COST: Final = 100


class AvroCheck:
    """The check against one Avro schema."""

    def __init__(self, schema: Any) -> None:
        shape = AvroShape(schema)
        self._parsed = shape.parsed
        self.cost = VALUE_COST * shape.parts_per_byte

    def problem(self, payload: bytes) -> str:
        """The fault of a payload; empty if it is a record of the schema."""
        from fastavro import schemaless_reader

        source = io.BytesIO(payload)
        try:
            schemaless_reader(source, self._parsed, None)
        except EOFError:
            return f"the record does not end within its {len(payload)} bytes"
        except Exception as error:  # its readers raise whatever their bytes lead to
            return f"not a record of the Avro schema: {one_line(error)}"
        if source.tell() < len(payload):
            return f"{len(payload) - source.tell()} bytes follow the record"
        return ""


class AvroShape:
    """An Avro schema that is safe to read with, and what it costs."""

    def __init__(self, schema: Any) -> None:
        require_library("avro")
        from fastavro import parse_schema

        if isinstance(schema, str):
            try:
                schema = msgspec.json.decode(schema)
            except JSON_ERRORS as error:
                raise SchemaError(f"not an Avro schema: {one_line(error)}") from None
        try:
            parsed: Any = parse_schema(schema)
        except RecursionError:
            raise SchemaError("the Avro schema is nested too deeply") from None
        except Exception as error:  # of a schema that is none, it raises whatever that leads to
            raise SchemaError(f"not an Avro schema: {one_line(error)}") from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise SchemaError('the Avro schema must be a record: {"type": "record", ...}')
        self.named: dict[str, Any] = parsed.get("__named_schemas", {})
        self._open: list[str] = []
        self._defined: set[str] = set()
        self._parts = 0
        # The parts of one item, of which each takes a byte at least, and of the record itself.
        self.parts_per_byte = 1
        self.root: Any = parsed
        safe, _ = self._safe(parsed, DEPTH_MAX)
        self.parts_per_byte = max(self.parts_per_byte, self._parts // 16)
        self.parsed: Any = parse_schema(safe)

    def _safe(self, kind: Any, depth: int) -> tuple[Any, bool]:
        """A part without logical types, and whether each of its values takes a byte at least."""
        self._parts += 1
        if depth < 0:
            raise SchemaError(f"the Avro schema is nested deeper than {DEPTH_MAX}")
        if self._parts > PARTS_MAX:
            raise SchemaError(f"the Avro schema has more than {PARTS_MAX} parts")
        if isinstance(kind, list):
            return [self._safe(one, depth - 1)[0] for one in kind], True
        if isinstance(kind, str):
            if kind in PRIMITIVES:
                return kind, kind != "null"
            if kind in self._open:
                raise SchemaError(f"the Avro schema {kind} holds itself, which is not supported")
            safe, takes = self._safe(self.named[kind], depth)
            return (kind if kind in self._defined else safe), takes
        name = kind["type"]
        if not isinstance(name, str):
            return self._safe(name, depth - 1)
        if name in ("record", "error"):
            return self._record(kind, depth)
        if name == "array":
            before = self._parts
            inner, takes = self._safe(kind["items"], depth - 1)
            if not takes:
                raise SchemaError("the Avro schema has a list of items that take no bytes")
            self.parts_per_byte = max(self.parts_per_byte, self._parts - before)
            return {"type": "array", "items": inner}, True
        if name == "map":
            before = self._parts
            inner, _ = self._safe(kind["values"], depth - 1)
            self.parts_per_byte = max(self.parts_per_byte, self._parts - before)
            return {"type": "map", "values": inner}, True
        if name == "enum":
            return self._once(kind, {"symbols": kind["symbols"]}), True
        if name == "fixed":
            return self._once(kind, {"size": kind["size"]}), bool(kind["size"] > 0)
        return self._safe(name, depth - 1)

    def _record(self, kind: Any, depth: int) -> tuple[Any, bool]:
        self._open.append(kind["name"])
        fields, takes = [], False
        for field in kind["fields"]:
            inner, takes_one = self._safe(field["type"], depth - 1)
            takes = takes or takes_one
            fields.append({"name": field["name"], "type": inner})
        self._open.pop()
        return self._once(kind, {"type": "record", "fields": fields}), takes

    def _once(self, kind: Any, more: dict[str, Any]) -> Any:
        """A type with a name, defined where it comes first."""
        if kind["name"] in self._defined:
            return kind["name"]
        self._defined.add(kind["name"])
        return {"type": kind["type"], "name": kind["name"], **more}
