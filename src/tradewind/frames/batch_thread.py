"""A thread that reads ahead of whoever takes what it reads.

Owns one thread for each read through a server. The connection of a read runs its event loop in the
thread that takes rows, which must be the same one all the time and must have no loop of its own;
programs, notebooks and query engines promise neither. A few items are read ahead, never more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, Generic, TypeVar

AHEAD_MAX: Final = 2
Item = TypeVar("Item")


class _Passage(Generic[Item]):
    """Items on their way from one thread to another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._is_ended = False
        self._is_stopped = False
        self._error: BaseException | None = None

    def put(self, item: Item) -> bool:
        """Hand over an item; False if no more are wanted."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < AHEAD_MAX or self._is_stopped)
            self._items.append(item)
            self._changed.notify_all()
            return not self._is_stopped

    def end(self, error: BaseException | None) -> None:
        """Say that nothing more comes, and why."""
        with self._changed:
            self._is_ended, self._error = True, error
            self._changed.notify_all()

    def stop(self) -> None:
        """Say that nothing more is wanted."""
        with self._changed:
            self._is_stopped = True
            self._items.clear()
            self._changed.notify_all()

    def items(self) -> Iterator[Item]:
        """All items; the error of the other thread is raised after the last one."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_ended)
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item


def read_ahead(make: Callable[[], Generator[Item, None, None]]) -> Generator[Item, None, None]:
    """The items of a generator that is made, run and closed in a thread of its own."""
    passage = _Passage[Item]()

    def run() -> None:
        error: BaseException | None = None
        try:
            items = make()
            try:
                for item in items:
                    if not passage.put(item):
                        break
            finally:
                items.close()
        except BaseException as failure:  # raised where the items are taken
            error = failure
        passage.end(error)

    threading.Thread(target=run, name="tradewind frames", daemon=True).start()
    try:
        yield from passage.items()
    finally:
        passage.stop()
