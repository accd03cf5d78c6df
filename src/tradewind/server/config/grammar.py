"""Parses the text of a configuration file into a tree of values.

Owns the grammar: keys, values, variables and includes. It never interprets keys. The grammar is
that of nats-server, determined with its own `-t`. Where nats-server is too lax (a key without a
space before its block, a key without a value), this parser reports an error.

    file     item*, or the same inside { }, so JSON is a configuration
    item     key [= or :] value, ended by a new line, a comma or a semicolon;  include "file"
    value    "string" 'string' bare ( block ) [ list ] { map } 12 1kb 1.5 true $variable
             2026-01-02T03:04:05Z
    comment  # or // to the end of the line

Everything is limited in size, because a configuration may come from a less trusted source than the
server.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tradewind.errors import ConfigError
from tradewind.server.config.tree import INT64_MAX, INT64_MIN, ConfigNode

BYTES_MAX = 8 * 1024 * 1024  # of a file with everything it includes
INCLUDE_DEPTH_MAX = 16
INCLUDE_COUNT_MAX = 1024
NESTING_MAX = 64
SIZE_MAX = 1_000_000
VARIABLE_DEPTH_MAX = 16

_PARSE_ERROR = "Parse error: "
_SPACE = re.compile(r"[ \t]*")
_WHITE_SPACE = re.compile(r"\s*")
_KEY = re.compile(r"[^\s=:]*")
_PLAIN = re.compile(r'[^"\\]+')  # the ordinary characters of a "string"
_BARE = re.compile(r"[^ \t\r\n;,\]}'\\]+")  # the ordinary characters of an unquoted one
_BARE_NAME = re.compile(r"[^ \t\r\n;,\]}]*")
_BLOCK_END = re.compile(r"\n\)(?=\r?\n|\Z)")
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", '"': b'"', "\\": b"\\"}
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
_INTEGER = re.compile(r"(-?[0-9]+)(?:([kmgtpe])(b|i|ib)?)?\Z", re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+\Z")
_ADDRESS = re.compile(r"[0-9]+\.[0-9]+\.[0-9.:-]*\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")
_NUMBER_LIKE = re.compile(r"-|[0-9]+[.-]")
_BCRYPT = "$2a$"
# Texts of these keys are never repeated in a message, not even in part.
_SECRET_KEY = re.compile(r"pass|token|secret|seed|key|ek\b|jwt", re.IGNORECASE)


def parse_file(path: str, environ: Mapping[str, str] | None = None) -> dict[str, ConfigNode]:
    """The tree of a file with everything it includes. Raises ConfigError with the file and the
    line.
    """
    loader = _Loader(os.environ if environ is None else environ)
    return loader.load(path, including=None)


class _Loader:
    """State shared by the files of one configuration: the environment and the limits on
    includes.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.variables: list[str] = []
        self._open: list[Path] = []
        self._count = 0
        self._bytes = 0

    def load(self, path: str, including: ConfigNode | None) -> dict[str, ConfigNode]:
        """Parse a file; `including` locates the include statement in messages."""
        at = (including.path, including.line) if including else ("", 0)
        try:
            with Path(path).open("rb") as file:
                content = file.read(BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"cannot read {path!r}: {reason or error}", *at) from None
        self._bytes += len(content)
        if self._bytes > BYTES_MAX:
            raise ConfigError(f"the configuration is larger than {BYTES_MAX} bytes", *at)
        real_path = Path(path).resolve()
        if real_path in self._open:
            raise ConfigError(f"{path!r} includes itself", *at)
        self._count += 1
        if len(self._open) >= INCLUDE_DEPTH_MAX or self._count > INCLUDE_COUNT_MAX:
            raise ConfigError(
                f"too many includes: at most {INCLUDE_COUNT_MAX}, {INCLUDE_DEPTH_MAX} deep",
                *at,
            )
        self._open.append(real_path)
        try:
            return _GrammarParser(_decode(content, path), path, self).parse()
        finally:
            self._open.pop()


def _decode(content: bytes, path: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"byte 0x{content[error.start]:02x} is not UTF-8 text", path, line
        ) from None


class _GrammarParser:
    """One pass over one text. `_scopes` are the open maps, in which variables are looked up."""

    def __init__(self, text: str, path: str, loader: _Loader) -> None:
        self._text = text
        self._path = path
        self._loader = loader
        self._position = 0
        self._line = 1
        self._line_position = 0  # the position up to which `_line` has been counted
        self._nesting = 0
        self._scopes: list[dict[str, ConfigNode]] = []

    def parse(self) -> dict[str, ConfigNode]:
        """The whole text as one map."""
        root: dict[str, ConfigNode] = {}
        self._scopes.append(root)
        while True:
            self._skip_blank()
            if not self._peek():
                break
            if self._peek() == "{":
                self._position += 1
                self._items(root, closing="}")
                continue
            self._item(root)
            if not self._end_of_item("") and self._peek() == "}":
                self._position += 1  # a stray brace ends a value; nats-server allows it
        self._node(root, 1)
        return root

    # -- maps and lists

    def _items(self, into: dict[str, ConfigNode], closing: str) -> None:
        start = self._here()
        while True:
            self._skip_blank()
            character = self._peek()
            if character == closing:
                self._position += 1
                return
            if not character:
                raise self._error(
                    f"missing {closing!r}: the block that begins here is not closed", start
                )
            self._item(into)
            self._end_of_item(closing)

    def _item(self, into: dict[str, ConfigNode]) -> None:
        """Parse one key with its value, or one include."""
        line = self._here()
        key, quoted = self._key()
        self._take(_SPACE)
        if not quoted and key.lower() == "include" and self._peek() not in ("=", ":"):
            self._include(into, line)
            return
        self._take(_WHITE_SPACE)
        if self._peek() in ("=", ":"):
            self._position += 1
            # Only inside blocks may a value begin on the next line, as in nats-server.
            self._take(_SPACE if len(self._scopes) == 1 else _WHITE_SPACE)
        if not self._peek() or self._peek() in ";,}]\r\n":
            raise self._error(f"key {key!r} has no value", line)
        value = self._value(key)
        into[key] = ConfigNode(value.value, self._path, line, size=value.size, depth=value.depth)

    def _key(self) -> tuple[str, bool]:
        quote = self._peek()
        if quote in ("'", '"'):
            line = self._here()
            end = self._text.find(quote, self._position + 1)
            if end < 0:
                raise self._error(f"missing {quote} at the end of a key", line)
            key = self._text[self._position + 1 : end]
            self._position = end + 1
            return key, True
        key = self._take(_KEY)
        if not key:
            raise self._error(f"expected a key, found {self._peek()!r}")
        if key[0] in ",;}])(" or "{" in key or "[" in key:
            mark = next(character for character in key if character in ",;}])({[")
            raise self._error(
                f"unexpected {mark!r} in a key: put a space between a key and its value, "
                "and quote keys with special characters"
            )
        return key, False

    def _end_of_item(self, closing: str) -> bool:
        """Step over the end of a value; False at a closing bracket or the end of the text."""
        self._take(_SPACE)
        self._skip_comment()
        character = self._peek()
        if character and character in ",;\r\n":
            self._position += 1
            return True
        if not character or character == closing or (not closing and character == "}"):
            return False
        raise self._error(
            "expected a new line, ',' or ';' after the value: quote values that contain spaces"
        )

    def _list(self) -> list[ConfigNode]:
        start = self._here()
        nodes: list[ConfigNode] = []
        while True:
            self._skip_blank()
            character = self._peek()
            if character == "]":
                self._position += 1
                return nodes
            if not character:
                raise self._error("missing ']': the list that begins here is not closed", start)
            if character in ",;":
                raise self._error(f"unexpected {character!r}: a list value is missing before it")
            nodes.append(self._value(""))
            self._take(_SPACE)
            self._skip_comment()
            if self._peek() and self._peek() in ",\r\n":
                self._position += 1
            elif self._peek() and self._peek() != "]":
                raise self._error("expected ',' or ']' after a list value")

    # -- values

    def _value(self, key: str) -> ConfigNode:
        line = self._here()
        character = self._peek()
        if character == "{":
            return self._nested(line, into_map=True)
        if character == "[":
            return self._nested(line, into_map=False)
        if character == "'":
            return ConfigNode(self._raw_string(), self._path, line)
        if character == '"':
            return ConfigNode(self._string(line), self._path, line)
        if character == "(":
            return ConfigNode(self._block(line), self._path, line)
        return self._bare(key, line)

    def _nested(self, line: int, *, into_map: bool) -> ConfigNode:
        self._position += 1
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self._error(f"blocks and lists are nested more than {NESTING_MAX} deep", line)
        value: dict[str, ConfigNode] | list[ConfigNode]
        if into_map:
            value = {}
            self._scopes.append(value)
            self._items(value, closing="}")
            self._scopes.pop()
        else:
            value = self._list()
        self._nesting -= 1
        return self._node(value, line)

    def _node(self, value: dict[str, ConfigNode] | list[ConfigNode], line: int) -> ConfigNode:
        children = list(value.values() if isinstance(value, dict) else value)
        size = 1 + sum(child.size for child in children)
        depth = 1 + max((child.depth for child in children), default=0)
        if size > SIZE_MAX or depth > NESTING_MAX + 1:
            raise self._error(
                f"the configuration has more than {SIZE_MAX} values or {NESTING_MAX} levels", line
            )
        return ConfigNode(value, self._path, line, size=size, depth=depth)

    def _raw_string(self) -> str:
        line = self._here()
        end = self._text.find("'", self._position + 1)
        if end < 0:
            raise self._error("missing ' at the end of a string", line)
        text = self._text[self._position + 1 : end]
        self._position = end + 1
        return text

    def _string(self, line: int) -> str:
        self._position += 1
        parts = bytearray()
        while True:
            parts += self._take(_PLAIN).encode("utf-8", "surrogatepass")
            character = self._peek()
            if not character:
                raise self._error('missing " at the end of a string', line)
            self._position += 1
            if character == '"':
                return self._text_of(parts, line)
            parts += self._escape()

    def _escape(self) -> bytes:
        """The bytes that the escape after a backslash stands for."""
        character = self._peek()
        self._position += 1
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character == "x":
            digits = self._text[self._position : self._position + 2]
            if re.match(r"[0-9a-fA-F]{2}\Z", digits):
                self._position += 2
                return bytes.fromhex(digits)
            raise self._error(r"expected two hexadecimal digits after \x")
        raise self._error(
            r"unknown escape: a backslash is followed by one of xHH, t, n, r, \" or \\"
        )

    def _text_of(self, parts: bytearray, line: int) -> str:
        try:
            return parts.decode()
        except UnicodeDecodeError:
            raise self._error(r"the \x escapes of a string must form UTF-8 text", line) from None

    def _block(self, line: int) -> str:
        """A `( ... )` string: ends at a line with only the bracket, and keeps its line breaks."""
        match = _BLOCK_END.search(self._text, self._position)
        if not match:
            raise self._error("missing a line with only ')' at the end of a block string", line)
        text = self._text[self._position + 1 : match.start() + 1]
        self._position = match.end()
        return text

    def _bare(self, key: str, line: int) -> ConfigNode:
        """The value of an unquoted word: a number, a boolean, a date, a variable, or a plain
        string.
        """
        parts = bytearray()
        escaped = False
        while True:
            parts += self._take(_BARE).encode("utf-8", "surrogatepass")
            if self._peek() == "'":
                raise self._error("unexpected ' in an unquoted string: quote all of it", line)
            if self._peek() != "\\":
                break
            self._position += 1
            parts += self._escape()
            escaped = True
        word = self._text_of(parts, line)
        if escaped:
            return ConfigNode(word, self._path, line)
        if word.startswith("$") and not word.startswith(_BCRYPT):
            return self._variable(word[1:], key, line)
        return ConfigNode(self._classify(word, line), self._path, line)

    def _classify(self, word: str, line: int) -> str | bool | int | float | datetime:
        if word.lower() in _TRUE:
            return True
        if word.lower() in _FALSE:
            return False
        if match := _INTEGER.match(word):
            return self._integer(match, line)
        if _FLOAT.match(word):
            if math.isinf(float(word)):
                raise self._error("the number is too large", line)
            return float(word)
        if _DATE.match(word):
            try:
                return datetime.strptime(word, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            except ValueError:
                raise self._error("no such date", line) from None
        if word.startswith(".") or (_NUMBER_LIKE.match(word) and not _ADDRESS.match(word)):
            raise self._error(
                "a value begins like a number or a date but is neither: quote it if it is a string",
                line,
            )
        return word

    def _integer(self, match: re.Match[str], line: int) -> int:
        digits, unit, binary = match.groups()
        power = "kmgtpe".index(unit.lower()) + 1 if unit else 0
        number = (
            int(digits) * (1024 if binary else 1000) ** power
            if len(digits) <= 20
            else INT64_MAX + 1
        )
        if not INT64_MIN <= number <= INT64_MAX:
            raise self._error("the number does not fit in 64 bits", line)
        return number

    def _variable(self, name: str, key: str, line: int) -> ConfigNode:
        """The value of `$name`: from the open blocks, innermost first, or from the environment."""
        for scope in reversed(self._scopes):
            if name in scope:
                found = scope[name]
                found.used = True
                return ConfigNode(found.value, self._path, line, size=found.size, depth=found.depth)
        shown = "" if _SECRET_KEY.search(key) else f" {'$' + name!r}"
        text = self._loader.environ.get(name) if name and "\0" not in name else None
        if text is None:
            raise self._fault(
                f"the variable{shown} is not defined; quote a value that begins with '$'", line
            )
        if name in self._loader.variables or len(self._loader.variables) >= VARIABLE_DEPTH_MAX:
            raise self._fault(f"the environment variable{shown} refers to itself", line)
        self._loader.variables.append(name)
        try:
            found = _GrammarParser(f"v={text or chr(34) * 2}", "environment", self._loader).parse()[
                "v"
            ]
        except ConfigError as error:
            reason = "" if _SECRET_KEY.search(key) else f": {error.text.removeprefix(_PARSE_ERROR)}"
            raise self._fault(
                f"the environment variable{shown} is not a configuration value{reason}", line
            ) from None
        finally:
            self._loader.variables.pop()
        return ConfigNode(found.value, self._path, line, size=found.size, depth=found.depth)

    def _include(self, into: dict[str, ConfigNode], line: int) -> None:
        quote = self._peek()
        if quote in ("'", '"'):
            end = self._text.find(quote, self._position + 1)
            if end < 0:
                raise self._error(f"missing {quote} at the end of a file name", line)
            name = self._text[self._position + 1 : end]
            self._position = end + 1
        else:
            name = self._take(_BARE_NAME)
        if not name or "\0" in name:
            raise self._error("include needs the name of a file", line)
        path = str(Path(self._path).parent / name)
        into.update(self._loader.load(path, ConfigNode("", self._path, line)))

    # -- characters

    def _peek(self) -> str:
        """The next character; empty at the end of the text."""
        return self._text[self._position : self._position + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Step over the text that `pattern` matches here, and return it."""
        match = pattern.match(self._text, self._position)
        if not match:
            return ""
        self._position = match.end()
        return match[0]

    def _skip_comment(self) -> bool:
        if self._peek() == "#" or self._text.startswith("//", self._position):
            end = self._text.find("\n", self._position)
            self._position = len(self._text) if end < 0 else end
            return True
        return False

    def _skip_blank(self) -> None:
        self._take(_WHITE_SPACE)
        while self._skip_comment():
            self._take(_WHITE_SPACE)

    def _here(self) -> int:
        """The line of the current position."""
        self._line += self._text.count("\n", self._line_position, self._position)
        self._line_position = max(self._line_position, self._position)
        return self._line

    def _error(self, text: str, line: int | None = None) -> ConfigError:
        """A syntax error; tools look for its first two words."""
        return self._fault(f"{_PARSE_ERROR}{text}", self._here() if line is None else line)

    def _fault(self, text: str, line: int) -> ConfigError:
        return ConfigError(text, self._path, line)
