"""Charts as SVG: lines over the last minutes, and shares of a limit.

Owns the geometry and the labels. Colours are classes of the style sheet, so that a chart follows
the light or dark theme; the script reads `data-points` to show the figures under the pointer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from tradewind.dashboard.data.page_texts import short, size
from tradewind.dashboard.data.series import KEPT_SECONDS, ChartWindow, Point
from tradewind.dashboard.look.elements import Markup, tag

WIDTH: Final = 640
HEIGHT: Final = 190
LEFT: Final = 56
RIGHT: Final = 8
TOP: Final = 10
BOTTOM: Final = 24
SHORTEST_SECONDS: Final = 60.0
# A chart has at most so many points per line, and percentiles if there are so many values.
BUCKETS: Final = 120
PERCENTILE_VALUES_MIN: Final = 5
# Readable steps of an axis, and the approximate number of lines.
_STEPS: Final = (1, 2, 2.5, 5, 10)
GRID_LINES: Final = 4
SMALLEST: Final = 1e-6
LARGEST_EXACT: Final = 2.0**50
LINES_MAX: Final = 4
# Bars: their height, and the room for their labels and numbers.
BAR_STEP: Final = 24
BAR_NUMBER: Final = 80
BAR_LETTERS: Final = 28
BAR_LETTER_WIDTH: Final = 6.6
# The space beside the chart.
LABEL_CHARACTERS: Final = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Converts times and values into positions."""

    start: float
    end: float
    bottom: float
    top: float

    def x(self, moment: float) -> float:
        return LEFT + (moment - self.start) / (self.end - self.start) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        part = (value - self.bottom) / (self.top - self.bottom)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def axis_step(largest: float, base: int = 10) -> float:
    """The distance of grid lines for values up to `largest`; for bytes with a base of 2."""
    if largest < SMALLEST or not math.isfinite(largest):
        return 1.0
    rough = largest / GRID_LINES
    if base == 2:
        return 2.0 ** math.ceil(math.log2(rough))
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * 0.999)


def _axis(least: float, most: float, base: int, step_min: float) -> tuple[float, float, float]:
    """The beginning and end of an axis, and the distance of its lines."""
    if least > LARGEST_EXACT:
        least = 0.0  # a step of 1 is invisible beside such a number
    step = max(axis_step(most - least, base), step_min)
    bottom = step * math.floor(least / step)
    return bottom, max(step * math.ceil(most / step), bottom + step), step


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    label: Callable[[float], str] = short,
    now: float | None = None,
    window: ChartWindow | None = None,
    whole: bool = False,
    from_zero: bool = True,
    percentiles: bool = False,
) -> Markup:
    """A chart of lines over a time; without `window`, over that with known values.

    With `whole`, there are no grid lines between integers. Without `from_zero`, only the range of
    the lines is shown. With `percentiles`, the legend says what is usual and what is the most.
    """
    frame_time = window or _known_time(lines, now)
    span = frame_time.end - frame_time.start
    shown = [
        Line(line.name, _bucketed(line.points, frame_time, span / BUCKETS))
        for line in lines[:LINES_MAX]
    ]
    known = [point.value for line in shown for point in line.points if point.value is not None]
    most, least = max(known, default=0.0), 0.0 if from_zero else min(known, default=0.0)
    bottom, top, step = _axis(least, most, 2 if label is size else 10, 1.0 if whole else 0.0)
    frame = _Frame(frame_time.start, frame_time.end, bottom, top)
    times = _clock_times(frame) if window is not None and window.is_clock_time else _times(frame)
    drawn = [tag("title", title), _grid(frame, step, label), times]
    for index, line in enumerate(shown):
        drawn += _paths(frame, line.points, index)
    drawn.append(tag("rect", class_="selection", x=0, y=TOP, width=0, height=HEIGHT - TOP - BOTTOM))
    drawn.append(tag("line", class_="cursor", x1=0, x2=0, y1=TOP, y2=HEIGHT - BOTTOM))
    picture = tag(
        "svg",
        drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart" if window is None else "chart zooms",
        data_points=_pointed(frame, shown, label),
    )
    legend = [
        tag(
            "span",
            tag("i", class_=f"dot line{index}"),
            f"{line.name} ",
            tag("b", _last(line, label)),
            _usual(line, frame_time, label) if percentiles else None,
        )
        for index, line in enumerate(lines[:LINES_MAX])
    ]
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), tag("span", legend, class_="legend")),
        picture,
        class_="figure",
    )


def _known_time(lines: Sequence[Line], now: float | None) -> ChartWindow:
    """The time with known values, at most as long as they are remembered."""
    moments = [point.time for line in lines for point in line.points]
    end = max(moments, default=time.time() if now is None else now)
    start = max(min(moments, default=end), end - KEPT_SECONDS)
    return ChartWindow(min(start, end - SHORTEST_SECONDS), end)


def _bucketed(points: Sequence[Point], window: ChartWindow, width: float) -> list[Point]:
    """At most one point per bucket, the mean of its values, so that the size of a chart does not
    depend on the number of samples; a gap stays a gap.
    """
    made: list[Point] = []
    bucket, values = -1, list[float]()

    def finish() -> None:
        if values:
            made.append(Point(window.start + (bucket + 0.5) * width, sum(values) / len(values)))
            values.clear()

    for point in points:
        if not window.start <= point.time <= window.end:
            continue
        here = min(int((point.time - window.start) / width), BUCKETS - 1)
        if here != bucket:
            finish()
            bucket = here
        if point.value is not None:
            values.append(point.value)
        elif made or values:
            finish()
            made.append(Point(point.time, None))
    finish()
    return made


def _usual(line: Line, window: ChartWindow, label: Callable[[float], str]) -> Markup | None:
    """The median, the 95th percentile and the largest of the values that are shown."""
    values = sorted(
        point.value
        for point in line.points
        if point.value is not None and window.start <= point.time <= window.end
    )
    if len(values) < PERCENTILE_VALUES_MIN:
        return None
    last = len(values) - 1
    parts = [("p50", values[last // 2]), ("p95", values[round(last * 0.95)]), ("max", values[last])]
    text = "  ".join(f"{name} {label(value)}" for name, value in parts)
    return tag("small", text, class_="usual")


def _pointed(frame: _Frame, lines: Sequence[Line], label: Callable[[float], str]) -> str:
    """The data with which the script shows the figures under the pointer: for each line, the
    distances of its points from the start in tenths of a second, and their texts.
    """
    made = []
    for line in lines:
        known = [(point.time, point.value) for point in line.points if point.value is not None]
        made.append(
            [
                [round((moment - frame.start) * 10) for moment, _ in known],
                [label(value) for _, value in known],
            ]
        )
    return msgspec.json.encode(
        {
            "start": round(frame.start, 1),
            "end": round(frame.end, 1),
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "width": WIDTH,
            "lines": made,
        }
    ).decode()


def _last(line: Line, label: Callable[[float], str]) -> str:
    known = [point.value for point in line.points if point.value is not None]
    return label(known[-1]) if known else "-"


def _grid(frame: _Frame, step: float, label: Callable[[float], str]) -> list[Markup]:
    drawn = []
    for number in range(round((frame.top - frame.bottom) / step) + 1):
        value = frame.bottom + number * step
        text = label(value)
        y = round(frame.y(value), 1)
        drawn.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        drawn.append(
            tag(
                "text",
                text if len(text) <= LABEL_CHARACTERS else short(value),
                class_="axis",
                x=LEFT - 6,
                y=y + 4,
                text_anchor="end",
            )
        )
    return drawn


def _times(frame: _Frame) -> list[Markup]:
    span = frame.end - frame.start
    drawn = []
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        back = span * (1 - part)
        text = (
            "now"
            if part == 1.0
            else f"{back / 60:.0f} min ago"
            if back >= 90
            else f"{back:.0f} s ago"
        )
        drawn.append(
            tag(
                "text",
                text,
                class_="axis",
                x=round(frame.x(frame.start + span * part), 1),
                y=HEIGHT - 7,
                text_anchor=anchor,
            )
        )
    return drawn


def _clock_times(frame: _Frame) -> list[Markup]:
    """The times of the clock below a chart, in UTC; the script shows them as visitors prefer."""
    span = frame.end - frame.start
    drawn = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if part == 0.0 else "end" if part == 1.0 else "middle"
        moment = frame.start + span * part
        drawn.append(
            tag(
                "text",
                datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S" if span < 600 else "%H:%M"),
                class_="axis",
                x=round(frame.x(moment), 1),
                y=HEIGHT - 7,
                text_anchor=anchor,
                data_clock=round(moment),
            )
        )
    return drawn


def _paths(frame: _Frame, points: Sequence[Point], index: int) -> list[Markup]:
    """A path for each run of known values, with the area below it for the first line."""
    drawn: list[Markup] = []
    run: list[tuple[float, float]] = []

    def finish() -> None:
        if not run:
            return
        if len(run) == 1:
            x, y = run[0]
            drawn.append(tag("circle", class_=f"dot line{index}", cx=x, cy=y, r=2))
        else:
            line = "M" + "L".join(f"{x} {y}" for x, y in run)
            if index == 0:
                floor = HEIGHT - BOTTOM
                area = f"{line}L{run[-1][0]} {floor}L{run[0][0]} {floor}Z"
                drawn.append(tag("path", class_=f"area line{index}", d=area))
            drawn.append(tag("path", class_=f"stroke line{index}", d=line))
        run.clear()

    for point in points:
        if point.time < frame.start:
            continue
        if point.value is None:
            finish()
        else:
            run.append((round(frame.x(point.time), 1), round(frame.y(point.value), 1)))
    finish()
    return drawn


def bar_chart(title: str, bars: Sequence[tuple[str, float]]) -> Markup:
    """A chart with one bar per label, one below the other; bars of negative values point to the
    left.
    """
    values = [value for _, value in bars]
    low, high = min([0.0, *values]), max([0.0, *values])
    longest = max((min(len(label), BAR_LETTERS) for label, _ in bars), default=0)
    start = 16 + BAR_LETTER_WIDTH * longest
    unit = (WIDTH - start - BAR_NUMBER) / (high - low) if high > low else 0.0
    zero = start - low * unit
    drawn: list[Markup] = [tag("title", title)]
    for index, (label, value) in enumerate(bars):
        y = index * BAR_STEP
        shown = label if len(label) <= BAR_LETTERS else f"{label[: BAR_LETTERS - 1]}…"
        left, right = sorted((zero, zero + value * unit))
        drawn += [
            tag("text", shown, class_="axis", x=start - 8, y=y + 16, text_anchor="end"),
            tag(
                "rect",
                class_="bar",
                x=round(left, 1),
                y=y + 3,
                width=round(max(right - left, 1.0), 1),
                height=BAR_STEP - 6,
                rx=3,
            ),
            tag("text", f"{value:,.6g}", class_="axis", x=round(right + 6, 1), y=y + 16),
        ]
    picture = tag(
        "svg",
        drawn,
        viewBox=f"0 0 {WIDTH} {max(len(bars), 1) * BAR_STEP}",
        role="img",
        class_="chart bars",
    )
    return tag("figure", tag("figcaption", tag("strong", title)), picture, class_="figure bars")


def share(used: float, most: float, text: str) -> Markup:
    """A bar for the used share of a limit, with its text."""
    part = min(max(used / most, 0.0), 1.0) if most > 0 else 0.0
    mood = "bad" if part >= 0.9 else "warning" if part >= 0.75 else "good"
    return tag(
        "div",
        tag("meter", value=round(part, 4), min=0, max=1, class_=mood, aria_label=text),
        tag("span", text),
        class_="share",
    )
