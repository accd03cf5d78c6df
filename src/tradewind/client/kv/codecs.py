"""Codecs of keys and values: what a program uses, and what a bucket stores.

Owns the codecs that other NATS clients have too (ADR-54), with the same stored texts, and what a
codec has to be. A codec never contacts the server; `coded.py` uses it.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, Protocol, runtime_checkable

from tradewind.client.errors import BadKeyError

_ROOT: Final = "_root_"
_WILDCARDS: Final = ("*", ">")


class KeyCodec(Protocol):
    """Turns keys into valid ones and back. A ValueError of `decode_key` names what is wrong."""

    def encode_key(self, key: str) -> str:
        """The key that is stored."""

    def decode_key(self, stored: str) -> str:
        """The key that was encoded."""


@runtime_checkable
class FilterCodec(Protocol):
    """The part of a codec of keys by which keys can be selected with patterns."""

    def encode_filter(self, pattern: str) -> str:
        """The pattern of stored keys; `*` and `>` stay as they are."""


class ValueCodec(Protocol):
    """Turns values into others and back. A ValueError of `decode_value` names what is wrong."""

    def encode_value(self, value: bytes) -> bytes:
        """The value that is stored."""

    def decode_value(self, stored: bytes) -> bytes:
        """The value that was encoded."""


class Base64Keys:
    """Keys of any characters; each part between dots is stored as URL-safe Base64.

    >>> Base64Keys().encode_key("Acme Inc.contact")
    'QWNtZSBJbmM.Y29udGFjdA'
    """

    def encode_key(self, key: str) -> str:
        """See `KeyCodec`."""
        return ".".join(_encoded(part.encode()).decode() for part in key.split("."))

    def decode_key(self, stored: str) -> str:
        """See `KeyCodec`."""
        return ".".join(_decoded(part.encode()).decode() for part in stored.split("."))

    def encode_filter(self, pattern: str) -> str:
        """See `FilterCodec`."""
        return ".".join(
            part if part in _WILDCARDS else _encoded(part.encode()).decode()
            for part in pattern.split(".")
        )


class PathKeys:
    """Keys that are paths; slashes are stored as dots, and a leading one as `_root_`.

    A slash at the end is dropped. Parts have no dots, which would be slashes afterwards.

    >>> PathKeys().encode_key("/config/database/timeout")
    '_root_.config.database.timeout'
    """

    def encode_key(self, key: str) -> str:
        """See `KeyCodec`."""
        if "." in key:
            raise BadKeyError(f"key {key!r}: a path has no dots; Base64Keys takes any character")
        path = key[1:] if key.startswith("/") else key
        if path.partition("/")[0] == _ROOT:
            raise BadKeyError(f"key {key!r}: {_ROOT!r} stands for a leading slash")
        stored = path.removesuffix("/").replace("/", ".")
        if not key.startswith("/"):
            return stored
        return f"{_ROOT}.{stored}" if stored else _ROOT

    def decode_key(self, stored: str) -> str:
        """See `KeyCodec`."""
        first, _, rest = stored.partition(".")
        path = (rest if first == _ROOT else stored).replace(".", "/")
        return f"/{path}" if first == _ROOT else path

    def encode_filter(self, pattern: str) -> str:
        """See `FilterCodec`."""
        return self.encode_key(pattern)


class Base64Values:
    """Values as URL-safe Base64, for tools that show text only."""

    def encode_value(self, value: bytes) -> bytes:
        """See `ValueCodec`."""
        return _encoded(value)

    def decode_value(self, stored: bytes) -> bytes:
        """See `ValueCodec`."""
        return _decoded(stored)


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _decoded(data: bytes) -> bytes:
    """The bytes; ValueError if that is not what `_encoded` makes of them."""
    try:
        found = urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except binascii.Error as error:
        raise ValueError(f"not Base64: {error}") from None
    if _encoded(found) != data:
        raise ValueError("not URL-safe Base64 without padding")
    return found
