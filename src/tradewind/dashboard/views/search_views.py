"""Searches through a whole stream: begin, watch, stop, continue, and save what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.message_data import MessageReader, excerpt
from tradewind.dashboard.data.message_export import FORMATS, export
from tradewind.dashboard.data.message_filters import BadConditionError, make_filter
from tradewind.dashboard.data.message_search import (
    FOUND_MAX,
    MessageSearch,
)
from tradewind.dashboard.data.page_texts import count, many, moment, size, span
from tradewind.dashboard.data.problems import MissingError
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.inputs import Inputs
from tradewind.dashboard.look.page_layout import badge, card, form, live, page, pager, table
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    Download,
    PageAnswer,
    RedirectAnswer,
    number,
    time_ns,
)
from tradewind.dashboard.views.stream_views import stream_heading
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.dashboard.data.message_filters import MessageFilter

ROWS: Final = 100
COLUMNS: Final = ("Sequence#", "Time", "Subject", "Size#", "Payload")
FIELDS: Final = ("subject", "text", "header", "json", "from", "at")
LABELS: Final = {
    "subject": "Subject",
    "text": "Contains",
    "header": "Headers",
    "json": "JSON values",
    "from": "From sequence",
    "at": "From time (UTC)",
}
_STATES: Final = {
    "running": ("searching", ""),
    "done": ("done", "good"),
    "full": ("paused", "warning"),
    "stopped": ("stopped", "warning"),
    "failed": ("failed", "bad"),
}


def search_form(call: Call, name: str, inputs: Inputs) -> Markup:
    """The form with all conditions; each may be empty."""
    return tag(
        "form",
        inputs.text(LABELS["subject"], "subject", placeholder="all", hint="* and > match any"),
        inputs.text(LABELS["text"], "text", hint="In payload, subject or headers"),
        inputs.text(
            LABELS["header"], "header", placeholder="Trace = t5", hint="= != ~ (contains), and"
        ),
        inputs.text(
            LABELS["json"],
            "json",
            placeholder="order.total > 100",
            hint='Also lines[*].sku = "a" and item ~ pear',
        ),
        inputs.text(LABELS["from"], "from", numeric=True, hint="Empty: an end of the stream"),
        inputs.text(LABELS["at"], "at", placeholder="2026-01-31 12:00"),
        tag("input", type="hidden", name="csrf", value=call.visit.csrf),
        tag(
            "div",
            tag("button", "Search older", name="way", value="older", class_="main"),
            tag("button", "Search newer", name="way", value="newer"),
            class_="actions",
        ),
        action=address("streams", name, "search"),
        method="post",
        class_="entries search-form",
    )


async def show(call: Call) -> Answer:
    """Show a search, or the form for one."""
    name = call.parts["stream"]
    search = call.workspace.searches.see(call.query.get("id", ""))
    if search is not None and search.stream != name:
        search = None
    entered = dict(search.query) if search is not None else dict(call.query)
    inputs = call.inputs() if call.refusal is not None else Inputs(entered)
    content: Child = None
    if search is not None:
        content = live("search", _state(call, search), _found(call, search))
    elif call.query.get("id"):
        content = tag("p", "This search has ended; begin it again.", class_="notice")
    return PageAnswer(
        page(
            call.visit,
            "streams",
            f"{name}: search",
            stream_heading(call.visit, name, "messages"),
            call.refusal_note(LABELS),
            card("Search the whole stream", search_form(call, name, inputs)),
            content,
        )
    )


def _state(call: Call, search: MessageSearch) -> Markup:
    word, mood = _STATES[search.state]
    per_second = int(search.looked_at / search.seconds) if search.seconds else 0
    direction = "older" if search.is_older else "newer"
    text = (
        f"{many(search.looked_at, 'message')} searched in {span(search.seconds)}, "
        f"{count(per_second)} per second; {count(len(search.found))} found."
    )
    actions: list[Child] = []
    if search.state == "running":
        actions.append(_button(call, search, "stop", "Stop"))
    elif search.state != "done":
        actions.append(_button(call, search, "continue", f"Search on towards {direction}", "main"))
    if search.found and search.state != "running":
        path = ("streams", search.stream, "search", "export")
        actions += [
            tag(
                "a",
                label,
                href=address(*path, id=search.id, format=kind),
                class_="button",
                download=True,
            )
            for kind, label in zip(FORMATS, ("JSON lines", "CSV", "Parquet"), strict=True)
        ]
    full = f"It holds {count(len(search.found))} messages, the most at once. Searching on begins "
    full += "with an empty list: save these first."
    return card(
        "",
        tag(
            "p",
            badge(word, mood),
            f" towards {direction}, at sequence {count(search.at_seq)}. ",
            text,
            role="status",
            id="search-state",
        ),
        tag("progress", value=round(search.part, 4), max=1, aria_label="Part of the stream"),
        tag("p", full) if search.state == "full" else None,
        tag("p", search.text, class_="notice warning") if search.text else None,
        tag("div", actions, class_="actions") if actions else None,
    )


def _button(
    call: Call, search: MessageSearch, action: str, label: str, kind: str | None = None
) -> Markup:
    return form(
        call.visit,
        address("streams", search.stream, "search", action),
        tag("input", type="hidden", name="id", value=search.id),
        tag("button", label, class_=kind),
    )


def _found(call: Call, search: MessageSearch) -> Markup:
    first = number(call.query, "first")
    rows: list[list[Child]] = [
        [
            tag(
                "a",
                count(each.sequence),
                href=address("streams", search.stream, "messages", str(each.sequence)),
            ),
            moment(each.time_ns).removesuffix(" UTC"),
            tag("span", each.subject, class_="mono"),
            size(len(each.data)),
            tag("span", excerpt(each.data), class_="mono faint"),
        ]
        for each in search.found[first : first + ROWS]
    ]
    path = ("streams", search.stream, "search")
    empty = "Nothing found yet." if search.state == "running" else "No messages found."
    return card(
        "",
        table(COLUMNS, rows, empty=empty),
        pager(path, first, ROWS, len(search.found), id=search.id),
    )


# ---------------------------------------------------------------------- begin, stop, continue


def read_conditions(fields: dict[str, str]) -> MessageFilter:
    """The conditions in a form; BadFormError names the fields that are not valid."""
    errors = {}
    for name, texts in (
        ("header", ("", fields.get("header", ""), "")),
        ("json", ("", "", fields.get("json", ""))),
    ):
        try:
            make_filter(*texts)
        except BadConditionError as error:
            errors[name] = str(error)
    subject = fields.get("subject", "").strip()
    if subject and not is_valid_subject(subject):
        errors["subject"] = (
            f"must be tokens joined by dots, * and > match any, not {subject[:80]!r}"
        )
    if errors:
        text = "; ".join(f"{name} {error}" for name, error in errors.items())
        raise BadFormError(text, errors=errors)
    return make_filter(fields.get("text", ""), fields.get("header", ""), fields.get("json", ""))


async def begin(call: Call) -> Answer:
    """Begin a search; the page shows its progress."""
    name, fields = call.parts["stream"], dict(call.fields)
    wanted = read_conditions(fields)
    is_older = fields.get("way") != "newer"
    start, at = number(fields, "from"), time_ns(fields, "at")
    info = await call.workspace.jetstream.manager.streams.info(name)
    if at:
        reader = MessageReader(call.workspace.jetstream, info)
        start = await reader.sequence_at(at) or info.state.last_seq + 1
    lowest, highest = max(info.state.first_seq, 1), info.state.last_seq
    if is_older:
        at_seq = min(start + 1 if start else highest + 1, highest + 1)
    else:
        at_seq = max(start - 1, lowest - 1)
    search = MessageSearch(
        name,
        fields.get("subject", "").strip() or ">",
        wanted,
        is_older,
        {key: fields[key] for key in FIELDS if fields.get(key)},
        lowest=lowest,
        highest=highest,
        begun_seq=at_seq,
        at_seq=at_seq,
    )
    call.workspace.searches.begin(call.workspace.jetstream, search)
    return RedirectAnswer(address("streams", name, "search", id=search.id))


def _known(call: Call) -> MessageSearch:
    number_of = call.fields.get("id", "") or call.query.get("id", "")
    search = call.workspace.searches.see(number_of)
    if search is None or search.stream != call.parts["stream"]:
        raise MissingError("This search has ended; begin it again.")
    return search


async def stop(call: Call) -> Answer:
    """Stop a search; it can be continued."""
    search = _known(call)
    search.stop()
    return RedirectAnswer(address("streams", search.stream, "search", id=search.id))


async def proceed(call: Call) -> Answer:
    """Continue a search where it stopped."""
    search = _known(call)
    if search.is_full:
        search.found, search.found_bytes = [], 0
    call.workspace.searches.begin(call.workspace.jetstream, search)
    return RedirectAnswer(address("streams", search.stream, "search", id=search.id))


async def save(call: Call) -> Answer:
    """Send what was found as a file."""
    search = _known(call)
    kind = call.query.get("format", "jsonl")
    chunks = export(search.stream, list(search.found[:FOUND_MAX]), kind)
    return Download(f"{search.stream}-found.{kind}", chunks)
