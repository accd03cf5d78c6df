"""A histogram of durations with a fixed size for any number of measurements.

Owns the buckets and the percentiles; each is accurate to 1.6 %, while minimum, maximum and mean are
exact. It never reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tradewind.cli.frame.text_formats import short_duration

# 64 buckets for each power of two: a value differs from the middle of its bucket by at most 1/128.
_BITS: Final = 6
_PER_OCTAVE: Final = 1 << _BITS
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_BAR_WIDTH: Final = 40


@dataclass(frozen=True, slots=True)
class Range:
    """How many measurements lie above one duration and up to another."""

    up_to_ns: int
    count: int


class Histogram:
    """Durations in nanoseconds. 0 and up; what is below counts as 0."""

    __slots__ = ("_counts", "count", "max_ns", "min_ns", "sum_ns")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.sum_ns = 0
        self.min_ns = 0
        self.max_ns = 0

    def add(self, duration_ns: int) -> None:
        """One more measurement."""
        duration_ns = max(duration_ns, 0)
        shift = max(duration_ns.bit_length() - _BITS - 1, 0)
        index = (shift << _BITS) + (duration_ns >> shift)
        self._counts[index] = self._counts.get(index, 0) + 1
        if not self.count or duration_ns < self.min_ns:
            self.min_ns = duration_ns
        self.max_ns = max(self.max_ns, duration_ns)
        self.count += 1
        self.sum_ns += duration_ns

    def merge(self, other: Histogram) -> None:
        """All measurements of another histogram, too."""
        if not other.count:
            return
        for index, count in other._counts.items():
            self._counts[index] = self._counts.get(index, 0) + count
        self.min_ns = min(self.min_ns, other.min_ns) if self.count else other.min_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self.count += other.count
        self.sum_ns += other.sum_ns

    @property
    def mean_ns(self) -> float:
        """The mean of all measurements; 0 without any."""
        return self.sum_ns / self.count if self.count else 0.0

    def percentile_ns(self, percent: float) -> int:
        """The duration that this many percent of the measurements do not exceed."""
        wanted = max(self.count * percent / 100, 1)
        seen = 0
        for index in sorted(self._counts):
            seen += self._counts[index]
            if seen >= wanted:
                low, high = _bounds(index)
                return min(max((low + high) // 2, self.min_ns), self.max_ns)
        return self.max_ns

    def ranges(self, count_max: int = 12) -> list[Range]:
        """The measurements in at most this many ranges, each with a round upper end."""
        if not self.count:
            return []
        ends = [end for end in _round_ends() if end >= self.min_ns]
        last = next(index for index, end in enumerate(ends) if end >= self.max_ns)
        ends = ends[: last + 1]
        step = -(-len(ends) // count_max)
        ends = ends[::-1][::step][::-1]
        counts = [0] * len(ends)
        for index, count in self._counts.items():
            low, high = _bounds(index)
            middle = min(max((low + high) // 2, self.min_ns), self.max_ns)
            counts[next(i for i, end in enumerate(ends) if end >= middle)] += count
        return [Range(end, count) for end, count in zip(ends, counts, strict=True)]

    def lines(self) -> Iterator[str]:
        """The histogram as text: percentiles, then a bar for each range."""
        if not self.count:
            return
        named = [("min", self.min_ns), *((f"p{p:g}", self.percentile_ns(p)) for p in PERCENTILES)]
        named += [("max", self.max_ns), ("mean", round(self.mean_ns))]
        yield "Latency: " + ", ".join(f"{name} {short_duration(value)}" for name, value in named)
        yield ""
        rows = self.ranges()
        highest = max(row.count for row in rows)
        for row in rows:
            bar = "█" * round(row.count / highest * _BAR_WIDTH) or ("▏" if row.count else "")
            share = row.count / self.count * 100
            yield f"{short_duration(row.up_to_ns):>9} │{bar:<{_BAR_WIDTH}} {share:5.1f}%"

    def as_dict(self) -> dict[str, int]:
        """The figures for JSON output: count, percentiles and extremes, in nanoseconds."""
        figures = {
            f"p{str(p).removesuffix('.0').replace('.', '_')}_ns": self.percentile_ns(p)
            for p in PERCENTILES
        }
        return {
            "count": self.count,
            "min_ns": self.min_ns,
            **figures,
            "max_ns": self.max_ns,
            "mean_ns": round(self.mean_ns),
        }


def _bounds(index: int) -> tuple[int, int]:
    """The smallest and the largest duration of a bucket."""
    shift = max((index >> _BITS) - 1, 0)
    low = (index - (shift << _BITS)) << shift
    return low, low + (1 << shift) - 1


def _round_ends() -> Iterator[int]:
    """1, 2 and 5 ns, and all these times ten, without an end that anybody reaches."""
    scale = 1
    while scale < 10**19:
        yield from (scale, scale * 2, scale * 5)
        scale *= 10
