"""The figures that charts show: one series per subject, shared by all that sample it.

Owns the series, their number and the time that charts show. Pages that look closely and the survey
in the background add to the same series, so that a chart has no hole while no page shows it. With a
history file, one sample per minute is saved there, and longer times are read from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.dashboard.data.problems import Problem
from tradewind.dashboard.data.series import ChartWindow, Series

if TYPE_CHECKING:
    from tradewind.dashboard.data.history_file import HistoryFile

SERIES_MAX: Final = 512
# How many series the survey may begin; pages may begin the others.
SURVEYED_MAX: Final = 256
MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
SAVE_SECONDS: Final = 60.0
# Samples that wait for the file; more are dropped, oldest first.
UNSAVED_MAX: Final = 10_000
DEFAULT_RANGE: Final = "1h"
RANGES: Final[Mapping[str, int]] = {"15m": 15 * MINUTE, "1h": HOUR, "24h": DAY}
SHORTEST_SECONDS: Final = 60.0
ZOOM_SECONDS_MIN: Final = 10.0
TIME_MAX: Final = 2**40


class ChartHistory:
    """The series of one login; `clock` returns seconds since 1970."""

    def __init__(
        self, file: HistoryFile | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.file = file
        self.problem: Problem | None = None
        self._clock = clock
        self._began = clock()
        self._series: OrderedDict[Hashable, Series] = OrderedDict()
        self._surveyed: set[Hashable] = set()
        self._unsaved: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._saver: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start saving, if there is a file."""
        if self.file is not None:
            self._saver = asyncio.create_task(self._save_regularly(), name="dashboard history")

    async def close(self) -> None:
        """Save what is left, and stop."""
        if self._saver is not None:
            self._saver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._saver
            self._saver = None
            await self.save()
        if self.file is not None:
            self.file.close()

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self.save()

    async def save(self) -> None:
        """Write the samples that are not in the file yet, and remove those of yesterday."""
        if self.file is None:
            return
        rows = [(name, minute, data) for (name, minute), data in self._unsaved.items()]
        oldest = int((self._clock() - DAY) // MINUTE)
        text = await asyncio.to_thread(self.file.write, rows, oldest)
        if text:
            self.problem = Problem("failed", f"The history is not saved: {text}.")
            return
        self.problem = None
        for name, minute, _ in rows:
            self._unsaved.pop((name, minute), None)

    # ------------------------------------------------------------------ series

    def series(self, key: Hashable, names: Sequence[str], interval: float) -> Series:
        """The series of a subject, which begins now if there is none."""
        series = self._series.get(key)
        if series is None or series.names != tuple(names):
            while len(self._series) >= SERIES_MAX:
                dropped, _ = self._series.popitem(last=False)
                self._surveyed.discard(dropped)
            series = self._series[key] = Series(names, interval)
        self._series.move_to_end(key)
        series.interval = max(series.interval, interval)
        return series

    def add(self, key: Hashable, series: Series, moment: float, values: Sequence[float]) -> None:
        """Add a sample to a series, and one per minute to the file."""
        if not series.add(moment, values) or self.file is None:
            return
        minute = int(moment // MINUTE)
        self._unsaved.setdefault((_name(key), minute), series.newest_bytes())
        while len(self._unsaved) > UNSAVED_MAX:
            self._unsaved.popitem(last=False)

    def add_surveyed(
        self,
        key: Hashable,
        names: Sequence[str],
        interval: float,
        moment: float,
        values: Sequence[float],
    ) -> None:
        """Add a sample of the survey, unless it would begin one series too many."""
        if key not in self._series:
            if len(self._surveyed) >= SURVEYED_MAX:
                return
            self._surveyed.add(key)
        self.add(key, self.series(key, names, interval), moment, values)

    async def charted(self, key: Hashable, series: Series, window: ChartWindow) -> Series:
        """A series for a time, with samples of the file before those in memory."""
        first = series.first_time
        known_from = self._clock() if first is None else first
        if self.file is None or window.start >= known_from:
            return series
        minutes = (int(window.start // MINUTE), int(min(known_from, window.end) // MINUTE))
        rows = await asyncio.to_thread(self.file.read, _name(key), *minutes)
        merged = Series(series.names, max(series.interval, float(MINUTE)), len(rows) + len(series))
        for minute, data in rows:
            merged.add_bytes(minute * MINUTE, data)
        for moment, values in series.samples():
            merged.add(moment, values)
        return merged

    # ------------------------------------------------------------------ the time that is shown

    def window(self, query: Mapping[str, str]) -> ChartWindow:
        """The time that all charts of a page show: that of the address, or the last hour as far as
        there are samples.
        """
        now = self._clock()
        start, end = _seconds(query.get("from", "")), _seconds(query.get("to", ""))
        if start is not None and end is not None and end - start >= ZOOM_SECONDS_MIN:
            return ChartWindow(max(start, end - DAY), end, is_fixed=True)
        span = float(RANGES.get(query.get("range", ""), RANGES[DEFAULT_RANGE]))
        if self.file is None:
            span = min(span, HOUR)
        began = self._began if self.file is None else min(self._began, self.file.began())
        return ChartWindow(max(now - span, min(began, now - SHORTEST_SECONDS)), now)

    def ranges(self) -> list[str]:
        """The ranges that can be chosen."""
        return [name for name, span in RANGES.items() if self.file is not None or span <= HOUR]


def _name(key: Hashable) -> str:
    return msgspec.json.encode(key).decode()


def _seconds(text: str) -> float | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 13):
        return None
    return float(min(int(text), TIME_MAX))
