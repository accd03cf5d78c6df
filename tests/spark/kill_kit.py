"""What the tests that kill share: a server that can be killed, who kills, and a table of outcomes.

Everything is killed with the ninth signal, each time when some more rows have arrived. How often is
said by TRADEWIND_SINK_KILLS, which `make crash-spark` sets; without it, twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import kill_table
import tradewind.sync
from harness import ServerProcess

NIGHTLY = "TRADEWIND_SINK_KILLS" in os.environ
KILLS = int(os.environ.get("TRADEWIND_SINK_KILLS", "2"))
# Each start of a driver or an executor takes its time.
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


class Killer(threading.Thread):
    """Kills something each time when some more rows have arrived."""

    def __init__(
        self,
        victims: list[Callable[[], None]],
        wait_for: Callable[[int], None],
        rows_per_kill: int = ROWS_PER_KILL,
    ) -> None:
        super().__init__(daemon=True)
        self._wait_for = wait_for
        self._rows_per_kill = rows_per_kill
        self._victims = victims
        self._chance = random.Random(11)
        self.kills = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for number, kill in enumerate(self._victims):
                rows = self._rows_per_kill
                self._wait_for(number * rows + self._chance.randint(1, rows))
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


def check_once(kind: str, kills: int, expected: Counter[Any], found: Counter[Any]) -> None:
    """Each row is there once; the outcome goes into the table first, whatever it is."""
    kill_table.note(kind, kills, expected, found)
    assert found == expected
