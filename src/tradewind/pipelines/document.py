"""The file of a pipeline as plain values that remember their lines.

Owns the errors of such a file; how it is read, and how much of it, is in `tradewind.documents`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tradewind.documents import Document as AnyDocument
from tradewind.documents import Key
from tradewind.pipelines.errors import PipelineError, PipelineFileError

__all__ = ["Document", "Key", "parse_document", "read_document"]


class Document(AnyDocument):
    """The values of the file of a pipeline."""

    def fail(self, text: str, line: int = 0, column: int = 0) -> PipelineError:
        """An error at a line."""
        if not line:
            return PipelineError(f"{self.path}: {text}")
        return PipelineFileError(self.path, line, text, column)

    def error(self, keys: Sequence[Key], text: str) -> PipelineFileError:
        """An error at a value."""
        return PipelineFileError(self.path, self.place(keys).key_line, text)


def read_document(path: Path) -> Document:
    """The document of a file; an error names the line."""
    document = Document(path)
    document.read()
    return _not_empty(document)


def parse_document(path: Path, text: str) -> Document:
    """The document of a text; `path` is for messages."""
    document = Document(path)
    document.parse(text.encode())
    return _not_empty(document)


def _not_empty(document: Document) -> Document:
    if document.value is None:
        raise document.fail("the file is empty", 1)
    return document
