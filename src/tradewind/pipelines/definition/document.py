"""The file of a pipeline as plain values with their lines.

Owns the errors of such a file; reading it, within limits, is in `tradewind.documents`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.documents import Document, Key
from tradewind.pipelines.definition.pipeline_parameters import hide
from tradewind.pipelines.errors import PipelineError, PipelineFileError

__all__ = ["Key", "PipelineDocument", "read_document"]


@dataclass
class PipelineDocument(Document):
    """The values of the file of a pipeline.

    `files` has the places that are in an included file, `filled` those whose values parameters have
    made, and `secrets` the values that no message may show.
    """

    files: dict[tuple[Key, ...], Path] = field(default_factory=dict)
    filled: set[tuple[Key, ...]] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set, repr=False)

    def fail(self, text: str, line: int = 0, column: int = 0) -> PipelineError:
        """An error at a line of the file itself."""
        shown = hide(text, self.secrets)
        if not line:
            return PipelineError(f"{self.path}: {shown}")
        return PipelineFileError(self.path, line, shown, column)

    def error(self, keys: Sequence[Key], text: str) -> PipelineFileError:
        """An error at a value, in the file that has it."""
        return self.error_at(keys, self.place(keys).key_line, text)

    def error_at(self, keys: Sequence[Key], line: int, text: str) -> PipelineFileError:
        """An error at a line of the file that has a value."""
        return PipelineFileError(self.file_of(keys), line, hide(text, self.secrets))

    def file_of(self, keys: Sequence[Key]) -> Path:
        """The file that has a value, or the nearest one around it."""
        found = tuple(keys)
        while found and found not in self.places:
            found = found[:-1]
        return self.files.get(found, self.path)

    def has_filled(self, keys: tuple[Key, ...]) -> bool:
        """Whether a parameter has made a value, or one inside of it."""
        return any(one[: len(keys)] == keys for one in self.filled)


def read_document(path: Path) -> PipelineDocument:
    """The document of a file; an error names the line."""
    document = PipelineDocument(path)
    document.read()
    if document.value is None:
        raise document.fail("the file is empty", 1)
    return document
