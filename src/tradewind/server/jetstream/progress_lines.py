"""Lines of output and, on a terminal, a progress bar below them.

Owns the display only; the caller reports how many bytes are done. A pipe or a file receives only
the lines, so that programs can read them.
"""

from __future__ import annotations

import time
from typing import TextIO

PROGRESS_SECONDS = 0.1
BAR_CHARACTERS = 30


class ProgressLines:
    """The output of results: one line each, and on a terminal a bar below them meanwhile."""

    def __init__(self, output: TextIO, total_bytes: int) -> None:
        self._output = output
        self._total_bytes = total_bytes
        self._is_terminal = output.isatty()
        self._drawn_at = 0.0
        self._is_drawn = False
        self.bytes_read = 0
        self.current = ""

    def add(self, count: int) -> None:
        """Add to the number of bytes read."""
        self.bytes_read += count
        now = time.monotonic()
        if self._is_terminal and now - self._drawn_at >= PROGRESS_SECONDS:
            self._drawn_at = now
            self._draw()

    def _draw(self) -> None:
        share = min(self.bytes_read / max(self._total_bytes, 1), 1.0)
        filled = round(share * BAR_CHARACTERS)
        bar = "#" * filled + "." * (BAR_CHARACTERS - filled)
        self._output.write(f"\r\x1b[K[{bar}] {share:4.0%} {self.current}")
        self._output.flush()
        self._is_drawn = True

    def line(self, text: str) -> None:
        """Write a permanent line."""
        if self._is_drawn:
            self._output.write("\r\x1b[K")
            self._is_drawn = False
        self._output.write(text + "\n")
        self._output.flush()
