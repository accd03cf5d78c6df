"""Codecs of typed payloads: how the bytes of a message become the value that a handler gets.

Owns the choice by what the user names; it never guesses from annotations. Pydantic is recognized by
the method that its models have, and never imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tradewind.client.errors import ClientError, OptionsError

Decode = Callable[[bytes], Any]
REASON_CHARACTERS_MAX: Final = 400


class PayloadError(ClientError):
    """A payload that is not what the codec expects; the same bytes will never be."""


def _text(data: bytes) -> str:
    return data.decode()


_NAMED: Final[dict[str, Decode]] = {"json": msgspec.json.decode, "text": _text}


def decoder_of(codec: object) -> Decode:
    """The function that decodes payloads.

    `codec` is "json", "text", a type that msgspec knows (`msgspec.Struct`, a dataclass,
    `list[int]`), a Pydantic model, or an object with a method `decode(bytes)`.
    """
    if isinstance(codec, str):
        if codec in _NAMED:
            return _NAMED[codec]
        raise OptionsError(
            f"codec: {_choices()}, not {codec[:64]!r}",
        )
    validate = getattr(codec, "model_validate_json", None)
    if isinstance(codec, type) and callable(validate):
        return validate  # type: ignore[no-any-return]
    decode = getattr(codec, "decode", None)
    if not isinstance(codec, type) and callable(decode):
        return decode  # type: ignore[no-any-return]
    try:
        return msgspec.json.Decoder(codec).decode
    except (TypeError, NameError) as error:
        raise OptionsError(f"codec: {_choices()}, not {codec!r} ({error})") from None


def decode_payload(decode: Decode, data: bytes) -> Any:
    """The value of a payload; PayloadError if it has none, whatever the codec raised."""
    try:
        return decode(data)
    except Exception as error:
        raise PayloadError(f"the payload cannot be decoded: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """An error as a short line for a log or a dead letter."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:REASON_CHARACTERS_MAX]


def _choices() -> str:
    names = ", ".join(f'"{name}"' for name in _NAMED)
    return f"{names}, a type of msgspec, a Pydantic model, or an object with decode(bytes)"
