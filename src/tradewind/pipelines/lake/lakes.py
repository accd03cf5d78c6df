"""The records of batches in lakes, and the libraries that open lakes.

Owns the marks of a commit, which identify its batch: the id of the query, the number of the batch,
and a hash of the offsets that Spark has planned for it. A batch that Spark repeats after a crash is
found and never written again. A query with a new checkpoint is a different query, and writes
everything it reads. A checkpoint restored from a copy plans other offsets under old numbers, which
is an error.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from tradewind.extra_packages import install_command
from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import Place, names_in
from tradewind.spark.progress.stream_lag import offset_of

logger = logging.getLogger(__name__)
MARK_SINK: Final = "tradewind.sink"
MARK_WRITER: Final = "tradewind.writer"
MARK_BATCH: Final = "tradewind.batch"
MARK_OFFSETS: Final = "tradewind.offsets"
# Up to where the streams are in the table: {"ORDERS": {"created_ns": ..., "seq": ...}}.
MARK_UNTIL: Final = "tradewind.until"
# After it comes the id of a writer: the marks of its latest batch as JSON, kept where the
# commit that had them may be gone.
LATEST: Final = "tradewind.latest."
# When small files were last joined, in milliseconds; a transaction id of Delta, a property of
# Iceberg.
COMPACTED: Final = "tradewind.compacted"
# The tables that pyiceberg makes in a new catalog of SQL.
CATALOG_TABLES: Final = 2
# A log of offsets begins with its version and Spark's own settings.
OFFSET_LINES: Final = 2
BatchWriter = Callable[[Any, int], None]


@dataclass(frozen=True, slots=True)
class SinkQuery:
    """The query of a sink, by its name in the pipeline and the folder where Spark keeps it.

    `part` distinguishes the sinks that one query writes.
    """

    sink: str
    checkpoint: Place
    part: str = ""

    @property
    def query_id(self) -> str:
        """The id that Spark gives the query; a new checkpoint gets a new one, and so does each
        part.
        """
        found: str = msgspec.json.decode((self.checkpoint / "metadata").read_bytes())["id"]
        return str(uuid5(UUID(found), self.part)) if self.part else found

    @property
    def notes(self) -> Place:
        """Where the sink may keep what it has done."""
        return self.checkpoint / "sinks" / self.part if self.part else self.checkpoint

    def committed(self) -> str | None:
        """The plan of Spark for the last batch that is done; None if there is none."""
        names = names_in(self.checkpoint / "commits")
        numbers = [int(name) for name in names if name.isdecimal()]
        if not numbers:
            return None
        return (self.checkpoint / "offsets" / str(max(numbers))).read_bytes().decode()

    def marks(self, number: int) -> dict[str, str]:
        """The marks that a commit has of its batch."""
        planned = (self.checkpoint / "offsets" / str(number)).read_bytes()
        return {
            MARK_SINK: self.sink,
            MARK_WRITER: self.query_id,
            MARK_BATCH: str(number),
            MARK_OFFSETS: hashlib.sha256(planned).hexdigest()[:32],
            MARK_UNTIL: _until(planned),
        }


def _until(planned: bytes) -> str:
    """The sequences at which a batch ends, by stream, out of the offsets that Spark has planned."""
    points = {
        stream: {"created_ns": point.get("created_ns", 0), "seq": point["seq"]}
        for line in planned.decode().splitlines()[OFFSET_LINES:]
        for stream, point in offset_of(line).items()
    }
    return msgspec.json.encode(points, order="sorted").decode()


def is_written(marks: Mapping[str, str], commits: Sequence[Mapping[str, str]]) -> bool:
    """Whether a batch is in a table that has these commits, the latest first.

    PipelineError if the table is ahead of the checkpoint.
    """
    ours = [commit for commit in commits if commit.get(MARK_WRITER) == marks[MARK_WRITER]]
    number = int(marks[MARK_BATCH])
    if ours and int(ours[0][MARK_BATCH]) >= number:
        if all(ours[0][mark] == marks[mark] for mark in (MARK_BATCH, MARK_OFFSETS)):
            return True
        raise PipelineError(
            f"batch {number} of {marks[MARK_SINK]} is not the batch {ours[0][MARK_BATCH]} that the"
            " table has: the checkpoint is older than the table; begin with a new checkpoint, and"
            " remove the rows that it reads again"
        )
    if not ours and any(commit.get(MARK_SINK) == marks[MARK_SINK] for commit in commits):
        logger.warning(
            "%s wrote to this table with another checkpoint: what is read again is in it twice",
            marks[MARK_SINK],
        )
    return False


def marks_in(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    """The marks that a commit has: of its own batch, and of those before that it repeats."""
    own = {key: value for key, value in entry.items() if key.startswith("tradewind.")}
    found = [own] if MARK_WRITER in own else []
    found += [
        msgspec.json.decode(value, type=dict[str, str])
        for key, value in own.items()
        if key.startswith(LATEST)
    ]
    return found


def latest_of(entries: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The marks of the latest batch of each writer; batches of one have rising numbers."""
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        for marks in marks_in(entry):
            known = found.get(marks[MARK_WRITER])
            if known is None or int(known[MARK_BATCH]) < int(marks[MARK_BATCH]):
                found[marks[MARK_WRITER]] = marks
    return found


def open_catalog(target: Iceberg, warehouse: str) -> Any:
    """The catalog that the file names, or the one of SQLite in the warehouse folder."""
    catalogs = library("pyiceberg.catalog", "iceberg")
    settings = dict(target.catalog)
    if not settings:
        folder = Path(warehouse).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
    database_error = library("sqlalchemy.exc", "iceberg").DBAPIError
    for _ in range(CATALOG_TABLES):
        try:
            return catalogs.load_catalog("tradewind", **settings)
        except database_error as error:
            # Another process makes the same catalog, and was first with one of its tables.
            if "already exists" not in str(error):
                raise
    return catalogs.load_catalog("tradewind", **settings)


def delta_files(path: str) -> list[str]:
    """The files of the latest version of a Delta table."""
    delta = library("deltalake", "delta")
    found: list[str] = delta.DeltaTable(path).file_uris()
    return found


def check_libraries(kind: str) -> None:
    """PipelineError if what a sink of this kind needs is not installed."""
    if kind == "delta":
        library("deltalake", kind)
    elif kind == "iceberg":
        library("pyiceberg.catalog.sql", kind)


def library(name: str, extra: str) -> Any:
    """A module of the library that tables of a kind need; PipelineError says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise PipelineError(
            f"{error.name or name} is not installed, which {extra} tables need: "
            f"{install_command(extra)}"
        ) from None
