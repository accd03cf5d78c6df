"""The file of a pipeline as plain values with their lines.

Owns the errors of such a file; reading it, within limits, is in `tradewind.documents`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tradewind.documents import Document, Key
from tradewind.pipelines.errors import PipelineError, PipelineFileError

__all__ = ["Key", "PipelineDocument", "read_document"]


class PipelineDocument(Document):
    """The values of the file of a pipeline."""

    def fail(self, text: str, line: int = 0, column: int = 0) -> PipelineError:
        """An error at a line."""
        if not line:
            return PipelineError(f"{self.path}: {text}")
        return PipelineFileError(self.path, line, text, column)

    def error(self, keys: Sequence[Key], text: str) -> PipelineFileError:
        """An error at a value."""
        return PipelineFileError(self.path, self.place(keys).key_line, text)


def read_document(path: Path) -> PipelineDocument:
    """The document of a file; an error names the line."""
    document = PipelineDocument(path)
    document.read()
    if document.value is None:
        raise document.fail("the file is empty", 1)
    return document
