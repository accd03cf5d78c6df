"""Processor time: what work costs, whatever else the machine does meanwhile.

Nothing here uses the code under test.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

# The kind of clock that counts what the scheduler has given to a process (clock_getcpuclockid(3)).
_SCHEDULED = 2


def process_seconds(process_id: int) -> float:
    """The processor time that all threads of a process have used so far."""
    return time.clock_gettime(~process_id << 3 | _SCHEDULED)


def thread_seconds(work: Callable[[], object], *, times: int) -> float:
    """The least processor time of this thread that the work took, of several times."""
    least = float("inf")
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            start = time.thread_time()
            work()
            least = min(least, time.thread_time() - start)
    finally:
        if was_collecting:
            gc.enable()
    return least
