"""Pure arithmetic over measured values: percentiles, spread, ratios, and how they are printed."""

import math
import statistics
from collections.abc import Sequence


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank in an ascending sequence: the least value that `share` of all do not exceed."""
    if not ordered:
        raise ValueError("percentile of no values")
    rank = math.ceil(share * len(ordered))
    return ordered[max(rank, 1) - 1]


def spread(values: Sequence[float]) -> float | None:
    """(max - min) / median: how far the rounds lie apart. None if there are not two of them."""
    if len(values) < 2:
        return None
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def advantage(ours: float, peer: float, *, higher_is_better: bool) -> float | None:
    """How many times better ours is: above 1 is always in our favour. None without a divisor."""
    if ours == peer:
        return 1.0
    numerator, divisor = (ours, peer) if higher_is_better else (peer, ours)
    return numerator / divisor if divisor else None


def format_value(value: float) -> str:
    """Three significant digits for small values, thousands separators for large ones."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_ratio(value: float | None) -> str:
    """`2.31x`, with fewer decimals from 10 on; n/a if there is none."""
    if value is None:
        return "n/a"
    return f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"
