"""A checkpoint in a file system of Hadoop that is not the one of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipeline_kit import orders_place
from pipeline_texts_kit import HEAD

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import RemoteFolder, names_in
from tradewind.pipelines.state.leases import LEASE_FILE, locked
from tradewind.pipelines.state.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOUNT = "elsewhere"


def test_a_pipeline_goes_on_from_a_checkpoint_elsewhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`viewfs` of Hadoop shows a folder under an address that only Hadoop can open."""
    deltalake = pytest.importorskip("deltalake")
    (tmp_path / "mounted").mkdir()
    link = f"fs.viewfs.mounttable.{MOUNT}.link./lake"
    spark._jsc.hadoopConfiguration().set(link, f"file://{tmp_path}/mounted")
    state = RemoteFolder(f"viewfs://{MOUNT}/lake/state")
    source = "sources:\n  orders: {stream: ORDERS, payload: {}}\n"
    text = f"""{HEAD.replace("checkpoint: state", f"checkpoint: {state}")}{source}sinks:
  delta: {{from: orders, delta: lake/delta}}
  files: {{from: orders, parquet: lake/files}}
"""

    def ids() -> list[list[int]]:
        table = deltalake.DeltaTable(str(tmp_path / "lake" / "delta")).to_pyarrow_table()
        files = spark.read.parquet(str(tmp_path / "lake" / "files")).collect()
        return [sorted(table["id"].to_pylist()), sorted(row["id"] for row in files)]

    with orders_place(spark, tmp_path) as place:
        for first in (0, 5):
            place.publish_orders(first, 5)
            status = place.run(text)
            assert status.state == "done"
            assert ids() == [list(range(first + 5))] * 2
        assert [query.rows_total for query in status.queries] == [10, 10]
        found = read_status(state)
        assert found == status
        assert {"queries", "schemas", "status.json"} <= set(names_in(state))
        assert LEASE_FILE not in names_in(state)
        assert names_in(state / "schemas") == ["orders.json"]
        with locked(state), pytest.raises(PipelineError, match="is in use by process"):
            place.run(text)
    assert (tmp_path / "mounted" / "state" / "queries" / "delta" / "offsets").is_dir()
    # What Spark has no jar for is said in one line, with the package that has it.
    with pytest.raises(PipelineError, match=r"no file system for s3a; .*hadoop-aws:\d"):
        read_status(RemoteFolder("s3a://lake/state"))
