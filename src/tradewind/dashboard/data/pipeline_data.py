"""The pipelines known to the dashboard: those in the given files, and those running.

Owns the list of files and the data of each: its parts, status and batches. It only reads files, and
never reads an unchanged one twice; it needs neither Spark nor Java. It never shows the text of a
file, which may contain passwords.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.problems import MissingError
from tradewind.errors import ConfigError, TradewindError
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.state.announcing import running_files
from tradewind.pipelines.state.status import PipelineStatus, read_status

if TYPE_CHECKING:
    from tradewind.pipelines.definition.model import Pipeline
    from tradewind.pipelines.state.status import QueryStatus
    from tradewind.spark.progress.batch_log import BatchRange

FILES_MAX: Final = 200
FILE_BYTES_MAX: Final = 1 << 20
SUFFIXES: Final = frozenset((".yaml", ".yml"))
# Only this much of a file is read to decide whether it is a pipeline at all.
_HEAD_LINES: Final = 2000
BATCHES_SHOWN: Final = 20
# Charts have four lines.
SLOTS: Final = 4
FIGURES: Final = tuple(f"behind{index}" for index in range(SLOTS))


@dataclass(frozen=True)
class KnownPipeline:
    """A pipeline file; `pipeline` is None if it is not valid, and `problem` says why."""

    key: str
    path: Path
    pipeline: Pipeline | None
    problem: str = ""

    @property
    def name(self) -> str:
        """The name of the pipeline, or of its file."""
        return self.pipeline.name if self.pipeline is not None else self.path.stem


@dataclass(frozen=True)
class PipelineLook:
    """The state of a pipeline at one time; `batches` by query, the newest last."""

    known: KnownPipeline
    status: PipelineStatus | None = None
    batches: dict[str, list[BatchRange]] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the runner is alive."""
        return self.status is not None and self.status.is_alive

    @property
    def queries(self) -> Sequence[QueryStatus]:
        """The status of its sinks."""
        return self.status.queries if self.status is not None else ()

    @property
    def behind(self) -> int | None:
        """The largest lag in messages; None if it is unknown."""
        lags = [lag.messages for query in self.queries for lag in query.lags]
        return max((lag for lag in lags if lag is not None), default=None)


class PipelineShelf:
    """All known pipelines. `finds_running` adds those of this user that are running."""

    def __init__(self, places: Sequence[str] = (), *, finds_running: bool = False) -> None:
        self.places = [Path(place).expanduser() for place in places]
        for place in self.places:
            if not place.exists():
                raise ConfigError(f"--pipelines {place}: no such file or folder")
        self.finds_running = finds_running
        self._read: dict[Path, tuple[tuple[int, int], KnownPipeline | None]] = {}

    def known(self) -> list[KnownPipeline]:
        """All pipelines, by name. Blocks."""
        found: dict[Path, KnownPipeline] = {}
        seen: set[Path] = set()
        for path, is_named in islice(self._paths(), FILES_MAX):
            if path in seen:
                continue
            seen.add(path)
            known = self._known(path, is_named=is_named)
            if known is not None:
                found[path] = known
        self._read = {path: read for path, read in self._read.items() if path in seen}
        return sorted(found.values(), key=lambda known: (known.name.lower(), known.key))

    def find(self, key: str) -> KnownPipeline:
        """The pipeline with this key; MissingError if there is none. Blocks."""
        for known in self.known():
            if known.key == key:
                return known
        raise MissingError("There is no such pipeline here.")

    def _paths(self) -> Iterator[tuple[Path, bool]]:
        """The files, and whether each was explicitly given as a pipeline."""
        for place in self.places:
            if place.is_dir():
                for path in _files_in(place):
                    yield path.resolve(), False
            else:
                yield place.resolve(), True
        if self.finds_running:
            for path in running_files():
                yield path.resolve(), True

    def _known(self, path: Path, *, is_named: bool) -> KnownPipeline | None:
        key = f"{path.stem[:60]}.{hashlib.sha256(os.fsencode(path)).hexdigest()[:10]}"
        try:
            state = path.stat()
        except OSError as error:
            return KnownPipeline(key, path, None, f"{path}: {error.strerror}")
        mark = (state.st_mtime_ns, state.st_size)
        before = self._read.get(path)
        if before is not None and before[0] == mark and not _has_includes(before[1]):
            return before[1]
        known = _load(key, path, state.st_size) if is_named or _looks_like_one(path) else None
        self._read[path] = (mark, known)
        return known


def _has_includes(known: KnownPipeline | None) -> bool:
    """Whether files that a pipeline includes may have changed, although its own has not."""
    return known is not None and (known.pipeline is None or bool(known.pipeline.document.files))


def _files_in(folder: Path) -> list[Path]:
    """The YAML files of a folder; empty if the folder can no longer be read."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.suffix in SUFFIXES and path.is_file()]


def _load(key: str, path: Path, size: int) -> KnownPipeline:
    if size > FILE_BYTES_MAX:
        return KnownPipeline(key, path, None, f"{path}: more than {FILE_BYTES_MAX} bytes")
    try:
        return KnownPipeline(key, path, load_pipeline(path))
    except (TradewindError, OSError) as error:
        return KnownPipeline(key, path, None, str(error))


def _looks_like_one(path: Path) -> bool:
    """Whether a file in a folder declares itself a pipeline; other files are ignored."""
    try:
        with path.open("rb") as file:
            return any(line.startswith(b"pipeline:") for line in islice(file, _HEAD_LINES))
    except OSError:
        return False


def look_at(known: KnownPipeline, *, with_batches: bool = False) -> PipelineLook:
    """The present state of a pipeline. Blocks."""
    if known.pipeline is None:
        return PipelineLook(known)
    try:
        status = read_status(known.pipeline.checkpoint)
        batches = _batches(known.pipeline) if with_batches else {}
    except (TradewindError, OSError) as error:
        return PipelineLook(known, problem=str(error))
    return PipelineLook(known, status, batches)


def _batches(pipeline: Pipeline) -> dict[str, list[BatchRange]]:
    from tradewind.pipelines.state.query_batches import batches_of

    return {query: found[-BATCHES_SHOWN:] for query, found in batches_of(pipeline).items()}


def lag_figures(look: PipelineLook) -> list[float]:
    """The lags of the first sinks, in the order of FIGURES; not a number if unknown.

    A sink keeps its position while the pipeline runs, even if other sinks are unknown.
    """
    found = []
    for query in look.queries[:SLOTS]:
        lags = [lag.messages for lag in query.lags if lag.messages is not None]
        found.append(float(max(lags)) if lags else math.nan)
    return found + [math.nan] * (SLOTS - len(found))


def written_ranges(query: QueryStatus) -> dict[int, tuple[int, int]]:
    """By batch, the sequences by which the target has grown; only where both ends are known."""
    found: dict[int, tuple[int, int]] = {}
    for before, batch in zip(query.recent, query.recent[1:], strict=False):
        if before.target_seq is None or batch.target_seq is None:
            continue
        if batch.target_seq > before.target_seq and batch.batch == before.batch + 1:
            found[batch.batch] = (before.target_seq + 1, batch.target_seq)
    return found
