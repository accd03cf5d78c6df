"""The first page: health, throughput, usage and recent events of the server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.page_texts import UNLIMITED, count, short, size
from tradewind.dashboard.data.problems import Problem
from tradewind.dashboard.data.workspace import ACCOUNT_KEY
from tradewind.dashboard.look.charts import Line, line_chart, share
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    facts,
    figure_card,
    grid,
    heading,
    live,
    page,
    problem_note,
    table,
)
from tradewind.dashboard.look.time_texts import ago
from tradewind.dashboard.views.attention_card import attention_card
from tradewind.dashboard.views.call import Answer, Call, PageAnswer
from tradewind.dashboard.views.chart_parts import chart_ranges, charted, history_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.api.responses import AccountInfo
    from tradewind.dashboard.data.advisories import Happening
    from tradewind.dashboard.data.load_and_usage import AccountSnapshot, Load
    from tradewind.dashboard.data.samplers import Observation
    from tradewind.dashboard.data.series import Series

HAPPENINGS_SHOWN: Final = 12
# How long the first view waits for the first round of the survey.
SURVEY_SECONDS: Final = 0.5
SERVERS: Final = (
    "Server",
    "Health",
    "Version",
    "Cluster",
    "Connections#",
    "Subscriptions#",
    "Memory#",
    "Processor#",
    "Slow consumers#",
    "Started",
)
NO_SERVERS: Final = Problem(
    "denied",
    "The list of servers and their health: not allowed for this login. A login of the system "
    "account sees it.",
)


async def show(call: Call) -> Answer:
    """Show the overview."""
    seen = await call.workspace.account()
    is_whole = seen.value is not None and seen.value.load.is_whole
    health = await call.workspace.health() if is_whole else None
    await call.workspace.survey.watched(SURVEY_SECONDS)
    series = await charted(call, ACCOUNT_KEY, seen)
    content = live("overview", _content(call, seen, series, health))
    return PageAnswer(page(call.visit, "overview", "Overview", heading("Overview"), content))


def _content(
    call: Call,
    seen: Observation[AccountSnapshot],
    series: Series,
    health: Observation[dict[str, str]] | None,
) -> list[Child]:
    account = seen.value
    happened = _happenings(call.workspace.advisories.newest())
    slow = int(seen.series.growth("slow_consumers"))
    told = health.value if health is not None else None
    attention = attention_card(call.workspace.survey, account, told, slow)
    if account is None:
        return [problem_note(seen.problem), attention, happened]
    load = account.load
    scope = "all servers" if load.is_whole else "this account"
    return [
        problem_note(seen.problem),
        attention,
        _numbers(account, seen.series, scope),
        problem_note(account.load_problem),
        history_problem(call),
        chart_ranges(call),
        grid(
            card(
                "",
                line_chart(
                    f"Messages per second, {scope}",
                    [
                        Line("in", series.rates("messages_in")),
                        Line("out", series.rates("messages_out")),
                    ],
                    window=call.window,
                    percentiles=True,
                ),
            ),
            card(
                "",
                line_chart(
                    f"Bytes per second, {scope}",
                    [
                        Line("in", series.rates("bytes_in")),
                        Line("out", series.rates("bytes_out")),
                    ],
                    window=call.window,
                    percentiles=True,
                    label=size,
                ),
            ),
        ),
        grid(usage_card(account), _server(call, account)),
        _machines(load, health),
        happened,
    ]


def _numbers(account: AccountSnapshot, series: Series, scope: str) -> Markup:
    load, usage = account.load, account.usage
    cells = [
        figure_card("Connections", count(load.connections), scope),
        figure_card("Messages in", f"{short(series.last_rate('messages_in') or 0)}/s"),
        figure_card("Messages out", f"{short(series.last_rate('messages_out') or 0)}/s"),
    ]
    if usage is not None:
        cells += [
            figure_card("Streams", count(usage.streams)),
            figure_card("Consumers", count(usage.consumers)),
            figure_card("Stored", size(usage.storage + usage.memory)),
        ]
    slow = load.slow_consumers
    cells.append(
        figure_card(
            "Slow clients",
            count(slow),
            "clients disconnected" if slow else "none so far",
            "warning" if slow else "",
        )
    )
    return tag("div", cells, class_="numbers")


def usage_card(account: AccountSnapshot) -> Markup:
    """The resources that JetStream uses, and their limits."""
    usage = account.usage
    if usage is None:
        return card("JetStream", problem_note(account.usage_problem))
    return card(
        "JetStream and its limits",
        facts(
            [
                ("On disk", _of(usage.storage, usage.limits.max_storage, "bytes")),
                ("In memory", _of(usage.memory, usage.limits.max_memory, "bytes")),
                ("Streams", _of(usage.streams, usage.limits.max_streams)),
                ("Consumers", _of(usage.consumers, usage.limits.max_consumers)),
                ("API requests", _requests(usage)),
                *([("Domain", usage.domain)] if usage.domain else []),
            ]
        ),
    )


def _requests(usage: AccountInfo) -> list[Child]:
    errors = usage.api.errors
    return [
        f"{count(usage.api.total)} ",
        badge(f"{count(errors)} refused", "warning") if errors else badge("none refused", "good"),
    ]


def _of(used: int, most: int, unit: str = "") -> Child:
    text = size(used) if unit else count(used)
    if most <= 0:
        return f"{text}, {UNLIMITED}"
    limit = size(most) if unit else count(most)
    return share(used, most, f"{text} of {limit}")


def _server(call: Call, account: AccountSnapshot) -> Markup:
    workspace, load = call.workspace, account.load
    pairs: list[tuple[str, Child]] = [("Address", workspace.link.server)]
    if workspace.link.state == "connected":
        info = workspace.connection.info
        pairs += [
            ("Name", info.server_name),
            (
                "Version",
                f"{info.version}, Tradewind {info.tradewind}" if info.tradewind else info.version,
            ),
            ("Largest message", size(info.max_payload)),
        ]
        if info.cluster:
            pairs.append(("Cluster", info.cluster))
    if account.answer_seconds:
        pairs.append(("Round-trip time", f"{account.answer_seconds * 1000:.1f} ms"))
    pairs.append(("Subscriptions", count(load.subscriptions)))
    if load.is_whole:
        pairs += [("Memory", size(load.memory)), ("Processor", f"{load.processor:.1f} %")]
    return card("Server", facts(pairs))


def _machines(load: Load, health: Observation[dict[str, str]] | None) -> Markup:
    """A card with all servers."""
    if not load.is_whole or health is None:
        return card("Servers", problem_note(NO_SERVERS))
    told = health.value or {}
    rows: list[list[Child]] = [
        [
            [each.name, tag("small", each.host)],
            _health(told.get(each.name, "")),
            each.version,
            each.cluster or "none",
            count(each.connections),
            count(each.subscriptions),
            size(each.memory),
            f"{each.processor:.1f} %",
            badge(count(each.slow_consumers), "warning") if each.slow_consumers else "0",
            ago(each.started),
        ]
        for each in load.machines
    ]
    return card("Servers", problem_note(health.problem), table(SERVERS, rows, empty="None."))


def _health(text: str) -> Markup:
    if not text:
        return badge("unknown")
    return badge("healthy", "good") if text == "ok" else badge(text[:200], "bad")


def _happenings(newest: Sequence[Happening]) -> Markup:
    now_ns = time.time_ns()
    rows = [
        tag(
            "li",
            tag("i", class_=f"lamp {'good' if item.weight == 'info' else item.weight}"),
            tag("span", _linked(item), f" ({count(item.count)} times)" if item.count > 1 else None),
            tag("span", ago(item.time, now_ns), class_="faint"),
        )
        for item in newest[:HAPPENINGS_SHOWN]
    ]
    empty = tag("p", "Nothing since the dashboard was started.", class_="empty")
    return card("Recent events", tag("ul", rows, class_="happenings") if rows else empty)


def _linked(item: Happening) -> Child:
    if not item.stream:
        return item.text
    parts = ["streams", item.stream]
    if item.consumer:
        parts += ["consumers", item.consumer]
    return tag("a", item.text, href=address(*parts))
