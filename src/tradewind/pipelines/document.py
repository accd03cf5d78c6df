"""A YAML file as plain values that remember their lines.

Owns the reading and its bounds: a file is at most 1 MiB and expands to at most 100,000 values, so
that aliases of aliases cannot fill memory. Knows nothing of pipelines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tradewind.pipelines.errors import PipelineError, PipelineFileError

FILE_BYTES_MAX: Final = 1 << 20
VALUES_MAX: Final = 100_000
DEPTH_MAX: Final = 50
Key = str | int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is. A text over several lines (`|`) begins on the line behind its sign."""

    key_line: int
    line: int
    column: int
    is_block: bool = False

    def at(self, offset_lines: int) -> int:
        """The line of the file that holds a line of the text, which counts from 0."""
        return self.line + offset_lines + (1 if self.is_block else 0)


@dataclass(slots=True)
class Document:
    """The values of a file, and the place of each by its path of keys."""

    path: Path
    value: Any = None
    places: dict[tuple[Key, ...], Place] = field(default_factory=dict)

    def place(self, keys: Sequence[Key]) -> Place:
        """The place of a value, or of the nearest one around it."""
        found = tuple(keys)
        while found not in self.places:
            found = found[:-1]
        return self.places[found]

    def error(self, keys: Sequence[Key], text: str) -> PipelineFileError:
        """An error at a value."""
        return PipelineFileError(self.path, self.place(keys).key_line, text)


def read_document(path: Path) -> Document:
    """The document of a file; an error names the line."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise PipelineError(f"{path}: more than {FILE_BYTES_MAX} bytes; is this a pipeline?")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PipelineFileError(path, line, f"byte {error.start} is not UTF-8") from None
    return parse_document(path, text)


def parse_document(path: Path, text: str) -> Document:
    """The document of a text; `path` is for messages."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise PipelineError("PyYAML is not installed; pip install 'tradewind[spark]'") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 0)
        raise PipelineFileError(path, line, f"no YAML: {error.problem}", column) from None
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise PipelineFileError(path, 1, f"no YAML: {first}") from None
    if root is None:
        raise PipelineFileError(path, 1, "the file is empty")
    document = Document(path)
    document.value = _Builder(yaml, document).value(root, (), root.start_mark.line + 1)
    return document


class _Builder:
    """Turns the nodes of PyYAML into values."""

    def __init__(self, yaml: Any, document: Document) -> None:
        self._yaml = yaml
        self._document = document
        # The loader knows which scalars are numbers; it reads no text of its own.
        self._loader = yaml.SafeLoader("")

    def value(self, node: Any, keys: tuple[Key, ...], key_line: int) -> Any:
        document, yaml = self._document, self._yaml
        mark = node.start_mark
        is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        document.places[keys] = Place(key_line, mark.line + 1, mark.column + 1, is_block)
        if len(document.places) > VALUES_MAX or len(keys) > DEPTH_MAX:
            raise document.error(keys, f"more than {VALUES_MAX} values, or {DEPTH_MAX} levels")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(item, (*keys, index), item.start_mark.line + 1)
                for index, item in enumerate(node.value)
            ]
        if node.tag == "tag:yaml.org,2002:timestamp":
            return node.value  # a time is read by whoever expects one
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            raise document.error(keys, f"{node.value!r} is no value of type {node.tag}") from None

    def _mapping(self, node: Any, keys: tuple[Key, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, self._yaml.ScalarNode):
                raise PipelineFileError(self._document.path, line, "a key must be a text")
            key = key_node.value
            if key in result:
                first = self._document.places[(*keys, key)].key_line
                text = f"{key!r} is here twice; first in line {first}"
                raise PipelineFileError(self._document.path, line, text)
            result[key] = self.value(value_node, (*keys, key), line)
        return result
