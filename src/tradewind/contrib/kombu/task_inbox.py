"""Messages on their way from the event loop of the client to the thread that drains events.

Owns the queue between both, and a descriptor that is readable while it may have messages: kombu's
own event loop waits for that, and so does a blocking `drain_events`.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

# A pipe holds no more.
_BELL_BYTES: Final = 1 << 16
Item = TypeVar("Item")


class TaskInbox(Generic[Item]):
    """A queue with one reader; any thread may put."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        # A descriptor that was closed may be another file's at once.
        self._lock = threading.Lock()
        self._descriptor, self._bell = os.pipe()
        for end in (self._descriptor, self._bell):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        """The descriptor; readable as long as there may be something to take."""
        return self._descriptor

    def put(self, item: Item) -> None:
        """Add an item and wake the reader."""
        self._items.append(item)
        with self._lock, suppress(BlockingIOError):  # full of earlier calls, so it is readable
            if self._bell >= 0:
                os.write(self._bell, b"\0")

    def take(self, timeout: float | None = None) -> Item | None:
        """The oldest item; None after `timeout` seconds. None as a timeout waits for ever."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._items:
                return self._items.popleft()
            # First this, then another look: what is put in between makes it readable again.
            with suppress(BlockingIOError):
                os.read(self._descriptor, _BELL_BYTES)
            if self._items:
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            poll.poll(None if left is None else max(left * 1000, 1))

    def remove(self, is_unwanted: Callable[[Item], bool]) -> list[Item]:
        """Take out what is no longer wanted; the rest stays in order."""
        removed: list[Item] = []
        for _ in range(len(self._items)):
            item = self._items.popleft()
            if is_unwanted(item):
                removed.append(item)
            else:
                self._items.append(item)
        return removed

    def close(self) -> None:
        """Free the descriptors."""
        with self._lock:
            ends = (self._descriptor, self._bell)
            self._descriptor = self._bell = -1
            for end in ends:
                if end >= 0:
                    os.close(end)
