"""Scheduled messages: pending ones with their next run, and cancelling them."""

from __future__ import annotations

import time
from typing import Final

from tradewind.dashboard.data.page_texts import count, moment, span_ns
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.data.schedule_data import (
    PendingSchedule,
    PendingSchedules,
    ask_schedules,
)
from tradewind.dashboard.look.elements import Child, address, tag
from tradewind.dashboard.look.inputs import submit, why_off
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    facts,
    form,
    heading,
    live,
    page,
    pager,
    problem_note,
    table,
)
from tradewind.dashboard.views.call import Answer, Call, PageAnswer, RedirectAnswer, number

SECONDS: Final = 15.0
ROWS: Final = 100
COLUMNS: Final = ("Next run", "In", "Stream", "Subject", "Rule", "Published to", "")
NONE: Final = (
    "There are no scheduled messages. A stream with allow_msg_schedules holds messages with the "
    "header Nats-Schedule until their time comes."
)


async def show(call: Call) -> Answer:
    """Show the schedules of all streams, or of one."""
    stream = call.query.get("stream", "").strip()
    first = number(call.query, "first")

    async def ask() -> PendingSchedules:
        return await ask_schedules(call.workspace.jetstream, stream)

    seen = await call.workspace.samplers.see(Question(("schedules", stream), ask, SECONDS))
    content: list[Child] = [problem_note(seen.problem)]
    if seen.value is not None:
        now_ns = time.time_ns()
        rows = [_row(call, each, now_ns) for each in seen.value.rows[first : first + ROWS]]
        note = f"Only the first {count(len(seen.value.rows))} are shown: choose a stream."
        content += [
            tag("p", note, class_="notice warning") if seen.value.is_cut else None,
            card(
                "",
                table(COLUMNS, rows, empty=NONE),
                pager(("schedules",), first, ROWS, len(seen.value.rows), stream=stream),
            ),
        ]
    find = tag(
        "form",
        tag(
            "input",
            type="search",
            name="stream",
            value=stream,
            placeholder="Stream",
            aria_label="Stream",
        ),
        tag("button", "Show"),
        action="/schedules",
        method="get",
        class_="row",
    )
    top = heading("Schedules", find, note="Messages that are published when their time comes")
    return PageAnswer(page(call.visit, "schedules", "Schedules", top, live("schedules", content)))


def _row(call: Call, each: PendingSchedule, now_ns: int) -> list[Child]:
    schedule, due = each.schedule, each.next_ns
    link = address("streams", schedule.stream, "messages", str(schedule.sequence))
    cancel: Child = None
    if not call.visit.is_read_only:
        target = address("schedules", schedule.stream, "cancel", subject=schedule.subject)
        cancel = tag("a", "Cancel", href=target)
    rule: list[Child] = [tag("span", schedule.rule, class_="mono")]
    if schedule.time_zone:
        rule.append(f" {schedule.time_zone}")
    if schedule.repeats:
        rule += [" ", badge("repeats")]
    left: Child = ""
    if due is not None:
        left = span_ns(due - now_ns) if due > now_ns else badge("due", "warning")
    return [
        moment(due).partition(".")[0] if due is not None else badge("never", "warning"),
        left,
        tag("a", schedule.stream, href=address("streams", schedule.stream)),
        tag("a", schedule.subject, href=link, class_="mono"),
        rule,
        tag("span", schedule.target, class_="mono"),
        cancel,
    ]


async def show_cancel(call: Call) -> Answer:
    """Ask for confirmation, with what will not run."""
    stream, subject = call.parts["stream"], call.query.get("subject", "")
    found = await call.workspace.jetstream.schedules.get(stream, subject)
    due = found.next_ns(time.time_ns())
    why_not = await call.refusal_of("stream_msg_delete", stream)
    about: list[tuple[str, Child]] = [
        ("Rule", tag("span", found.rule, class_="mono")),
        ("Published to", tag("span", found.target, class_="mono")),
        ("Next run", moment(due) if due is not None else "never"),
    ]
    ask = form(
        call.visit,
        address("schedules", stream, "cancel"),
        tag("input", type="hidden", name="subject", value=subject),
        tag(
            "div",
            submit("Cancel the schedule", why_not, class_="danger"),
            tag("a", "Keep it", href="/schedules", class_="button"),
            class_="actions",
        ),
        why_off([why_not]),
    )
    text = f"Message {count(found.sequence)} of {stream} is removed and never runs again."
    title = f"Cancel the schedule {subject}?"
    above = tag("a", "Schedules", href="/schedules")
    body = card("", tag("p", text), facts(about), ask)
    top = heading(title, above=above)
    note = call.refusal_note({})
    return PageAnswer(page(call.visit, "schedules", title, top, note, body))


async def cancel(call: Call) -> Answer:
    """Remove a schedule."""
    stream, subject = call.parts["stream"], call.fields.get("subject", "")
    await call.workspace.jetstream.schedules.cancel(stream, subject)
    for key in (("schedules", stream), ("schedules", "")):
        call.workspace.samplers.forget(key)
    return RedirectAnswer("/schedules", f"The schedule {subject} was cancelled.")
