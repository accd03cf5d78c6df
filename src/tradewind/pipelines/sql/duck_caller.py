"""Asks a DuckDB in a process of its own, with the protocol of the SQL service.

Owns the process: one for each question, which ends with its answer or when its caller hangs up. A
query that runs away takes neither the memory nor the interpreter of its caller. The module imports
no engine.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from typing import Final

from tradewind._version import __version__
from tradewind.pipelines.sql.caller import Caller
from tradewind.pipelines.sql.wire import Channel, Welcome

PROGRAM: Final = "tradewind.pipelines.sql.duck_process"
END_SECONDS: Final = 5.0


class DuckCaller(Caller):
    """A connection to a process that answers one question."""

    def __init__(self, channel: Channel, process: subprocess.Popen[bytes]) -> None:
        super().__init__(channel, Welcome(__version__))
        self._process = process

    def close(self) -> None:
        """Hang up, and wait for the process."""
        super().close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                self._process.kill()
            self._process.wait()


def start_duck() -> DuckCaller:
    """A process that waits for a question."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", PROGRAM],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return DuckCaller(Channel(ours), process)
