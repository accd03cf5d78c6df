"""A driver of its own: a pipeline from a stream into a folder of Parquet files, then ends.

Rows come slowly and batches are small, with a file for each subject, so that a kill hits any step.
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from tradewind.pipelines.connections import Address
from tradewind.pipelines.loading import load_pipeline
from tradewind.pipelines.runner import Runner, running
from tradewind.spark.session import get_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """\
pipeline: lake
checkpoint: state
trigger: now
sources:
  orders: {stream: IN, batch: 60}
steps:
  slow:
    sql: >
      select seq, concat(subject, coalesce(reflect('java.lang.Thread', 'sleep', 2L), '')) as subject
      from orders
sinks:
  lake: {from: slow, parquet: lake, partition_by: subject}
"""


def run_pipeline(spark: SparkSession, server: str, folder: Path) -> None:
    """All that is there."""
    path = folder / "lake.yaml"
    path.write_text(PIPELINE)
    pipeline = load_pipeline(path)
    runner = Runner(pipeline, spark, Address(server), lambda *_: None, is_once=True)
    with running(runner, pipeline.checkpoint):
        runner.wait(Event(), lambda _status: None)
    assert runner.status.state == "done", runner.status.error


def main(server: str, folder: str) -> None:
    spark = get_session(
        "local[2]",
        {
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": folder,
        },
    )
    run_pipeline(spark, server, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
