"""Read YAML and JSON files as plain values with their lines.

Owns reading and its limits: a file has at most 1 MiB and expands to at most 100,000 values, so that
nested aliases cannot exhaust memory. It never interprets the contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tradewind.errors import ConfigError, TradewindError

FILE_BYTES_MAX: Final = 1 << 20
VALUES_MAX: Final = 100_000
DEPTH_MAX: Final = 50
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"

Key = str | int


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a value. A block text (`|`) begins on the line after its indicator."""

    key_line: int
    line: int
    column: int
    is_block: bool = False

    def at(self, offset_lines: int) -> int:
        """The line of the file that holds the given line of the text, which counts from 0."""
        return self.line + offset_lines + (1 if self.is_block else 0)


@dataclass
class Document:
    """The value of a file, and the place of each value in it, by its path of keys."""

    path: Path
    value: Any = None
    places: dict[tuple[Key, ...], Place] = field(default_factory=dict)

    def fail(self, text: str, line: int = 0, column: int = 0) -> TradewindError:  # noqa: ARG002
        """An error at a line, and a column if it is known; subclasses have errors of their own."""
        return ConfigError(text, str(self.path), line)

    def place(self, keys: Sequence[Key]) -> Place:
        """The place of a value, or of the nearest one around it."""
        found = tuple(keys)
        while found and found not in self.places:
            found = found[:-1]
        return self.places.get(found, _BEGIN)

    def error(self, keys: Sequence[Key], text: str) -> TradewindError:
        """An error at a value."""
        return self.fail(text, self.place(keys).key_line)

    def read(self) -> None:
        """Read the values of the file; an error names the line."""
        try:
            with self.path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise self.fail(f"cannot be read: {error.strerror}") from None
        self.parse(content)

    def parse(self, content: bytes) -> None:
        """Read the values in some bytes; the path is used in messages."""
        root = _nodes(self, content)
        if root is not None:
            self.value = _DocumentBuilder(self).value(root, (), root.start_mark.line + 1)


_BEGIN: Final = Place(1, 1, 1)


def _nodes(document: Document, content: bytes) -> Any:
    """The node of PyYAML for some bytes; None if they are empty."""
    if len(content) > FILE_BYTES_MAX:
        raise document.fail(f"more than {FILE_BYTES_MAX} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise document.fail(f"byte {error.start} is not UTF-8", line) from None
    if text.lstrip()[:1] in ("{", "["):
        text = text.replace("\t", " ")  # JSON may be indented with tabs, which have no other place
    import yaml  # here, because programs without files start without it

    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 0)
        raise document.fail(f"not valid YAML or JSON: {error.problem}", line, column) from None
    except (yaml.YAMLError, RecursionError) as error:
        first = str(error).splitlines()[0]
        raise document.fail(f"not valid YAML or JSON: {first}", 1) from None


class _DocumentBuilder:
    """Converts the nodes of PyYAML into values."""

    def __init__(self, document: Document) -> None:
        import yaml

        self._yaml: Any = yaml
        self._document = document
        # The loader knows which scalars are numbers; it reads no text of its own.
        self._loader = yaml.SafeLoader("")
        self._count = 0

    def value(self, node: Any, keys: tuple[Key, ...], line: int) -> Any:
        document, yaml = self._document, self._yaml
        mark = node.start_mark
        is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        document.places[keys] = Place(line, mark.line + 1, mark.column + 1, is_block)
        self._count += 1
        if self._count > VALUES_MAX or len(keys) > DEPTH_MAX:
            raise document.error(keys, f"more than {VALUES_MAX} values, or {DEPTH_MAX} levels")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(item, (*keys, index), item.start_mark.line + 1)
                for index, item in enumerate(node.value)
            ]
        if node.tag == _TIMESTAMP:
            return node.value  # a time is parsed by the code that expects one
        try:
            found = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            raise document.error(
                keys, f"{node.value!r} is not a value of type {node.tag}"
            ) from None
        return _join_halves(found) if isinstance(found, str) else found

    def _mapping(self, node: Any, keys: tuple[Key, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, self._yaml.ScalarNode):
                raise self._document.fail("a key must be a string", line)
            key = _join_halves(key_node.value)
            if key in result:
                first = self._document.places[(*keys, key)].key_line
                raise self._document.fail(f"{key!r} appears twice; first in line {first}", line)
            result[key] = self.value(value_node, (*keys, key), line)
        return result


def _join_halves(text: str) -> str:
    """The text with surrogate pairs joined: JSON writes characters beyond 16 bits as two escapes,
    which YAML reads as two characters.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
