"""The lake tables of streams, as a part of the page of pipelines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.page_texts import count, size, span
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.data.table_data import TableLook, look_at_tables
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import badge, card, problem_note, table
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.dashboard.views.call import Call

SECONDS: Final = 5.0
COLUMNS: Final = (
    *("Stream", "Table", "State", "Rows#", "Files#", "Size#", "Last commit", "Behind#"),
    "Rescued#",
)
MOODS: Final = {"running": "good", "done": "good", "failed": "bad", "starting": "warning"}


async def table_card(call: Call) -> Markup | None:
    """The tables of all streams; None if no stream has one."""
    workspace = call.workspace
    # A status is a file of this machine, for visitors who may see its pipelines as well.
    reads_files = call.machine.shelf.finds_running

    async def ask() -> list[TableLook]:
        return await look_at_tables(workspace, reads_files=reads_files)

    seen = await workspace.samplers.see(Question("tables", ask, SECONDS))
    rows = [_row(look) for look in seen.value or ()]
    if not rows:
        return problem_note(seen.problem)
    return card("Tables of streams", problem_note(seen.problem), table(COLUMNS, rows, empty=""))


def _row(look: TableLook) -> list[Child]:
    spec, status = look.table.spec, look.status
    place = f"{spec.format} in {spec.to}" if spec is not None else ""
    problem = look.problem or (status.error if status is not None else "")
    link = tag("a", look.table.stream, href=address("streams", look.table.stream))
    start: list[Child] = [link, [place, tag("small", problem) if problem else None], _state(look)]
    if status is None:
        return [*start, *[""] * (len(COLUMNS) - len(start))]
    figures, behind = status.figures, status.behind_messages
    return [
        *start,
        count(figures.rows),
        count(figures.files),
        size(figures.bytes),
        _ago(figures.committed_ns),
        "" if behind is None else count(behind),
        count(status.rescued),
    ]


def _ago(time_ns: int) -> str:
    passed = (time.time_ns() - time_ns) / SECOND_NS
    return f"{span(max(passed, 0))} ago" if time_ns else "never"


def _state(look: TableLook) -> Markup:
    if look.table.problem:
        return badge("invalid", "bad")
    if look.status is None:
        return badge("no status here")
    state = look.status.state
    if state in ("starting", "running") and not look.status.is_alive:
        return badge("gone", "bad")
    return badge(state, MOODS.get(state, ""))
