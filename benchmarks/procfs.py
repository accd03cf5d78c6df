"""What the kernel counts: CPU time and memory of a server's processes, and of the whole machine.

A server is started as the leader of its own session; every process of that session is counted, so
a server that works in child processes pays for them.

CPU time comes from each process's CPU clock, in ns. /proc/<pid>/stat counts the same time, but in
ticks of 10 ms, which is too coarse for a server that handles a million messages in ten of them.
"""

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CPU_CLOCK_KIND = 2  # all threads of a process, in ns; the low bits of a CPU clock's id


@dataclass(frozen=True)
class ProcessStat:
    """The fields of /proc/<pid>/stat that the benchmarks use."""

    pid: int
    session: int


@dataclass(frozen=True)
class Usage:
    """What all processes of one session use at one moment."""

    cpu_s: float
    rss_kib: int
    rss_peak_kib: int
    anonymous_kib: int


def parse_stat(text: str) -> ProcessStat:
    """Parses /proc/<pid>/stat. The name may hold spaces and parentheses: only the last ) counts."""
    pid = int(text[: text.index(" ")])
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStat(pid=pid, session=int(fields[3]))


def process_cpu_s(pid: int) -> float:
    """User and system time of all threads of a process, also of ended ones; OSError if it is gone.

    The id of another process's clock is what clock_getcpuclockid(3) computes on Linux.
    """
    return time.clock_gettime((~pid << 3) | CPU_CLOCK_KIND)


def parse_status_kib(text: str, key: str) -> int:
    """The value of one `Key:   123 kB` line of /proc/<pid>/status; 0 if it is absent."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    return 0


def parse_machine_busy_s(text: str) -> float:
    """CPU seconds the machine has worked, from the first line of /proc/stat: all but idle time."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, text.split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def session_usage(session: int) -> Usage:
    """Sums over the processes of a session; one that ends while it is read is left out."""
    cpu_s = 0.0
    rss_kib = rss_peak_kib = anonymous_kib = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = parse_stat((folder / "stat").read_text())
            if stat.session != session:
                continue
            status = (folder / "status").read_text()
            cpu_s += process_cpu_s(stat.pid)
        except OSError:
            continue
        rss_kib += parse_status_kib(status, "VmRSS")
        rss_peak_kib += parse_status_kib(status, "VmHWM")
        anonymous_kib += parse_status_kib(status, "RssAnon")
    return Usage(cpu_s, rss_kib, rss_peak_kib, anonymous_kib)


class TreeClock:
    """CPU time of a process and all below it, also of those that were seen and have ended.

    Spark ends Python processes that it does not need, and nobody asks what they have used: their
    time must not vanish with them. What one does between the last look at it and its end is lost.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, float] = {}
        self._ended_s = 0.0  # of processes whose id another one has now

    def read_s(self) -> float:
        """CPU seconds up to now; never fewer than before."""
        for pid in _tree(self._pid):
            try:
                cpu_s = process_cpu_s(pid)
            except OSError:
                continue
            before_s = self._seen.get(pid, 0.0)
            if cpu_s < before_s:
                self._ended_s += before_s
            self._seen[pid] = cpu_s
        return self._ended_s + sum(self._seen.values())

    def pids(self) -> list[int]:
        """All processes that were seen."""
        return list(self._seen)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        for child in _children(thread):
            yield from _tree(int(child))


def _children(thread: Path) -> list[str]:
    try:
        return (thread / "children").read_text().split()
    except OSError:
        return []


def own_cpu_s() -> float:
    """CPU seconds of this process, which is the load generator."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Meter:
    """Measures the block of a `with`: wall time, and CPU of server, generator and anyone else.

    Reading takes some ms itself, so what must be exact is read last at the start and first at the
    end. The machine's time is read outermost and belongs to a longer span of its own.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self.wall_s = self.server_cpu_s = self.generator_cpu_s = 0.0
        self.other_cpu_share = 0.0  # of one core

    def __enter__(self) -> "Meter":
        self._span_start = time.perf_counter()
        self._machine_start = parse_machine_busy_s(Path("/proc/stat").read_text())
        self._own_span_start = own_cpu_s()
        self._server_start = session_usage(self._session).cpu_s
        self._own_start = own_cpu_s()
        self._wall_start = time.perf_counter()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wall_s = time.perf_counter() - self._wall_start
        self.generator_cpu_s = own_cpu_s() - self._own_start
        self.server_cpu_s = session_usage(self._session).cpu_s - self._server_start
        own_s = own_cpu_s() - self._own_span_start
        machine_s = parse_machine_busy_s(Path("/proc/stat").read_text()) - self._machine_start
        span_s = time.perf_counter() - self._span_start
        self.other_cpu_share = max(machine_s - self.server_cpu_s - own_s, 0.0) / span_s
