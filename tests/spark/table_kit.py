"""Streams with tables, and readers of those tables that know nothing of us."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import tradewind.sync
from harness import ServerProcess
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.table_runs.table_job import TableWork
from tradewind.pipelines.table_runs.table_runner import TableRunner
from tradewind.pipelines.tables.stream_tables import put_table
from tradewind.pipelines.tables.table_spec import TableSpec, table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.tables.table_status import TableStatus
    from tradewind.sync import Connection


@dataclass
class TablePlace:
    """A server with streams, and a folder for their tables."""

    spark: SparkSession
    folder: Path
    store: Path
    url: str
    connection: Connection

    def add_stream(self, name: str, **settings: Any) -> None:
        subjects = [f"{name.lower()}.>"]
        self.connection.jetstream_manager().streams.add(name=name, subjects=subjects, **settings)

    def add_table(self, stream: str, **keys: Any) -> TableSpec:
        spec = TableSpec(**{"to": str(self.folder / stream.lower()), **keys})
        put_table(self.connection.jetstream_manager(), stream, spec)
        return spec

    def publish(self, stream: str, *payloads: Any, subject: str = "a") -> None:
        js = self.connection.jetstream()
        for payload in payloads:
            data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            js.publish_async(f"{stream.lower()}.{subject}", data)
        js.publish_async_completed()

    def runner(self, *wanted: str, **settings: Any) -> TableRunner:
        work = TableWork(self.spark, PipelineAddress(self.url), **settings)
        return TableRunner(work, wanted, lambda _text: None)

    def run_once(self, *wanted: str, **settings: Any) -> dict[str, TableStatus]:
        """One run over what is there; every table comes to its end."""
        runner = self.runner(*wanted, is_once=True, **settings)
        runner.wait(Event())
        found = {status.stream: status for status in runner.statuses}
        for status in found.values():
            assert status.state == "done", status.error
        return found

    def letters(self, stream: str) -> list[tuple[str, bytes, Mapping[str, str]]]:
        streams = self.connection.jetstream_manager().streams
        state = streams.info(stream).state
        found = []
        for seq in range(state.first_seq, state.last_seq + 1):
            message = streams.get_message(stream, seq=seq)
            headers = dict((message.headers or {}).items())
            found.append((message.subject, message.data, headers))
        return found


@contextmanager
def table_place(spark: SparkSession, folder: Path, server: str) -> Iterator[TablePlace]:
    store = folder / "store"
    flags = ["-js", "-sd", str(store), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(server, flags).wait_ready()
    try:
        with tradewind.sync.connect(process.url) as connection:
            yield TablePlace(spark, folder, store, process.url, connection)
    finally:
        process.stop()


def rows_of(stream: str, spec: TableSpec) -> list[dict[str, Any]]:
    """All rows by a library of the format, in the order of their sequences."""
    rows = _iceberg(stream, spec) if spec.format == "iceberg" else _duckdb(spec)
    return sorted(rows, key=lambda row: row["seq"])


def _iceberg(stream: str, spec: TableSpec) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    settings = {"type": "sql", "uri": f"sqlite:///{spec.to}/catalog.db"}
    table = load_catalog("tradewind", **settings).load_table(table_name(stream, spec))
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return rows


def _duckdb(spec: TableSpec) -> list[dict[str, Any]]:
    import duckdb

    if spec.format == "delta":
        from deltalake import DeltaTable

        files = DeltaTable(spec.to).file_uris()
        files = [file.removeprefix("file://") for file in files]
    else:
        files = [f"{spec.to}/**/*.parquet"]
    found = duckdb.sql(
        f"select * from read_parquet({files!r}, union_by_name=true, hive_partitioning=true)"
    )
    return list(found.to_arrow_table().to_pylist())
