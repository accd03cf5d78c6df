"""Time series of the last minutes, in a ring of fixed size.

Owns the ring and deriving rates from counters. It never reads a clock.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

KEPT_SECONDS: Final = 15 * 60
MOMENTS_MAX: Final = 450
# Samples that are more than this many intervals apart have a gap between them.
GAP_INTERVALS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a time; None if it is unknown."""

    time: float
    value: float | None


class Series:
    """Several values that are sampled together; the newest replace the oldest."""

    def __init__(self, names: Sequence[str], interval: float) -> None:
        self.names = tuple(names)
        self.interval = interval
        self._times = array("d", [0.0]) * MOMENTS_MAX
        self._values = {name: array("d", [0.0]) * MOMENTS_MAX for name in self.names}
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, MOMENTS_MAX)

    def add(self, time: float, values: Sequence[float]) -> None:
        """Add the values of one time; a time that is not later than the last one is ignored."""
        assert len(values) == len(self.names), "one value for each name"
        if self._added and time <= self._times[(self._added - 1) % MOMENTS_MAX]:
            return
        place = self._added % MOMENTS_MAX
        self._times[place] = time
        for name, value in zip(self.names, values, strict=True):
            self._values[name][place] = value
        self._added += 1

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
        points = self.rates(name)
        return points[-1].value if points else None

    def _is_gap(self, before: float, after: float) -> bool:
        return after - before > self.interval * GAP_INTERVALS

    def _places(self) -> list[int]:
        first = max(self._added - MOMENTS_MAX, 0)
        return [number % MOMENTS_MAX for number in range(first, self._added)]
