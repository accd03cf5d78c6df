"""Keeps tables in good order beside those who write and read them, and reports their figures.

Owns one round of maintenance: small files are joined, old versions are forgotten, and files that
nothing needs are removed, each within a limit of time and bytes, so that the next round goes on
where this one ends. The module needs no Spark, holds up no writer, and can be killed at any moment:
what it has not committed are files that no table names, which a later round removes. The files of a
Parquet folder are never touched, because its readers list them by themselves; only what unfinished
batches have left beside the folder is removed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.compaction import (
    ORPHAN_HOURS,
    TARGET_BYTES,
    JoinedFiles,
    Progress,
    is_small,
    join_small,
)
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lake_expiry import delta_log, expire, remove_unneeded
from tradewind.pipelines.lake.lake_figures import FigureReader, KeptTable
from tradewind.pipelines.lake.lakes import COMPACTED
from tradewind.pipelines.lake.parquet_lakes import ParquetLake
from tradewind.pipelines.state.figure_types import LakeFigures

EXPIRE_SECONDS: Final = 7 * 86_400
SNAPSHOTS_KEPT: Final = 10
ROUND_SECONDS_MAX: Final = 300.0
ROUND_BYTES_MAX: Final = 16 << 30


class MaintenancePolicy(msgspec.Struct, frozen=True):
    """The limits of one round.

    Without `expire_seconds` all versions stay; without a maximum all is done at once.
    `orphan_seconds` is how long a file stays that no version needs: longer than any batch is on its
    way, and than any reader takes. A round that is not thorough leaves small files beside a large
    one until there are enough of them.
    """

    target_bytes: int = TARGET_BYTES
    expire_seconds: float | None = EXPIRE_SECONDS
    keep_snapshots: int = SNAPSHOTS_KEPT
    orphan_seconds: float = ORPHAN_HOURS * 3600
    seconds_max: float | None = ROUND_SECONDS_MAX
    bytes_max: int | None = ROUND_BYTES_MAX
    is_thorough: bool = False


DEFAULT_POLICY: Final = MaintenancePolicy()


class TableFigures(LakeFigures, frozen=True, kw_only=True):
    """The figures of a table with what maintenance looks at.

    `small_files` could be joined. `snapshots` are the versions that can still be read, of a Delta
    table those in its log. `last_compaction_ms` is in milliseconds since 1970, None if there was
    none.
    """

    table: str
    format: str
    small_files: int = 0
    snapshots: int = 0
    last_compaction_ms: int | None = None

    @property
    def average_file_bytes(self) -> int:
        """The size of a file on average."""
        return self.bytes // self.files if self.files else 0


class MaintenanceReport(msgspec.Struct, frozen=True):
    """The result of one round on a table.

    `removed` counts files that nothing needed. `files_joined` were replaced by `files_written`, and
    `groups_left` groups of small files were left for the next round. `conflicts` counts commits
    that came after those of writers, and were made again.
    """

    table: str
    files_before: int
    files_after: int
    removed: int
    files_joined: int
    files_written: int
    bytes_read: int
    groups_left: int
    conflicts: int
    snapshots_expired: int
    seconds: float
    figures: TableFigures


def maintain(
    table: KeptTable,
    policy: MaintenancePolicy = DEFAULT_POLICY,
    on_progress: Progress = lambda _done, _whole: None,
) -> MaintenanceReport:
    """One round of maintenance; PipelineError if the table is not there or cannot be kept."""
    started = time.monotonic()
    deadline = None if policy.seconds_max is None else started + policy.seconds_max
    if not table.is_there:
        raise PipelineError(f"table {table.name} does not exist yet")
    before = figures(table, policy.target_bytes)
    joined, expired = JoinedFiles(), 0
    if isinstance(table, ParquetLake):
        removed = table.remove_leftovers(policy.orphan_seconds)
    else:
        joined = join_small(
            table,
            policy.target_bytes,
            deadline,
            policy.bytes_max,
            on_progress,
            is_thorough=policy.is_thorough,
        )
        if policy.expire_seconds is not None:
            expired = expire(table, policy.expire_seconds, policy.keep_snapshots)
        removed = remove_unneeded(table, policy.orphan_seconds, deadline)
    after = figures(table, policy.target_bytes)
    return MaintenanceReport(
        table.name,
        before.files,
        after.files,
        removed,
        joined.files_joined,
        joined.files_written,
        joined.bytes_read,
        joined.groups_left,
        joined.conflicts,
        expired,
        round(time.monotonic() - started, 3),
        after,
    )


def figures(table: KeptTable, target_bytes: int = TARGET_BYTES) -> TableFigures:
    """The figures of a table; all zero if it is not there yet."""
    common = msgspec.structs.asdict(FigureReader().read(table))
    if isinstance(table, ParquetLake):
        sizes = [size for _, size, _ in table.files()] if table.is_there else []
        return TableFigures(
            **common, table=table.name, format="parquet", small_files=_small(sizes, target_bytes)
        )
    kind = "delta" if isinstance(table, DeltaLake) else "iceberg"
    if not table.is_there:
        return TableFigures(**common, table=table.name, format=kind)
    if isinstance(table, DeltaLake):
        sizes, snapshots, compacted = _delta_state(table)
    else:
        sizes, snapshots, compacted, has_deletes = _iceberg_state(table)
        common["is_exact"] &= not has_deletes
    return TableFigures(
        **common,
        table=table.name,
        format=kind,
        small_files=_small(sizes, target_bytes),
        snapshots=snapshots,
        last_compaction_ms=compacted,
    )


def _small(sizes: Sequence[int], target_bytes: int) -> int:
    return sum(is_small(size, target_bytes) for size in sizes)


def _delta_state(lake: DeltaLake) -> tuple[list[int], int, int | None]:
    """The sizes of the files, the number of versions, and when files were last joined."""

    def look(table: Any) -> tuple[list[int], int, int | None]:
        sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
        return sizes, len(delta_log(lake).moments), table.transaction_version(COMPACTED)

    return lake.read(look)


def _iceberg_state(lake: IcebergLake) -> tuple[list[int], int, int | None, bool]:
    """The same of an Iceberg table, and whether rows of its files are deleted in other files."""
    table: Any = lake.load()
    tasks = list(table.scan().plan_files())
    sizes = [task.file.file_size_in_bytes for task in tasks]
    compacted = table.properties.get(COMPACTED)
    has_deletes = any(task.delete_files for task in tasks)
    moment = None if compacted is None else int(compacted)
    return sizes, len(table.snapshots()), moment, has_deletes
