"""A separate driver: runs a job of `kill_reads` each time it receives a line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kill_reads import JOBS

from tradewind.spark.processes.spark_session import get_session

# Starting is most of what a driver does here before it is killed.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(kind: str, server: str, folder: str, master: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what others print is not an answer
    spark = get_session(
        master,
        {
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            # The tasks of executors that are killed are tried again for as long as it takes.
            "spark.task.maxFailures": "100",
            "spark.ui.enabled": "false",
            "spark.local.dir": folder,
            "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": folder,
        },
    )
    job = JOBS[kind](server, Path(folder))
    answers.write("\n")
    for _ in sys.stdin:
        try:
            job.run(spark)
        except Exception as error:
            answers.write(f"{type(error).__name__}: {str(error)[:2000]!r}\n")
            # Without its Java it cannot go on, and ends with an error.
            spark.sparkContext._jsc.sc().isStopped()
        else:
            answers.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
