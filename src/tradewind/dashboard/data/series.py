"""Time series of the last hour, in a ring of bounded size.

Owns the ring and deriving rates from counters. It never reads a clock.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

KEPT_SECONDS: Final = 3600
MOMENTS_MAX: Final = 1800
# Samples that are more than this many intervals apart have a gap between them.
GAP_INTERVALS: Final = 3.0
# Charts of a longer time show times of the clock.
CLOCK_SECONDS_MIN: Final = 20 * 60


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a time; None if it is unknown."""

    time: float
    value: float | None


@dataclass(frozen=True, slots=True)
class ChartWindow:
    """The time that charts show, in seconds since 1970; `is_fixed` if it does not move on."""

    start: float
    end: float
    is_fixed: bool = False

    @property
    def is_clock_time(self) -> bool:
        """Whether times of the clock say more than how long ago it was."""
        return self.is_fixed or self.end - self.start > CLOCK_SECONDS_MIN


class Series:
    """Several values that are sampled together; the newest replace the oldest.

    Memory is used as samples come. `interval` is the usual distance of two of them.
    """

    def __init__(self, names: Sequence[str], interval: float, size: int = MOMENTS_MAX) -> None:
        self.names = tuple(names)
        self.interval = interval
        self._size = size
        self._times = array("d")
        self._values = {name: array("d") for name in self.names}
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, self._size)

    @property
    def first_time(self) -> float | None:
        """The time of the oldest sample; None if there is none."""
        places = self._places()
        return self._times[places[0]] if places else None

    @property
    def last_time(self) -> float | None:
        """The time of the newest sample; None if there is none."""
        return self._times[(self._added - 1) % self._size] if self._added else None

    def add(self, time: float, values: Sequence[float]) -> bool:
        """Add the values of one time; False for a time that is not later than the last one, which
        is ignored.
        """
        assert len(values) == len(self.names), "one value for each name"
        if self._added and time <= self._times[(self._added - 1) % self._size]:
            return False
        place = self._added % self._size
        is_new = place == len(self._times)
        for store, value in ((self._times, time), *zip(self._values.values(), values, strict=True)):
            if is_new:
                store.append(value)
            else:
                store[place] = value
        self._added += 1
        return True

    def newest_bytes(self) -> bytes:
        """The newest values as bytes, for `add_bytes`."""
        place = (self._added - 1) % self._size
        return array("d", [store[place] for store in self._values.values()]).tobytes()

    def add_bytes(self, time: float, data: bytes) -> None:
        """Add values that were saved; those of other names are ignored."""
        if len(data) == 8 * len(self.names):
            values = array("d")
            values.frombytes(data)
            self.add(time, values)

    def samples(self) -> Iterator[tuple[float, list[float]]]:
        """All samples, oldest first."""
        for place in self._places():
            yield self._times[place], [store[place] for store in self._values.values()]

    def levels(self, name: str) -> list[Point]:
        """A value over time, oldest first, with None for gaps and for values that are not
        numbers.
        """
        points: list[Point] = []
        values = self._values[name]
        for place in self._places():
            time = self._times[place]
            if points and self._is_gap(points[-1].time, time):
                points.append(Point(time, None))
            value = values[place]
            points.append(Point(time, None if math.isnan(value) else value))
        return points

    def rates(self, name: str) -> list[Point]:
        """The growth of a counter per second. A counter that has shrunk was reset: a gap."""
        points: list[Point] = []
        values = self._values[name]
        before: int | None = None
        for place in self._places():
            time = self._times[place]
            if before is not None:
                passed = time - self._times[before]
                grown = values[place] - values[before]
                known = grown >= 0 and not self._is_gap(self._times[before], time)
                points.append(Point(time, grown / passed if known else None))
            before = place
        return points

    def growth(self, name: str) -> float:
        """By how much a counter has grown in all; a counter that was reset counts from zero."""
        values = [self._values[name][place] for place in self._places()]
        pairs = pairwise(values)
        return sum(now - before if now >= before else now for before, now in pairs)

    def last_rate(self, name: str) -> float | None:
        """The newest rate; None if it is unknown."""
        places = self._places()[-2:]
        if len(places) < 2:
            return None
        before, now = places
        passed = self._times[now] - self._times[before]
        grown = self._values[name][now] - self._values[name][before]
        is_known = grown >= 0 and not self._is_gap(self._times[before], self._times[now])
        return grown / passed if is_known else None

    def _is_gap(self, before: float, after: float) -> bool:
        return after - before > self.interval * GAP_INTERVALS

    def _places(self) -> list[int]:
        first = max(self._added - self._size, 0)
        return [number % self._size for number in range(first, self._added)]
