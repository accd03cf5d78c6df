"""Announces the running pipelines of this user on this machine.

Owns one small note per pipeline in the private folder: a runner writes it when it starts and
removes it when it ends. A killed runner leaves its note, which readers ignore. Nothing depends on
the notes: anyone who knows the file of a pipeline does not need them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import replace_file
from tradewind.pipelines.machine.private_folder import private_folder
from tradewind.pipelines.state.status import is_process

if TYPE_CHECKING:
    from tradewind.pipelines.definition.model import Pipeline

NOTES_FOLDER: Final = "pipelines"
NOTES_MAX: Final = 200
NOTE_BYTES_MAX: Final = 64 << 10


class Note(msgspec.Struct, frozen=True):
    """The file of a pipeline, and the process that runs it."""

    file: str
    pid: int


@contextmanager
def announced(pipeline: Pipeline) -> Iterator[None]:
    """Have others of this user find a pipeline while it runs; that it cannot be is no error."""
    path: Path | None = None
    if pipeline.document.path.exists():  # jobs and tables have no file that others could read
        with suppress(PipelineError, OSError):
            path = _write(pipeline)
    try:
        yield
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _write(pipeline: Pipeline) -> Path:
    folder = private_folder(create=True)
    assert folder is not None
    name = hashlib.sha256(os.fsencode(str(pipeline.checkpoint))).hexdigest()[:32]
    path = folder / NOTES_FOLDER / f"{name}.json"
    note = Note(str(pipeline.document.path.resolve()), os.getpid())
    replace_file(path, msgspec.json.encode(note))
    return path


def running_files() -> list[Path]:
    """The files of the pipelines that run; none if that is unknown."""
    found: set[Path] = set()
    with suppress(PipelineError, OSError):
        folder = private_folder()
        paths = sorted((folder / NOTES_FOLDER).glob("*.json")) if folder is not None else []
        for path in paths[:NOTES_MAX]:
            with suppress(OSError, msgspec.DecodeError):
                if path.stat().st_size > NOTE_BYTES_MAX:
                    continue
                note = msgspec.json.decode(path.read_bytes(), type=Note)
                if is_process(note.pid):
                    found.add(Path(note.file))
    return sorted(found)
