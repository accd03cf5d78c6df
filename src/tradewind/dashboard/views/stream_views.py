"""One stream: its configuration, growth, subjects, consumers and origins."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.api.configs import stream_config_to_dict
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.why.asking import stream_knowledge
from tradewind.client.why.stream_reasons import explain_stream
from tradewind.dashboard.data.catalog import SUBJECTS_SHOWN_MAX
from tradewind.dashboard.data.changes import config_text, in_words
from tradewind.dashboard.data.page_texts import count, many, short, size, span_ns
from tradewind.dashboard.data.problems import problem_of
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.look.charts import Line, line_chart
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.graphs import Box, flow_graph
from tradewind.dashboard.look.inputs import action_link, danger_zone, why_off
from tradewind.dashboard.look.page_layout import (
    Visit,
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
    tabs,
    why_card,
)
from tradewind.dashboard.look.time_texts import ago, at
from tradewind.dashboard.views.call import Answer, Call, PageAnswer
from tradewind.dashboard.views.chart_parts import chart_ranges, charted
from tradewind.dashboard.views.stream_list_views import marks
from tradewind.errors import TradewindError
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.api.stream_types import (
        ClusterInfo,
        StreamInfo,
        StreamSource,
        StreamSourceInfo,
    )
    from tradewind.client.why.reasons import Reason
    from tradewind.dashboard.data.samplers import Observation
    from tradewind.dashboard.data.series import Series

LOST_SHOWN: Final = 50
WHY_SECONDS: Final = 4.0


def stream_tabs(name: str, here: str) -> Markup:
    """The tabs of a stream's pages."""
    parts = (
        ("", "Stream"),
        ("messages", "Messages"),
        ("subjects", "Subjects"),
        ("consumers", "Consumers"),
        ("integrity", "Integrity"),
        ("config", "Configuration"),
    )
    return tabs(
        [
            (label, address("streams", name, *([part] if part else [])), part == here)
            for part, label in parts
        ]
    )


def stream_heading(
    visit: Visit,
    name: str,
    here: str,
    *actions: Child,
    always: Child = None,
    note: Child = None,
) -> list[Child]:
    """The heading of every page of a stream, without actions that would be refused."""
    above = tag("a", "Streams", href="/streams")
    shown = () if visit.is_read_only else actions
    return [heading(name, always, *shown, above=above, note=note), stream_tabs(name, here)]


async def show(call: Call) -> Answer:
    """Show a stream."""
    name = call.parts["stream"]
    seen = await call.workspace.catalog.stream(name)
    check_found(seen)
    # Saving a stream changes nothing.
    save = tag("a", "Back up", href=address("streams", name, "backup"), class_="button")
    why_not = await call.refusal_of("stream_update", name)
    edit = action_link("Edit", address("streams", name, "edit"), why_not)
    note = seen.value.config.description or None if seen.value is not None else None
    top = stream_heading(call.visit, name, "", edit, always=save, note=note)
    series = await charted(call, ("stream", name), seen)
    content = [await _why(call, seen), *_content(call, seen, series)]
    zone = None if call.visit.is_read_only else await _danger_zone(call, name, why_not)
    return PageAnswer(page(call.visit, "streams", name, top, live("stream", content), zone))


async def _danger_zone(call: Call, name: str, why_not: str) -> list[Child]:
    """The actions that remove messages, or cannot be undone."""
    purge = await call.refusal_of("stream_purge", name)
    delete = await call.refusal_of("stream_delete", name)
    path = ("streams", name)
    return [
        danger_zone(
            [
                (
                    "Remove messages: all, those of a subject, or all but the newest.",
                    action_link("Purge", address(*path, "purge"), purge),
                ),
                (
                    "Seal the stream: nothing in it can change from then on.",
                    action_link("Seal", address(*path, "seal"), why_not),
                ),
                (
                    "Delete the stream with its messages and consumers.",
                    action_link("Delete", address(*path, "delete"), delete),
                ),
            ]
        ),
        why_off([why_not, purge, delete]),
    ]


async def _why(call: Call, seen: Observation[StreamInfo]) -> Markup | None:
    """Why messages are not stored, do not arrive or are not removed; None if all is well."""
    info = seen.value
    if info is None:
        return None

    async def ask() -> Reason:
        manager = call.workspace.jetstream.manager
        newest = await manager.streams.info(info.config.name)
        return explain_stream(await stream_knowledge(manager, newest))

    key = ("why", info.config.name, info.created)
    found = (await call.workspace.samplers.see(Question(key, ask, WHY_SECONDS))).value
    if found is None or found.mood in ("good", "idle"):
        return None
    return why_card(found, "Why?", "")


def check_found(seen: Observation[StreamInfo]) -> None:
    """Raise StreamNotFoundError for a missing stream, which has its own page, not an empty one."""
    if seen.problem is not None and seen.problem.kind == "missing":
        raise StreamNotFoundError(404, 10059, "stream not found")


def _content(call: Call, seen: Observation[StreamInfo], history: Series) -> list[Child]:
    info = seen.value
    if info is None:
        return [problem_note(seen.problem)]
    state, series = info.state, seen.series
    now_ns = time.time_ns()
    stored = line_chart(
        "Stored per second",
        [Line("messages", history.rates("last_seq"))],
        window=call.window,
        percentiles=True,
    )
    grown = line_chart(
        "Size", [Line("bytes", history.levels("bytes"))], label=size, window=call.window
    )
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
            figure_card("Deleted (gaps)", count(state.num_deleted)),
            class_="numbers",
        ),
        _lost(info),
        chart_ranges(call, "streams", info.config.name),
        grid(card("", stored), card("", grown)),
        grid(
            card("Summary", [tag("p", sentence) for sentence in in_words(info.config)]),
            card(
                "State",
                facts(
                    [
                        ("First", _end(state.first_seq, state.first_ts, now_ns, state.messages)),
                        ("Last", _end(state.last_seq, state.last_ts, now_ns, state.last_seq)),
                        ("Created", at(info.created)),
                        *cluster_facts(info.cluster),
                    ]
                ),
            ),
        ),
        origin_card(info),
    ]


def _end(sequence: int, moment: str, now_ns: int, is_known: int) -> Child:
    if not is_known:
        return "none yet"
    return [f"sequence {count(sequence)}, ", ago(moment, now_ns), ", ", at(moment)]


def cluster_facts(cluster: ClusterInfo | None) -> list[tuple[str, Child]]:
    """The leader of a stream or consumer, and the servers with a copy; empty if there is only
    one.
    """
    if cluster is None or not (cluster.leader or cluster.raft_group):
        return []
    leader: Child = cluster.leader or badge("none at the moment", "bad")
    pairs: list[tuple[str, Child]] = [("Leader", leader)]
    if cluster.replicas:
        peers: list[Child] = []
        for peer in cluster.replicas:
            state = "away" if peer.offline else "" if peer.current else "behind"
            text = f"{peer.name} ({state})" if state else peer.name
            peers += [badge(text, "bad" if state else "good"), " "]
        pairs.append(("Replicas", peers))
    return pairs


def _lost(info: StreamInfo) -> Markup | None:
    lost = info.state.lost
    if lost is None or not lost.msgs:
        return None
    shown = ", ".join(map(str, lost.msgs[:LOST_SHOWN]))
    more = f" and {count(len(lost.msgs) - LOST_SHOWN)} more" if len(lost.msgs) > LOST_SHOWN else ""
    text = f"{many(len(lost.msgs), 'message')} can no longer be read: sequence {shown}{more}."
    return tag("p", text, class_="notice bad", role="alert")


def origin_card(info: StreamInfo) -> Markup | None:
    """A picture of where messages come from."""
    config = info.config
    wanted = config.sources if config.mirror is None else [config.mirror]
    if not wanted:
        return None
    # Streams of several domains may have the same name.
    known = {_place(source): source for source in (*info.sources, info.mirror) if source}
    origins = []
    for source in wanted:
        place = _place(source)
        # There is little room, and in the API of a domain only its name is informative.
        domain = place[1].removeprefix("$JS.").removesuffix(".API")
        title = f"{source.name}, {domain}" if domain else source.name
        state = _source_state(known.get(place))
        target = address("streams", source.name) if source.external is None else ""
        origins.append(Box(f"from {place}", title, state, target))
    self_box = Box("self", config.name, mood="self")
    edges = [(box.key, self_box.key) for box in origins]
    picture = flow_graph("Origin", [origins, [self_box]], edges)
    return card("Sources" if config.mirror is None else "Mirrored from", picture)


def _place(source: StreamSource | StreamSourceInfo) -> tuple[str, str]:
    """The identity of a stream elsewhere: its name and the prefix of its API."""
    return source.name, source.external.api if source.external is not None else ""


def _source_state(source: StreamSourceInfo | None) -> str:
    if source is None:
        return "nothing known yet"
    if source.error is not None:
        return source.error.description[:40]
    behind = "up to date" if not source.lag else f"{count(source.lag)} behind"
    heard = f", last heard from {span_ns(source.active)} ago" if source.active > 0 else ""
    return f"{behind}{heard}"[:44]


# ---------------------------------------------------------------------- subjects


async def show_subjects(call: Call) -> Answer:
    """Show the subjects of a stream with their counts."""
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
    return PageAnswer(
        page(call.visit, "streams", f"{name}: subjects", top, card("", find), content)
    )


async def _subjects(call: Call, name: str, pattern: str) -> Child:
    if not is_valid_subject(pattern):
        return tag(
            "p",
            f"{pattern!r} is not a subject: tokens joined by dots, * and > match any.",
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


# ---------------------------------------------------------------------- configuration


async def show_config(call: Call) -> Answer:
    """Show the configuration in words and as JSON."""
    name = call.parts["stream"]
    seen = await call.workspace.catalog.stream(name)
    check_found(seen)
    edit = tag("a", "Edit", href=address("streams", name, "edit"), class_="button")
    top = stream_heading(call.visit, name, "config", edit)
    if seen.value is None:
        return PageAnswer(page(call.visit, "streams", name, top, problem_note(seen.problem)))
    config = seen.value.config
    return PageAnswer(
        page(
            call.visit,
            "streams",
            f"{name}: configuration",
            top,
            grid(
                card("Summary", [tag("p", sentence) for sentence in in_words(config)]),
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
