"""Ctrl-C and SIGTERM as an event that loops can wait for.

Owns the signal handlers while a pipeline or a job runs. The first signal stops between two batches,
a second one stops immediately.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stop_event() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set; enter it after Spark's start, which has handlers."""
    event = Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    kept = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
