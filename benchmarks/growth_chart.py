"""Draws growth curves as SVG: three panels side by side, each with a line per server.

Sizes are drawn on a logarithmic axis, so a logarithm is a straight line and a constant a level one.
Values begin at 0 unless they differ so much that the smaller ones could not be told apart.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Pairs = Sequence[tuple[float, float]]

PANEL_WIDTH, PANEL_HEIGHT = 300, 190
LEFT, TOP, GAP, BOTTOM = 58, 64, 70, 44
LOGARITHMIC_FROM = 30.0  # the largest value divided by the smallest
COLORS = ("#0b62c4", "#b4530a", "#5b7a13", "#8a2f86")
TICKS = 4
SVG = "http://www.w3.org/2000/svg"
STYLE = (
    "text{font:12px sans-serif;fill:#333}.title{font-weight:bold}"
    ".grid{stroke:#ddd}polyline{stroke-width:2}"
)


@dataclass(frozen=True)
class Panel:
    """One figure: its `title`, and the points of each line by the name of the line."""

    title: str
    lines: Mapping[str, Pairs]


@dataclass(frozen=True)
class Scale:
    """Values on an axis of `length`, from `low` to `high`."""

    low: float
    high: float
    length: float
    is_logarithmic: bool

    def place(self, value: float) -> float:
        """The distance of a value from the begin of the axis."""
        low, high = self.low, self.high
        if self.is_logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return (value - low) / (high - low) * self.length if high > low else self.length / 2

    def ticks(self) -> list[float]:
        """Values to be named on the axis."""
        if self.is_logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            step = max((last - first + TICKS) // (TICKS + 1), 1)
            powers = [10.0**power for power in range(first, last + 1, step)]
            return [each for each in powers if self.low <= each <= self.high * 1.0001]
        part = (self.high - self.low) / TICKS
        return [self.low + part * number for number in range(TICKS + 1)]


def short(value: float) -> str:
    """A number in few characters: 0.5, 20, 3k, 1M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def rounded_up(value: float) -> float:
    """The next 1, 2, 4 or 8 with zeros."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)


def value_scale(values: Sequence[float]) -> Scale:
    """The scale of the vertical axis."""
    low, high = min(values), max(values)
    if low > 0 and high / low > LOGARITHMIC_FROM:
        low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
        return Scale(low, high, PANEL_HEIGHT, is_logarithmic=True)
    return Scale(0.0, rounded_up(high) if high > 0 else 1.0, PANEL_HEIGHT, is_logarithmic=False)


def text(x: float, y: float, words: str, *, anchor: str = "middle", style: str = "") -> str:
    """One line of text."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place}{f' {style}' if style else ''}>{escape(words)}</text>"


def panel_parts(panel: Panel, left: float, colors: Mapping[str, str], things: str) -> list[str]:
    """The elements of a panel whose left edge is at `left`."""
    points = [point for line in panel.lines.values() for point in line]
    if not points:
        return [text(left, TOP - 12, panel.title, anchor="start", style='class="title"')]
    sizes = [size for size, _ in points]
    across = Scale(min(sizes), max(sizes), PANEL_WIDTH, is_logarithmic=True)
    upward = value_scale([value for _, value in points])
    base = TOP + PANEL_HEIGHT
    parts = [text(left, TOP - 12, panel.title, anchor="start", style='class="title"')]
    for tick in upward.ticks():
        y = base - upward.place(tick)
        end = left + PANEL_WIDTH
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}" class="grid"/>')
        parts.append(text(left - 6, y + 4, short(tick), anchor="end"))
    parts += [text(left + across.place(tick), base + 18, short(tick)) for tick in across.ticks()]
    parts.append(text(left + PANEL_WIDTH / 2, base + 36, things))
    for name, line in panel.lines.items():
        places = [(left + across.place(n), base - upward.place(value)) for n, value in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colors[name]}"/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colors[name]}"/>' for x, y in places
        ]
    return parts


def chart(title: str, things: str, panels: Sequence[Panel]) -> str:
    """The SVG document of one axis."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colors = {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    width = LEFT + len(panels) * PANEL_WIDTH + (len(panels) - 1) * GAP + 20
    height = TOP + PANEL_HEIGHT + BOTTOM
    size = f'width="{width}" height="{height}"'
    label = f'role="img" aria-label="{escape(title)}"'
    parts = [
        f'<svg xmlns="{SVG}" viewBox="0 0 {width} {height}" {size} {label}>',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        text(LEFT, 22, title, anchor="start", style='class="title"'),
    ]
    x = width - 20.0
    for name in reversed(names):
        parts.append(text(x, 22, name, anchor="end"))
        x -= 7.0 * len(name) + 8
        parts.append(f'<circle cx="{x:.1f}" cy="18" r="4" fill="{colors[name]}"/>')
        x -= 16
    for number, panel in enumerate(panels):
        left = LEFT + number * (PANEL_WIDTH + GAP)
        parts += panel_parts(panel, left, colors, things)
    return "\n".join([*parts, "</svg>", ""])
