"""Signal handling of the process, from its first line to its last.

Owns the effect of signals:

    starting  INT and TERM end the process at once, with code 0 as nats-server. Nothing is lost:
              nothing has been acknowledged yet, and the next start recovers the disk as after a
              crash. Other signals wait until the server runs.
    running   the server is notified in its event loop
    ended     INT and TERM end the process immediately

Python's default, an exception in the middle of whatever runs, would print a traceback. This module
imports almost nothing, because it is loaded before everything else.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from tradewind.server.monitoring.logs import Log

NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
}
_ENDING = (signal.SIGINT, signal.SIGTERM)


class ProcessSignals:
    """The signal handling of this process; there is one instance, in the main thread."""

    def __init__(self) -> None:
        self.log: Log | None = None
        self._tell: Callable[[signal.Signals], object] | None = None
        self._waiting: list[signal.Signals] = []
        self._before: dict[signal.Signals, Any] = {}

    def catch(self) -> None:
        """Replace the default effect of all handled signals."""
        for number in NAMES:
            signal.signal(number, self._received)

    def run(
        self, loop: asyncio.AbstractEventLoop, trapped: Callable[[signal.Signals], None]
    ) -> None:
        """Called when the server runs: `trapped` is called in `loop`, also for signals that came
        before.
        """
        for number in NAMES:
            self._before[number] = signal.signal(number, self._received)
            # Only the loop should be woken, not other calls that wait in the system.
            signal.siginterrupt(number, False)
        self._tell = lambda number: loop.call_soon_threadsafe(trapped, number)
        for number in self._waiting:
            self._tell(number)
        self._waiting.clear()

    def end(self) -> None:
        """Called when the server has stopped and its loop is about to be closed: restore the
        handlers from before `run`.
        """
        self._tell = None
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, value: int, _frame: object) -> None:
        number = signal.Signals(value)
        if self._tell is not None:
            self._tell(number)
        elif number not in _ENDING:
            self._waiting.append(number)
        else:
            if self.log is not None:
                self.log.notice(f'Trapped "{NAMES[number]}" signal')
                self.log.notice("Initiating Shutdown...")
                self.log.notice("Server Exiting..")
            os._exit(0)
