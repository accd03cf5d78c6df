"""A folder of Parquet files that a pipeline writes, while everything it needs is killed.

Somebody reads the folder all the time: a file that is there is whole, stays, and has no row that
another file has, whatever was killed. `make crash-spark` does it often, and also kills drivers.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kill_kit import (
    DRIVER_KILLS,
    DRIVER_VICTIMS,
    KILLS,
    NIGHTLY,
    RUN_SECONDS,
    Killer,
    Target,
    check_once,
    finish,
    kill_driver,
    kill_workers,
)
from lake_driver import run_pipeline
from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_KILL = 150
# A kill comes this much later than the rows that it waits for, at most: at any step of a batch.
DELAY_SECONDS = 0.4


class Reader(threading.Thread):
    """Reads each file as soon as it is there, as any reader would."""

    def __init__(self, lake: Path) -> None:
        super().__init__(daemon=True)
        self._lake = lake
        self._over = threading.Event()
        self._seen: dict[Path, int] = {}
        self.rows: Counter[int] = Counter()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(0.05):
                self.look()
        except BaseException as error:
            self.error = error

    def look(self) -> None:
        files = set(self._lake.rglob("*.parquet"))
        for file in sorted(files - self._seen.keys()):
            found = parquet.read_table(file, columns=["seq"], partitioning=None)
            self._seen[file] = file.stat().st_ino
            self.rows.update(found["seq"].to_pylist())
        changed = [file for file in self._seen if file.stat().st_ino != self._seen[file]]
        assert changed == []
        assert [seq for seq, count in self.rows.items() if count > 1] == []

    def wait_for(self, rows: int, check: Callable[[], None] = lambda: None) -> None:
        pause = threading.Event()
        while self.rows.total() < rows:
            assert self.error is None
            check()
            pause.wait(0.02)
        pause.wait(random.Random(rows).uniform(0, DELAY_SECONDS))

    def finish(self) -> None:
        self._over.set()
        self.join(RUN_SECONDS)
        assert self.error is None
        self.look()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path / "lake")
    made.start()
    try:
        yield made
    finally:
        made._over.set()


@pytest.fixture
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    made = Target(tmp_path / "store", request.param * ROWS_PER_KILL)
    try:
        yield made
    finally:
        made.close()


def expected(target: Target) -> Counter[int]:
    return Counter(range(1, target.streams.info("IN").state.last_seq + 1))


@pytest.mark.timeout(RUN_SECONDS * max(KILLS // 10, 2))
@pytest.mark.parametrize("target", [KILLS], indirect=True)
def test_each_row_is_in_the_lake_once_whatever_is_killed(
    spark: SparkSession, target: Target, reader: Reader, tmp_path: Path
) -> None:
    victims = [(kill_workers, target.kill)[number % 2] for number in range(KILLS)]
    killer = Killer(victims, reader.wait_for, ROWS_PER_KILL)
    killer.start()
    finish(lambda: run_pipeline(spark, target.url, tmp_path), KILLS)
    reader.look()
    killer.join(RUN_SECONDS)
    assert killer.error is None
    assert killer.kills == KILLS
    reader.finish()
    kind = "stream to Parquet: Python workers and server in turn"
    check_once(kind, KILLS, expected(target), reader.rows)
    rows = spark.read.parquet(str(tmp_path / "lake")).select("seq").collect()
    assert Counter(row["seq"] for row in rows) == expected(target)


@pytest.mark.skipif(not NIGHTLY, reason="every start of a driver takes a minute: make crash-spark")
@pytest.mark.timeout(RUN_SECONDS * (DRIVER_KILLS + 1))
@pytest.mark.parametrize("target", [DRIVER_KILLS + 1], indirect=True)
def test_each_row_is_in_the_lake_once_though_the_driver_is_killed(
    target: Target, reader: Reader, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("lake_driver.py")

    def start() -> subprocess.Popen[bytes]:
        arguments = [sys.executable, str(script), target.url, str(tmp_path)]
        return subprocess.Popen(arguments, start_new_session=True)

    chance = random.Random(5)
    for number in range(DRIVER_KILLS):
        driver = start()

        def check(driver: subprocess.Popen[bytes] = driver) -> None:
            assert driver.poll() is None, "the driver ended early"

        try:
            reader.wait_for(number * ROWS_PER_KILL + chance.randint(1, ROWS_PER_KILL), check)
        finally:
            kill_driver(driver, DRIVER_VICTIMS[number % len(DRIVER_VICTIMS)])
    assert start().wait(RUN_SECONDS) == 0
    reader.finish()
    kind = "stream to Parquet: Java, driver, and all at once in turn"
    check_once(kind, DRIVER_KILLS, expected(target), reader.rows)
