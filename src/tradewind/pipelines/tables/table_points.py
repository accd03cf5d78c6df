"""A table at one moment: its files, its columns, and up to where it has its stream.

Owns pinning a table: all that is said of it comes from one version of a Delta table, one snapshot
of an Iceberg table, or the batches of a folder that were complete. Anything that is committed
later, by the writer or by compaction, changes nothing of it. The module reads no rows and asks no
server.

A commit without marks (compaction, another column) leaves the table as far as it was, so the mark
of the commit below holds. If none is left in the log, the sequences in the statistics of the files
say how far the table goes, and their times that they are of the stream that is there now; without
those the table is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lake_files import NULL_FOLDER, LakeFile
from tradewind.pipelines.lake.lake_schemas import plain_schema
from tradewind.pipelines.lake.lakes import MARK_BATCH, MARK_UNTIL, MARK_WRITER, marks_in
from tradewind.pipelines.lake.parquet_lakes import DONE_FILE, read_columns
from tradewind.pipelines.tables.table_spec import STATE_FOLDER, TableSpec, table_folder
from tradewind.pipelines.tables.table_status import QUERY, state_place
from tradewind.pipelines.tables.table_writing import open_lake

_BOUNDS: Final = ("seq", "time")
# The metadata of a snapshot may be removed between two looks at the table.
PINS_MAX: Final = 5
_BATCH_FILE: Final = re.compile(r"part-(.+)-(\d{8,})-(\d{5,})\.parquet")


class StreamMark(msgspec.Struct, frozen=True):
    """Up to which sequence of which creation of a stream a table goes; 0: it is not known which."""

    created_ns: int
    seq: int


@dataclass(frozen=True)
class TablePoint:
    """One state of a table.

    The paths of `files` are those that Spark and Arrow open. With `in_folders`, the columns of the
    partition are in the names of folders below `folder` and not in the files. `mark` is None if
    nothing was committed yet; `oldest_us` is the time of the oldest row, where it had to be known.
    """

    name: str
    version: int
    folder: str
    files: tuple[LakeFile, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    in_folders: bool = False
    mark: StreamMark | None = None
    oldest_us: int | None = None

    @property
    def until_seq(self) -> int:
        """The last sequence that the table answers for."""
        return self.mark.seq if self.mark is not None else 0


def pin_table(stream: str, spec: TableSpec) -> TablePoint | None:
    """The table of a stream as it is now; None if it is not there yet.

    PipelineError if the table cannot say exactly what it has.
    """
    if spec.format == "parquet":
        return _pin_folder(stream, spec)
    lake = open_lake(stream, spec)
    for attempt in range(1, PINS_MAX + 1):
        try:
            pinned = lake.pinned(_BOUNDS)
            if pinned is None:
                return None
            point = (
                _delta_point(stream, lake, *pinned)
                if isinstance(lake, DeltaLake)
                else _iceberg_point(stream, lake, *pinned)
            )
        except FileNotFoundError as error:
            if attempt == PINS_MAX:
                raise PipelineError(
                    f"table {lake.name}: a file of its log is gone: {error}; read it again, or"
                    " repair the table"
                ) from None
        else:
            return _checked(point)
    raise AssertionError("every attempt either returns or raises")


def _checked(point: TablePoint) -> TablePoint:
    """A point whose rows do not go beyond its mark; rows that do would be read twice."""
    highest = max((bound for bound in _highs(point.files)), default=0)
    if point.mark is not None and highest > point.mark.seq:
        raise PipelineError(
            f"table {point.name} says that it goes up to sequence {point.mark.seq}, and has"
            f" {highest}: something else writes to it; let only its stream's table job do so"
        )
    return point


def _highs(files: Iterable[LakeFile]) -> Iterator[int]:
    for file in files:
        high = file.bounds.get("seq", (None, None))[1]
        if isinstance(high, int):
            yield high


# -------------------------------------------------------------------------- marks


def mark_of(name: str, stream: str, marks: Mapping[str, Any]) -> StreamMark | None:
    """The mark of a stream in a commit; None if they say nothing of any."""
    text = marks.get(MARK_UNTIL)
    if not text:
        return None
    try:
        until = msgspec.json.decode(text, type=dict[str, StreamMark])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise PipelineError(
            f"table {name}: its mark {MARK_UNTIL} cannot be read: {error}"
        ) from None
    if until and set(until) != {stream}:
        raise PipelineError(
            f"table {name} holds {', '.join(sorted(until))}, not the stream {stream} alone: it is"
            " not the table of this stream"
        )
    return until.get(stream)


def _repeated_mark(name: str, stream: str, entry: Mapping[str, Any]) -> StreamMark | None:
    """The furthest of the marks that maintenance has repeated; None if there is none."""
    found = [mark_of(name, stream, marks) for marks in marks_in(entry)]
    known = [mark for mark in found if mark is not None]
    if len({mark.created_ns for mark in known}) > 1:
        raise PipelineError(
            f"table {name} has rows of several streams named {stream}, one created after the other;"
            " begin another table"
        )
    return max(known, key=lambda mark: mark.seq, default=None)


def _derived(point: TablePoint) -> TablePoint:
    """The same with a mark out of the statistics of the files, if those say enough."""
    if not point.files:
        return point
    highs, lows = [], []
    for file in point.files:
        high, low = (file.bounds.get(column, (None, None)) for column in _BOUNDS)
        if not isinstance(high[1], int) or not isinstance(low[0], datetime | int):
            raise PipelineError(
                f"table {point.name} does not say up to where it goes: no commit of its log has"
                f" the mark {MARK_UNTIL}, and {file.path} has no statistics of seq and time;"
                " build the table anew"
            )
        highs.append(high[1])
        lows.append(_micros(low[0]))
    mark = StreamMark(0, max(highs))
    return TablePoint(
        point.name,
        point.version,
        point.folder,
        point.files,
        point.schema,
        point.partition_by,
        point.in_folders,
        mark,
        min(lows),
    )


def _micros(moment: datetime | int) -> int:
    if isinstance(moment, int):
        return moment
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    elapsed = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def check_stream(point: TablePoint, stream: str, created_ns: int, last_seq: int) -> None:
    """PipelineError unless the stream is the one that the table was made of."""
    mark = point.mark
    if mark is None:
        return
    is_other = mark.created_ns != created_ns
    if not mark.created_ns:
        # Derived: rows of an earlier stream of this name are older than the stream.
        is_other = point.oldest_us is None or point.oldest_us < created_ns // 1000
    if is_other:
        raise PipelineError(
            f"stream {stream} was deleted and created again: the table {point.name} has the"
            " messages of the earlier one; read the table by itself, or begin another one"
        )
    if last_seq < mark.seq:
        raise PipelineError(
            f"stream {stream} ends at sequence {last_seq}, and its table {point.name} has it up to"
            f" {mark.seq}: the stream was truncated, or restored from an older copy; begin another"
            " table"
        )


# -------------------------------------------------------------------------- Delta


def _delta_point(stream: str, lake: DeltaLake, table: Any, files: Sequence[LakeFile]) -> TablePoint:
    version = int(table.version())
    parts = tuple(table.metadata().partition_columns)
    point = TablePoint(
        lake.name,
        version,
        lake.path,
        tuple(_placed(lake.path, file, parts) for file in files),
        plain_schema(pa.schema(table.schema().to_arrow())),
        parts,
        in_folders=True,
        mark=_delta_mark(lake, stream, version),
    )
    return point if point.mark is not None else _derived(point)


def _delta_mark(lake: DeltaLake, stream: str, version: int) -> StreamMark | None:
    """The mark of the last commit up to a version; None if the log does not go back to one."""
    storage = lake.storage
    for number in range(version, -1, -1):
        try:
            with storage.reader(f"_delta_log/{number:020}.json") as commit:
                text = bytes(commit.read())
        except FileNotFoundError:
            return None
        for line in text.splitlines():
            action = msgspec.json.decode(line) if line.startswith(b'{"commitInfo"') else {}
            entry = action.get("commitInfo") or {}
            mark = mark_of(lake.name, stream, entry) or _repeated_mark(lake.name, stream, entry)
            if mark is not None:
                return mark
    return None


def _placed(folder: str, file: LakeFile, parts: Sequence[str]) -> LakeFile:
    """A file by its whole path; PipelineError if its folder does not name its partition."""
    named: dict[str, str | None] = {}
    for piece in file.path.split("/")[:-1]:
        name, is_part, value = piece.partition("=")
        if is_part:
            named[unquote(name)] = None if value == NULL_FOLDER else unquote(value)
    if parts and any(named.get(part, "") != file.partition.get(part) for part in parts):
        raise PipelineError(
            f"{folder}/{file.path}: its folder does not name its partition"
            f" {dict(file.partition)}, as another writer than ours has it; compact the table"
        )
    whole = file.path if "://" in file.path else f"{folder.rstrip('/')}/{file.path}"
    return msgspec.structs.replace(file, path=whole)


# -------------------------------------------------------------------------- Iceberg


def _iceberg_point(
    stream: str, lake: IcebergLake, table: Any, files: Sequence[LakeFile]
) -> TablePoint:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    snapshot = table.current_snapshot()
    point = TablePoint(
        lake.name,
        int(snapshot.snapshot_id) if snapshot is not None else 0,
        table.location(),
        tuple(files),
        plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False)),
        tuple(files[0].partition) if files else (),
        mark=_iceberg_mark(lake.name, stream, table),
    )
    return point if point.mark is not None else _derived(point)


def _iceberg_mark(name: str, stream: str, table: Any) -> StreamMark | None:
    """The mark of the latest snapshot that has one; of expired ones the table's property."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        marks = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        mark = mark_of(name, stream, marks)
        if mark is not None:
            return mark
        snapshot = by_id.get(snapshot.parent_snapshot_id)
    return _repeated_mark(name, stream, table.properties)


# -------------------------------------------------------------------------- folders of Parquet


def _pin_folder(stream: str, spec: TableSpec) -> TablePoint | None:
    """The batches that are complete, by the note that their writer leaves when it is done."""
    folder, state = Path(table_folder(spec)), state_place(stream, spec) / "queries" / QUERY
    name = str(folder)
    try:
        marks = msgspec.json.decode((state / DONE_FILE).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        # The files of a first batch may be on their way.
        return None
    batch, mark, columns = int(marks[MARK_BATCH]), mark_of(name, stream, marks), read_columns(state)
    if mark is None or columns is None:
        raise PipelineError(f"{state}: no mark {MARK_UNTIL}, or no columns; build the table anew")
    files = []
    for path in sorted(folder.rglob("*.parquet")):
        place = path.relative_to(folder)
        if place.parts[0] == STATE_FOLDER:
            continue
        found = _BATCH_FILE.fullmatch(path.name)
        if found is None or found[1] != marks[MARK_WRITER]:
            raise PipelineError(
                f"{path} is not of the query that writes this table ({marks[MARK_WRITER]}): move it"
                " elsewhere"
            )
        if int(found[2]) <= batch:
            files.append(_folder_file(path, place))
    return TablePoint(
        name, batch, name, tuple(files), columns, tuple(spec.partition), in_folders=True, mark=mark
    )


def _folder_file(path: Path, place: Path) -> LakeFile:
    partition: dict[str, str | None] = {}
    for piece in place.parts[:-1]:
        name, _, value = piece.partition("=")
        partition[unquote(name)] = None if value == NULL_FOLDER else unquote(value)
    return LakeFile(str(path), path.stat().st_size, 0, partition)
