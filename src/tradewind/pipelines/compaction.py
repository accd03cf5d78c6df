"""Merges small files of Delta and Iceberg tables, and removes files that belong to no table.

Owns the choice of files to rewrite, and of files old enough to remove. It never changes rows, and a
query may write to the table at the same time: the later of two commits looks at the table again. A
file that no table names may belong to an uncommitted batch, so only old ones are removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tradewind.pipelines.delta_tables import DeltaLake
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.iceberg_tables import DATA_FOLDER, IcebergLake
from tradewind.pipelines.lake_files import FileWriter, LakeFile, WrittenFile, read_batches
from tradewind.pipelines.lake_tables import COMMITS_MAX, ConflictError, TableChange

TARGET_BYTES: Final = 128 << 20
ORPHAN_HOURS: Final = 7 * 24
# A batch is not on its way for longer than this; less is only for a table that nobody writes.
SAFE_HOURS: Final = 24
Progress = Callable[[int, int], None]


class CompactReport(msgspec.Struct, frozen=True):
    """What was done to one table."""

    table: str
    files_before: int
    files_after: int
    removed: int


def compact(
    lake: DeltaLake | IcebergLake,
    target_bytes: int = TARGET_BYTES,
    orphan_hours: int = ORPHAN_HOURS,
    on_progress: Progress = lambda _done, _whole: None,
) -> CompactReport:
    """Write small files again, then remove what no version of the table needs."""
    if not lake.is_there:
        raise PipelineError(f"table {lake.name} does not exist yet")
    before = len(lake.files())
    if isinstance(lake, DeltaLake):
        _again(lambda: lake.optimize(target_bytes))
        removed = lake.vacuum(orphan_hours)
    else:
        _compact_iceberg(lake, target_bytes, on_progress)
        removed = _remove_orphans(lake, orphan_hours)
    return CompactReport(lake.name, before, len(lake.files()), removed)


def _again(attempt: Callable[[], None]) -> None:
    """Try until nobody else was in the way."""
    for number in range(COMMITS_MAX):
        try:
            attempt()
        except ConflictError as error:
            if number == COMMITS_MAX - 1:
                raise PipelineError(f"other writers keep changing the table: {error}") from None
        else:
            return


def small_groups(files: Sequence[LakeFile], target_bytes: int) -> Iterator[list[LakeFile]]:
    """Files of one partition that are one of a good size together; at least two of them."""
    by_partition: dict[tuple[str | None, ...], list[LakeFile]] = {}
    for file in files:
        if file.size_bytes < target_bytes * 3 // 4:
            by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    for small in by_partition.values():
        group: list[LakeFile] = []
        size = 0
        # Those that were written one after the other have names in that order.
        for file in sorted(small, key=lambda one: one.path):
            if group and size + file.size_bytes > target_bytes:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.size_bytes
        if len(group) > 1:
            yield group


def _compact_iceberg(lake: IcebergLake, target_bytes: int, on_progress: Progress) -> None:
    """One commit for each group, so that what was done is not lost when the next one fails."""
    groups = list(small_groups(lake.files(), target_bytes))
    for index, group in enumerate(groups):
        _again(partial(_commit_group, lake, group, _joined(lake, group)))
        on_progress(index + 1, len(groups))


def _commit_group(
    lake: IcebergLake, group: Sequence[LakeFile], added: Sequence[WrittenFile]
) -> None:
    """Put the new files into the place of the old ones, if all of those are still there.

    If one is not, somebody else has written its rows again, and what was made of it is an orphan.
    """
    present = {file.path for file in lake.files()}
    if all(file.path in present for file in group):
        lake.commit(TableChange(added, group), {})


def _joined(lake: IcebergLake, group: Sequence[LakeFile]) -> list[WrittenFile]:
    schema, storage = lake.schema(), lake.storage
    columns = list(group[0].partition)
    writer = FileWriter(storage, schema, columns, f"part-compact-{time.time_ns()}", True)
    for file in group:
        for batch in read_batches(storage, file, schema):
            writer.write(batch)
    return writer.close()


def _remove_orphans(lake: IcebergLake, hours: int) -> int:
    """Remove data files that no snapshot names; those of expired snapshots are among them."""
    import pyarrow.fs as pafs

    table: Any = lake.load()
    folder = f"{table.location()}/{DATA_FOLDER}"
    parts = urlsplit(folder)
    system = table.io.fs_by_scheme(parts.scheme or "file", parts.netloc)
    base = folder.partition("://")[2] if "://" in folder else folder
    found = system.get_file_info(pafs.FileSelector(base, allow_not_found=True, recursive=True))
    border = datetime.now(UTC) - timedelta(hours=hours)
    # The list is older than the names: a file that is committed in between is known.
    table = lake.load()
    if not table.snapshots():
        return 0  # the first batch may be on its way
    names = set(table.inspect.all_data_files()["file_path"].to_pylist())
    known = {name.partition("://")[2] if "://" in name else name for name in names}
    removed = 0
    for info in found:
        is_old = info.mtime is not None and info.mtime < border
        if info.type == pafs.FileType.File and is_old and info.path not in known:
            system.delete_file(info.path)
            removed += 1
    return removed
