"""A progress bar for long operations on a terminal.

Owns when it is shown: never in a pipe, so that files and logs contain only results.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tradewind.cli.frame.output import is_terminal
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A bar on the error output; nothing at all if that is not a terminal or `shown` is off.

    `total` None shows that something happens, without an end. `unit` is "bytes" or the name of
    what is counted.
    """

    def __init__(
        self, title: str, total: int | None, *, unit: str = "messages", shown: bool = True
    ) -> None:
        self._title = visible(title)
        self._total = total
        self._is_bytes = unit == "bytes"
        self._bar: Progress | None = None
        self._shown = shown and is_terminal(sys.stderr)

    def __enter__(self) -> Self:
        if self._shown:
            self._bar = _make_bar(is_bytes=self._is_bytes)
            self._bar.start()
            self._bar.add_task(self._title, total=self._total)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def set(self, done: int, total: int | None = None) -> None:
        """This much is done, of this much in all if that has changed."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total or self._total)


def _make_bar(*, is_bytes: bool) -> Progress:
    from rich import progress as rich
    from rich.console import Console

    amount: tuple[rich.ProgressColumn, ...] = (
        (rich.DownloadColumn(binary_units=True), rich.TransferSpeedColumn())
        if is_bytes
        else (rich.MofNCompleteColumn(),)
    )
    return rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(bar_width=None),
        *amount,
        rich.TimeRemainingColumn(compact=True),
        console=Console(file=sys.stderr),
        refresh_per_second=8,
    )
