"""Removes the files of what was deleted, shortly after the deletions were answered.

Owns when that happens, and that it is one piece of work for all that was deleted meanwhile: a
worker that removes files beside every deletion would hold up the next one. Whatever is left at the
end of the server is removed before it ends, or by the next start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tradewind.jetstream.engine import JetStreamEngine

# How long files stay after a deletion.
DELAY_NS: Final = 100_000_000

Work = Callable[[], None]
Done = Callable[[Exception | None], None]


class LaterRemovals:
    """The removals of one engine, which is one of the engine's timers."""

    name = ""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        # By an object that they share with no other removal.
        self._waiting: dict[object, tuple[Work, Done]] = {}
        self._due_ns = 0
        self._is_running = False

    def add(self, key: object, work: Work, done: Done) -> None:
        """Add work for a worker, unless it waits already; `done` is called with its error."""
        if key in self._waiting:
            return
        self._waiting[key] = (work, done)
        if not self._due_ns and not self._is_running:
            self._due_ns = self._engine.turn.monotonic_ns + DELAY_NS
            self._engine.timers.set(self, self._due_ns)

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do; 0: never."""
        return self._due_ns

    def tick(self) -> None:
        """Begin the removals that wait."""
        waiting, self._waiting, self._due_ns = list(self._waiting.values()), {}, 0
        errors: list[Exception | None] = []

        def run() -> None:
            for work, _ in waiting:
                try:
                    work()
                    errors.append(None)
                except Exception as error:
                    errors.append(error)

        self._is_running = True
        try:
            self._engine.workers.submit(run, partial(self._ended, waiting, errors))
        except Exception:
            self._is_running = False
            raise

    def _ended(
        self,
        ran: list[tuple[Work, Done]],
        errors: list[Exception | None],
        fault: Exception | None,
    ) -> None:
        self._is_running = False
        again, self._waiting = self._waiting, {}
        for key, (work, done) in again.items():
            self.add(key, work, done)
        for (_, done), error in zip(ran, errors, strict=False):
            done(error or fault)

    def close(self) -> list[Work]:
        """End; returns the work that waits, for any thread."""
        waiting, self._waiting = self._waiting, {}
        self._engine.timers.forget(self)
        return [work for work, _ in waiting.values()]
