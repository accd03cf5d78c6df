"""The table of a stream for the Spark benchmark: all of a stream but its last part.

The rows are written as the table job writes them, as an Iceberg table, and the stream
asks for it in its metadata. The last part of the stream is left to the tail.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.api.times import parse_time
from tradewind.pipelines.lake.lake_files import FileWriter, WrittenFile
from tradewind.pipelines.lake.lake_tables import TableChange
from tradewind.pipelines.lake.lakes import (
    MARK_BATCH,
    MARK_OFFSETS,
    MARK_SINK,
    MARK_UNTIL,
    MARK_WRITER,
)
from tradewind.pipelines.tables.stream_tables import put_table
from tradewind.pipelines.tables.table_spec import RAW, TableSpec
from tradewind.pipelines.tables.table_writing import open_lake
from tradewind.spark.columnar.arrow import arrow_schema

STREAM = "ORDERS"
COLUMNS = ("seq", "subject", "time", "headers", "data")
# The part of a stream that its table does not have yet.
TAIL_SHARE = 0.01


def make_table(
    url: str, folder: Path, parts: Iterable[Iterable[pa.RecordBatch]], rows: int
) -> None:
    """Give the stream a table that ends before its tail; `parts` are its rows, file by file."""
    import tradewind.sync

    spec = TableSpec(str(folder), format="iceberg", schema=RAW)
    until = rows - int(rows * TAIL_SHARE)
    with tradewind.sync.connect(url) as connection:
        manager = connection.jetstream_manager()
        put_table(manager, STREAM, spec)
        created_ns = parse_time(manager.streams.info(STREAM).created)
    lake = open_lake(STREAM, spec)
    schema = lake.prepare(arrow_schema(COLUMNS), [])
    files: list[WrittenFile] = []
    for number, batches in enumerate(parts):
        writer = FileWriter(lake.storage, schema, [], f"part-bench-{number:08}", True)
        for batch in batches:
            kept = batch.filter(pc.less_equal(batch.column("seq"), until))
            if kept.num_rows:
                writer.write(kept)
        files += writer.close()
    mark = {STREAM: {"created_ns": created_ns, "seq": until}}
    marks = {
        MARK_SINK: "bench",
        MARK_WRITER: "bench",
        MARK_BATCH: "0",
        MARK_OFFSETS: "bench",
        MARK_UNTIL: msgspec.json.encode(mark).decode(),
    }
    lake.commit(TableChange(files), marks)
