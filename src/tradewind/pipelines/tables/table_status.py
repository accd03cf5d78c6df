"""The status of a stream's table, as a small file that other programs can read.

Owns `table.json` beside the checkpoint: the runner replaces it every few seconds, and `tradewind
table status` and the dashboard read it. Nothing depends on it. Owns as well what a table cannot
change once it has rows, and the figures of a stream's table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import Place, place_of, replace_file
from tradewind.pipelines.state.figure_types import LakeFigures
from tradewind.pipelines.state.status import is_alive_there, read_status_file, write_status_file
from tradewind.pipelines.tables.table_spec import (
    TableSpec,
    state_folder,
    table_folder,
    table_name,
)

STATUS_FILE: Final = "table.json"
IDENTITY_FILE: Final = "identity.json"
QUERY: Final = "table"
_CATALOG_KEYS: Final[tuple[str, ...]] = ("type", "uri", "warehouse")
TableState = Literal["starting", "running", "done", "stopped", "failed"]


class VerifiedMark(msgspec.Struct, frozen=True):
    """Up to which sequence a table was verified, and what was seen on the way.

    `compared`, `gone` and `absent` are those of `ProofCounts`, since the table was begun;
    `released` messages were purged from the stream, all of them up to `released_seq`.
    """

    created_ns: int
    seq: int = 0
    verified_ns: int = 0
    compared: int = 0
    gone: int = 0
    absent: int = 0
    released_seq: int = 0
    released: int = 0


class TierStatus(msgspec.Struct, frozen=True):
    """The tiers of a stream; `unprotected` are settings by which the server may remove messages
    that were not verified yet, and `error` is why the mark does not advance.
    """

    mark: VerifiedMark | None = None
    unprotected: list[str] = []
    error: str = ""

    @property
    def is_protected(self) -> bool:
        """Whether a message can only leave the stream after it was verified."""
        return not self.unprotected


class TableStatus(msgspec.Struct):
    """One table; times are nanoseconds since 1970.

    `rescued`, `dead_letters` and `undecoded` count rows of batches that were committed since the
    table was begun: with something in `_rescued`, published as dead letters, and kept although
    their payload could not be decoded. A runner that is killed right after a commit does not count
    that one. `maintained_ns` is the end of the last round of maintenance of this run.
    """

    stream: str
    to: str
    format: str
    state: TableState
    pid: int
    host: str
    updated_ns: int
    started_ns: int
    figures: LakeFigures = LakeFigures()
    rows_written: int = 0
    rescued: int = 0
    dead_letters: int = 0
    undecoded: int = 0
    behind_messages: int | None = None
    behind_seconds: float | None = None
    error: str = ""
    failures: int = 0
    retry_ns: int = 0
    maintained_ns: int = 0
    files_joined: int = 0
    snapshots_expired: int = 0
    upkeep_error: str = ""
    tier: TierStatus | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the process that wrote this still runs, as far as this machine can tell."""
        is_over = self.state in ("done", "stopped")
        return not is_over and is_alive_there(self.host, self.pid)


def state_place(stream: str, spec: TableSpec) -> Place:
    """Where the checkpoint, the lock and the status of a table are."""
    return place_of(Path("/"), state_folder(stream, spec), {})


def write_table_status(place: Place, status: TableStatus) -> None:
    """Replace the file; readers see the old one or the new one."""
    write_status_file(place / STATUS_FILE, status)


def read_table_status(place: Place) -> TableStatus | None:
    """The status that the last runner wrote; None if the table never ran."""
    return read_status_file(place / STATUS_FILE, TableStatus)


# -------------------------------------------------------------------------- what must not change


class TableIdentity(msgspec.Struct, frozen=True):
    """The properties that a table cannot change once it has rows: these would not be there, or not
    be right.
    """

    format: str
    table: str
    catalog: dict[str, str]
    rows: str
    partition: list[str]
    has_data: bool


def identity_of(stream: str, spec: TableSpec) -> TableIdentity:
    """The identity of a table; of a catalog it is where that is, and no secret."""
    catalog = {key: spec.catalog[key] for key in _CATALOG_KEYS if key in spec.catalog}
    name = table_name(stream, spec) if spec.format == "iceberg" else ""
    return TableIdentity(spec.format, name, catalog, spec.rows, spec.partition, spec.has_data)


def check_identity(place: Place, stream: str, spec: TableSpec) -> None:
    """PipelineError if the checkpoint belongs to another table."""
    try:
        data = (place / IDENTITY_FILE).read_bytes()
    except FileNotFoundError:
        return
    before, now = msgspec.json.decode(data, type=TableIdentity), identity_of(stream, spec)
    for name in TableIdentity.__struct_fields__:
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            word = name.replace("_", " ")
            raise PipelineError(
                f"{place} is of a table with {word} {old!r}, and {new!r} is asked for: choose"
                " another place, or drop the table and add it again"
            )


def keep_identity(place: Place, stream: str, spec: TableSpec) -> None:
    """Have a table stay what it is."""
    if not (place / IDENTITY_FILE).exists():
        data = msgspec.json.encode(identity_of(stream, spec))
        replace_file(place / IDENTITY_FILE, data + b"\n")


# -------------------------------------------------------------------------- the lake


class TableFigureReader:
    """Reads the figures of the table of a stream again and again."""

    def __init__(self, stream: str, spec: TableSpec) -> None:
        self._stream = stream
        self._spec = spec
        # Readers of lakes need pyarrow; the status file alone does not.
        from tradewind.pipelines.lake.lake_figures import FigureReader

        self._reader = FigureReader()

    def read(self) -> LakeFigures:
        """The table as it is now; all 0 if it is not there yet."""
        if self._spec.format == "parquet":
            return self._folder()
        from tradewind.pipelines.tables.table_writing import found_lake

        lake = found_lake(self._stream, self._spec)
        return LakeFigures() if lake is None else self._reader.read(lake)

    def _folder(self) -> LakeFigures:
        """A folder of Parquet files, whose version is the last batch that is complete."""
        from tradewind.pipelines.lake.parquet_lakes import DONE_FILE, ParquetLake

        found = self._reader.read(ParquetLake(table_folder(self._spec)))
        done = state_place(self._stream, self._spec) / "queries" / QUERY / DONE_FILE
        try:
            marks = msgspec.json.decode(done.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return found
        return msgspec.structs.replace(found, version=marks["tradewind.batch"])
