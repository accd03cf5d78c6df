"""A lake table in numbers, as its log has them: rows, files, bytes and the last commit.

Owns these figures for all three formats. No data file is opened, except for the number of rows in a
folder of Parquet files, which has no log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.parquet_lakes import ParquetLake
from tradewind.pipelines.state.figure_types import LakeFigures

KeptTable = DeltaLake | IcebergLake | ParquetLake
_DELETIONS: Final = "deletionVectors"


class FigureReader:
    """Reads the figures of one table again and again; ends of Parquet files are read once."""

    def __init__(self) -> None:
        self._known: dict[Path, int] = {}

    def read(self, table: KeptTable) -> LakeFigures:
        """The table as it is now; all 0 if it is not there yet."""
        if not table.is_there:
            return LakeFigures()
        if isinstance(table, DeltaLake):
            return table.read(_delta_figures)
        if isinstance(table, IcebergLake):
            return _iceberg_figures(table)
        return self._parquet_figures(table)

    def _parquet_figures(self, folder: ParquetLake) -> LakeFigures:
        from pyarrow import parquet

        found = folder.files()
        self._known = {
            path: self._known.get(path) or int(parquet.read_metadata(path).num_rows)
            for path, _, _ in found
        }
        committed_ms = max((moment_ms for _, _, moment_ms in found), default=0)
        return LakeFigures(
            sum(self._known.values()),
            len(found),
            sum(size for _, size, _ in found),
            committed_ns=committed_ms * 1_000_000,
        )


def _delta_figures(table: Any) -> LakeFigures:
    actions = pa.table(table.get_add_actions(flatten=True))
    counts = actions["num_records"].to_pylist()
    has_deletions = _DELETIONS in (table.protocol().reader_features or ())
    version = int(table.version())
    # Commits that came meanwhile are in it, too.
    moments = {int(one["version"]): int(one.get("timestamp", 0)) for one in table.history(1)}
    return LakeFigures(
        sum(count or 0 for count in counts),
        len(counts),
        sum(actions["size_bytes"].to_pylist()),
        str(version),
        moments.get(version, max(moments.values(), default=0)) * 1_000_000,
        is_exact=None not in counts and not has_deletions,
    )


def _iceberg_figures(lake: IcebergLake) -> LakeFigures:
    table: Any = lake.load()
    snapshot = table.current_snapshot()
    if snapshot is None:
        return LakeFigures()
    said: Mapping[str, str] = snapshot.summary.additional_properties if snapshot.summary else {}
    rows, files, size, deletions = (
        int(said.get(f"total-{name}", 0))
        for name in ("records", "data-files", "files-size", "delete-files")
    )
    return LakeFigures(
        rows,
        files,
        size,
        str(snapshot.snapshot_id),
        snapshot.timestamp_ms * 1_000_000,
        is_exact=not deletions,
    )
