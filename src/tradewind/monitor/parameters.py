"""Read the query parameters of monitoring pages, with nats-server's texts for invalid ones.

Owns decoding only; the page interprets the values. A missing or empty parameter gets its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from tradewind.errors import TradewindError

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_INTEGER_MAX = 2**63 - 1
_UNSIGNED_MAX = 2**64 - 1
# Longer values are cut in the error text, which would otherwise echo whatever a client sent.
_ECHO_LENGTH_MAX = 64


class PageError(TradewindError):
    """The page cannot be built as requested; `status` is the HTTP status, the text is shown to the
    client.
    """

    def __init__(self, text: str, status: int = 400) -> None:
        self.status = status
        super().__init__(text)


def quoted(text: str) -> str:
    """A client's value in double quotes, cut to a bounded length, safe to show."""
    shown = text if len(text) <= _ECHO_LENGTH_MAX else text[:_ECHO_LENGTH_MAX] + "..."
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in escaped) + '"'


def _fail(
    kind: str, name: str, parser: str, text: str, problem: str = "invalid syntax"
) -> NoReturn:
    raise PageError(
        f"Error decoding {kind} for '{name}': strconv.{parser}: parsing {quoted(text)}: {problem}"
    )


def boolean(query: Mapping[str, str], name: str) -> bool:
    """The value of a flag; False if it is absent."""
    text = query.get(name, "")
    if text in _TRUE:
        return True
    if text and text not in _FALSE:
        _fail("boolean", name, "ParseBool", text)
    return False


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()


def integer(query: Mapping[str, str], name: str) -> int:
    """The value of a signed number; 0 if it is absent."""
    text = query.get(name, "")
    if not text:
        return 0
    digits = text[1:] if text[0] in "+-" else text
    if not _is_decimal(digits):
        _fail("int", name, "Atoi", text)
    # The length is checked first: converting a very long number takes quadratic time.
    if len(digits) > 19 or int(digits) > _INTEGER_MAX:
        _fail("int", name, "Atoi", text, "value out of range")
    return -int(digits) if text[0] == "-" else int(digits)


def unsigned(query: Mapping[str, str], name: str) -> int:
    """The value of a number that is not negative; 0 if it is absent."""
    text = query.get(name, "")
    if not text:
        return 0
    if not _is_decimal(text):
        _fail("uint64", name, "ParseUint", text)
    if len(text) > 20 or int(text) > _UNSIGNED_MAX:
        _fail("uint64", name, "ParseUint", text, "value out of range")
    return int(text)
