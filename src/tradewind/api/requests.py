"""Decodes requests from JSON strictly, with the errors of nats-server.

Owns putting values into types and the errors if they do not fit. The texts are those of Go's
decoder, which clients show to their users. It never judges what a valid request asks for.

As in Go, names are case-insensitive, the last of two equal names is used, null changes nothing, and
several consecutive documents fill the same request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import PriorityPolicy
from tradewind.api.errors import INVALID_JSON, ApiError
from tradewind.api.field_shapes import Shape, go_name, shapes_of
from tradewind.api.go_json import JsonEndError, JsonError, JsonNode, Scanner, quote, quote_bytes
from tradewind.api.go_time import parse_go_time
from tradewind.api.plain_json import RANGES, ZEROS, read_plainly
from tradewind.api.request_types import ConsumerAction
from tradewind.api.stream_types import Compression

_Request = TypeVar("_Request", bound=ApiStruct)


def decode_request(kind: type[_Request], body: bytes, *, strict: bool = True) -> _Request:
    """Decode a request; ApiError 10025 if it is invalid. An empty body gives a request of zero
    values.

    Without `strict`, unknown members are ignored.
    """
    if (values := read_plainly(shapes_of(kind), body)) is not None:
        return msgspec.convert(values, kind)
    try:
        try:
            return _decode_documents(kind, body)
        except JsonError:
            if strict:
                raise
            return _unmarshal(kind, body)
    except JsonError as error:
        raise INVALID_JSON(err=str(error)) from None


def decode_lenient(
    kind: type[_Request], body: bytes, *, closely_max: int | None = None
) -> _Request:
    """Decode one of the few requests that the official server never checks strictly.

    One document is expected; ApiError 10025 if it is missing. One that is not plain, and longer
    than `closely_max`, is refused, because examining it closely takes long.
    """
    if (values := read_plainly(shapes_of(kind), body, allow_unknown=True)) is not None:
        return msgspec.convert(values, kind)
    if closely_max is not None and len(body) > closely_max:
        reason = error_in_beginning(body[:closely_max])
        raise INVALID_JSON(err=reason or f"not plain JSON, and longer than {closely_max} bytes")
    try:
        return _unmarshal(kind, body)
    except JsonError as error:
        raise INVALID_JSON(err=str(error)) from None


def error_in_beginning(body: bytes) -> str | None:
    """Go's error about the syntax of the beginning of a request; None: none was found."""
    scanner = Scanner(body)
    try:
        scanner.next_document()
    except JsonEndError:
        return None
    except JsonError as error:
        return error.text
    return None


def is_empty_request(body: bytes) -> bool:
    """Whether a body is empty in the sense of an endpoint without one: nothing, or {} with
    blanks.
    """
    text = body.strip(b" \t\r\n")
    return not body or (text[:1] == b"{" and text[-1:] == b"}" and not text[1:-1].strip(b" \t\r\n"))


def holds_json(body: bytes) -> bool:
    """Whether an optional body is decoded at all: it begins like an object or a list."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


def invalid_json(text: str) -> ApiError:
    """Error 10025 with a text of its own."""
    return INVALID_JSON(err=text)


def _decode_documents(kind: type[_Request], body: bytes) -> _Request:
    scanner = Scanner(body)
    values: dict[str, Any] = {}
    while not scanner.at_end():
        filler = _Filler(body, kind, allow_unknown=False)
        filler.fill(scanner.next_document(), values)
    return msgspec.convert(values, kind)


def _unmarshal(kind: type[_Request], body: bytes) -> _Request:
    """Decode like Go's json.Unmarshal: one document, checked as a whole before anything is used."""
    scanner = Scanner(body)
    values: dict[str, Any] = {}
    try:
        scanner.at_end()
        document = scanner.next_document()
        if not scanner.at_end():
            raise scanner.invalid_character("after top-level value")
    except JsonEndError:
        raise JsonError("unexpected end of JSON input") from None
    except JsonError as error:
        raise JsonError(error.text) from None
    _Filler(body, kind, allow_unknown=True).fill(document, values)
    return msgspec.convert(values, kind)


class _Filler:
    """Puts nodes into plain dicts that msgspec can convert, or raises Go's error."""

    def __init__(self, body: bytes, kind: type[ApiStruct], *, allow_unknown: bool) -> None:
        self._body = body
        self._kind = kind
        self._allow_unknown = allow_unknown
        self._root = go_name(kind)

    def fill(self, node: JsonNode, values: dict[str, Any]) -> None:
        if node.kind == "object":
            self._fill_struct(node, values, self._kind, ())
        elif node.kind != "null":
            raise JsonError(
                f"json: cannot unmarshal {node.kind} into Go value of type server.{self._root}"
            )

    def _fill_struct(
        self, node: JsonNode, values: dict[str, Any], struct: type[ApiStruct], path: tuple[str, ...]
    ) -> None:
        shapes = shapes_of(struct)
        for name, child in _members(node):
            found = _find(shapes, name)
            if found is None:
                if self._allow_unknown:
                    continue
                raise JsonError(f"json: unknown field {quote(name)}")
            known, shape = found
            # Errors have the name as it was written.
            self._fill_field(child, values, known, shape, (*path, name))

    def _fill_field(
        self,
        node: JsonNode,
        values: dict[str, Any],
        name: str,
        shape: Shape,
        path: tuple[str, ...],
    ) -> None:
        if node.kind == "null" and shape.kind != "enum":
            if shape.is_nullable:
                values.pop(name, None)
        elif shape.struct is not None and node.kind == "object":
            self._fill_struct(node, values.setdefault(name, {}), shape.struct, path)
        elif shape.kind == "map" and node.kind == "object":
            members = values.setdefault(name, {})
            assert shape.item is not None
            for key, child in _members(node):
                members[key] = self._item(child, shape.item, (*path, key))
        else:
            values[name] = self._item(node, shape, path)

    def _item(self, node: JsonNode, shape: Shape, path: tuple[str, ...]) -> Any:
        """The value of a node; null is the zero value."""
        if shape.enum is not None:
            return self._enum(node, shape.enum)
        if node.kind == "null":
            return ZEROS[shape.kind]()
        if node.kind != _NODE_KINDS[shape.kind]:
            raise self._misfit(node.kind, shape, path)
        if shape.struct is not None:
            values: dict[str, Any] = {}
            self._fill_struct(node, values, shape.struct, path)
            return values
        if shape.kind == "list":
            if not isinstance(node.value, list):
                raise self._misfit(node.kind, shape, path)
            assert shape.item is not None
            return [
                self._item(child, shape.item, (*path, str(index)))
                for index, child in enumerate(node.value)
            ]
        if shape.kind == "number":
            return self._number(node, shape, path)
        if shape.kind == "time":
            return parse_go_time(str(node.value))
        return node.value

    def _number(self, node: JsonNode, shape: Shape, path: tuple[str, ...]) -> int:
        text = str(node.value)
        low, high = RANGES[shape.go_type]
        digits = text.removeprefix("-") if low < 0 else text
        # 20 digits are more than any of these types holds.
        if digits.isdigit() and len(text) <= 20 and low <= int(text) <= high:
            return int(text)
        raise self._misfit(f"number {text}", shape, path)

    def _enum(self, node: JsonNode, enum: type[StrEnum]) -> str:
        raw = self._body[node.start : node.end]
        if node.kind == "string" and b"\\" not in raw:
            try:
                return enum(str(node.value)).value
            except ValueError:
                pass
        raise JsonError(_ENUM_TEXTS.get(enum, _unknown_value)(node, raw))

    def _misfit(self, what: str, shape: Shape, path: tuple[str, ...]) -> JsonError:
        # Go's text differs for the items of a list.
        place = "" if path[-1].isdigit() else "Go struct field "
        name = ".".join((self._root, *path))
        return JsonError(
            f"json: cannot unmarshal {what} into {place}{name} of type {shape.go_type}"
        )


def _unknown_value(_node: JsonNode, raw: bytes) -> str:
    return f"can not unmarshal {quote_bytes(raw)}"


def _unknown_compression(node: JsonNode, _raw: bytes) -> str:
    if node.kind in ("string", "null"):
        return "unknown compression algorithm"
    return f"json: cannot unmarshal {node.kind} into Go value of type string"


def _unknown_text(what: str) -> Callable[[JsonNode, bytes], str]:
    return lambda _node, raw: f"unknown {what}: {raw.decode(errors='replace')}"


_ENUM_TEXTS: Final[Mapping[type[StrEnum], Callable[[JsonNode, bytes], str]]] = {
    Compression: _unknown_compression,
    PriorityPolicy: _unknown_text("priority policy"),
    ConsumerAction: _unknown_text("consumer action"),
}
_NODE_KINDS: Final = {
    "struct": "object",
    "list": "array",
    "map": "object",
    "string": "string",
    "bool": "bool",
    "time": "string",
    "number": "number",
}


def _members(node: JsonNode) -> list[tuple[str, JsonNode]]:
    return node.value if isinstance(node.value, list) else []


def _find(shapes: Mapping[str, Shape], name: str) -> tuple[str, Shape] | None:
    for candidate in (name, name.casefold()):
        if candidate in shapes:
            return candidate, shapes[candidate]
    return None
