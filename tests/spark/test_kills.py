"""Jobs from a stream to each kind of target, while Python workers and the server are killed.

`tools/crash_spark.py` (`make crash-spark`) does it hundreds of times, and also kills drivers and
executors. `tests/spark_source/test_sink_attempts.py` kills attempts at writing without Spark.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kill_kit import RUN_SECONDS, VICTIMS, Job, SessionHost, campaign

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(2 * RUN_SECONDS)
@pytest.mark.parametrize("kind", ["stream", "parquet", "delta", "iceberg", "table"])
def test_each_row_is_there_once_whatever_is_killed(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    def start(job: Job) -> SessionHost:
        return SessionHost(spark, job)

    with campaign(kind, tmp_path, random.Random(11), start, batches_per_run=4) as made:
        for victim in VICTIMS:
            made.kill(victim)
        made.finish()
        assert made.tally.kills == len(VICTIMS)
        assert made.tally.expected > 0
        assert (made.tally.lost, made.tally.doubled) == (0, 0)
