"""Keyword settings become the configuration of a stream or consumer, checked one by one.

Owns the checks and their errors. Everything is derived from the structs of the API, so a new field
there is a setting here. In settings a number for a duration means seconds; in a configuration, as
in JSON, it means nanoseconds.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.field_shapes import Shape, shapes_of
from tradewind.api.plain_json import RANGES
from tradewind.api.times import parse_time
from tradewind.client.core.duration_input import duration_ns
from tradewind.client.errors import OptionsError
from tradewind.client.streams.api_requests import to_time

Config = TypeVar("Config", bound=ApiStruct)
Choice = TypeVar("Choice", bound=Enum)


def make_config(base: Config, settings: Mapping[str, Any]) -> Config:
    """`base` with these members changed; OptionsError names the first setting that cannot be."""
    kind = type(base)
    shapes = shapes_of(kind)
    owner = f"a {kind.__name__.removesuffix('Config').lower()}"
    check_names(owner, settings, shapes)
    made = {
        name: member_of(name, settings[name], shape, seconds=True)
        if name in settings
        else member_of(name, getattr(base, name), shape, seconds=False)
        for name, shape in shapes.items()
    }
    return kind(**made)


def config_of(kind: type[Config], config: Config | Mapping[str, Any] | None) -> Config:
    """A whole configuration: a struct, or a mapping as JSON has it, with nanoseconds."""
    if config is None:
        return kind()
    if isinstance(config, kind):
        return config
    if not isinstance(config, Mapping):
        raise OptionsError(
            f"config must be a {kind.__name__} or a mapping as in JSON, not {type(config).__name__}"
        )
    return _struct("", config, kind, seconds=False)


def check_names(owner: str, settings: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """OptionsError with a hint if one of the settings does not exist."""
    for name in settings:
        if name not in known:
            raise OptionsError(f"{owner} has no setting {name!r}{_hint(name, known)}")


def choice_of(name: str, value: object, choices: type[Choice]) -> Choice:
    """The member of an enumeration; OptionsError that names all of them."""
    try:
        return choices(value)
    except ValueError:
        names = [str(each.value) for each in choices]
        hint = _hint(value, names) if isinstance(value, str) else ""
        raise OptionsError(
            f"{name} must be one of {', '.join(names)}{hint or f', not {value!r}'}"
        ) from None


def _hint(name: object, known: Mapping[str, Any] | list[str]) -> str:
    near = get_close_matches(str(name), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def member_of(place: str, value: Any, shape: Shape, *, seconds: bool = True) -> Any:
    """A value as a member of this shape; OptionsError that names its place."""
    if value is None and shape.is_nullable and shape.kind not in ("list", "map"):
        return None
    if shape.is_duration:
        return duration_ns(place, value) if seconds else _nanoseconds(place, value, shape)
    if shape.kind == "number":
        return _number(place, value, shape)
    if shape.kind == "time":
        return _time(place, value)
    if shape.kind == "map":
        return _texts(place, value)
    if shape.item is not None:
        return _list(place, value, shape.item, seconds=seconds)
    if shape.enum is not None:
        return choice_of(place, value, shape.enum)
    if shape.struct is not None:
        return _nested(place, value, shape.struct, seconds=seconds)
    return _plain(place, value, shape)


def _plain(place: str, value: Any, shape: Shape) -> Any:
    if shape.kind == "bool" and not isinstance(value, bool):
        raise OptionsError(f"{place} must be True or False, not {value!r}")
    if shape.kind == "string" and not isinstance(value, str):
        raise OptionsError(f"{place} must be a text, not {value!r}")
    return value


def _nanoseconds(place: str, value: Any, shape: Shape) -> int:
    """A duration of a configuration: a number as it is in JSON, or what a setting may be."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(place, value, shape)
    if isinstance(value, float):
        raise OptionsError(
            f"{place} must be nanoseconds, a timedelta or a text such as '30s' in a configuration, "
            f"not {value!r}; numbers are seconds in keyword settings only"
        )
    return duration_ns(place, value)


def _number(place: str, value: Any, shape: Shape) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionsError(f"{place} must be a whole number, not {value!r}")
    low, high = RANGES[shape.go_type]
    if not low <= value <= high:
        raise OptionsError(f"{place} must be a number from {low} to {high}, not {value}")
    return value


def _time(place: str, value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return to_time(value, place)
    try:
        parse_time(value)
    except (TypeError, ValueError):
        raise OptionsError(
            f"{place} must be a datetime with a time zone or a text such as "
            f"2026-01-31T12:00:00Z, not {value!r}"
        ) from None
    text: str = value
    return text


def _list(place: str, value: Any, item: Shape, *, seconds: bool) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        hint = f"; pass [{value!r}]" if isinstance(value, str) else ""
        raise OptionsError(f"{place} must be a list, not {value!r}{hint}")
    return [
        member_of(f"{place}[{index}]", each, item, seconds=seconds)
        for index, each in enumerate(value)
    ]


def _texts(place: str, value: Any) -> dict[str, str]:
    """Metadata: texts by name."""
    if not isinstance(value, Mapping):
        raise OptionsError(f"{place} must be a mapping of texts, not {value!r}")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise OptionsError(f"{place}[{name!r}] must be a text, not {text!r}")
    return dict(value)


def _nested(place: str, value: Any, kind: type[ApiStruct], *, seconds: bool) -> ApiStruct:
    if isinstance(value, kind):
        members = {
            name: member_of(f"{place}.{name}", getattr(value, name), shape, seconds=False)
            for name, shape in shapes_of(kind).items()
        }
        return kind(**members)
    if isinstance(value, Mapping):
        return _struct(place, value, kind, seconds=seconds)
    raise OptionsError(
        f"{place} must be a {kind.__name__} or a mapping of its members, not {value!r}"
    )


def _struct(place: str, value: Mapping[str, Any], kind: type[Config], *, seconds: bool) -> Config:
    shapes = shapes_of(kind)
    check_names(place or f"a {kind.__name__}", value, shapes)
    dot = f"{place}." if place else ""
    members = {
        name: member_of(f"{dot}{name}", each, shapes[name], seconds=seconds)
        for name, each in value.items()
        if each is not None or seconds  # Go writes null for an empty list
    }
    return msgspec.structs.replace(kind(), **members)
