"""Services: their endpoints with requests, errors and times, and their instances."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.page_texts import count, many, short, span_ns
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.data.service_data import (
    FIGURES,
    EndpointLoad,
    ServiceLoads,
    ask_services,
    figures,
)
from tradewind.dashboard.look.charts import Line, line_chart
from tradewind.dashboard.look.elements import Child, address, tag
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    figure_card,
    grid,
    heading,
    live,
    page,
    problem_note,
    table,
)
from tradewind.dashboard.views.call import Answer, Call, PageAnswer
from tradewind.durations import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS

if TYPE_CHECKING:
    from tradewind.dashboard.data.samplers import Observation

SECONDS: Final = 5.0
INSTANCES_SHOWN: Final = 100
COLUMNS: Final = (
    *("Service", "Endpoint", "Subject", "Instances#", "Requests#", "Errors#", "Average time#"),
    *("Last error", ""),
)


async def show(call: Call) -> Answer:
    """Show all services that answer."""

    async def ask() -> ServiceLoads:
        return await ask_services(call.workspace.connection)

    seen = await call.workspace.samplers.see(Question("services", ask, SECONDS, FIGURES, figures))
    content = live("services", _content(call, seen))
    note = "Everything that answers $SRV.STATS with this login"
    top = heading("Services", note=note)
    return PageAnswer(page(call.visit, "services", "Services", top, content))


def _content(call: Call, seen: Observation[ServiceLoads]) -> list[Child]:
    loads = seen.value
    if loads is None:
        return [problem_note(seen.problem)]
    requests = sum(each.requests for each in loads.endpoints)
    errors = sum(each.errors for each in loads.endpoints)
    services = {each.service for each in loads.instances}
    chart = line_chart(
        "Per second",
        [
            Line("requests", seen.series.rates("requests")),
            Line("errors", seen.series.rates("errors")),
        ],
        label=short,
    )
    busy = line_chart(
        "Busy with requests, seconds per second",
        [Line("seconds", seen.series.rates("processing_ns"))],
        label=lambda value: f"{value / SECOND_NS:.3g}",
    )
    rows = [_row(call, each) for each in loads.endpoints]
    empty = "No service has answered. Services are clients that use the NATS micro API."
    return [
        problem_note(seen.problem),
        tag("p", "Only some of the services are shown.", class_="notice warning")
        if loads.is_cut
        else None,
        tag(
            "div",
            figure_card("Services", count(len(services))),
            figure_card("Instances", count(len(loads.instances))),
            figure_card("Requests", count(requests)),
            figure_card("Errors", count(errors), mood="bad" if errors else ""),
            class_="numbers",
        ),
        grid(card("", chart), card("", busy)) if services else None,
        card("Endpoints", table(COLUMNS, rows, empty=empty)),
        _instances(loads) if loads.instances else None,
    ]


def _row(call: Call, each: EndpointLoad) -> list[Child]:
    errors: Child = count(each.errors)
    if each.errors:
        errors = badge(count(each.errors), "bad")
    ask: Child = None
    if not call.visit.is_read_only:
        ask = tag("a", "Send a request", href=address("request", subject=each.subject))
    return [
        each.service,
        each.name,
        tag("span", each.subject, class_="mono"),
        count(each.instances),
        count(each.requests),
        errors,
        _time_text(each.average_ns) if each.requests else "-",
        each.last_error,
        ask,
    ]


def _time_text(nanoseconds: int) -> str:
    """The time of a request, which may be short."""
    for unit, name in ((SECOND_NS, "s"), (MILLISECOND_NS, "ms"), (MICROSECOND_NS, "\u00b5s")):
        if nanoseconds >= unit:
            return f"{nanoseconds / unit:.3g} {name}"
    return f"{nanoseconds} ns"


def _instances(loads: ServiceLoads) -> Child:
    now_ns = time.time_ns()
    rows: list[list[Child]] = [
        [
            each.service,
            tag("span", each.id, class_="mono"),
            each.version,
            f"{span_ns(max(now_ns - each.started_ns, 1))} ago" if each.started_ns > 0 else "",
            count(each.requests),
            count(each.errors),
        ]
        for each in loads.instances[:INSTANCES_SHOWN]
    ]
    left = len(loads.instances) - len(rows)
    columns = ("Service", "Instance", "Version", "Started", "Requests#", "Errors#")
    more = tag("p", f"and {many(left, 'more', 'more')}", class_="faint") if left else None
    return card("Instances", table(columns, rows, empty=""), more)
