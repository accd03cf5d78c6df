"""Flow diagrams: boxes in columns, with curves between them.

Owns the geometry. A box may link to a page. The number of boxes is limited; omitted ones are
mentioned below the diagram.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tradewind.dashboard.look.elements import Child, Markup, join, tag

BOX_WIDTH: Final = 192
BOX_HEIGHT: Final = 46
COLUMN_STEP: Final = 244
ROW_STEP: Final = 64
MARGIN: Final = 4
TITLE_LENGTH: Final = 24
UNDER_LENGTH: Final = 31
BOXES_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Box:
    """One box: its key for edges, its two lines, its link, and a class for its style."""

    key: str
    title: str
    under: str = ""
    href: str = ""
    mood: str = ""


def flow_graph(
    label: str, columns: Sequence[Sequence[Box]], edges: Sequence[tuple[str, str]]
) -> Markup:
    """A diagram of boxes in columns from left to right, each column centred, with edges between
    them.
    """
    shown, left_out = _bounded(columns)
    height = ROW_STEP * max((len(column) for column in shown), default=1)
    width = COLUMN_STEP * (len(shown) - 1) + BOX_WIDTH + 2 * MARGIN
    places: dict[str, tuple[float, float]] = {}
    boxes: list[Child] = []
    for number, column in enumerate(shown):
        top = (height - ROW_STEP * len(column)) / 2 + (ROW_STEP - BOX_HEIGHT) / 2
        for index, box in enumerate(column):
            x, y = MARGIN + COLUMN_STEP * number, top + ROW_STEP * index
            places[box.key] = (x, y)
            boxes.append(_drawn(box, x, y))
    curves = [
        _curve(places[one], places[other])
        for one, other in edges
        if one in places and other in places
    ]
    picture = tag(
        "svg",
        tag("title", label),
        curves,
        boxes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        class_="graph",
        role="img",
    )
    note = tag("p", f"and {left_out} more", class_="faint") if left_out else None
    return join(tag("div", picture, class_="scroll"), note)


def _bounded(columns: Sequence[Sequence[Box]]) -> tuple[list[list[Box]], int]:
    """The columns with as many boxes as a diagram can show, and the number of omitted ones."""
    filled = [list(column) for column in columns if column]
    each = max(BOXES_MAX // max(len(filled), 1), 1)
    shown = [column[:each] for column in filled]
    return shown, sum(map(len, filled)) - sum(map(len, shown))


def _drawn(box: Box, x: float, y: float) -> Markup:
    title_y = y + (20 if box.under else 28)
    title: Child = tag("text", _cut(box.title, TITLE_LENGTH), x=x + 12, y=title_y)
    if box.href:
        title = tag("a", title, href=box.href)
    return join(
        tag("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=8, class_=box.mood or None),
        title,
        tag("text", _cut(box.under, UNDER_LENGTH), x=x + 12, y=y + 37, class_="under")
        if box.under
        else None,
    )


def _curve(one: tuple[float, float], other: tuple[float, float]) -> Markup:
    x, y = one[0] + BOX_WIDTH, one[1] + BOX_HEIGHT / 2
    to_x, to_y = other[0], other[1] + BOX_HEIGHT / 2
    bend = max((to_x - x) / 2, 24)
    return tag("path", d=f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
