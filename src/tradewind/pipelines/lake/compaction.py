"""Joins the small files of Delta and Iceberg tables.

Owns the choice of files that are written again, and their commit. The module never changes rows.
Writers are never held up: files are joined beside them, and the commit that puts the new files into
the place of the old ones holds only for a table that still has all of those. Where a writer was
first, the table is looked at again; files that the writer has replaced meanwhile stay as the writer
left them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lake_expiry import remove_unneeded
from tradewind.pipelines.lake.lake_files import FileWriter, LakeFile, WrittenFile, read_batches
from tradewind.pipelines.lake.lake_tables import COMMITS_MAX, ConflictError, TableChange

TARGET_BYTES: Final = 128 << 20
ORPHAN_HOURS: Final = 7 * 24
# No batch takes longer than this to be committed; less is only safe while nothing writes the table.
SAFE_HOURS: Final = 24
# Commits are this far apart at least, so that a writer that has to look at the table again because
# of one gets its own commit in before the next.
ROUND_SECONDS: Final = 20.0
ROUND_BYTES: Final = 1 << 30
WORTHWHILE_FILES: Final = 16
Progress = Callable[[int, int], None]


class CompactReport(msgspec.Struct, frozen=True):
    """The result of compaction of one table."""

    table: str
    files_before: int
    files_after: int
    removed: int


@dataclass
class JoinedFiles:
    """The result of joining: files of the table, what they became, and how often a writer was
    first.

    `groups_left` could be joined as well, and were left for the next time. `groups_lost` were
    joined in vain, because a writer has replaced a file of theirs.
    """

    files_joined: int = 0
    files_written: int = 0
    bytes_read: int = 0
    groups_left: int = 0
    groups_lost: int = 0
    conflicts: int = 0


@dataclass
class _JoinRound:
    """Groups that are joined and not yet committed."""

    groups: list[tuple[list[LakeFile], list[WrittenFile]]] = field(default_factory=list)
    bytes_read: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        return self.bytes_read >= ROUND_BYTES or time.monotonic() - self.started > ROUND_SECONDS


def compact(
    lake: DeltaLake | IcebergLake,
    target_bytes: int = TARGET_BYTES,
    orphan_hours: int = ORPHAN_HOURS,
    on_progress: Progress = lambda _done, _whole: None,
) -> CompactReport:
    """Join all small files, then remove files that no version of the table needs."""
    if not lake.is_there:
        raise PipelineError(f"table {lake.name} does not exist yet")
    before = len(lake.files())
    join_small(lake, target_bytes, on_progress=on_progress)
    removed = remove_unneeded(lake, orphan_hours * 3600)
    return CompactReport(lake.name, before, len(lake.files()), removed)


def join_small(
    lake: DeltaLake | IcebergLake,
    target_bytes: int,
    deadline: float | None = None,
    bytes_max: int | None = None,
    on_progress: Progress = lambda _done, _whole: None,
    *,
    is_thorough: bool = True,
) -> JoinedFiles:
    """Join small files, those groups first that make the table smaller by the most files.

    No group is begun after the deadline, or once so many bytes were read. Unless it is thorough, a
    large file is not written again for the sake of a few small ones.
    """
    groups = sorted(
        (
            group
            for group in small_groups(lake.files(), target_bytes)
            if is_thorough or _is_worthwhile(group)
        ),
        key=lambda group: (-len(group), sum(file.size_bytes for file in group)),
    )
    done = JoinedFiles(groups_left=len(groups))
    current = _JoinRound()
    for index, group in enumerate(groups):
        size = sum(file.size_bytes for file in group)
        if deadline is not None and time.monotonic() > deadline:
            break
        if bytes_max is not None and done.bytes_read and done.bytes_read + size > bytes_max:
            continue
        current.groups.append((group, _joined(lake, group)))
        current.bytes_read += size
        done.bytes_read += size
        done.groups_left -= 1
        if current.is_full:
            _commit_round(lake, current, done)
            current = _JoinRound()
        on_progress(index + 1, len(groups))
    _commit_round(lake, current, done)
    return done


def _commit_round(lake: DeltaLake | IcebergLake, current: _JoinRound, done: JoinedFiles) -> None:
    """Put the new files into the place of the old ones, as far as all of those are still there.

    Where one is not, a writer has written its rows again, and what was made of it is an orphan.
    """
    for _ in range(COMMITS_MAX):
        present = {file.path for file in lake.files()}
        held = [
            (group, added)
            for group, added in current.groups
            if all(file.path in present for file in group)
        ]
        added = [file for _, files in held for file in files]
        removed = [file for group, _ in held for file in group]
        try:
            if held:
                lake.commit(TableChange(added, removed, keeps_rows=True), {})
        except ConflictError as error:
            done.conflicts += 1
            last = error
        else:
            done.files_joined += len(removed)
            done.files_written += len(added)
            done.groups_lost += len(current.groups) - len(held)
            return
    raise PipelineError(f"{lake.name}: other writers keep changing the table: {last}")


def small_groups(files: Sequence[LakeFile], target_bytes: int) -> Iterator[list[LakeFile]]:
    """Files of one partition that are one of a good size together; at least two of them."""
    by_partition: dict[tuple[str | None, ...], list[LakeFile]] = {}
    for file in files:
        if is_small(file.size_bytes, target_bytes):
            by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    for small in by_partition.values():
        group: list[LakeFile] = []
        size = 0
        # Files that were written one after the other have names in that order.
        for file in sorted(small, key=lambda one: one.path):
            if group and size + file.size_bytes > target_bytes:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.size_bytes
        if len(group) > 1:
            yield group


def _is_worthwhile(group: Sequence[LakeFile]) -> bool:
    """Whether joining makes a file that is clearly larger, or the table by many files smaller.

    A row is then written again a few times until its file is large, not with each round.
    """
    sizes = [file.size_bytes for file in group]
    return len(group) >= WORTHWHILE_FILES or max(sizes) * 4 <= sum(sizes) * 3


def is_small(size_bytes: int, target_bytes: int) -> bool:
    """Whether a file is worth joining with others."""
    return size_bytes < target_bytes * 3 // 4


def _joined(lake: DeltaLake | IcebergLake, group: Sequence[LakeFile]) -> list[WrittenFile]:
    schema, storage = lake.schema(), lake.storage
    prefix = f"part-compact-{time.time_ns()}"
    writer = FileWriter(storage, schema, lake.partition_by(), prefix, lake.keeps_partition)
    for file in group:
        for batch in read_batches(storage, file, schema):
            writer.write(batch)
    return writer.close()
