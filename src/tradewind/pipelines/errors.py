"""The exceptions of pipelines.

Owns the exceptions of this package; each text is one line that says where and what to change.
"""

from __future__ import annotations

from pathlib import Path

from tradewind.errors import TradewindError


class PipelineError(TradewindError):
    """A pipeline cannot run as it is."""


class PipelineFileError(PipelineError):
    """The file of a pipeline is wrong; `line` counts from 1, `column` too if it is known."""

    def __init__(self, path: Path | str, line: int, text: str, column: int = 0) -> None:
        self.path = str(path)
        self.line = line
        self.column = column
        self.text = text
        place = f"{path}:{line}:{column}" if column else f"{path}:{line}"
        super().__init__(f"{place}: {text}")


class JobError(PipelineError):
    """A ready-made job could not do what was asked, or found that something does not agree."""
