"""Consumers: where they stand, why they do not move, and what can be done about it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.consumer_types import PriorityPolicy
from tradewind.api.times import NS_PER_SECOND
from tradewind.client.api_errors import ConsumerNotFoundError, NoMessageFoundError
from tradewind.dashboard.data.catalog import chosen
from tradewind.dashboard.data.changes import config_text
from tradewind.dashboard.data.reasons import Knowledge, Oldest, Reason, explain, filter_subjects
from tradewind.dashboard.data.texts import count, limit, short, since, span_ns, time_text
from tradewind.dashboard.look.charts import Line, line_chart
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.layout import (
    badge,
    card,
    facts,
    field,
    figure_card,
    form,
    grid,
    heading,
    live,
    page,
    pager,
    problem_note,
    table,
)
from tradewind.dashboard.views.call import Answer, BadFormError, Call, Goto, Shown, number
from tradewind.dashboard.views.stream import CONSUMER_COLUMNS, consumer_kind, consumer_row
from tradewind.dashboard.views.stream_changes import check_typed, typed_form
from tradewind.durations import parse_duration_ns
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo, SequenceInfo
    from tradewind.dashboard.data.samplers import Seen

# The page of all consumers asks so many streams for theirs.
STREAMS_ASKED: Final = 10
PER_STREAM: Final = 20


async def show_all(call: Call) -> Answer:
    """Consumers, stream by stream; those of a few streams at a time."""
    first = number(call.query, "first")
    search = call.query.get("search", "")
    find = tag(
        "form",
        tag(
            "input",
            type="search",
            name="search",
            value=search,
            placeholder="Part of a stream's name",
            aria_label="Part of a stream's name",
        ),
        tag("button", "Search"),
        action="/consumers",
        method="get",
        class_="row",
    )
    content = live("all-consumers", await _all(call, search, first))
    return Shown(page(call.visit, "consumers", "Consumers", heading("Consumers", find), content))


async def _all(call: Call, search: str, first: int) -> list[Child]:
    catalog = call.workspace.catalog
    names = await catalog.names()
    if names.value is None:
        return [problem_note(names.problem)]
    found = chosen(names.value.names, search)
    shown = found[first : first + STREAMS_ASKED]
    cards: list[Child] = [problem_note(names.problem)]
    for name in shown:
        seen = await catalog.consumer_page(name, 0)
        if seen.value is None:
            cards.append(card(name, problem_note(seen.problem)))
            continue
        if not seen.value.total:
            continue
        rows = [consumer_row(info) for info in seen.value.consumers[:PER_STREAM]]
        more = seen.value.total - len(rows)
        link = tag("a", "all" if more > 0 else "stream", href=address("streams", name, "consumers"))
        text = f" and {count(more)} more" if more > 0 else ""
        cards.append(card(name, table(CONSUMER_COLUMNS, rows, empty=""), text, actions=link))
    if len(cards) == 1:
        cards.append(tag("p", "None of these streams has consumers.", class_="empty"))
    cards.append(pager(("consumers",), first, STREAMS_ASKED, len(found), search=search))
    return cards


# ---------------------------------------------------------------------- one consumer


async def show(call: Call) -> Answer:
    """One consumer."""
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
    return Shown(
        page(
            call.visit,
            "consumers",
            f"{name} of {stream}",
            heading(name, above=above),
            live("consumer", content),
            _actions(call, seen.value) if seen.value is not None else None,
            _config_card(seen.value) if seen.value is not None else None,
        )
    )


async def _content(call: Call, seen: Seen[ConsumerInfo], info: ConsumerInfo) -> list[Markup | None]:
    series = seen.series
    now_ns = time.time_ns()
    reason = explain(await _knowledge(call, seen, info))
    moved = line_chart(
        "Per second",
        [
            Line("delivered", series.rates("delivered")),
            Line("acknowledged", series.rates("acked")),
        ],
    )
    waiting = line_chart(
        "Waiting",
        [
            Line("behind", series.levels("pending")),
            Line("unacknowledged", series.levels("ack_pending")),
            Line("pull requests", series.levels("waiting")),
        ],
        whole=True,
    )
    return [
        _why(reason),
        tag(
            "div",
            figure_card("Behind", count(info.num_pending)),
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
        grid(card("", moved), card("", waiting)),
        card(
            "Where it stands",
            facts(
                [
                    (
                        "Kind",
                        [
                            consumer_kind(info),
                            " ",
                            badge("paused", "warning") if info.paused else None,
                        ],
                    ),
                    (
                        "Delivered up to",
                        _position(info.delivered, now_ns),
                    ),
                    (
                        "Acknowledged up to",
                        _position(info.ack_floor, now_ns),
                    ),
                    ("Wants", tag("span", ", ".join(filter_subjects(info)), class_="mono")),
                    ("Created", time_text(info.created)),
                    *_groups(info),
                ]
            ),
        ),
    ]


def _position(position: SequenceInfo, now_ns: int) -> str:
    return f"sequence {position.stream_seq}, {since(position.last_active, now_ns)}"


def _groups(info: ConsumerInfo) -> list[tuple[str, Child]]:
    return [
        (
            f"Group {group.group}",
            f"pinned to {group.pinned_client_id}" if group.pinned_client_id else "not pinned",
        )
        for group in info.priority_groups
    ]


def _why(reason: Reason) -> Markup:
    advice = tag("p", reason.advice, class_="faint") if reason.advice else None
    return tag(
        "section",
        tag("h2", "Why is it not moving?" if reason.mood in ("stuck", "waiting") else "How is it?"),
        tag("p", reason.text, class_="sentence", id="reason"),
        advice,
        class_=f"card why {reason.mood}",
    )


async def _knowledge(call: Call, seen: Seen[ConsumerInfo], info: ConsumerInfo) -> Knowledge:
    """What beside the info is needed for the reason; asked only where it matters."""
    stream = await call.workspace.catalog.stream(info.stream_name)
    oldest, matches = None, None
    try:
        if info.num_ack_pending and stream.value is not None:
            oldest = await _oldest(call, info)
        if not info.num_pending and not info.num_ack_pending and info.config.filter_subject:
            matches = await _matches(call, info)
    except TradewindError:
        # The sentence is still right without it.
        oldest = None
    return Knowledge(
        info,
        seen.series.last_rate("delivered"),
        seen.series.last_rate("acked"),
        oldest,
        matches,
        stream.value.state.messages if stream.value is not None else None,
    )


async def _oldest(call: Call, info: ConsumerInfo) -> Oldest | None:
    subjects = filter_subjects(info)
    pattern = subjects[0] if len(subjects) == 1 else ">"
    try:
        found = await call.workspace.jetstream.manager.streams.get_message(
            info.stream_name, seq=info.ack_floor.stream_seq + 1, next_by_subject=pattern
        )
    except NoMessageFoundError:
        return None
    return Oldest(found.seq, max((time.time_ns() - found.time_ns) / NS_PER_SECOND, 0.0))


async def _matches(call: Call, info: ConsumerInfo) -> bool:
    try:
        await call.workspace.jetstream.manager.streams.get_message(
            info.stream_name, last_by_subject=info.config.filter_subject
        )
    except NoMessageFoundError:
        return False
    return True


def _config_card(info: ConsumerInfo) -> Markup:
    config: dict[str, Any] = msgspec.to_builtins(info.config)
    words: list[tuple[str, Child]] = [
        ("Acknowledgements", info.config.ack_policy.value),
        (
            "Comes again after",
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


def _actions(call: Call, info: ConsumerInfo) -> Markup | None:
    if call.visit.is_read_only:
        return None
    path = ("streams", info.stream_name, "consumers", info.name)
    pause = (
        form(call.visit, address(*path, "resume"), tag("button", "Resume", class_="main"))
        if info.paused
        else form(
            call.visit,
            address(*path, "pause"),
            field("Pause for", "duration", "10m"),
            tag("button", "Pause"),
            class_="row",
        )
    )
    reset = form(
        call.visit,
        address(*path, "reset"),
        field(
            "Begin anew at sequence", "seq", kind="number", hint="Empty: what is not acknowledged"
        ),
        tag("button", "Reset"),
        class_="row",
    )
    unpin = [
        form(
            call.visit,
            address(*path, "unpin"),
            tag("input", type="hidden", name="group", value=group.group),
            tag("button", f"Unpin {group.group}"),
        )
        for group in info.priority_groups
        if info.config.priority_policy is PriorityPolicy.PINNED_CLIENT
    ]
    delete = tag("a", "Delete", href=address(*path, "delete"), class_="button")
    return card("Change it", tag("div", pause, reset, unpin, delete, class_="row"))


def _done(call: Call, text: str) -> Goto:
    stream, name = call.parts["stream"], call.parts["consumer"]
    call.workspace.catalog.changed(stream, name)
    return Goto(address("streams", stream, "consumers", name), text)


async def pause(call: Call) -> Answer:
    """Deliver nothing for some time."""
    text = call.fields.get("duration", "").strip()
    pause_ns = parse_duration_ns(text)
    if not pause_ns or pause_ns < 0:
        raise BadFormError(f"duration: like 10m or 24h, not {text[:40]!r}")
    try:
        span = timedelta(microseconds=pause_ns // 1000)
        answer = await call.workspace.jetstream.manager.consumers.pause(
            call.parts["stream"], call.parts["consumer"], span
        )
    except OverflowError:
        raise BadFormError(f"duration: {text[:40]!r} goes beyond the year 9999") from None
    return _done(call, f"It is paused until {time_text(answer.pause_until or '')}.")


async def resume(call: Call) -> Answer:
    """Go on."""
    await call.workspace.jetstream.manager.consumers.resume(
        call.parts["stream"], call.parts["consumer"]
    )
    return _done(call, "It goes on.")


async def reset(call: Call) -> Answer:
    """Begin anew."""
    sequence = number(call.fields, "seq")
    await call.workspace.jetstream.manager.consumers.reset(
        call.parts["stream"], call.parts["consumer"], seq=sequence
    )
    return _done(call, f"It begins anew at {sequence}." if sequence else "It begins anew.")


async def unpin(call: Call) -> Answer:
    """Let another client take over."""
    await call.workspace.jetstream.manager.consumers.unpin(
        call.parts["stream"], call.parts["consumer"], call.fields.get("group", "")
    )
    return _done(call, "The group is not pinned any more.")


async def show_delete(call: Call) -> Answer:
    """Ask first."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    ask = typed_form(
        call, address("streams", stream, "consumers", name, "delete"), name, "Delete the consumer"
    )
    text = "Its clients get nothing any more, and where it stood is forgotten."
    title = f"Delete {name}?"
    return Shown(
        page(call.visit, "consumers", title, heading(title), card("", tag("p", text), ask))
    )


async def delete(call: Call) -> Answer:
    """Remove it."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    check_typed(call, name)
    await call.workspace.jetstream.manager.consumers.delete(stream, name)
    call.workspace.catalog.changed(stream, name)
    return Goto(address("streams", stream, "consumers"), f"Consumer {name} was deleted.")
