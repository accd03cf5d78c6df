"""A streaming query from one stream to another one, while everything it needs is killed.

The Python workers of Spark, the server, the driver, its Java and everything at once are killed.
`make crash-spark` does it hundreds of times; only there drivers are killed.
`tests/faults/test_sink_attempts.py` kills many attempts without Spark.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kill_kit import (
    DRIVER_KILLS,
    DRIVER_VICTIMS,
    KILLS,
    NIGHTLY,
    ROWS_PER_KILL,
    RUN_SECONDS,
    Killer,
    Target,
    check_once,
    finish,
    kill_driver,
    kill_workers,
)
from spark_kit import run_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    made = Target(tmp_path / "store", request.param * ROWS_PER_KILL)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(RUN_SECONDS * max(KILLS // 10, 2))
@pytest.mark.parametrize("target", [KILLS], indirect=True)
def test_each_row_arrives_once_whatever_is_killed(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    victims = [(kill_workers, target.kill)[number % 2] for number in range(KILLS)]
    killer = Killer(victims, target.wait_for)
    killer.start()

    def run() -> None:
        run_query(
            spark.readStream.format("jetstream")
            .options(servers=target.url, stream="IN", maxMsgsPerTrigger=400, minPartitions=2)
            .load()
            .selectExpr("concat('out.', subject) as subject", "data")
            .writeStream.format("jetstream")
            .options(servers=target.url, stream="OUT", checkpointLocation=str(tmp_path / "check"))
            .trigger(availableNow=True),
            RUN_SECONDS,
        )

    finish(run, KILLS)
    killer.join(RUN_SECONDS)
    assert killer.error is None
    assert killer.kills == KILLS
    kind = "stream to stream: Python workers and server in turn"
    check_once(kind, KILLS, target.payloads("IN"), target.payloads("OUT"))


@pytest.mark.skipif(not NIGHTLY, reason="every start of a driver takes a minute: make crash-spark")
@pytest.mark.timeout(RUN_SECONDS * (DRIVER_KILLS + 1))
@pytest.mark.parametrize("target", [DRIVER_KILLS + 1], indirect=True)
def test_each_row_arrives_once_though_the_driver_is_killed(target: Target, tmp_path: Path) -> None:
    script = Path(__file__).with_name("sink_driver.py")
    arguments = [sys.executable, str(script), target.url, str(tmp_path / "check"), str(tmp_path)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(arguments, start_new_session=True)

    chance = random.Random(5)
    for number in range(DRIVER_KILLS):
        wanted = number * ROWS_PER_KILL + chance.randint(1, ROWS_PER_KILL)
        driver = start()

        def check(driver: subprocess.Popen[bytes] = driver) -> None:
            assert driver.poll() is None, "the driver ended early"

        try:
            target.wait_for(wanted, check)
        finally:
            kill_driver(driver, DRIVER_VICTIMS[number % len(DRIVER_VICTIMS)])
    assert start().wait(RUN_SECONDS) == 0
    kind = "stream to stream: Java, driver, and all at once in turn"
    check_once(kind, DRIVER_KILLS, target.payloads("IN"), target.payloads("OUT"))
