"""A screen that is updated in place, for commands with live output.

Owns the terminal while it runs. In a pipe nothing is redrawn: only the last screen is printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tradewind.cli.frame.output import flush, is_terminal, line, painted

if TYPE_CHECKING:
    from rich.live import Live


class LiveScreen(AbstractContextManager["LiveScreen"]):
    """Shows lines in place of the ones before; without a terminal the last ones at the end."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._last: Sequence[str] = ()
        self._shown_at = 0.0

    @property
    def is_live(self) -> bool:
        """Whether the output is a terminal."""
        return is_terminal(sys.stdout)

    def __enter__(self) -> Self:
        if self.is_live:
            from rich.live import Live

            self._live = Live(auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        for each in self._last:
            line(each)
        flush()

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines now."""
        self._last = lines
        self._shown_at = time.monotonic()
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text.from_ansi(painted("\n".join(lines)), no_wrap=True), refresh=True)

    def show_sometimes(self, lines: Callable[[], Sequence[str]], seconds: float) -> None:
        """Show lines if the last ones are older than this many seconds."""
        if time.monotonic() - self._shown_at >= seconds:
            self.show(lines())
