"""One stream: what it is, how it grows, its subjects, its consumers and where it comes from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.configs import stream_config_to_dict
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.dashboard.data.catalog import ROWS, SUBJECTS_SHOWN_MAX
from tradewind.dashboard.data.changes import config_text, in_words
from tradewind.dashboard.data.problems import problem_of
from tradewind.dashboard.data.texts import count, many, short, since, size, span_ns, time_text
from tradewind.dashboard.look.charts import Line, line_chart
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.layout import (
    Visit,
    badge,
    card,
    facts,
    figure_card,
    grid,
    heading,
    live,
    page,
    pager,
    problem_note,
    table,
    tabs,
)
from tradewind.dashboard.views.call import Answer, Call, Shown, number
from tradewind.dashboard.views.streams import marks
from tradewind.errors import TradewindError
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.api.stream_types import StreamInfo, StreamSourceInfo
    from tradewind.dashboard.data.samplers import Seen

LOST_SHOWN: Final = 50
SOURCES_DRAWN: Final = 8
CONSUMER_COLUMNS: Final = (
    "Consumer",
    "Kind",
    "Behind#",
    "Unacknowledged#",
    "Redelivered#",
    "Last delivery",
)


def stream_tabs(name: str, here: str) -> Markup:
    """The parts of a stream."""
    parts = (
        ("", "Stream"),
        ("messages", "Messages"),
        ("subjects", "Subjects"),
        ("consumers", "Consumers"),
        ("config", "Configuration"),
    )
    return tabs(
        [
            (label, address("streams", name, *([part] if part else [])), part == here)
            for part, label in parts
        ]
    )


def stream_heading(visit: Visit, name: str, here: str, *actions: Child) -> list[Child]:
    """The top of every page of a stream."""
    above = tag("a", "Streams", href="/streams")
    shown = () if visit.is_read_only else actions
    return [heading(name, *shown, above=above), stream_tabs(name, here)]


async def show(call: Call) -> Answer:
    """The stream itself."""
    name = call.parts["stream"]
    seen = await call.workspace.catalog.stream(name)
    _check_found(seen)
    actions = [
        tag("a", label, href=address("streams", name, part), class_="button")
        for label, part in (
            ("Edit", "edit"),
            ("Purge", "purge"),
            ("Seal", "seal"),
            ("Delete", "delete"),
        )
    ]
    top = stream_heading(call.visit, name, "", *actions)
    return Shown(page(call.visit, "streams", name, top, live("stream", _content(seen))))


def _check_found(seen: Seen[StreamInfo]) -> None:
    """A stream that is not there is a page of its own, not an empty one."""
    if seen.problem is not None and seen.problem.kind == "missing":
        raise StreamNotFoundError(404, 10059, "stream not found")


def _content(seen: Seen[StreamInfo]) -> list[Child]:
    info = seen.value
    if info is None:
        return [problem_note(seen.problem)]
    state, series = info.state, seen.series
    now_ns = time.time_ns()
    stored = line_chart(
        "Stored per second", [Line("messages", series.rates("last_seq"))], label=short
    )
    grown = line_chart("Size", [Line("bytes", series.levels("bytes"))], label=size)
    return [
        problem_note(seen.problem),
        tag("p", marks(info)) if marks(info) else None,
        tag(
            "div",
            figure_card("Messages", count(state.messages)),
            figure_card("Size", size(state.bytes)),
            figure_card("Stored now", f"{short(series.last_rate('last_seq') or 0)}/s"),
            figure_card("Subjects", count(state.num_subjects)),
            figure_card("Consumers", count(state.consumer_count)),
            figure_card("Deleted in between", count(state.num_deleted)),
            class_="numbers",
        ),
        _lost(info),
        grid(card("", stored), card("", grown)),
        grid(
            card("In words", [tag("p", sentence) for sentence in in_words(info.config)]),
            card(
                "State",
                facts(
                    [
                        ("First", _end(state.first_seq, state.first_ts, now_ns, state.messages)),
                        ("Last", _end(state.last_seq, state.last_ts, now_ns, state.last_seq)),
                        ("Created", time_text(info.created)),
                        *_cluster(info),
                    ]
                ),
            ),
        ),
        _origin(info),
    ]


def _end(sequence: int, moment: str, now_ns: int, is_known: int) -> Child:
    if not is_known:
        return "none yet"
    return f"sequence {sequence}, {since(moment, now_ns)} ({time_text(moment)})"


def _cluster(info: StreamInfo) -> list[tuple[str, Child]]:
    cluster = info.cluster
    if cluster is None or not cluster.leader:
        return []
    pairs: list[tuple[str, Child]] = [("Leader", cluster.leader)]
    if cluster.replicas:
        peers = [
            badge(peer.name, "good" if peer.current and not peer.offline else "bad")
            for peer in cluster.replicas
        ]
        pairs.append(("Copies", peers))
    return pairs


def _lost(info: StreamInfo) -> Markup | None:
    lost = info.state.lost
    if lost is None or not lost.msgs:
        return None
    shown = ", ".join(map(str, lost.msgs[:LOST_SHOWN]))
    more = f" and {count(len(lost.msgs) - LOST_SHOWN)} more" if len(lost.msgs) > LOST_SHOWN else ""
    text = f"{many(len(lost.msgs), 'message')} cannot be read any more: sequence {shown}{more}."
    return tag("p", text, class_="notice bad", role="alert")


def _origin(info: StreamInfo) -> Markup | None:
    """Where messages come from, as a picture."""
    config = info.config
    known: dict[str, StreamSourceInfo] = {source.name: source for source in info.sources}
    if info.mirror is not None:
        known[info.mirror.name] = info.mirror
    kind = "mirror" if config.mirror is not None else "source"
    names = [config.mirror.name] if config.mirror is not None else [s.name for s in config.sources]
    if not names:
        return None
    drawn: list[Child] = []
    rows = names[:SOURCES_DRAWN]
    height = 64 * len(rows)
    middle = height / 2
    for index, name in enumerate(rows):
        y = 64 * index + 8
        source = known.get(name)
        drawn += [
            tag("rect", x=4, y=y, width=210, height=46, rx=8),
            tag("a", tag("text", name[:26], x=16, y=y + 20), href=address("streams", name)),
            tag("text", _source_state(source), x=16, y=y + 37, class_="under"),
            tag("path", d=f"M214 {y + 23}C300 {y + 23} 300 {middle} 380 {middle}"),
        ]
    drawn += [
        tag("rect", x=380, y=middle - 23, width=210, height=46, rx=8, class_="self"),
        tag("text", config.name[:26], x=392, y=middle + 5),
    ]
    picture = tag(
        "svg", drawn, viewBox=f"0 0 600 {height}", class_="graph", role="img", aria_label="Origin"
    )
    left_out = len(names) - len(rows)
    note = tag("p", f"and {left_out} more", class_="faint") if left_out else None
    return card("Mirrored from" if kind == "mirror" else "Sources", picture, note)


def _source_state(source: StreamSourceInfo | None) -> str:
    if source is None:
        return "nothing known yet"
    if source.error is not None:
        return source.error.description[:40]
    behind = "up to date" if not source.lag else f"{count(source.lag)} behind"
    heard = f", heard {span_ns(source.active)} ago" if source.active > 0 else ""
    return f"{behind}{heard}"[:44]


# ---------------------------------------------------------------------- subjects


async def show_subjects(call: Call) -> Answer:
    """The subjects of a stream with their counts."""
    name = call.parts["stream"]
    pattern = call.query.get("pattern", "").strip() or ">"
    find = tag(
        "form",
        tag("input", type="search", name="pattern", value=pattern, aria_label="Subjects like"),
        tag("button", "Show"),
        action=address("streams", name, "subjects"),
        method="get",
        class_="row",
    )
    content = await _subjects(call, name, pattern)
    top = stream_heading(call.visit, name, "subjects")
    return Shown(page(call.visit, "streams", f"{name}: subjects", top, card("", find), content))


async def _subjects(call: Call, name: str, pattern: str) -> Child:
    if not is_valid_subject(pattern):
        return tag(
            "p",
            f"{pattern!r} is no subject: tokens joined by dots, * and > match any.",
            class_="notice bad",
        )
    try:
        found, total = await call.workspace.catalog.subjects(name, pattern)
    except StreamNotFoundError:
        raise
    except TradewindError as error:
        return problem_note(problem_of(error))
    rows: list[list[Child]] = [
        [
            tag(
                "a",
                subject,
                href=address("streams", name, "messages", subject=subject),
                class_="mono",
            ),
            count(number),
        ]
        for subject, number in found.items()
    ]
    note = (
        f"The {SUBJECTS_SHOWN_MAX} with the most messages, of {count(total)}. A narrower pattern "
        "shows others."
        if total > len(found)
        else many(total, "subject")
    )
    return card(
        "",
        table(("Subject", "Messages#"), rows, empty="No message has such a subject."),
        tag("p", note, class_="faint"),
    )


# ---------------------------------------------------------------------- consumers


async def show_consumers(call: Call) -> Answer:
    """The consumers of a stream."""
    name = call.parts["stream"]
    first = number(call.query, "first")
    stream = await call.workspace.catalog.stream(name)
    _check_found(stream)
    seen = await call.workspace.catalog.consumer_page(name, first)
    rows = seen.value.consumers if seen.value is not None else []
    total = seen.value.total if seen.value is not None else 0
    content = [
        problem_note(seen.problem),
        card(
            "",
            table(
                CONSUMER_COLUMNS,
                [consumer_row(info) for info in rows],
                empty="It has no consumers.",
            ),
            pager(("streams", name, "consumers"), first, ROWS, total),
        ),
    ]
    top = stream_heading(call.visit, name, "consumers")
    return Shown(page(call.visit, "streams", f"{name}: consumers", top, live("consumers", content)))


def consumer_row(info: ConsumerInfo) -> list[Child]:
    """A consumer in a table."""
    link = tag("a", info.name, href=address("streams", info.stream_name, "consumers", info.name))
    return [
        [link, " ", badge("paused", "warning") if info.paused else None],
        consumer_kind(info),
        count(info.num_pending),
        count(info.num_ack_pending),
        count(info.num_redelivered),
        since(info.delivered.last_active, time.time_ns()),
    ]


def consumer_kind(info: ConsumerInfo) -> str:
    """Pull or push, and whether it stays."""
    way = "push" if info.config.deliver_subject else "pull"
    return f"{way}, {'durable' if info.config.durable_name else 'ephemeral'}"


# ---------------------------------------------------------------------- configuration


async def show_config(call: Call) -> Answer:
    """The configuration in words and as JSON."""
    name = call.parts["stream"]
    seen = await call.workspace.catalog.stream(name)
    _check_found(seen)
    edit = tag("a", "Edit", href=address("streams", name, "edit"), class_="button")
    top = stream_heading(call.visit, name, "config", edit)
    if seen.value is None:
        return Shown(page(call.visit, "streams", name, top, problem_note(seen.problem)))
    config = seen.value.config
    return Shown(
        page(
            call.visit,
            "streams",
            f"{name}: configuration",
            top,
            grid(
                card("In words", [tag("p", sentence) for sentence in in_words(config)]),
                card("As JSON", tag("pre", config_text(stream_config_to_dict(config)))),
            ),
            _metadata(config.metadata),
        )
    )


def _metadata(metadata: dict[str, str]) -> Markup | None:
    if not metadata:
        return None
    pairs: list[tuple[str, Child]] = [(name, value) for name, value in sorted(metadata.items())]
    return card("Metadata", facts(pairs))


def raw_config(answer: bytes) -> dict[str, object]:
    """The configuration in an answer with all its members, also those that are not known here."""

    class _Raw(msgspec.Struct):
        """An info of which only the configuration is wanted."""

        config: dict[str, object] = {}

    return msgspec.json.decode(answer, type=_Raw).config
