"""Messages out of the table of a stream, for the format `jetstream`.

Owns reading the files of a pinned table as messages, in executors: bounds of sequence and time, and
subjects. `tradewind.spark.contract.tiers` loads it by name for streams in two tiers, whose tables
have the payloads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tradewind.pipelines.lake.lake_files import ArrowStorage, LakeFile, Storage, read_batches
from tradewind.pipelines.lake.lake_schemas import aligned
from tradewind.pipelines.tables.table_points import TablePoint, check_stream, pin_table
from tradewind.pipelines.tables.table_spec import TABLE_KEY, TableSpec, is_bucket, table_of
from tradewind.pipelines.tables.table_writing import open_lake
from tradewind.spark.columnar.arrow import arrow_schema
from tradewind.spark.contract.planning import part_count
from tradewind.subjects import is_subset

if TYPE_CHECKING:
    from tradewind.spark.contract.filters import RowFilter
    from tradewind.spark.contract.provider_contract import ReadState


def tier_tasks(state: ReadState, rows: RowFilter, partitions_min: int) -> tuple[list[Any], int]:
    """The parts of a read of the table, and the last sequence that they answer for; 0 if none."""
    spec = table_of(state.name, {TABLE_KEY: state.table})
    point = pin_table(state.name, spec) if spec is not None else None
    # The changes of a bucket have keys and operations instead of subjects and headers.
    if spec is None or point is None or point.mark is None or is_bucket(state.name):
        return [], 0
    # The table may have grown since the stream was looked at.
    check_stream(point, state.name, state.created_ns, max(state.last_seq, point.until_seq))
    files = [file for file in stored_files(point) if may_hold(file, rows.first_seq, rows.last_seq)]
    size = sum(file.size_bytes for file in files)
    count = min(part_count(size, os.cpu_count() or 1, partitions_min), len(files))
    storage = point_storage(state.name, spec, point)
    tasks = [
        TierTask(state.name, storage, tuple(files[number::count]), point.schema, rows)
        for number in range(count)
    ]
    return tasks, point.until_seq


def point_storage(stream: str, spec: TableSpec, point: TablePoint) -> Storage:
    """The storage that opens the files of a pinned table."""
    return ArrowStorage(point.folder) if point.in_folders else open_lake(stream, spec).storage


def stored_files(point: TablePoint) -> Iterator[LakeFile]:
    """The files by the paths that their storage takes, without what only the driver needs."""
    from msgspec.structs import replace

    for file in point.files:
        path = file.path.removeprefix(f"{point.folder.rstrip('/')}/")
        yield replace(file, path=path if point.in_folders else file.path)


def may_hold(file: LakeFile, first_seq: int, last_seq: int) -> bool:
    """Whether a file may have a row between two sequences."""
    low, high = file.bounds.get("seq", (None, None))
    is_before = isinstance(high, int) and high < first_seq
    return not is_before and not (isinstance(low, int) and low > last_seq)


@dataclass(frozen=True)
class TierTask:
    """Some files of a table, read as messages of their stream; see `ReadTask`."""

    stream: str
    storage: Storage
    files: tuple[LakeFile, ...]
    schema: pa.Schema
    rows: RowFilter

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `ReadTask`; rows are in the order of the files."""
        wanted = arrow_schema(columns)
        needed = {"seq", "time", *columns} - {"stream"}
        if self.rows.patterns or self.rows.prefixes:
            needed.add("subject")
        names = [name for name in self.schema.names if name in needed]
        for file in self.files:
            seqs = (self.rows.first_seq, self.rows.last_seq)
            for batch in read_batches(self.storage, file, self.schema, names, seqs):
                kept = batch.filter(self._mask(batch))
                if kept.num_rows:
                    named = pa.repeat(pa.scalar(self.stream), kept.num_rows)
                    yield aligned(kept.append_column("stream", named), wanted)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        rows, seqs = self.rows, batch.column("seq")
        # A message has nanoseconds, a row of the table microseconds.
        times_us = batch.column("time").cast(pa.int64())
        mask = pc.and_(
            pc.and_(pc.greater_equal(seqs, rows.first_seq), pc.less_equal(seqs, rows.last_seq)),
            pc.and_(
                pc.greater_equal(times_us, rows.first_time_ns // 1000),
                pc.less_equal(times_us, rows.last_time_ns // 1000),
            ),
        )
        if not (rows.patterns or rows.prefixes):
            return mask
        encoded = batch.column("subject").dictionary_encode()
        chosen = pa.array([self._is_wanted(text) for text in encoded.dictionary.to_pylist()])
        return pc.and_(mask, chosen.take(encoded.indices))

    def _is_wanted(self, subject: str) -> bool:
        rows = self.rows
        return all(
            any(is_subset(subject, pattern.decode()) for pattern in group)
            for group in rows.patterns
        ) and all(subject.startswith(prefix.decode()) for prefix in rows.prefixes)
