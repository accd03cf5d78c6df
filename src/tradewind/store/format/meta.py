"""meta.inf and meta.sum: the configuration of a stream or consumer and its hash.

Owns Go's formatting of JSON, so that a configuration yields the same bytes as in nats-server. The
fields, their order and which are omitted come from `StreamConfig` and `ConsumerConfig`. Never
touches the disk and never validates a value: the configuration is a plain dict, as in the API.

nats-server takes a stream with an unknown field offline, so callers must report `unknown_fields`.
Such fields are kept and written again after the known ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.field_shapes import Shape, shapes_of
from tradewind.api.stream_types import StreamConfig
from tradewind.api.times import format_time, parse_time
from tradewind.errors import CorruptRecord
from tradewind.store.format.hash import key_for
from tradewind.store.format.layout import META_FILE

# The deepest configuration of the official server has 5 levels.
DEPTH_MAX: Final = 32
_FRACTION: Final = re.compile(r"\.\d*(?=[Z+-])", re.ASCII)
_ESCAPED: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029]')
# What msgspec escapes, and what Go escapes beside that.
_UNLIKE_GO: Final = re.compile(rb"[\\<>&]|\xe2\x80[\xa8\xa9]")
_SHORT_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


class _Write(Enum):
    """When a field is written: Go's omitempty leaves zero values out, but no empty structs."""

    ALWAYS = auto()
    UNLESS_ZERO = auto()
    UNLESS_NULL = auto()


class _Field(msgspec.Struct, frozen=True):
    """A field of a Go struct; `zero` is written for an absent field that is always written."""

    write: _Write
    zero: Any
    # The fields of the object in it, or of each object in the list in it.
    fields: Mapping[str, _Field]
    # The kind of its value, as in `Shape`.
    kind: str


_NO_FIELDS: Final[Mapping[str, _Field]] = {}


@functools.cache
def _fields_of(struct: type[ApiStruct]) -> Mapping[str, _Field]:
    """The fields of a struct of the API by their names, in the order of Go's."""
    plain = struct()
    always = msgspec.to_builtins(plain)
    return {
        name: _Field(_write_of(name, plain, always), always.get(name), _inner(shape), shape.kind)
        for name, shape in shapes_of(struct).items()
    }


def _write_of(name: str, plain: ApiStruct, always: Mapping[str, Any]) -> _Write:
    """When a field is written: a response with defaults alone has those that always are."""
    if name in always:
        return _Write.ALWAYS
    return _Write.UNLESS_NULL if getattr(plain, name) is None else _Write.UNLESS_ZERO


def _inner(shape: Shape) -> Mapping[str, _Field]:
    struct = shape.struct or (shape.item.struct if shape.item is not None else None)
    return _fields_of(struct) if struct is not None else _NO_FIELDS


class StreamMeta(msgspec.Struct, frozen=True):
    """A stream's meta.inf. `created_ns` is None if the file has no time of creation.

    `unknown_fields` names those that the official server would refuse, as "mirror.field", in the
    order in which they appear there.
    """

    config: dict[str, Any]
    created_ns: int | None = None
    unknown_fields: tuple[str, ...] = ()


class ConsumerMeta(msgspec.Struct, frozen=True):
    """A consumer's meta.inf; see StreamMeta. `name` is there for ephemeral consumers too."""

    name: str
    config: dict[str, Any]
    created_ns: int | None = None
    unknown_fields: tuple[str, ...] = ()


def encode_stream_meta(meta: StreamMeta) -> bytes:
    """The meta.inf of a stream."""
    return _encode({}, meta.config, _fields_of(StreamConfig), meta.created_ns)


def encode_consumer_meta(meta: ConsumerMeta) -> bytes:
    """The meta.inf of a consumer."""
    return _encode({"Name": meta.name}, meta.config, _fields_of(ConsumerConfig), meta.created_ns)


def decode_stream_meta(data: bytes, path: str = META_FILE) -> StreamMeta:
    """The content of a stream's meta.inf, however it is formatted."""
    document = _decode(data, path)
    created_ns = _take_created(document, path)
    if not isinstance(document.get("name"), str):
        raise CorruptRecord(path, 0, 'a stream has a "name", which is a string')
    return StreamMeta(document, created_ns, _unknown_fields(document, _fields_of(StreamConfig)))


def decode_consumer_meta(data: bytes, path: str = META_FILE) -> ConsumerMeta:
    """The content of a consumer's meta.inf, however it is formatted."""
    document = _decode(data, path)
    created_ns = _take_created(document, path)
    name = document.pop("Name", None)
    if not isinstance(name, str):
        raise CorruptRecord(path, 0, 'a consumer has a "Name", which is a string')
    return ConsumerMeta(
        name, document, created_ns, _unknown_fields(document, _fields_of(ConsumerConfig))
    )


def meta_sum(data: bytes, key_text: str) -> bytes:
    """The meta.sum of a meta.inf; `layout` has the key texts of streams and consumers."""
    return key_for(key_text).hash(data).hex().encode()


def check_meta_sum(data: bytes, stored_sum: bytes, key_text: str, path: str = META_FILE) -> None:
    """CorruptRecord unless `stored_sum` is the hash of `data`.

    For streams the official server checks the sum, with the name of the folder as the key; for
    consumers only that there is one.
    """
    wanted = meta_sum(data, key_text)
    if stored_sum != wanted:
        raise CorruptRecord(
            path,
            0,
            f"its hash is {wanted.decode()}, meta.sum says"
            f" {stored_sum[:32].decode(errors='backslashreplace')!r}",
        )


def _encode(
    head: dict[str, str],
    config: Mapping[str, Any],
    fields: Mapping[str, _Field],
    created_ns: int | None,
) -> bytes:
    created = {} if created_ns is None else {"Created": format_time(created_ns)}
    document = {**created, **head}
    for name, value in _members(config, fields).items():
        document.setdefault(name, value)
    data = msgspec.json.encode(document)
    return data if _UNLIKE_GO.search(data) is None else _json(document).encode()


def _members(values: Mapping[str, Any], fields: Mapping[str, _Field]) -> dict[str, Any]:
    """The members of an object: known ones in the order of the struct, then the others."""
    members: dict[str, Any] = {}
    for name, field in fields.items():
        value = values.get(name)
        if value is None:
            if field.write is not _Write.ALWAYS:
                continue
            value = field.zero
        elif field.write is _Write.UNLESS_ZERO and not value:
            continue
        if isinstance(value, str):
            members[name] = _trim_fraction(value) if field.kind == "time" else value
        else:
            members[name] = _ordered(value, field.fields)
    for name in values:
        if name not in fields:
            members[name] = _ordered(values[name])
    return members


def _ordered(value: Any, fields: Mapping[str, _Field] = _NO_FIELDS) -> Any:
    """A value with the members of all objects in Go's order: maps by their keys, structs by their
    fields.
    """
    if isinstance(value, Mapping):
        if fields:
            return _members(value, fields)
        return {name: _ordered(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_ordered(item, fields) for item in value]
    return value


def _json(value: Any) -> str:
    """An ordered value with all that Go escapes."""
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        return f"{{{','.join(f'{_quote(name)}:{_json(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return msgspec.json.encode(value).decode()


def _quote(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _trim_fraction(text: str) -> str:
    """Remove zeros at the end of the fraction of a time, as Go formats what it has parsed."""
    return _FRACTION.sub(lambda match: match[0].rstrip("0").removesuffix("."), text, count=1)


def _decode(data: bytes, path: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptRecord(path, 0, f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise CorruptRecord(path, 0, "it is not a JSON object")
    if _is_too_deep(document):
        raise CorruptRecord(path, 0, f"it has more than {DEPTH_MAX} levels")
    return document


def _take_created(document: dict[str, Any], path: str) -> int | None:
    created = document.pop("Created", None)
    if created is None:
        return None
    if not isinstance(created, str):
        raise CorruptRecord(path, 0, '"Created" is not a string')
    try:
        return parse_time(created)
    except ValueError as error:
        raise CorruptRecord(path, 0, f'"Created": {error}') from None


def _is_too_deep(document: dict[str, Any]) -> bool:
    """Whether objects and lists are nested so deeply that writing them would overflow a stack."""
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _unknown_fields(document: Mapping[str, Any], fields: Mapping[str, _Field]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_walk_unknown(document, fields, "")))


def _walk_unknown(
    values: Mapping[str, Any], fields: Mapping[str, _Field], prefix: str
) -> Iterator[str]:
    for name, value in values.items():
        if name not in fields:
            yield prefix + name
            continue
        nested = fields[name].fields
        for item in value if isinstance(value, list) else [value]:
            if nested and isinstance(item, dict):
                yield from _walk_unknown(item, nested, f"{prefix}{name}.")
