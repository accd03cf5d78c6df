"""Charts and tables for a terminal, as plain lines.

Owns bars and sparklines. The module takes numbers and texts, and never uses Spark or colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tradewind.visible_text import visible

BAR_PARTS: Final = " ▏▎▍▌▋▊▉█"
SPARKS: Final = "▁▂▃▄▅▆▇█"
LABEL_WIDTH_MAX: Final = 40


def bar(value: float, largest: float, width: int) -> str:
    """A bar of at most this many characters, in eighths of one; nothing for what is not above 0."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(round(min(value / largest, 1.0) * width * 8), 1)
    whole, rest = divmod(eighths, 8)
    return BAR_PARTS[8] * whole + (BAR_PARTS[rest] if rest else "")


def bars(rows: Sequence[tuple[str, float]], width: int, *, is_plain: bool = False) -> list[str]:
    """One line for each label and number; the longest bar fills the width.

    `is_plain` draws with `#`, for those who can show nothing else.
    """
    if not rows:
        return ["(no rows)"]
    labels = [shortened(visible(label), LABEL_WIDTH_MAX) for label, _ in rows]
    numbers = [number_text(value) for _, value in rows]
    label_width = max(len(label) for label in labels)
    number_width = max(len(number) for number in numbers)
    space = max(width - label_width - number_width - 4, 8)
    largest = max(value for _, value in rows)
    lines = []
    for label, number, (_, value) in zip(labels, numbers, rows, strict=True):
        drawn = bar(value, largest, space)
        if is_plain:
            drawn = "#" * len(drawn)
        lines.append(f"{label:<{label_width}}  {drawn:<{space}}  {number:>{number_width}}")
    return lines


def sparkline(values: Sequence[float]) -> str:
    """A curve of one character for each value."""
    largest = max(values, default=0)
    if largest <= 0:
        return SPARKS[0] * len(values)
    steps = len(SPARKS) - 1
    return "".join(SPARKS[round(max(value, 0) / largest * steps)] for value in values)


def number_text(value: float) -> str:
    """A number with commas and as many decimals as it needs, two at most."""
    text = f"{value:,.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shortened(text: str, width: int) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
