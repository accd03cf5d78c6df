"""Checkpoints and tables in S3, by a server on this machine; `make lakes` has what this needs."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lake_kit import Lake, executors, orders

from ports import free_port
from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.compaction import compact
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lakes import SinkQuery
from tradewind.pipelines.lake.upserts import Upsert
from tradewind.pipelines.machine import places
from tradewind.pipelines.machine.places import RemoteFolder, names_in, replace_file
from tradewind.pipelines.state.status import PipelineStatus, read_status, write_status

pytest.importorskip("moto.server")
__all__ = ["executors"]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import boto3

    port = free_port()
    # A process of its own: the library of Delta lets no other thread of this one run meanwhile.
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(places, "_active_context", lambda: None)
    try:
        _await_port(port)
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket="lake")
        yield url
    finally:
        server.terminate()
        server.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def test_a_status_in_s3_is_read_without_spark(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    }
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    state = RemoteFolder("s3a://lake/state", settings)
    assert read_status(state) is None
    status = PipelineStatus("copy", "p.yaml", "running", 1, "h", "local", 1, 2)
    for _ in range(2):
        write_status(state, status)
        assert read_status(state) == status
    query = SinkQuery("p.lake", state / "queries" / "lake")
    assert names_in(query.checkpoint) == []
    for name, data in (("commits/3", b""), ("offsets/3", b"three")):
        replace_file(query.checkpoint / name, data)
    assert query.committed() == "three"
    with pytest.raises(PipelineError, match="s3a://nowhere/state"):
        write_status(RemoteFolder("s3a://nowhere/state", settings), status)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_in_s3_is_written_replaced_and_joined(
    endpoint: str, tmp_path: Path, executors: None, kind: str
) -> None:
    table: Any = DeltaLake("s3://lake/delta")
    if kind == "iceberg":
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": "s3://lake/ice",
            "s3.endpoint": endpoint,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
            "s3.region": "us-east-1",
        }
        table = IcebergLake(Iceberg("sales.orders", "", catalog), "")
    lake = Lake(tmp_path, table)
    write: Any = lake.writer(partition_by=["region"], upsert=Upsert(("id",)))
    write(orders([1, 2, 3], region=["a b", "x", "x"]), 0)
    for _ in range(2):
        write(orders([2, 4], region=["x", "x"], note=["new", "new"]), 1)
    files = table.files()
    found = {}
    from tradewind.pipelines.lake.lake_files import read_batches

    for file in files:
        for batch in read_batches(table.storage, file, table.schema()):
            found |= {row["id"]: (row["region"], row["note"]) for row in batch.to_pylist()}
    assert found == {1: ("a b", None), 2: ("x", "new"), 3: ("x", None), 4: ("x", "new")}
    assert sum(file.rows for file in files) == 4
    report = compact(table)
    assert (report.files_after, report.removed) == (2, 0)
