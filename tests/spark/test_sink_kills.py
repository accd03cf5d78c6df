"""A streaming query from one stream to another one, while everything it needs is killed.

The Python workers of Spark, the server, the driver, its Java and everything at once are killed with
the ninth signal, each time when some more rows have arrived. `make crash-spark` does it hundreds of
times; only there drivers are killed. `tests/faults/test_sink_attempts.py` kills many attempts
without Spark.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import run_query

import tradewind.sync
from harness import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NIGHTLY = "TRADEWIND_SINK_KILLS" in os.environ
KILLS = int(os.environ.get("TRADEWIND_SINK_KILLS", "2"))
DRIVER_KILLS = max(KILLS // 10, 1)
ROWS_PER_KILL = 300
RUN_SECONDS = 600
DRIVER_VICTIMS = ("java", "everything", "driver")
# Of a worker whose Spark is dead.
ENDING_SECONDS = 20


class Target:
    """A server with a stream IN that is full and a stream OUT that is to get the same."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder = folder
        self._port = "-1"
        self._start()
        self.connection = tradewind.sync.connect(self.url, reconnect_wait=0.01)
        self.streams = self.connection.jetstream_manager().streams
        self.streams.add(name="IN", subjects=["in.>"])
        self.streams.add(name="OUT", subjects=["out.>"])
        js = self.connection.jetstream()
        for number in range(rows):
            js.publish_async(f"in.{number % 5}", b"%d" % (number // 2))
        js.publish_async_completed()

    def _start(self) -> None:
        arguments = ["-js", "-sd", str(self._folder), "-a", "127.0.0.1", "-p", self._port]
        self._process = ServerProcess("tradewind", arguments).wait_ready()
        self._port = str(self._process.port)
        self.url = self._process.url

    def kill(self) -> None:
        self._process.process.kill()
        self._process.wait()
        self._start()

    def close(self) -> None:
        self.connection.close()
        self._process.stop()

    def wait_for(self, rows: int, check: Callable[[], None] = lambda: None) -> None:
        """Until OUT has so many rows; not in a hurry, because others need the processor."""
        pause = threading.Event()
        while self.streams.info("OUT").state.messages < rows:
            check()
            pause.wait(0.05)

    def payloads(self, stream: str) -> Counter[bytes]:
        consumer = self.connection.jetstream().consumers.ordered(stream)
        count = self.streams.info(stream).state.messages
        found: Counter[bytes] = Counter()
        while found.total() < count:
            found.update(message.data for message in consumer.fetch(1000))
        return found


@pytest.fixture
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    made = Target(tmp_path / "store", request.param * ROWS_PER_KILL)
    try:
        yield made
    finally:
        made.close()


class Killer(threading.Thread):
    """Kills something each time when OUT has got some more rows."""

    def __init__(self, target: Target, victims: list[Callable[[], None]]) -> None:
        super().__init__(daemon=True)
        self._target = target
        self._victims = victims
        self._chance = random.Random(11)
        self.kills = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for number, kill in enumerate(self._victims):
                wanted = number * ROWS_PER_KILL + self._chance.randint(1, ROWS_PER_KILL)
                self._target.wait_for(wanted)
                kill()
                self.kills += 1
        except BaseException as error:
            self.error = error


def python_workers() -> list[int]:
    """The processes that run Python for the Spark of this process."""
    daemons = [pid for pid in descendants(os.getpid()) if b"pyspark.daemon" in command(pid)]
    return [pid for pid in daemons if any(parent(pid) == other for other in daemons)]


def descendants(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def kill_workers() -> None:
    """Those that run now; there are some as long as rows arrive."""
    while not (workers := python_workers()):
        pass
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(RUN_SECONDS * max(KILLS // 10, 2))
@pytest.mark.parametrize("target", [KILLS], indirect=True)
def test_each_row_arrives_once_whatever_is_killed(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    killer = Killer(target, [(kill_workers, target.kill)[n % 2] for n in range(KILLS)])
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
    assert target.payloads("OUT") == target.payloads("IN")


def finish(run: Callable[[], Any], failures_max: int) -> None:
    """Begin again until a run succeeds, but not forever."""
    for left in range(failures_max, -1, -1):
        try:
            run()
        except Exception:
            if left == 0:
                raise
        else:
            return


def kill_driver(driver: subprocess.Popen[bytes], victim: str) -> None:
    """Kill one part of a driver, and let the others find out, as they do on a real machine."""
    parts = descendants(driver.pid)
    if victim == "java":
        for pid in parts:
            if b"java" in command(pid).split(b"\0")[0]:
                os.kill(pid, signal.SIGKILL)
    elif victim == "driver":
        driver.kill()
    else:
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(RUN_SECONDS)
    pause = threading.Event()
    deadline = time.monotonic() + ENDING_SECONDS
    while any(map(command, parts)) and time.monotonic() < deadline:
        pause.wait(0.05)
    for pid in parts:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


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
    assert target.payloads("OUT") == target.payloads("IN")
