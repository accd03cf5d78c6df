"""Pipelines from the text of their file."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from tradewind.pipelines.definition.document import read_document
from tradewind.pipelines.definition.loading import pipeline_of
from tradewind.pipelines.definition.model import Pipeline


def pipeline_of_text(text: str) -> Pipeline:
    """The pipeline in a file p.yaml with this text."""
    path = Path("p.yaml")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        path.write_bytes(text.encode())
        return pipeline_of(read_document(path))
