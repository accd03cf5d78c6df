"""A JSON Schema as a tree: its draft, its references, and which parts apply to which values.

Owns which drafts and keywords are taken. Refused are references that lead out of the document,
since no server fetches what a schema names, and keywords whose cost cannot be known before a
payload is. It never looks at a payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from tradewind.schemas.schema_errors import SchemaError

SUBSCHEMAS_MAX: Final = 1000
DEPTH_MAX: Final = 64
_DRAFTS: Final = {
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
DRAFT_DEFAULT: Final = 2020
_REFUSED: Final = {
    "$dynamicRef": "write it as $ref",
    "$recursiveRef": "write it as $ref",
    "unevaluatedProperties": "close the object with additionalProperties",
    "unevaluatedItems": "close the array with items",
}
# Keywords with one schema, a list of them, or a map: for the same value, and for values inside.
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_LIST: Final = ("allOf", "anyOf", "oneOf")
_SAME_MAP: Final = ("dependentSchemas", "dependencies")
_INNER_ONE: Final = ("additionalProperties", "propertyNames", "additionalItems", "contains")
_INNER_MAP: Final = ("properties", "patternProperties")
_HELD_MAP: Final = ("$defs", "definitions")

Node = dict[str, Any] | bool


class JsonTree:
    """A JSON Schema whose parts and references are known."""

    def __init__(self, root: Any) -> None:
        if not isinstance(root, dict | bool):
            raise SchemaError("a JSON Schema is an object, true or false")
        self.root: Node = root
        self.draft = _draft_of(root)
        self._anchors: dict[str, Node] = {}
        self.size = 0
        self._walk(root, "", 0)

    def _walk(self, node: Any, path: str, depth: int) -> None:
        """Visit all parts once, and note their anchors."""
        if isinstance(node, bool):
            return
        if not isinstance(node, dict):
            raise SchemaError(f"{_at(path)}: a schema is an object, true or false")
        self.size += 1
        if self.size > SUBSCHEMAS_MAX:
            raise SchemaError(f"the JSON Schema has more than {SUBSCHEMAS_MAX} parts")
        if depth > DEPTH_MAX:
            raise SchemaError(f"{_at(path)}: nested deeper than {DEPTH_MAX}")
        for keyword, instead in _REFUSED.items():
            if keyword in node:
                raise SchemaError(f"{_at(path)}: {keyword} is not supported; {instead}")
        if path and isinstance(node.get("$id"), str):
            raise SchemaError(f"{_at(path)}: $id is allowed at the top only")
        if isinstance(anchor := node.get("$anchor"), str):
            self._anchors[anchor] = node
        for where, part in _parts(node):
            self._walk(part, f"{path}/{where}", depth + 1)

    def target(self, reference: Any) -> Node:
        """The part that a `$ref` names; SchemaError if it is not in this document."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise SchemaError(f"$ref {reference!r:.80}: must begin with #, a part of this schema")
        text = unquote(reference[1:])
        if text in self._anchors:
            return self._anchors[text]
        found: Any = self.root
        for token in text.split("/")[1:] if text.startswith("/") else [text] if text else []:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdigit() and int(name[:6]) < len(found):
                found = found[int(name[:6])]
            else:
                raise SchemaError(f"$ref {reference!r:.80}: the schema has no such part")
        if not isinstance(found, dict | bool):
            raise SchemaError(f"$ref {reference!r:.80}: that part is not a schema")
        return found

    def ignores_siblings(self, node: dict[str, Any]) -> bool:
        """Whether nothing beside `$ref` counts, as in old drafts."""
        return "$ref" in node and self.draft < 2019

    def same_value(self, node: Node) -> Iterator[Node]:
        """The parts that apply to the value that this one applies to."""
        if isinstance(node, bool):
            return
        if "$ref" in node:
            yield self.target(node["$ref"])
        for keyword in _SAME_ONE:
            if keyword in node:
                yield _schema(node[keyword])
        for keyword in _SAME_LIST:
            yield from map(_schema, node.get(keyword, ()))
        for keyword in _SAME_MAP:
            for part in node.get(keyword, {}).values():
                if isinstance(part, dict | bool):
                    yield part


def property_names(node: Node) -> dict[str, Any]:
    """The properties that a part names, with their schemas."""
    found = node.get("properties", {}) if isinstance(node, dict) else {}
    return found if isinstance(found, dict) else {}


def pattern_properties(node: Node) -> dict[str, Any]:
    """The patterns of names of a part, with their schemas."""
    found = node.get("patternProperties", {}) if isinstance(node, dict) else {}
    return found if isinstance(found, dict) else {}


def first_items(node: Node) -> list[Any]:
    """The schemas of the first items of an array, by their places."""
    if isinstance(node, bool):
        return []
    listed = node.get("prefixItems", node.get("items"))
    return listed if isinstance(listed, list) else []


def other_items(node: Node) -> Any:
    """The schema of all other items; None if there is none."""
    if isinstance(node, bool):
        return None
    if isinstance(node.get("items"), list):
        return node.get("additionalItems")
    return node.get("items")


def _parts(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in (*_SAME_ONE, *_INNER_ONE):
        if keyword in node:
            yield keyword, node[keyword]
    for keyword in _SAME_LIST:
        yield from _list_parts(keyword, node.get(keyword, []))
    for keyword in (*_INNER_MAP, *_HELD_MAP, *_SAME_MAP):
        parts = node.get(keyword, {})
        if not isinstance(parts, dict):
            raise SchemaError(f"{keyword} must be an object")
        for name, part in parts.items():
            if keyword != "dependencies" or not isinstance(part, list):
                yield f"{keyword}/{name}", part
    for keyword in ("items", "prefixItems"):
        if isinstance(node.get(keyword), list):
            yield from _list_parts(keyword, node[keyword])
        elif keyword in node:
            yield keyword, node[keyword]


def _list_parts(keyword: str, parts: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(parts, list):
        raise SchemaError(f"{keyword} must be a list of schemas")
    for number, part in enumerate(parts):
        yield f"{keyword}/{number}", part


def _schema(value: Any) -> Node:
    if not isinstance(value, dict | bool):
        raise SchemaError("a schema is an object, true or false")
    return value


def _draft_of(root: Any) -> int:
    named = root.get("$schema") if isinstance(root, dict) else None
    if named is None:
        return DRAFT_DEFAULT
    draft = _DRAFTS.get(named.rstrip("#")) if isinstance(named, str) else None
    if draft is None:
        raise SchemaError(f"$schema {named!r:.80}: must be one of {', '.join(_DRAFTS)}")
    return draft


def _at(path: str) -> str:
    return f"JSON Schema #{path[:200]}"
