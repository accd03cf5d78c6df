"""The shape of a curve: what a figure does while something grows from few to many.

Pure arithmetic over (size, value) pairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Pairs = Sequence[tuple[float, float]]

FLAT_MAX = 1.5  # growth from one end to the other that noise alone can make
# A smaller power cannot be told from a logarithm: with a million times as many, it is four times as
# much.
EXPONENT_MIN = 0.1
FLAT = "flat"
LOGARITHMIC = "logarithmic"
POWER = "power"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Shape:
    """The kind of a curve, and `growth`: the fitted value at its end divided by that at its begin.

    `exponent` is that of the power of the size which fits best.
    """

    kind: str
    growth: float
    exponent: float

    def __str__(self) -> str:
        if self.kind == UNKNOWN:
            return "n/a"
        if self.kind == POWER:
            return f"grows as n^{self.exponent:.2f}"
        return f"{self.kind} ({self.growth:.2f}x)"


def line_through(pairs: Pairs) -> tuple[float, float]:
    """The begin and the slope of the line with the least squares; at least two different x."""
    count = len(pairs)
    mean_x = sum(x for x, _ in pairs) / count
    mean_y = sum(y for _, y in pairs) / count
    spread_x = sum((x - mean_x) ** 2 for x, _ in pairs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread_x
    return mean_y - slope * mean_x, slope


def shape_of(pairs: Pairs) -> Shape:
    """Flat if the power that fits best grows by at most `FLAT_MAX`; else what fits better, a
    logarithm or that power. Unknown with fewer than three points, or where a value is not positive.
    """
    if len(pairs) < 3 or min(y for _, y in pairs) <= 0:
        return Shape(UNKNOWN, 1.0, 0.0)
    decades = [(math.log10(size), value) for size, value in pairs]
    offset, exponent = line_through([(x, math.log10(y)) for x, y in decades])
    growth = 10 ** (exponent * (decades[-1][0] - decades[0][0]))
    if growth <= FLAT_MAX:
        return Shape(FLAT, growth, exponent)
    base, per_decade = line_through(decades)
    power_error = sum((1 - 10 ** (offset + exponent * x) / y) ** 2 for x, y in decades)
    logarithm_error = sum((1 - (base + per_decade * x) / y) ** 2 for x, y in decades)
    is_logarithmic = exponent <= EXPONENT_MIN or logarithm_error <= power_error
    return Shape(LOGARITHMIC if is_logarithmic else POWER, growth, exponent)


def each_bytes(pairs: Pairs) -> float:
    """The memory of each thing in bytes, from pairs of a number of things and MiB."""
    (first, first_mib), (last, last_mib) = pairs[0], pairs[-1]
    return (last_mib - first_mib) * 2**20 / (last - first) if last > first else 0.0
