"""A driver of its own: copies a stream into another one with a streaming query, then ends.

Rows come slowly and in small Arrow batches, so that a task waits for its next batch most of the
time: who is killed then leaves a worker that sees the end of its input.
"""

from __future__ import annotations

import sys

from spark_kit import run_query

from tradewind.spark.session import get_session


def main(server: str, checkpoint: str, scratch: str, master: str = "local[2]") -> None:
    spark = get_session(
        master,
        {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.local.dir": scratch,
            "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
            "spark.sql.warehouse.dir": scratch,
        },
    )
    run_query(
        spark.readStream.format("jetstream")
        .options(servers=server, stream="IN", maxMsgsPerTrigger=200, minPartitions=2)
        .load()
        .selectExpr(
            "concat('out.', subject, coalesce(reflect('java.lang.Thread', 'sleep', 2L), ''))"
            " as subject",
            "data",
        )
        .writeStream.format("jetstream")
        .options(servers=server, stream="OUT", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
