"""Consumers: their position, why they are not moving, and what to do about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.consumer_types import PriorityPolicy
from tradewind.client.api_errors import ConsumerNotFoundError
from tradewind.client.why.asking import consumer_knowledge
from tradewind.client.why.consumer_reasons import Knowledge, explain, filter_subjects, is_full
from tradewind.dashboard.data.catalog import lag_key
from tradewind.dashboard.data.changes import config_text
from tradewind.dashboard.data.connection_data import ask_subscribers
from tradewind.dashboard.data.page_texts import count, limit, short, span_ns
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.look.charts import Line, line_chart
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.inputs import action_link, danger_zone, submit, why_off
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    facts,
    figure_card,
    form,
    grid,
    heading,
    live,
    page,
    problem_note,
    why_card,
)
from tradewind.dashboard.look.time_texts import ago, at, short_span
from tradewind.dashboard.views.call import Answer, Call, PageAnswer
from tradewind.dashboard.views.chart_parts import chart_ranges, charted
from tradewind.dashboard.views.consumer_list_views import consumer_kind
from tradewind.dashboard.views.stream_views import cluster_facts

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo, SequenceInfo
    from tradewind.client.streams.delivery_lag import DeliveryLag
    from tradewind.dashboard.data.samplers import Observation
    from tradewind.dashboard.data.series import Series

SUBSCRIBERS_SECONDS: Final = 10.0


async def show(call: Call) -> Answer:
    """Show one consumer."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    seen = await call.workspace.catalog.consumer(stream, name)
    if seen.problem is not None and seen.problem.kind == "missing":
        raise ConsumerNotFoundError(404, 10014, "consumer not found")
    above = [
        tag("a", stream, href=address("streams", stream)),
        " / ",
        tag("a", "Consumers", href=address("streams", stream, "consumers")),
    ]
    content = [problem_note(seen.problem)]
    if seen.value is not None:
        content += await _content(call, seen, seen.value)
    return PageAnswer(
        page(
            call.visit,
            "consumers",
            f"{name} of {stream}",
            heading(name, above=above),
            live("consumer", content),
            await _actions(call, seen.value) if seen.value is not None else None,
            _config_card(seen.value) if seen.value is not None else None,
        )
    )


async def _content(
    call: Call, seen: Observation[ConsumerInfo], info: ConsumerInfo
) -> list[Markup | None]:
    series = seen.series
    history = await charted(call, ("consumer", info.stream_name, info.name), seen)
    lag = await call.workspace.catalog.lag(info)
    lags = await charted(call, lag_key(info), lag)
    reason = explain(await _knowledge(call, seen, info))
    return [
        why_card(reason, "Why is it not moving?", "How is it doing?"),
        tag(
            "div",
            figure_card("Behind", count(info.num_pending)),
            figure_card("Lag", _lag_words(lag.value), "age of the oldest message"),
            figure_card(
                "Unacknowledged",
                count(info.num_ack_pending),
                f"of {limit(info.config.max_ack_pending)}",
            ),
            figure_card("Delivered", f"{short(series.last_rate('delivered') or 0)}/s"),
            figure_card("Redelivered", count(info.num_redelivered)),
            figure_card("Waiting pulls", count(info.num_waiting)),
            class_="numbers",
        ),
        chart_ranges(call, "streams", info.stream_name, "consumers", info.name),
        grid(*_charts(call, history), _lag_chart(call, lags)),
        grid(card("Position", _standing(info, time.time_ns()))),
    ]


def _lag_words(lag: DeliveryLag | None) -> str:
    """The age of the oldest message that the consumer is not done with."""
    if lag is None or lag.seconds is None:
        return "unknown"
    return short_span(lag.seconds) if lag.messages else "none"


def _lag_chart(call: Call, series: Series) -> Markup:
    line = Line("oldest message", series.levels("seconds"))
    chart = line_chart(
        "Lag", [line], label=short_span, window=call.window, whole=True, percentiles=True
    )
    return card("", chart)


def _standing(info: ConsumerInfo, now_ns: int) -> Markup:
    paused = badge("paused", "warning") if info.paused else None
    return facts(
        [
            ("Kind", [consumer_kind(info), " ", paused]),
            ("Delivered up to", _position(info.delivered, now_ns)),
            ("Acknowledged up to", _position(info.ack_floor, now_ns)),
            ("Filter", tag("span", ", ".join(filter_subjects(info)), class_="mono")),
            ("Created", at(info.created)),
            *cluster_facts(info.cluster),
            *_groups(info),
        ]
    )


def _charts(call: Call, series: Series) -> list[Markup]:
    window = call.window
    moved = line_chart(
        "Per second",
        [
            Line("delivered", series.rates("delivered")),
            Line("acknowledged", series.rates("acked")),
        ],
        window=window,
        percentiles=True,
    )
    waiting = line_chart(
        "Waiting",
        [
            Line("behind", series.levels("pending")),
            Line("unacknowledged", series.levels("ack_pending")),
            Line("pull requests", series.levels("waiting")),
        ],
        window=window,
        whole=True,
    )
    floors = line_chart(
        "Position in the stream",
        [
            Line("delivered up to", series.levels("delivered_to")),
            Line("acknowledged up to", series.levels("acked_to")),
        ],
        window=window,
        label=count,
        whole=True,
        from_zero=False,
    )
    return [card("", moved), card("", waiting), card("", floors)]


def _position(position: SequenceInfo, now_ns: int) -> Child:
    return [f"sequence {count(position.stream_seq)}, ", ago(position.last_active, now_ns)]


def _groups(info: ConsumerInfo) -> list[tuple[str, Child]]:
    return [
        (
            f"Group {group.group}",
            f"pinned to {group.pinned_client_id}" if group.pinned_client_id else "not pinned",
        )
        for group in info.priority_groups
    ]


async def _knowledge(call: Call, seen: Observation[ConsumerInfo], info: ConsumerInfo) -> Knowledge:
    """The knowledge besides the info that finding the reason needs."""
    stream = await call.workspace.catalog.stream(info.stream_name)
    clients = None
    if info.config.deliver_subject and is_full(info):
        clients = (await _subscribers(call, info.config.deliver_subject)).value
    rates = (seen.series.last_rate("delivered"), seen.series.last_rate("acked"))
    messages = stream.value.state.messages if stream.value is not None else None
    manager = call.workspace.jetstream.manager
    return await consumer_knowledge(manager, info, rates, messages, clients)


async def _subscribers(call: Call, subject: str) -> Observation[list[str]]:
    async def ask() -> list[str]:
        return await ask_subscribers(call.workspace.connection, subject)

    question = Question(("subscribers", subject), ask, SUBSCRIBERS_SECONDS)
    return await call.workspace.samplers.see(question)


def _config_card(info: ConsumerInfo) -> Markup:
    config: dict[str, Any] = msgspec.to_builtins(info.config)
    words: list[tuple[str, Child]] = [
        ("Acknowledgements", info.config.ack_policy.value),
        (
            "Redelivered after",
            span_ns(info.config.ack_wait) if info.config.ack_wait > 0 else "never",
        ),
        ("Deliveries", limit(info.config.max_deliver)),
        ("Starts with", info.config.deliver_policy.value.replace("_", " ")),
    ]
    return card(
        "Configuration",
        facts(words),
        tag("details", tag("summary", "As JSON"), tag("pre", config_text(config))),
    )


# ---------------------------------------------------------------------- changes


async def _actions(call: Call, info: ConsumerInfo) -> list[Child]:
    if call.visit.is_read_only:
        return []
    stream, name = info.stream_name, info.name
    path = ("streams", stream, "consumers", name)
    why = {
        endpoint: await call.refusal_of(f"consumer_{endpoint}", stream, name)
        for endpoint in ("create", "pause", "reset", "unpin", "delete")
    }
    inputs = call.inputs()
    pause = (
        form(
            call.visit,
            address(*path, "resume"),
            submit("Resume", why["pause"], class_="main"),
        )
        if info.paused
        else form(
            call.visit,
            address(*path, "pause"),
            inputs.text("Pause for", "duration", "10m"),
            submit("Pause", why["pause"]),
            class_="row",
        )
    )
    unpin = [
        form(
            call.visit,
            address(*path, "unpin"),
            tag("input", type="hidden", name="group", value=group.group),
            submit(f"Unpin {group.group}", why["unpin"]),
        )
        for group in info.priority_groups
        if info.config.priority_policy is PriorityPolicy.PINNED_CLIENT
    ]
    edit = action_link("Edit", address(*path, "edit"), why["create"])
    zone = danger_zone(
        [
            (
                "Start again at the first message that is not acknowledged, or at a sequence.",
                action_link("Reset", address(*path, "reset"), why["reset"]),
            ),
            (
                "Delete the consumer with its position; the messages stay in the stream.",
                action_link("Delete", address(*path, "delete"), why["delete"]),
            ),
        ]
    )
    note = call.refusal_note({"duration": "Pause for"})
    return [
        note,
        card("Actions", tag("div", pause, unpin, edit, class_="row"), why_off(list(why.values()))),
        zone,
    ]
