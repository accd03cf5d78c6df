"""Parses JSON like Go's decoder, with the same errors.

Owns the syntax. A document becomes nodes that know their position in the text, because errors about
values quote it. It never knows the expected fields, which is up to `requests`.

Go accepts invalid UTF-8 and unpaired surrogates, and reads each as U+FFFD.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

# Go allows 10,000 levels; the deepest request has 5.
DEPTH_MAX: Final = 64
# Bounds the time that one request can take.
VALUES_MAX: Final = 100_000
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
# The longest beginning of a number.
_NUMBER_START: Final = re.compile(
    rb"-?(?:(?:0|[1-9]\d*)(?:\.(?:\d+(?:[eE][+-]?\d*)?)?|[eE][+-]?\d*)?)?"
)
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX_DIGITS: Final = re.compile(rb"[0-9a-fA-F]*")
HALVES: Final = re.compile("[\ud800-\udfff]")
_LITERALS: Final = {0x6E: b"null", 0x74: b"true", 0x66: b"false"}
_ESCAPES: Final = {
    0x22: '"',
    0x5C: "\\",
    0x2F: "/",
    0x62: "\b",
    0x66: "\f",
    0x6E: "\n",
    0x72: "\r",
    0x74: "\t",
}
_QUOTED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
}


class JsonError(Exception):
    """The text is not JSON, or its values do not fit; str() is Go's error text."""

    def __init__(self, text: str, offset: int = 0) -> None:
        self.text = text
        # Bytes read when it was found; 0 if the text does not say so.
        self.offset = offset
        super().__init__(f"{text} at offset {offset}" if offset else text)


class JsonEndError(JsonError):
    """The text ends too early."""

    def __init__(self) -> None:
        super().__init__("unexpected EOF")


class JsonNode(msgspec.Struct, frozen=True):
    """A value: `kind` is Go's name for it, `start` and `end` are its position in the text.

    `value` is str for a string, bool for a bool, the text for a number, None for null, a list of
    nodes for an array, and a list of (name, node) for an object, which may repeat names.
    """

    kind: str
    value: object
    start: int
    end: int


class Scanner:
    """Reads one document after the other from the bytes of a request."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._at = 0
        self._depth = 0
        self._values = 0

    def at_end(self) -> bool:
        """Whether only blanks are left."""
        self._skip()
        return self._at == len(self.data)

    def next_document(self) -> JsonNode:
        """The next value; JsonError where the text breaks the syntax."""
        self._skip()
        return self._value()

    def invalid_character(self, context: str) -> JsonError:
        """The error about the character at the current place."""
        return self._invalid(self._at, context)

    def _skip(self) -> None:
        if (match := _SPACE.match(self.data, self._at)) is not None:
            self._at = match.end()

    def _peek(self) -> int:
        if self._at >= len(self.data):
            raise JsonEndError
        return self.data[self._at]

    def _invalid(self, at: int, context: str) -> JsonError:
        character, size = _character_at(self.data, at)
        return JsonError(f"invalid character {quote_character(character)} {context}", at + size)

    def _value(self) -> JsonNode:
        start = self._at
        first = self._peek()
        self._values += 1
        if self._values > VALUES_MAX:
            raise JsonError(f"more than {VALUES_MAX} values")
        if first == 0x7B:
            return self._object(start)
        if first == 0x5B:
            return self._array(start)
        if first == 0x22:
            return JsonNode("string", self._string(), start, self._at)
        if first in _LITERALS:
            return self._literal(start, _LITERALS[first])
        if first == 0x2D or 0x30 <= first <= 0x39:
            return self._number(start)
        raise self._invalid(start, "looking for beginning of value")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise JsonError("exceeded max depth", self._at + 1)
        self._at += 1

    def _object(self, start: int) -> JsonNode:
        members: list[tuple[str, JsonNode]] = []
        self._enter()
        self._skip()
        while self._peek() != 0x7D or members:
            if self._peek() != 0x22:
                raise self._invalid(self._at, "looking for beginning of object key string")
            name = self._string()
            self._skip()
            if self._peek() != 0x3A:
                raise self._invalid(self._at, "after object key")
            self._at += 1
            self._skip()
            members.append((name, self._value()))
            if not self._has_more(0x7D, "after object key:value pair"):
                break
        self._leave()
        return JsonNode("object", members, start, self._at)

    def _array(self, start: int) -> JsonNode:
        items: list[JsonNode] = []
        self._enter()
        self._skip()
        while self._peek() != 0x5D or items:
            items.append(self._value())
            if not self._has_more(0x5D, "after array element"):
                break
        self._leave()
        return JsonNode("array", items, start, self._at)

    def _has_more(self, closing: int, context: str) -> bool:
        self._skip()
        character = self._peek()
        if character == closing:
            return False
        if character != 0x2C:
            raise self._invalid(self._at, context)
        self._at += 1
        self._skip()
        return True

    def _leave(self) -> None:
        self._depth -= 1
        self._at += 1

    def _literal(self, start: int, word: bytes) -> JsonNode:
        for index, wanted in enumerate(word):
            self._at = start + index
            if self._peek() != wanted:
                raise self._invalid(
                    self._at, f"in literal {word.decode()} (expecting {chr(wanted)!r})"
                )
        self._at = start + len(word)
        if word == b"null":
            return JsonNode("null", None, start, self._at)
        return JsonNode("bool", word == b"true", start, self._at)

    def _number(self, start: int) -> JsonNode:
        match = _NUMBER.match(self.data, start)
        begun = _NUMBER_START.match(self.data, start)
        begun_end = start if begun is None else begun.end()
        if match is None or begun_end > match.end():
            self._at = begun_end
            self._peek()
            raise self._invalid(self._at, "in numeric literal")
        self._at = match.end()
        return JsonNode("number", match[0].decode(), start, self._at)

    def _string(self) -> str:
        self._at += 1
        parts: list[str] = []
        while True:
            if match := _PLAIN.match(self.data, self._at):
                if match[0]:
                    parts.append(match[0].decode(errors="surrogateescape"))
                    # Marks of undecodable bytes must not pair with a half from an escape.
                    parts[-1] = HALVES.sub("\ufffd", parts[-1])
                self._at = match.end()
            character = self._peek()
            if character == 0x22:
                self._at += 1
                return join_halves("".join(parts))
            if character != 0x5C:
                raise self._invalid(self._at, "in string")
            parts.append(self._escape())

    def _escape(self) -> str:
        start = self._at
        if start + 1 >= len(self.data):
            raise JsonEndError
        character = self.data[start + 1]
        if character in _ESCAPES:
            self._at = start + 2
            return _ESCAPES[character]
        if character != 0x75:
            raise self._bad_escape(start, start + 2)
        match = _HEX_DIGITS.match(self.data, start + 2, start + 6)
        digits = b"" if match is None else match[0]
        if len(digits) == 4:
            self._at = start + 6
            return chr(int(digits, 16))
        if start + 2 + len(digits) == len(self.data):
            raise JsonEndError
        raise self._bad_escape(start, min(start + 6, len(self.data)))

    def _bad_escape(self, start: int, end: int) -> JsonError:
        shown = self.data[start:end].decode(errors="replace")
        quoted = f"`{shown}`" if "`" not in shown and shown.isprintable() else quote(shown)
        return JsonError(f"invalid escape sequence {quoted} in string", end)


def quote(text: str) -> str:
    """A string as Go prints it with %q."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join('\\"' if item == '"' else _quote_one(item) for item in text) + '"'


def quote_bytes(data: bytes) -> str:
    """Quote as `quote` does; bytes that are not UTF-8 are written as \\xff."""
    text = data.decode(errors="surrogateescape")
    if text.isprintable():
        return quote(text)
    parts = [
        f"\\x{ord(item) - 0xDC00:02x}"
        if "\udc80" <= item <= "\udcff"
        else '\\"'
        if item == '"'
        else _quote_one(item)
        for item in text
    ]
    return '"' + "".join(parts) + '"'


def quote_character(character: str | int) -> str:
    """A character as Go prints it in errors; an int is a byte that is not UTF-8."""
    if isinstance(character, int):
        return f"'\\x{character:02x}'"
    return "'\\''" if character == "'" else f"'{_quote_one(character)}'"


def _quote_one(character: str) -> str:
    if character in _QUOTED:
        return _QUOTED[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _character_at(data: bytes, at: int) -> tuple[str | int, int]:
    """The character at an index with its size in bytes."""
    for size in (1, 2, 3, 4):
        try:
            return data[at : at + size].decode(), size
        except UnicodeDecodeError:
            continue
    return data[at], 1


def join_halves(text: str) -> str:
    """Join pairs of surrogates into one character; an unpaired one becomes U+FFFD."""
    if not HALVES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
