"""Memory and processor usage of this process, read from /proc.

Owns the sampling: processor usage needs two readings, so it is measured since the previous reading
and cached for at least a second. It never reads anything else of the system and never starts a
thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from os import PathLike

import msgspec

from tradewind.platform_calls import PROC, usable_processors

_SAMPLE_NS_MIN = 1_000_000_000
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/self/stat after the command name: utime and stime are the 14th and 15th of the
# whole line.
_USER_TICKS = 11
_SYSTEM_TICKS = 12


class ProcessUsage(msgspec.Struct, frozen=True):
    """Memory and processor usage. `cpu_percent` refers to one core, so it can exceed 100; `cores`
    exist, `cores_usable` are allowed to this process.
    """

    memory_bytes: int
    cpu_percent: float
    cores: int
    cores_usable: int


def _processor_ns(stat: str) -> int:
    """User plus system time. The command name may hold spaces and brackets, so fields count from
    its last `)`.
    """
    fields = stat[stat.rindex(")") + 1 :].split()
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) * _TICK_NS


class UsageMeter:
    """Reads the usage of this process on demand; the clock and the folder can be replaced for
    tests.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        proc: str | PathLike[str] = f"{PROC}/self",
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._proc = proc
        self._sampled_at_ns = monotonic_ns()
        self._processor_ns = self._read_processor_ns()
        self._cpu_percent = 0.0

    def _read(self, name: str) -> str:
        # Not pathlib: nothing else in a plain start needs it.
        with open(f"{self._proc}/{name}", encoding="ascii") as file:  # noqa: PTH123
            return file.read()

    def _read_processor_ns(self) -> int:
        try:
            return _processor_ns(self._read("stat"))
        except (OSError, ValueError, IndexError):
            return 0

    def _read_memory_bytes(self) -> int:
        try:
            return int(self._read("statm").split()[1]) * _PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return 0

    def read(self) -> ProcessUsage:
        """The current figures; zeros if /proc does not provide them."""
        now_ns = self._monotonic_ns()
        elapsed_ns = now_ns - self._sampled_at_ns
        if elapsed_ns >= _SAMPLE_NS_MIN:
            used_ns = self._read_processor_ns()
            self._cpu_percent = round(max(used_ns - self._processor_ns, 0) * 100 / elapsed_ns, 1)
            self._processor_ns = used_ns
            self._sampled_at_ns = now_ns
        return ProcessUsage(
            memory_bytes=self._read_memory_bytes(),
            cpu_percent=self._cpu_percent,
            cores=os.cpu_count() or 1,
            cores_usable=usable_processors(),
        )
