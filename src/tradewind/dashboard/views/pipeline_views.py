"""Pipelines: their flow and status, and start, stop and check."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.page_texts import count, short, span
from tradewind.dashboard.data.pipeline_data import (
    FIGURES,
    KnownPipeline,
    PipelineLook,
    lag_figures,
    look_at,
)
from tradewind.dashboard.data.samplers import Observation, Question
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    form,
    heading,
    live,
    page,
    problem_note,
    table,
)
from tradewind.dashboard.views.call import Answer, Call, PageAnswer, RedirectAnswer
from tradewind.dashboard.views.pipeline_parts import pipeline_content
from tradewind.dashboard.views.table_parts import table_card
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.running.stopping import stop_runner

if TYPE_CHECKING:
    from tradewind.dashboard.data.runs import Child as Program

SECONDS: Final = 2.0
COLUMNS: Final = ("Pipeline", "State", "Rows per second#", "Rows in all#", "Behind#", "Bad rows#")
MOODS: Final = {"running": "good", "done": "good", "failed": "bad", "starting": "warning"}
OUTPUT_LINES: Final = 40


async def show_all(call: Call) -> Answer:
    """Show all pipelines that the dashboard knows."""
    shelf = call.machine.shelf

    async def ask() -> list[PipelineLook]:
        return await asyncio.to_thread(lambda: [look_at(known) for known in shelf.known()])

    seen = await call.workspace.samplers.see(Question("pipelines", ask, SECONDS))
    rows = [_row(call, look) for look in seen.value or ()]
    empty = (
        "No pipelines found: specify a folder of pipeline files with --pipelines, or run one."
        if shelf.finds_running
        else "No pipelines found: specify a folder of pipeline files with --pipelines."
    )
    content = [
        problem_note(seen.problem),
        card("", table(COLUMNS, rows, empty=empty)),
        await table_card(call),
    ]
    top = heading("Pipelines", note="Streams, SQL and lakes on Spark, on the dashboard's machine.")
    return PageAnswer(page(call.visit, "pipelines", "Pipelines", top, live("pipelines", content)))


def _row(call: Call, look: PipelineLook) -> list[Child]:
    known = look.known
    text = known.problem or look.problem
    if not text and known.pipeline is not None:
        text = known.pipeline.head.description or str(known.path)
    link = tag("a", known.name, href=address("pipelines", known.key))
    behind = look.behind
    return [
        [link, tag("small", text)],
        state_badge(call, look),
        short(sum(query.rows_per_second for query in look.queries)) if look.is_alive else "",
        count(sum(query.rows_total for query in look.queries)) if look.queries else "",
        "" if behind is None else count(behind),
        count(sum(query.bad_rows for query in look.queries)) if look.queries else "",
    ]


def state_of(call: Call, look: PipelineLook) -> str:
    """The state of a pipeline, in one or a few words."""
    if look.known.pipeline is None:
        return "invalid file"
    run = call.machine.runs.run_of(look.known.path)
    if run is not None and run.code is None:
        if run.is_stopping:
            return "stopping"
        if look.status is None or look.status.pid != run.pid:
            return "starting"
    if look.status is None:
        return "never ran"
    if look.status.state in ("starting", "running") and not look.is_alive:
        return "gone"
    return look.status.state


def state_badge(call: Call, look: PipelineLook) -> Markup:
    """The state of a pipeline as a coloured badge."""
    state = state_of(call, look)
    moods = {**MOODS, "invalid file": "bad", "gone": "bad", "stopping": "warning"}
    return tag("span", badge(state, moods.get(state, "")), id=f"state-{look.known.key}")


# ---------------------------------------------------------------------- one pipeline


async def show(call: Call) -> Answer:
    """Show one pipeline."""
    known = await _known(call)
    seen = await _see(call, known)
    look = seen.value or PipelineLook(known)
    above = tag("a", "Pipelines", href="/pipelines")
    description = known.pipeline.head.description if known.pipeline is not None else ""
    content = [
        problem_note(seen.problem),
        tag("p", state_badge(call, look), " ", tag("span", _since(look), class_="faint")),
        _wrong(call, look),
        _actions(call, look),
        *(await pipeline_content(call, look, seen.series)),
        _program("Check", call.machine.runs.check_of(known.path)),
        _program("Output", call.machine.runs.run_of(known.path)),
    ]
    top = heading(known.name, above=above, note=description or str(known.path))
    return PageAnswer(page(call.visit, "pipelines", known.name, top, live("pipeline", content)))


async def _known(call: Call) -> KnownPipeline:
    return await asyncio.to_thread(call.machine.shelf.find, call.parts["pipeline"])


async def _see(call: Call, known: KnownPipeline) -> Observation[PipelineLook]:
    async def ask() -> PipelineLook:
        newest = await asyncio.to_thread(call.machine.shelf.find, known.key)
        return await asyncio.to_thread(look_at, newest, with_batches=True)

    key = ("pipeline", known.key)
    return await call.workspace.samplers.see(Question(key, ask, SECONDS, FIGURES, lag_figures))


def _since(look: PipelineLook) -> str:
    status = look.status
    if status is None:
        return ""
    now = time.time()
    if look.is_alive:
        where = f"as process {status.pid} of {status.host}, on {status.master}"
        return f"for {span(max(now - status.started_ns / 1e9, 0))}, {where}"
    return f"since {span(max(now - status.updated_ns / 1e9, 0))}"


def _wrong(call: Call, look: PipelineLook) -> Child:
    """The problem of a pipeline, in words; an error of an earlier run is not that of this one."""
    status = look.status
    run = call.machine.runs.run_of(look.known.path)
    texts = [look.known.problem, look.problem]
    if status is not None and not (run is not None and run.code is None):
        if status.state in ("starting", "running") and not look.is_alive:
            texts.append(
                f"The process {status.pid} that ran it is gone. The next run continues where "
                "it stopped."
            )
        texts.append(status.error)
    notes = [tag("p", text, class_="notice bad", role="alert") for text in texts if text]
    if status is not None and status.note and look.is_alive:
        notes.append(tag("p", status.note, class_="notice warning"))
    return notes


def _program(title: str, program: Program | None) -> Markup | None:
    """The output of a program that was started here."""
    if program is None:
        return None
    lines = program.output.rstrip().splitlines()
    state = (
        badge("running", "warning")
        if program.code is None
        else badge("right" if title == "Check" else "ended", "good")
        if program.code == 0
        else badge("failed", "bad")
    )
    passed = span(max(time.time() - program.started_at, 0))
    if title == "Output" and not lines and program.code in (None, 0):
        return None
    return card(
        title,
        tag("p", state, " ", tag("span", f"started {passed} ago", class_="faint")),
        tag("p", program.reason) if program.reason else None,
        tag("pre", "\n".join(lines[-OUTPUT_LINES:])) if lines else None,
    )


def _actions(call: Call, look: PipelineLook) -> Child:
    if look.known.pipeline is None:
        return None
    if refusal := call.run_refusal():
        return tag("p", refusal, class_="notice locked", data_problem="denied")
    state = state_of(call, look)
    path = ("pipelines", look.known.key)

    def button(label: str, part: str, look_of_it: str = "") -> Markup:
        made = tag("button", label, class_=look_of_it or None)
        return form(call.visit, address(*path, part), made)

    buttons: list[Child] = []
    if state == "stopping":
        buttons.append(button("Stop it immediately", "kill", "danger"))
    elif look.status is not None and look.is_alive and look.status.pid == os.getpid():
        buttons.append(tag("span", "It runs inside this program.", class_="faint"))
    elif look.is_alive or state == "starting":
        buttons.append(button("Stop", "stop"))
    else:
        buttons.append(button("Start", "start", "main"))
    buttons.append(button("Check", "check"))
    return tag("div", buttons, class_="row actions-row")


async def start(call: Call) -> Answer:
    """Run a pipeline in its own process, which ends with the dashboard."""
    call.check_may_run()
    known = await _known(call)
    look = await asyncio.to_thread(look_at, known)
    if known.pipeline is None:
        raise PipelineError(known.problem)
    if look.is_alive:
        raise PipelineError("The pipeline is already running.")
    child = call.machine.runs.start(known.path)
    return _back(call, f"It is starting as process {child.pid}, and stops with the dashboard.")


async def stop(call: Call) -> Answer:
    """Ask a pipeline to stop between two batches, even if it was started elsewhere."""
    call.check_may_run()
    known = await _known(call)
    if known.pipeline is None:
        raise PipelineError(known.problem)
    if not call.machine.runs.stop(known.path):
        await asyncio.to_thread(stop_runner, known.pipeline)
    return _back(call, "It was asked to stop, and will do so after its current batch.")


async def kill(call: Call) -> Answer:
    """Kill a process that was started here and does not stop."""
    call.check_may_run()
    known = await _known(call)
    if not call.machine.runs.kill(known.path):
        raise PipelineError("Only a run that was started here can be stopped immediately.")
    return _back(call, "It was stopped. The next run repeats its last batch.")


async def check(call: Call) -> Answer:
    """Check a pipeline without running it."""
    call.check_may_run()
    known = await _known(call)
    await call.machine.runs.check(known.path)
    return _back(call, "It is being checked, which takes as long as Spark takes to start.")


def _back(call: Call, text: str) -> RedirectAnswer:
    call.workspace.samplers.forget(("pipeline", call.parts["pipeline"]))
    call.workspace.samplers.forget("pipelines")
    return RedirectAnswer(address("pipelines", call.parts["pipeline"]), text)
