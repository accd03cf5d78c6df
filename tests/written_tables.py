"""Tables of streams, written as the table job writes them, and read without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tradewind.pipelines.lake.compaction import compact
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lake_files import (
    ArrowStorage,
    FileWriter,
    local_path,
    partition_value,
)
from tradewind.pipelines.lake.lake_schemas import merged_schema
from tradewind.pipelines.lake.lake_tables import TableChange
from tradewind.pipelines.lake.lakes import (
    MARK_BATCH,
    MARK_OFFSETS,
    MARK_SINK,
    MARK_UNTIL,
    MARK_WRITER,
    SinkQuery,
)
from tradewind.pipelines.lake.parquet_lakes import keep_columns, parquet_writer, read_columns
from tradewind.pipelines.tables.table_points import TablePoint
from tradewind.pipelines.tables.table_spec import TableSpec, state_folder, table_folder
from tradewind.pipelines.tables.table_status import QUERY
from tradewind.pipelines.tables.table_writing import open_lake
from tradewind.spark.columnar.arrow import arrow_schema

RAW_COLUMNS = ("seq", "subject", "time", "headers", "data")
RAW_SCHEMA = arrow_schema(RAW_COLUMNS)
START_US = 1_793_491_200_000_000


@dataclass
class WrittenTable:
    """The table of a stream, and what its writer remembers."""

    spec: TableSpec
    stream: str = "ORDERS"
    created_ns: int = 0
    batch: int = 0
    lake: DeltaLake | IcebergLake = field(init=False)

    def __post_init__(self) -> None:
        self.lake = open_lake(self.stream, self.spec)

    def add(self, rows: pa.Table, until_seq: int, **marks: str) -> None:
        """Commit a batch."""
        parts = list(self.spec.partition)
        target = self.lake.prepare(rows.schema, parts)
        prefix = f"part-w1-{self.batch:08}"
        writer = FileWriter(self.lake.storage, target, parts, prefix, self.lake.keeps_partition)
        for one in rows.to_batches():
            writer.write(one)
        until = {self.stream: {"created_ns": self.created_ns, "seq": until_seq}}
        said = {
            MARK_SINK: "tables",
            MARK_WRITER: "w1",
            MARK_BATCH: str(self.batch),
            MARK_OFFSETS: "planned",
            MARK_UNTIL: json.dumps(until),
        }
        self.lake.commit(TableChange(writer.close()), said | marks)
        self.batch += 1

    def join(self) -> None:
        """Join small files, if there are any."""
        if self.lake.is_there:
            compact(self.lake)


@dataclass
class WrittenFolder:
    """The same for a folder of Parquet files, by its own writer."""

    spec: TableSpec
    stream: str = "ORDERS"
    created_ns: int = 0
    batch: int = 0

    def add(self, rows: pa.Table, until_seq: int) -> None:
        """Commit a batch."""
        checkpoint = Path(state_folder(self.stream, self.spec), "queries", QUERY)
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text('{"id": "w1"}')
        until = {self.stream: {"created_ns": self.created_ns, "seq": until_seq}}
        planned = f"v1\n{{}}\n{json.dumps(until)}"
        (checkpoint / "offsets" / str(self.batch)).write_text(planned)
        known = read_columns(checkpoint) or rows.schema
        keep_columns(checkpoint, merged_schema(known, rows.schema))
        frame: Any = _ArrowFrame(rows, list(self.spec.partition))
        write = parquet_writer(table_folder(self.spec), SinkQuery("tables", checkpoint), ())
        write(frame, self.batch)
        self.batch += 1

    def join(self) -> None:
        """Do nothing: the files of a folder stay as they are."""


@dataclass
class _ArrowFrame:
    """Rows that write themselves as a frame of Spark does."""

    rows: pa.Table
    parts: list[str]

    @property
    def write(self) -> _ArrowFrame:
        return self

    def parquet(self, path: str) -> None:
        writer = FileWriter(ArrowStorage(path), self.rows.schema, self.parts, "part", False)
        for one in self.rows.to_batches():
            writer.write(one)
        writer.close()


def written_table(
    spec: TableSpec, stream: str = "ORDERS", created_ns: int = 0
) -> WrittenTable | WrittenFolder:
    """The table of a stream in the format that its settings name."""
    kind = WrittenFolder if spec.format == "parquet" else WrittenTable
    return kind(spec, stream, created_ns)


def raw_rows(first_seq: int, last_seq: int, **columns: Sequence[Any]) -> pa.Table:
    """Messages as a raw table has them."""
    seqs = range(first_seq, last_seq + 1)
    rows = {
        "seq": list(seqs),
        "subject": [f"orders.{seq % 3}" for seq in seqs],
        "time": [START_US + seq for seq in seqs],
        "headers": [[("No", [str(seq)])] if seq % 5 == 0 else None for seq in seqs],
        "data": [b"%d" % seq for seq in seqs],
    }
    table = pa.table(rows, RAW_SCHEMA)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def read_point(point: TablePoint) -> pa.Table:
    """All rows of a pinned table, by its files alone."""
    import pyarrow.parquet as pq

    tables = []
    for file in point.files:
        # Without a look at the names of folders.
        found = pq.ParquetFile(local_path(file.path)).read()
        arrays = {}
        for one in point.schema:
            if one.name in found.column_names:
                arrays[one.name] = found[one.name].cast(one.type)
            else:
                value = partition_value(file.partition.get(one.name), one.type)
                arrays[one.name] = pa.repeat(value, found.num_rows)
        tables.append(pa.table(arrays, point.schema))
    return pa.concat_tables([point.schema.empty_table(), *tables])


def spec_of(folder: Path, kind: str, **more: Any) -> TableSpec:
    """A table of raw messages."""
    return msgspec.convert(
        {"to": str(folder / kind), "format": kind, "schema": "raw", **more}, TableSpec
    )
