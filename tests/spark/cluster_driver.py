"""A driver for a cluster: a batch, a streaming query and a pipeline, then the counts as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Event
from typing import Any

from spark_kit import run_query

from tradewind.pipelines.connections import PipelineAddress
from tradewind.pipelines.loading import load_pipeline
from tradewind.pipelines.runner import Runner, running
from tradewind.spark.session import get_session

PIPELINE = """\
pipeline: regions
checkpoint: state
sources:
  orders: {stream: ORDERS}
steps:
  paid: {sql: "select seq, cast(data as string) as text from orders"}
sinks:
  out: {from: paid, stream: PAID, subject: "paid.{seq}", data: text}
"""


def main(master: str, server: str, folder: str) -> None:
    spark = get_session(
        master,
        {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            # Both workers take part from the first task on.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.sql.warehouse.dir": folder,
        },
    )
    result: dict[str, Any] = {}
    orders = spark.read.format("jetstream").options(
        servers=server, stream="ORDERS", minPartitions=2
    )
    frame = orders.load().selectExpr("concat('batch.', seq) as subject", "data")
    frame.write.format("jetstream").mode("append").options(servers=server, stream="BATCH").save()
    hosts = orders.load().rdd.map(lambda _: _executor()).distinct().collect()
    result["executors"] = len(hosts)
    query = run_query(
        spark.readStream.format("jetstream")
        .options(servers=server, stream="ORDERS", minPartitions=2, maxMsgsPerTrigger=500)
        .load()
        .selectExpr("concat('tail.', seq) as subject", "data")
        .writeStream.format("jetstream")
        .options(servers=server, stream="TAIL", checkpointLocation=f"{folder}/check")
        .trigger(availableNow=True)
    )
    result["batches"] = query.lastProgress["batchId"] + 1
    path = Path(folder) / "regions.yaml"
    path.write_text(PIPELINE)
    pipeline = load_pipeline(path)
    runner = Runner(pipeline, spark, PipelineAddress(server), lambda *_: None, is_once=True)
    with running(runner, pipeline.checkpoint):
        runner.wait(Event(), lambda _status: None)
    result["pipeline"] = runner.status.state
    (Path(folder) / "result.json").write_text(json.dumps(result))
    spark.stop()


def _executor() -> str:
    """The folder of the executor that this runs in."""
    return str(Path.cwd())


if __name__ == "__main__":
    main(*sys.argv[1:])
