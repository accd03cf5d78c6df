"""A command on a terminal of its own: what it shows is awaited, and keys are pressed.

Owns the pseudo terminal and the process. The screen is the text as it was sent, with cursor codes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

SECONDS = 60
UP, DOWN, INTERRUPT = "\x1b[A", "\x1b[B", "\x03"


class TerminalSession:
    """A run of `tradewind` on a terminal of 80x24."""

    def __init__(self, *args: str, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {"TERM": "xterm", "NO_COLOR": "1", **variables}
        unlimited = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tradewind.cli", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**unlimited, **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.shown = ""
        self._seen = 0

    def wait(self, text: str) -> str:
        """What is shown until a text comes that was not awaited before, that text included."""
        end = time.monotonic() + SECONDS
        while (found := self.shown.find(text, self._seen)) < 0:
            assert self._read(end), f"{text!r} did not come:\n{self.shown[self._seen :]}"
        before, self._seen = self._seen, found + len(text)
        return self.shown[before : self._seen]

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def answer(self, question: str, keys: str) -> str:
        """Wait for a question, answer it, and press Enter; what was shown before."""
        before = self.wait(question)
        self.type(f"{keys}\n")
        return before

    def end(self) -> int:
        """Wait for the end; the exit code."""
        limit = time.monotonic() + SECONDS
        while self._read(limit):
            pass
        os.close(self._ours)
        return self._process.wait(SECONDS)

    def _read(self, end: float) -> bool:
        """Whether more was shown; not after the end of the process."""
        ready, _, _ = select.select([self._ours], [], [], max(end - time.monotonic(), 0))
        assert ready, f"nothing more came:\n{self.shown}"
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux reports the end of a terminal like this
            return False
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
