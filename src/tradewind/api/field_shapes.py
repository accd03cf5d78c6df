"""The kind of value that each field of an API type holds: the annotations of the structs, as data.

Owns reading annotations. Decoders, the files on disk, the API levels and the flags of the command
line are derived from it, so that a field is described once, where it is declared. Never
converts a value.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tradewind.api.base import BYTES_UNIT, DURATION_TYPE, ApiStruct

# Go's names of the types that errors mention, where ours differ.
_GO_NAMES: Final = {
    "StreamNamesRequest": "JSApiStreamNamesRequest",
    "StreamListRequest": "JSApiStreamListRequest",
    "StreamInfoRequest": "JSApiStreamInfoRequest",
    "StreamPurgeRequest": "JSApiStreamPurgeRequest",
    "MsgGetRequest": "JSApiMsgGetRequest",
    "MsgDeleteRequest": "JSApiMsgDeleteRequest",
    "StreamSnapshotRequest": "JSApiStreamSnapshotRequest",
    "StreamRestoreRequest": "JSApiStreamRestoreRequest",
    "ConsumerCreateRequest": "CreateConsumerRequest",
    "ConsumersRequest": "JSApiConsumersRequest",
    "ConsumerPauseRequest": "JSApiConsumerPauseRequest",
    "ConsumerUnpinRequest": "JSApiConsumerUnpinRequest",
    "ConsumerResetRequest": "JSApiConsumerResetRequest",
    "PeerRequest": "JSApiStreamRemovePeerRequest",
    "StepdownRequest": "JSApiLeaderStepdownRequest",
    "NextRequest": "",  # decoded through a pointer, which has no name
    "SubjectTransform": "SubjectTransformConfig",
    "ConsumerLimits": "StreamConsumerLimits",
    "LostMessages": "LostStreamData",
}


class Shape(msgspec.Struct, frozen=True):
    """The kind of value that a field holds, from its annotation."""

    # "struct", "list", "map", "enum", "string", "bool", "time" or "number".
    kind: str
    go_type: str
    # Whether null unsets it, as it does with Go's pointers, lists and maps.
    is_nullable: bool = False
    struct: type[ApiStruct] | None = None
    enum: type[StrEnum] | None = None
    item: Shape | None = None
    # The fields of `struct`.
    fields: Mapping[str, Shape] | None = None
    is_duration: bool = False
    is_size: bool = False
    # The level of the API that a server needs if the field is set, or has one of these values.
    level: int = 0
    level_values: Collection[Any] = ()


@functools.cache
def shapes_of(struct: type[ApiStruct]) -> Mapping[str, Shape]:
    """The shapes of the fields of a struct by their names, in their order."""
    hints = typing.get_type_hints(struct, include_extras=True)
    return {name: shape_of(hints[name]) for name in struct.__struct_fields__}


def shape_of(hint: Any) -> Shape:
    """The shape of an annotation."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not type(None))
        return replace(shape_of(inner), is_nullable=True)
    if origin is typing.Annotated:
        return _annotated(arguments[0], extras_of(hint))
    if origin is list:
        item = shape_of(arguments[0])
        # Sources are pointers in Go.
        star = "*" if item.go_type == "server.StreamSource" else ""
        return Shape("list", f"[]{star}{item.go_type}", is_nullable=True, item=item)
    if origin is dict:
        item = shape_of(arguments[1])
        return Shape("map", f"map[string]{item.go_type}", is_nullable=True, item=item)
    if not isinstance(hint, type):
        raise TypeError(f"{hint!r}: not a type of a member of a request")
    if issubclass(hint, ApiStruct):
        go_type = f"server.{go_name(hint)}"
        return Shape("struct", go_type, struct=hint, fields=shapes_of(hint))
    if issubclass(hint, StrEnum):
        return Shape("enum", f"server.{hint.__name__}", enum=hint)
    return Shape("bool", "bool") if hint is bool else Shape("string", "string")


def _annotated(plain: Any, extras: Mapping[str, Any]) -> Shape:
    go_type = extras.get("go")
    if go_type is None:
        shape = shape_of(plain)
    else:
        is_duration = go_type == DURATION_TYPE
        kind = "time" if plain is str else "number"
        shape = Shape(kind, go_type, is_duration=is_duration)
    return replace(
        shape,
        is_size=extras.get("unit") == BYTES_UNIT,
        level=extras.get("level", 0),
        level_values=extras.get("level_values", ()),
    )


def extras_of(hint: Any) -> dict[str, Any]:
    """The annotations of a type as `base` makes them, all in one; empty if there are none."""
    if typing.get_origin(hint) is not typing.Annotated:
        return {}
    return {
        name: value
        for meta in typing.get_args(hint)[1:]
        for name, value in (getattr(meta, "extra", None) or {}).items()
    }


def is_duration(hint: Any) -> bool:
    """Whether an annotation is nanoseconds in the API."""
    return extras_of(hint).get("go") == DURATION_TYPE


def is_size(hint: Any) -> bool:
    """Whether an annotation is a number of bytes in the API."""
    return extras_of(hint).get("unit") == BYTES_UNIT


def go_name(struct: type) -> str:
    """The name of the type in Go."""
    return _GO_NAMES.get(struct.__name__, struct.__name__)
