"""A thread that reads ahead of the program that takes the batches.

Owns one thread for each read through a server. The connection of a read runs its event loop in the
thread that takes rows. That must be the same thread all the time, without a loop of its own, and
programs, notebooks and query engines promise neither. A few items are read ahead, never more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, Generic, TypeVar

from tradewind.errors import TradewindError

AHEAD_MAX: Final = 2
# The time that a thread has to stop; the server may be silent.
STOP_SECONDS: Final = 2.0
Item = TypeVar("Item")


class Passage(Generic[Item]):
    """Items on their way from one thread to another."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
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

    def join(self) -> None:
        """Wait for the thread that hands over."""
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(STOP_SECONDS)

    def items(self) -> Iterator[Item]:
        """All items; the error of the other thread is raised after the last one."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_ended or self._is_stopped)
                if self._is_stopped:
                    raise ReadStoppedError("the source was closed while it was read")
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item


class ReadStoppedError(TradewindError):
    """A read was ended from outside."""


def read_ahead(
    make: Callable[[], Generator[Item, None, None]], passages: set[Passage[Item]]
) -> Generator[Item, None, None]:
    """The items of a generator that is made, run and closed in a thread of its own.

    Its passage is in `passages` as long as it runs: engines may keep a read that they have ended.
    """
    passage = Passage[Item]()

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
        passages.discard(passage)

    passage.thread = threading.Thread(target=run, name="tradewind frames", daemon=True)
    passages.add(passage)
    passage.thread.start()
    try:
        yield from passage.items()
    finally:
        passage.stop()


def stop_all(passages: set[Passage[Item]]) -> None:
    """Stop all reads, and wait for their threads."""
    running = list(passages)
    for passage in running:
        passage.stop()
    for passage in running:
        passage.join()
