"""The fields of configurations in a file and in the API: the same names, more readable values.

Owns the notation of durations (`1d`) and sizes (`10GiB`), the types of fields, and the position of
errors. It works for every struct of the API by its annotations, so new fields of the API are
supported in files automatically.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.field_shapes import is_duration, is_size
from tradewind.cli.frame.failures import CommandError, near
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size
from tradewind.documents import Document, Key

_UNITS_NS: Final = (
    ("y", 31_536_000_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)
_UNITS_BYTES: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_KINDS: Final = {str: "text", int: "number", float: "number", bool: "true or false"}
Struct = TypeVar("Struct", bound=ApiStruct)
Keys = tuple[Key, ...]


def duration_member(duration_ns: int) -> str:
    """A duration as a file has it: `1d`, `1h30m`, `250ms`; exact."""
    parts, left = [], duration_ns
    for unit, unit_ns in _UNITS_NS:
        count, left = divmod(left, unit_ns)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def size_member(size_bytes: int) -> str | int:
    """A size as a file has it: `10GiB` if it is a whole number of them, else the bytes."""
    for unit, unit_bytes in _UNITS_BYTES:
        if size_bytes > 0 and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return size_bytes


@cache
def hints_of(struct: type) -> dict[str, Any]:
    """The types of the members of a struct or TypedDict, with their annotations."""
    return get_type_hints(struct, include_extras=True)


def read_struct(document: Document, keys: Keys, struct: type[Struct]) -> Struct:
    """A struct of the API from the mapping at `keys`; ConfigError names the line of the member."""
    return msgspec.convert(read_members(document, keys, hints_of(struct)), struct)


def read_members(document: Document, keys: Keys, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a mapping as the API has them; `hints` are the ones it may have."""
    found = mapping_at(document, keys)
    for name in found:
        if name not in hints:
            raise document.error((*keys, name), f"unknown setting {name!r}{near(name, hints)}")
    return {
        name: _read(document, (*keys, name), value, hints[name]) for name, value in found.items()
    }


def mapping_at(document: Document, keys: Keys) -> dict[str, Any]:
    """The mapping at `keys`; nothing there is an empty one."""
    value = document.value
    for key in keys:
        value = value[key]
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise document.error(keys, f"{_last(keys)}: expected a mapping of settings, not {value!r}")
    return value


def _read(document: Document, keys: Keys, value: Any, hint: Any) -> Any:
    if is_duration(hint) and isinstance(value, str):
        return _parsed(document, keys, parse_duration_ns, value)
    if is_size(hint) and isinstance(value, str):
        return _parsed(document, keys, parse_size, value)
    inner = _without_none(hint)
    if isinstance(inner, type) and issubclass(inner, ApiStruct) and value is not None:
        struct: ApiStruct = read_struct(document, keys, inner)
        return struct
    if get_origin(inner) is list and isinstance(value, list):
        (item,) = get_args(inner)
        return [
            _read(document, (*keys, index), element, item) for index, element in enumerate(value)
        ]
    return _checked(document, keys, value, hint)


def _checked(document: Document, keys: Keys, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        text = str(error).replace("`", "").replace(" - at $", " at ").rstrip(". ")
        quote = ""
        if isinstance(value, bool | int | float) and "str" in text:
            quote = f'; YAML reads it as a {_KINDS[type(value)]}, so write "..." around it'
        raise document.error(keys, f"{_last(keys)}: {text}{quote}") from None


def _parsed(document: Document, keys: Keys, parse: Any, text: str) -> int:
    try:
        number: int = parse(text, _last(keys))
    except CommandError as error:
        raise document.error(keys, str(error)) from None
    return number


def _last(keys: Keys) -> str:
    """The name of a value for people: of a list item, that of the list."""
    return next((str(key) for key in reversed(keys) if isinstance(key, str)), "the file")


def _without_none(hint: Any) -> Any:
    """X of `X | None`; everything else as it is."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        return rest[0] if len(rest) == 1 else hint
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    return hint


def write_struct(config: ApiStruct, base: ApiStruct) -> dict[str, Any]:
    """The members of a struct that differ from those of `base`, as a file has them."""
    hints = hints_of(type(config))
    return {
        name: _written(getattr(config, name), hints[name])
        for name in config.__struct_fields__
        if getattr(config, name) != getattr(base, name)
    }


def _written(value: Any, hint: Any) -> Any:
    if is_duration(hint):
        return duration_member(value)
    if is_size(hint):
        return size_member(value)
    if isinstance(value, ApiStruct):
        return write_struct(value, type(value)())
    if isinstance(value, list):
        items = get_args(_without_none(hint))
        return [_written(item, items[0] if items else Any) for item in value]
    return msgspec.to_builtins(value)
