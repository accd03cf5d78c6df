"""The sequences that each micro-batch of a query has read, from the query's checkpoint.

Owns reading Spark's offset log and commit log, as far as they contain offsets of this source. It
never writes, and the query may be running: Spark writes a file under another name first, and
removes all but the last hundred or so. The module needs neither Spark nor a server.

    offsets/17: v1                         written before batch 17 is read
                {"batchTimestampMs": ...}
                {"ORDERS": {...}}          one line for each source
    commits/17: v1                         written when it is done
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from tradewind.spark.errors import CheckpointError

logger = logging.getLogger(__name__)
OFFSETS_FOLDER: Final = "offsets"
COMMITS_FOLDER: Final = "commits"
VERSION: Final = "v1"
FILE_BYTES_MAX: Final = 256 * 1024 * 1024
State = Literal["committed", "planned"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The time of a file is in milliseconds; more than this is not a time.
_MILLISECONDS_MAX: Final = 253_402_300_799_999


class BatchRange(NamedTuple):
    """The sequences of one stream in one batch; those that are gone are among them.

    `source` counts the sources of the query from 0. A batch that is planned and not committed is
    being read, or failed and is repeated with the same sequences.
    """

    batch: int
    source: int
    stream: str
    first_seq: int
    last_seq: int
    planned_at: datetime
    state: State


class _Point(msgspec.Struct, frozen=True):
    """Our offset in one stream, see `streaming`."""

    created_ns: int
    seq: int
    after: int | None = None


class _Metadata(msgspec.Struct, frozen=True):
    batch_timestamp_ms: int = msgspec.field(name="batchTimestampMs", default=0)


@dataclass(frozen=True, slots=True)
class _PlannedBatch:
    """One file of the offset log; what is not ours has no points."""

    planned_at: datetime
    sources: tuple[dict[str, _Point], ...]


def read_batches(checkpoint: str | Path) -> list[BatchRange]:
    """The batches that the checkpoint of a query still knows, by number, source and stream.

    The oldest one is left out, unless it is the first of all: whether its sequences are its own or
    those of a batch before it was in a file that is gone. CheckpointError names what is broken.
    """
    folder = Path(checkpoint)
    if not (folder / OFFSETS_FOLDER).is_dir():
        raise CheckpointError(
            f"{folder}: not a checkpoint of a query: it contains no {OFFSETS_FOLDER}"
        )
    # In this order: a batch that is committed in between has its offsets among those listed later.
    committed = set(_numbers(folder / COMMITS_FOLDER))
    numbers = _numbers(folder / OFFSETS_FOLDER)
    result: list[BatchRange] = []
    before: _PlannedBatch | None = None
    for number in numbers:
        is_half = number == numbers[-1] and number not in committed
        planned = _read(folder / OFFSETS_FOLDER / str(number), may_be_half=is_half)
        if planned is not None and (before is not None or number == 0):
            state: State = "committed" if number in committed else "planned"
            result += _ranges(number, before, planned, state)
        before = planned
    return result


def _numbers(folder: Path) -> list[int]:
    """The batches that have a file; Spark's own sums and unfinished files have other names."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read: {error.strerror}") from None
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _ranges(
    number: int, before: _PlannedBatch | None, planned: _PlannedBatch, state: State
) -> Iterator[BatchRange]:
    for source, points in enumerate(planned.sources):
        known: dict[str, _Point] = {}
        if before is not None and source < len(before.sources):
            known = before.sources[source]
        for stream, point in sorted(points.items()):
            last = known.get(stream)
            if point == last:
                continue
            after = point.after
            if after is None and last is not None and last.created_ns == point.created_ns:
                after = last.seq  # of an earlier version, which said it only of new streams
            if after is not None and after < point.seq:
                yield BatchRange(
                    number, source, stream, after + 1, point.seq, planned.planned_at, state
                )


def _read(path: Path, *, may_be_half: bool) -> _PlannedBatch | None:
    """One file of the offset log; None if Spark has removed it, or is still writing it."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise CheckpointError(f"{path}: more than {FILE_BYTES_MAX} bytes; not a log of offsets")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: byte {error.start} is not UTF-8: it is damaged") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return _parse(path, text)
    except _HalfWrittenError as error:
        if not may_be_half:
            raise
        logger.warning("%s: skipped, as if it did not exist yet", error)
        return None


class _HalfWrittenError(CheckpointError):
    """A file ends too early, or in the middle of a line."""


def _parse(path: Path, text: str) -> _PlannedBatch:
    lines = text.split("\n")
    if lines[0] != VERSION:
        if VERSION.startswith(lines[0]) and len(lines) == 1:
            raise _HalfWrittenError(f"{path}: line 1: truncated")
        raise CheckpointError(
            f"{path}: line 1: {lines[0][:20]!r} is not {VERSION}: not a log that Spark 4.3 writes"
        )
    if len(lines) < 3 or not lines[2]:
        raise _HalfWrittenError(f"{path}: line {len(lines)}: truncated, without an offset")
    try:
        metadata = msgspec.json.decode(lines[1], type=_Metadata)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise CheckpointError(f"{path}: line 2: {error}") from None
    if not 0 <= metadata.batch_timestamp_ms <= _MILLISECONDS_MAX:
        raise CheckpointError(f"{path}: line 2: {metadata.batch_timestamp_ms} ms is not a time")
    moment = _EPOCH + timedelta(milliseconds=metadata.batch_timestamp_ms)
    sources = (_points(path, number, line) for number, line in enumerate(lines[2:], 3))
    return _PlannedBatch(moment, tuple(sources))


def _points(path: Path, number: int, line: str) -> dict[str, _Point]:
    """The offset of one source; empty if it is another kind of source."""
    try:
        return msgspec.json.decode(line, type=dict[str, _Point])
    except msgspec.ValidationError:
        return {}  # JSON, and not ours
    except (msgspec.DecodeError, UnicodeError) as error:
        if line.startswith("{"):
            raise _HalfWrittenError(f"{path}: line {number}: {error}") from None
        return {}
