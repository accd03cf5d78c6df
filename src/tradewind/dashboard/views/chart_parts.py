"""Parts that pages with charts share: the choice of the time, and series for that time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.dashboard.data.chart_history import DEFAULT_RANGE
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import problem_note

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tradewind.dashboard.data.samplers import Observation
    from tradewind.dashboard.data.series import Series
    from tradewind.dashboard.views.call import Call


def chart_ranges(call: Call, *path: str) -> Markup:
    """Links to the times that charts can show."""
    history, window = call.workspace.history, call.window
    here = "" if window.is_fixed else call.query.get("range", DEFAULT_RANGE)
    links: list[Child] = [
        tag(
            "a",
            name,
            href=address(*path, range=name if name != DEFAULT_RANGE else None),
            aria_current="true" if name == here else None,
        )
        for name in history.ranges()
    ]
    if window.is_fixed:
        links.append(tag("a", "Reset zoom", href=address(*path), aria_current="true"))
    links.append(tag("span", "Drag over a chart to zoom", class_="faint"))
    return tag("p", links, class_="ranges", aria_label="Time of the charts", role="group")


def history_problem(call: Call) -> Markup | None:
    """The note that the history cannot be saved."""
    return problem_note(call.workspace.history.problem)


async def charted(call: Call, key: Hashable, seen: Observation[Any]) -> Series:
    """The series of a question for the time that the page shows."""
    return await call.workspace.history.charted(key, seen.series, call.window)
