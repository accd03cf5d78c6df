"""Whether records of one Avro schema can be read with another one: schema resolution.

Owns the rules of Avro's specification: numbers widen, fields have defaults, enums and unions cover
all that was written. Names count without their namespaces, and aliases of the reader as names.
"""

from __future__ import annotations

from typing import Any, Final

from tradewind.schemas.avro_check import PRIMITIVES, AvroShape

_WIDER: Final = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}


def resolution_problem(writer: Any, reader: Any) -> str:
    """Why records of the writer's schema cannot be read with the reader's; empty if they can."""
    return _Resolution(AvroShape(writer), AvroShape(reader)).problem()


class _Resolution:
    """One comparison. No schema holds itself, so it ends."""

    def __init__(self, writer: AvroShape, reader: AvroShape) -> None:
        self._writer = writer
        self._reader = reader

    def problem(self) -> str:
        """Why records cannot be read."""
        return self._match(self._writer.root, self._reader.root, "")

    def _match(self, writer: Any, reader: Any, path: str) -> str:
        writer, reader = _plain(writer, self._writer), _plain(reader, self._reader)
        if isinstance(writer, list):
            found = (self._match(one, reader, path) for one in writer)
            return next(filter(None, found), "")
        if isinstance(reader, list):
            problems = [self._match(writer, one, path) for one in reader]
            if "" in problems:
                return ""
            return f"{path or '/'}: {_name(writer)} is not one of the union"
        if isinstance(writer, str) or isinstance(reader, str):
            if isinstance(writer, str) and reader in _WIDER.get(writer, (writer,)):
                return ""
            return f"{path or '/'}: {_name(writer)} cannot be read as {_name(reader)}"
        kind = reader["type"]
        if writer["type"] != kind:
            return f"{path or '/'}: {_name(writer)} cannot be read as {_name(reader)}"
        if kind == "array":
            return self._match(writer["items"], reader["items"], f"{path}/*")
        if kind == "map":
            return self._match(writer["values"], reader["values"], f"{path}/*")
        if not _is_same_name(writer, reader):
            return f"{path or '/'}: {writer['name']} is called {reader['name']} now"
        if kind == "enum":
            lost = [one for one in writer["symbols"] if one not in reader["symbols"]]
            if lost and "default" not in reader:
                return f"{path or '/'}: symbol {lost[0]} is gone, and the enum has no default"
            return ""
        if kind == "fixed":
            if writer["size"] != reader["size"]:
                return f"{path or '/'}: fixed of {writer['size']} bytes, not {reader['size']}"
            return ""
        return self._fields(writer, reader, path)

    def _fields(self, writer: Any, reader: Any, path: str) -> str:
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            found = next((written[name] for name in names if name in written), None)
            where = f"{path}/{field['name']}"
            if found is None:
                if "default" not in field:
                    return f"{where}: is not in records written before, and has no default"
            elif problem := self._match(found["type"], field["type"], where):
                return problem
        return ""


def _plain(kind: Any, shape: AvroShape) -> Any:
    """A type without names and wrappers around it."""
    while True:
        if isinstance(kind, str):
            if kind in PRIMITIVES:
                return kind
            kind = shape.named[kind]
        elif isinstance(kind, dict) and (
            not isinstance(kind["type"], str) or kind["type"] in PRIMITIVES
        ):
            kind = kind["type"]
        else:
            return kind


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _is_same_name(writer: Any, reader: Any) -> bool:
    names = {_short(name) for name in (reader["name"], *reader.get("aliases", ()))}
    return _short(writer["name"]) in names


def _name(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    return "union" if isinstance(kind, list) else str(kind["type"])
