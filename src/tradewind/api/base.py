"""The common base of all API types: Go's types, and Go's rules for omitting fields.

Owns the base struct and the encoder. A field with a plain default is omitted if it has that value,
as with Go's `omitempty`; a field declared with `always` is always written. The declaration of a
type therefore determines its JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field

# The kinds of numbers in Go, which bound what a request may hold and are named in its errors.
Int32 = Annotated[int, Meta(extra={"go": "int32"})]
Int64 = Annotated[int, Meta(extra={"go": "int64"})]
Int = Annotated[int, Meta(extra={"go": "int"})]
Uint64 = Annotated[int, Meta(extra={"go": "uint64"})]
DURATION_TYPE: Final = "time.Duration"
# Nanoseconds.
Duration = Annotated[int, Meta(extra={"go": DURATION_TYPE})]
# RFC 3339 text; `times` converts it.
Time = Annotated[str, Meta(extra={"go": "time.Time"})]
BYTES_UNIT: Final = "bytes"
# Beside a kind of number: a number of bytes, for which people write 10MiB.
BYTES: Final = Meta(extra={"unit": BYTES_UNIT})

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
# These characters only occur inside strings, so replacing them cannot break the document.
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


class ApiStruct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all types. Unknown members are ignored when it is decoded with msgspec."""


def requires_level(level: int, *values: Any) -> Meta:
    """An annotation: a server needs this level of the API if the field is set.

    Any value but the default sets it, unless the values that do are given.
    """
    return Meta(extra={"level": level, "level_values": values})


def always(value: Any) -> Any:
    """The default of a field that is written even when it has this value.

    msgspec omits plain defaults and empty lists and maps made by `list` and `dict`, but nothing
    that another factory made.
    """
    return field(default_factory=lambda: value)


def always_list() -> Any:
    """The default of a list that is written even when it is empty."""
    return field(default_factory=_empty_list)


def _empty_list() -> list[Any]:
    return []


def encode(value: object) -> bytes:
    """Encode a type or plain values as JSON, byte for byte as Go's encoder writes it."""
    data = _ENCODER.encode(value)
    for character, escape in _ESCAPES:
        if character in data:
            data = data.replace(character, escape)
    return data
