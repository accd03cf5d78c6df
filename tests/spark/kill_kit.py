"""The frame of all kills: a server that can be killed, hosts that run a job, and who kills them.

Everything is killed with the ninth signal, at a step of a batch that chance has chosen and up to
some milliseconds later. If that ends the run of the job, it runs again, from its checkpoint. After
each kill is looked at what a reader would see, and in the end each row has to be there once.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kill_jobs import BATCH_ROWS, RUN_SECONDS, Job
from kill_reads import JOBS

import tradewind.sync
from harness import ServerProcess
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.errors import ClientError
from tradewind.errors import TradewindError
from tradewind.spark.progress.batch_log import read_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Those of a driver, which has to be started again, and those that a driver outlives.
DRIVER_VICTIMS = ("java", "python", "everything")
VICTIMS = ("worker", "server")
EXECUTOR = "executor"
# What only the Java of a driver is started with.
JAVA_SIGN = b"pyspark-shell"
# Batches that wait when a run begins whose driver is killed, or something that it outlives.
BATCHES_WAITING = 2
BATCHES_PER_RUN = 12
# How much later than its sign a kill comes, at most.
DELAY_SECONDS = 0.06
# Runs in a row that end without a kill before something else must be wrong.
MISSES_MAX = 8
EXCUSES = 2
# Of a worker whose Spark is dead.
ENDING_SECONDS = 30
ANSWER_SECONDS = 60
POLL_SECONDS = 0.002
READ_SECONDS = 0.05


class Target:
    """A server with a stream IN, which gets more rows as they are read, and a stream OUT."""

    def __init__(self, folder: Path, limits: dict[str, Any]) -> None:
        self._folder = folder
        self._limits = limits
        self._port = "-1"
        self._start()
        self.connection = tradewind.sync.connect(self.url, reconnect_wait=0.01)
        self._streams = self.connection.jetstream_manager().streams
        self._add_input()
        self._streams.add(name="OUT", subjects=["out.>"])

    def _add_input(self) -> None:
        self._streams.add(name="IN", subjects=["in.>"], **self._limits)

    def recreate_input(self) -> None:
        """Give the stream IN up for an empty one of that name."""
        self._streams.delete("IN")
        self._add_input()

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

    def last_seq(self, stream: str) -> int:
        """0 of a stream that is not there; the server may have come back just now."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._streams.info(stream).state.last_seq
            except StreamNotFoundError:
                return 0
            except ClientError:
                if time.monotonic() > deadline:
                    raise

    def fill(self, last_seq: int, payload: Callable[[int], bytes]) -> None:
        """Publish until IN ends there."""
        js = self.connection.jetstream()
        for number in range(self.last_seq("IN"), last_seq):
            js.publish_async(f"in.{number % 3}", payload(number))
        js.publish_async_completed()

    def payloads(self, stream: str) -> Counter[bytes]:
        consumer = self.connection.jetstream().consumers.ordered(stream)
        count = self._streams.info(stream).state.messages
        found: Counter[bytes] = Counter()
        while found.total() < count:
            # No more than there are, because it would be waited for them.
            left = min(count - found.total(), 1000)
            found.update(message.data for message in consumer.fetch(left))
        return found


class Host(Protocol):
    """Where a job runs."""

    pid: int

    def begin(self) -> None:
        """Start a run."""

    def is_over(self) -> bool:
        """Whether the run has ended, or the host is dead."""

    def finish(self) -> str:
        """Wait for the end of the run; gives what went wrong, or nothing."""

    def is_alive(self) -> bool:
        """Whether another run can begin."""

    def close(self) -> None:
        """Let go of everything."""


class SessionHost:
    """The session of a test."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self._spark = spark
        self._job = job
        self.pid = os.getpid()
        self._error = ""
        self._thread = threading.Thread()

    def begin(self) -> None:
        self._error = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            # Spark finds formats of Python by the session that is active in a thread.
            java = self._spark._jsparkSession
            self._spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(java)
            self._job.run(self._spark)
        except Exception as error:
            self._error = str(error)

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> str:
        self._thread.join(RUN_SECONDS)
        assert self.is_over(), "the run does not end"
        return self._error

    def is_alive(self) -> bool:
        return True

    def close(self) -> None:
        self.finish()


class DriverHost:
    """A separate driver, with its own Java; runs the job on command."""

    def __init__(self, job: Job, master: str, log: Path) -> None:
        kind = next(name for name, made in JOBS.items() if type(job) is made)
        program = Path(__file__).with_name("kill_driver.py")
        arguments = [sys.executable, str(program), kind, job.server, str(job.folder), master]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._answers: list[str] = []
        self._asked = 1  # it says that it is there
        threading.Thread(target=self._read, daemon=True).start()
        assert self.finish() == "", f"the driver does not start; see {log}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._answers.append(line.rstrip("\n"))

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._asked += 1
        with suppress(BrokenPipeError):
            self._process.stdin.write("run\n")
            self._process.stdin.flush()

    def is_over(self) -> bool:
        return len(self._answers) >= self._asked or not self.is_alive()

    def finish(self) -> str:
        wait_until(self.is_over, RUN_SECONDS)
        return self._answers[-1] if len(self._answers) >= self._asked else "the driver is dead"

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        parts = descendants(self.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        kill_all(parts)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


@dataclass
class Tally:
    """The fate of a job's rows while its parts of one kind were killed."""

    kills: int = 0
    expected: int = 0
    lost: int = 0
    doubled: int = 0
    steps: Counter[str] = field(default_factory=Counter)


class Campaign:
    """Kills while a job runs again and again."""

    def __init__(
        self,
        job: Job,
        target: Target,
        start: Callable[[], Host],
        chance: random.Random,
        batches_per_run: int,
    ) -> None:
        self.job = job
        self._target = target
        self._start = start
        self._chance = chance
        self._batches_per_run = batches_per_run
        self._host: Host | None = None
        self._leftovers: list[int] = []
        self._excuses = 0  # how many runs may still fail because of the last kill
        self.tally = Tally()
        self._is_over = threading.Event()
        self._reader_errors: list[BaseException] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while not self._is_over.wait(READ_SECONDS):
                self.job.look()
        except BaseException as error:
            self._reader_errors.append(error)

    def kill(self, victim: str) -> None:
        """Kill once, at some step; what runs end before is tried again."""
        for _ in range(MISSES_MAX):
            if step := self._try_kill(victim):
                self.tally.kills += 1
                self.tally.steps[step] += 1
                self.job.check(self._target)
                return
        raise AssertionError(f"{MISSES_MAX} runs have ended before a {victim} was killed")

    def _try_kill(self, victim: str) -> str:
        """The step that was hit; nothing if the run has ended before."""
        host = self._live_host()
        if host.is_over():
            batches = BATCHES_WAITING if victim in DRIVER_VICTIMS else self._batches_per_run
            last_seq = self._committed_seq() + batches * BATCH_ROWS
            self._target.fill(last_seq, self.job.payload)
            host.begin()
        step, sign = self._chance.choice(list(self.job.signs(self._target).items()))
        before = sign()
        wait_until(lambda: host.is_over() or not sign() <= before, RUN_SECONDS)
        threading.Event().wait(self._chance.uniform(0, DELAY_SECONDS))
        self.job.disturb(self._target)
        # Workers and executors may have to be waited for.
        is_hit = False
        while not is_hit and not host.is_over():
            is_hit = self._hit(host, victim)
            threading.Event().wait(0 if is_hit else POLL_SECONDS)
        if is_hit:
            self._excuses = EXCUSES
        if is_hit and victim in DRIVER_VICTIMS:
            wait_until(lambda: not host.is_alive(), RUN_SECONDS)
        elif host.is_over():
            self._check_run(host)
        return step if is_hit else ""

    def _check_run(self, host: Host) -> None:
        """A run may only fail if something was killed, in it or right before it.

        Spark keeps Python workers that have nothing to do, and may find them dead much later.
        """
        if error := host.finish():
            self._excuses -= 1
            assert self._excuses >= 0, f"a run failed though nobody was killed: {error}"

    def _hit(self, host: Host, victim: str) -> bool:
        if victim == "server":
            self._target.kill()
            return True
        parts = descendants(host.pid)
        if victim == "worker":
            # One or all; that which plans is among them, and its query has to be started again.
            found = python_workers(parts)
            return kill_all(self._chance.choice([found, found[:1], found[-1:]]))
        if victim == EXECUTOR:
            found = [pid for pid in parts if b"CoarseGrainedExecutorBackend" in command(pid)]
            return kill_all([self._chance.choice(found)] if found else [])
        self._leftovers = parts
        if victim == "java":
            java = [pid for pid in parts if JAVA_SIGN in command(pid)]
            assert len(java) == 1, f"a driver has one Java, not {len(java)}"
            return kill_all(java)
        if victim == "everything":
            os.killpg(host.pid, signal.SIGKILL)
            return True
        os.kill(host.pid, signal.SIGKILL)
        return True

    def _live_host(self) -> Host:
        """The host; if it is dead, another one is started at once, as a watchdog would do."""
        if self._host is None or not self._host.is_alive():
            self._host = self._start()
        if self._leftovers:
            left = self._leftovers
            self._leftovers = []
            wait_until(lambda: not any(map(command, left)), ENDING_SECONDS, fails=False)
            kill_all(left)
        return self._host

    def _committed_seq(self) -> int:
        with suppress(TradewindError):
            batches = read_batches(self.job.checkpoint)
            return max((one.last_seq for one in batches if one.state == "committed"), default=0)
        return 0

    def finish(self) -> None:
        """Run to the end, and count."""
        host = self._live_host()
        self._check_run(host)
        while True:
            host.begin()
            left = self._excuses
            self._check_run(host)
            if self._excuses == left:
                break
        expected, found = self.job.expected(self._target), self.job.found(self._target)
        self.tally.expected = expected.total()
        self.tally.lost = (expected - found).total()
        self.tally.doubled = (found - expected).total()
        assert self._reader_errors == []

    def close(self) -> None:
        self._is_over.set()
        self._reader.join(RUN_SECONDS)
        if self._host is not None:
            self._host.close()
        kill_all(self._leftovers)


@contextmanager
def campaign(
    kind: str,
    folder: Path,
    chance: random.Random,
    start: Callable[[Job], Host],
    batches_per_run: int = BATCHES_PER_RUN,
) -> Iterator[Campaign]:
    """A job with a server of its own."""
    target = Target(folder / "store", JOBS[kind].limits)
    try:
        job = JOBS[kind](target.url, folder)
        made = Campaign(job, target, lambda: start(job), chance, batches_per_run)
        try:
            yield made
        finally:
            made.close()
    finally:
        target.close()


def wait_until(is_so: Callable[[], bool], seconds: float, *, fails: bool = True) -> None:
    """Until a condition holds; not in a hurry, because others need the processor."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            assert not fails, f"waited for {seconds} s in vain"
            return
        pause.wait(POLL_SECONDS)


def python_workers(parts: list[int]) -> list[int]:
    """The processes among these that run Python for tasks: children of a daemon."""
    daemons = [pid for pid in parts if b"pyspark.daemon" in command(pid)]
    return [pid for pid in daemons if parent(pid) in daemons]


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
    """The command line of a process; empty if it is dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def kill_all(pids: list[int]) -> bool:
    """Whether one of them was still there."""
    killed = False
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed = True
    return killed
