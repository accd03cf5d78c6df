"""The messages of a stream: pages by sequence, time, subject and text, and one message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.core.headers import Headers
from tradewind.dashboard.data.message_data import (
    PAGE_ROWS,
    SHOWN_BYTES_MAX,
    ListedMessage,
    MessagePage,
    MessageReader,
    Search,
    as_hex,
    as_json,
    as_text,
    excerpt,
)
from tradewind.dashboard.data.page_texts import count, many, moment, size
from tradewind.dashboard.data.problems import problem_of
from tradewind.dashboard.look.elements import Child, Markup, address, shown_text, tag
from tradewind.dashboard.look.folded_json import json_tree
from tradewind.dashboard.look.page_layout import (
    card,
    facts,
    field,
    form,
    heading,
    live,
    page,
    problem_note,
    table,
    tabs,
)
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
from tradewind.dashboard.views.decoded_views import decoded_card
from tradewind.dashboard.views.stream_views import stream_heading
from tradewind.errors import TradewindError
from tradewind.subjects import is_valid_literal, is_valid_subject

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo

# The number of positions of the slider, however long the stream is.
SLIDER_STEPS: Final = 1000
COLUMNS: Final = ("Sequence#", "Time", "Subject", "Size#", "Payload")
VIEWS: Final = {"text": "Text", "json": "JSON", "hex": "Hex"}
# Headers that would give a copy of a message another meaning than a new message.
NOT_COPIED: Final = ("Nats-Expected-", "Nats-Msg-Id", "Nats-Rollup", "Nats-Schedule")


async def show(call: Call) -> Answer:
    """Show a page of messages."""
    name = call.parts["stream"]
    search = read_search(call)
    info = await call.workspace.jetstream.manager.streams.info(name)
    problem = None
    found = MessagePage()
    try:
        found = await MessageReader(call.workspace.jetstream, info).page(search)
    except TradewindError as error:
        problem = problem_of(error)
    is_newest = not search.start and not search.start_time_ns
    rows = _rows(name, found, is_newest=is_newest)
    content = [problem_note(problem), card("", rows, _more(name, search, found, info))]
    top = stream_heading(call.visit, name, "messages", _publish_link(name))
    return PageAnswer(
        page(
            call.visit,
            "streams",
            f"{name}: messages",
            top,
            _finder(call, info, search),
            # The newest page follows new messages; a page that was chosen stays as it is.
            live("messages", content) if is_newest else content,
        )
    )


def read_search(call: Call) -> Search:
    """The search in a page's address; BadFormError names the field that is not valid."""
    subject = call.query.get("subject", "").strip()
    if subject and not is_valid_subject(subject):
        raise BadFormError(
            f"subject must be tokens joined by dots, * and > match any, not {subject[:80]!r}"
        )
    return Search(
        number(call.query, "start"),
        time_ns(call.query, "at"),
        subject,
        call.query.get("text", "")[:200],
    )


def _finder(call: Call, info: StreamInfo, search: Search) -> Markup:
    name = info.config.name
    state = info.state
    sequence = str(search.start) if search.start else ""
    return card(
        "",
        tag(
            "form",
            field("From sequence", "start", sequence, kind="number"),
            field(
                "From time (UTC)", "at", call.query.get("at", ""), placeholder="2026-01-31 12:00"
            ),
            field("Subject", "subject", search.subject, placeholder="all"),
            field("Contains", "text", search.text),
            tag("button", "Show", class_="main"),
            tag("a", "Newest", href=address("streams", name, "messages"), class_="button"),
            tag("a", "Search", href=_whole_search(name, search), class_="button"),
            action=address("streams", name, "messages"),
            method="get",
            class_="row",
        ),
        _slider(call, info, search) if state.messages > PAGE_ROWS else None,
    )


def _whole_search(name: str, search: Search) -> str:
    """The address of a search with the same conditions."""
    return address("streams", name, "search", subject=search.subject, text=search.text)


def _slider(call: Call, info: StreamInfo, search: Search) -> Markup:
    """A slider over the time of the stream, from its first message to its last."""
    state, name = info.state, info.config.name
    first, last = _time(state.first_ts), _time(state.last_ts)
    place = number(call.query, "place")
    return tag(
        "form",
        tag("input", type="hidden", name="subject", value=search.subject)
        if search.subject
        else None,
        tag(
            "label",
            tag("span", f"{moment(first)} to {moment(last)}"),
            tag(
                "input",
                type="range",
                name="place",
                min=0,
                max=SLIDER_STEPS,
                value=place or SLIDER_STEPS,
                aria_label="Time",
                data_slides=True,
            ),
        ),
        action=address("streams", name, "messages", "slide"),
        method="get",
    )


def _time(text: str) -> int:
    return 0 if text == ZERO_TIME else parse_time(text)


async def slide(call: Call) -> Answer:
    """Redirect from a position of the slider to the page of that time."""
    name = call.parts["stream"]
    place = min(number(call.query, "place"), SLIDER_STEPS)
    subject = call.query.get("subject", "")
    if place == SLIDER_STEPS:
        return RedirectAnswer(address("streams", name, "messages", subject=subject))
    info = await call.workspace.jetstream.manager.streams.info(name)
    first, last = _time(info.state.first_ts), _time(info.state.last_ts)
    wanted = first + (last - first) * place // SLIDER_STEPS
    reader = MessageReader(call.workspace.jetstream, info)
    start = await reader.sequence_at(wanted)
    return RedirectAnswer(
        address("streams", name, "messages", start=start or None, subject=subject, place=place)
    )


def _rows(name: str, found: MessagePage, *, is_newest: bool) -> Markup:
    messages = reversed(found.messages) if is_newest else found.messages
    rows: list[list[Child]] = [
        [
            tag(
                "a",
                str(each.sequence),
                href=address("streams", name, "messages", str(each.sequence)),
            ),
            moment(each.time_ns).removesuffix(" UTC"),
            tag("span", each.subject, class_="mono"),
            size(len(each.data)),
            tag("span", excerpt(each.data), class_="mono faint"),
        ]
        for each in messages
    ]
    return table(COLUMNS, rows, empty="No messages found.")


def _more(name: str, search: Search, found: MessagePage, info: StreamInfo) -> list[Child]:
    links: list[Child] = []
    if found.is_cut:
        text = f"{many(found.looked_at, 'message')} searched; there may be more. "
        whole = tag("a", "Search the whole stream", href=_whole_search(name, search))
        links.append(tag("p", text, whole, class_="notice warning"))
    query = {"subject": search.subject, "text": search.text}
    path = ("streams", name, "messages")
    steps: list[Child] = []
    if found.messages and not search.text and not search.subject:
        before = found.messages[0].sequence - PAGE_ROWS
        if found.messages[0].sequence > max(info.state.first_seq, 1):
            steps.append(tag("a", "Older", href=address(*path, start=max(before, 1)), rel="prev"))
    elif search.start or search.start_time_ns or search.text or search.subject:
        steps.append(tag("a", "From the beginning", href=address(*path, start=1, **query)))
    if found.next_start:
        target = address(*path, start=found.next_start, **query)
        steps.append(
            tag("a", "Search further" if found.is_cut else "Newer", href=target, rel="next")
        )
    return [*links, tag("p", steps, class_="pager")]


# ---------------------------------------------------------------------- one message


async def _message(call: Call) -> ListedMessage:
    streams = call.workspace.jetstream.manager.streams
    sequence = number(call.parts, "sequence", least=1)
    info = await streams.info(call.parts["stream"])
    found = await MessageReader(call.workspace.jetstream, info).one(sequence)
    if found is None:
        raise NoMessageFoundError(404, 10037, f"message {sequence} does not exist or was removed")
    return found


async def show_one(call: Call) -> Answer:
    """Show a message with its headers and payload."""
    name = call.parts["stream"]
    message = await _message(call)
    path = ("streams", name, "messages", str(message.sequence))
    above = [
        tag("a", name, href=address("streams", name)),
        " / ",
        tag("a", "Messages", href=address("streams", name, "messages", start=message.sequence)),
    ]
    actions: list[Child] = [
        tag("a", "Download", href=address(*path, "payload"), class_="button", download=True)
    ]
    if not call.visit.is_read_only:
        copy = address("publish", subject=message.subject, stream=name, copy=message.sequence)
        actions += [
            tag("a", "Publish a copy", href=copy, class_="button"),
            tag("a", "Delete", href=address(*path, "delete"), class_="button"),
        ]
    about: list[tuple[str, Child]] = [
        ("Subject", tag("span", message.subject, class_="mono")),
        ("Time", moment(message.time_ns)),
        ("Size", f"{size(len(message.data))} ({count(len(message.data))} bytes)"),
    ]
    headers: list[tuple[str, Child]] = [(header, value) for header, value in message.headers]
    return PageAnswer(
        page(
            call.visit,
            "streams",
            f"{name}: message {message.sequence}",
            heading(f"Message {message.sequence}", *actions, above=above),
            card("", facts(about)),
            card("Headers", facts(headers)) if headers else None,
            card("Payload", *payload_views(message.data, path, call.query.get("as", ""))),
            await decoded_card(call, message, path),
            tag("p", _beside(name, message.sequence), class_="pager"),
        )
    )


def _beside(name: str, sequence: int) -> list[Child]:
    links: list[Child] = []
    for label, other in (("Sequence before", sequence - 1), ("Sequence after", sequence + 1)):
        if other >= 1:
            links.append(tag("a", label, href=address("streams", name, "messages", str(other))))
    return links


def payload_views(data: bytes, path: tuple[str, ...], wanted: str) -> list[Child]:
    """A payload as text, JSON or hex, with links to the other views."""
    made = as_json(data)
    view = wanted if wanted in VIEWS else "json" if made is not None else "text"
    parts: list[Child] = [
        tabs([(label, address(*path, **{"as": key}), key == view) for key, label in VIEWS.items()])
    ]
    if not data:
        return [tag("p", "The payload is empty.", class_="empty")]
    if view == "json" and made is None:
        return [*parts, tag("p", "This is not JSON.", class_="empty")]
    parts.append(copy_button("#payload"))
    if view == "json":
        assert made is not None, "checked above"
        return [*parts, json_tree(made) or tag("pre", made, id="payload")]
    parts.append(tag("pre", as_hex(data) if view == "hex" else as_text(data), id="payload"))
    if view == "text" and len(data) > SHOWN_BYTES_MAX:
        parts.append(tag("p", f"The first {size(SHOWN_BYTES_MAX)}.", class_="faint"))
    return parts


def copy_button(target: str) -> Markup:
    """A button that copies the text of an element; the script of the page does that."""
    return tag("button", "Copy", type="button", class_="copy", data_copy=target)


async def download(call: Call) -> Answer:
    """Send the payload as a file."""
    message = await _message(call)

    async def chunks() -> AsyncIterator[bytes]:
        yield message.data

    return Download(f"{call.parts['stream']}-{message.sequence}.bin", chunks())


async def show_delete(call: Call) -> Answer:
    """Ask for confirmation."""
    name = call.parts["stream"]
    message = await _message(call)
    path = ("streams", name, "messages", str(message.sequence))
    text = f"Message {message.sequence} of {name} ({message.subject}, {size(len(message.data))})."
    ask = form(
        call.visit,
        address(*path, "delete"),
        tag(
            "div",
            tag("button", "Delete the message", class_="danger"),
            tag("a", "Cancel", href=address(*path), class_="button"),
            class_="actions",
        ),
    )
    note = "Its data is overwritten; this cannot be undone."
    title = "Delete this message?"
    return PageAnswer(
        page(
            call.visit,
            "streams",
            title,
            heading(title),
            card("", tag("p", text), tag("p", note), ask),
        )
    )


async def delete(call: Call) -> Answer:
    """Delete one message."""
    name = call.parts["stream"]
    sequence = number(call.parts, "sequence", least=1)
    await call.workspace.jetstream.manager.streams.delete_message(name, sequence)
    call.workspace.catalog.changed(name)
    return RedirectAnswer(address("streams", name, "messages"), f"Message {sequence} was deleted.")


# ---------------------------------------------------------------------- publish


def _publish_link(name: str) -> Markup:
    return tag("a", "Publish", href=address("publish", stream=name), class_="button")


async def show_publish(call: Call) -> Answer:
    """Show a form for one message; it may begin as a copy of a stored one."""
    stream = call.query.get("stream", "")
    copied: ListedMessage | None = None
    if stream and call.query.get("copy"):
        info = await call.workspace.jetstream.manager.streams.info(stream)
        reader = MessageReader(call.workspace.jetstream, info)
        copied = await reader.one(number(call.query, "copy", least=1))
    is_text = copied is None or is_editable(copied.data)
    payload = as_text(copied.data) if copied is not None and is_text else ""
    headers = "" if copied is None else "\n".join(f"{a}: {b}" for a, b in kept_headers(copied))
    subject = copied.subject if copied is not None else call.query.get("subject", "")
    whole: Child = None
    if copied is not None and not is_text:
        whole = [
            tag("input", type="hidden", name="copy", value=copied.sequence),
            tag(
                "p",
                f"The payload, {size(len(copied.data))}, is not text and is copied unchanged.",
                class_="notice",
            ),
        ]
    inputs = call.inputs()
    content = form(
        call.visit,
        "/publish",
        tag("input", type="hidden", name="stream", value=stream),
        inputs.text("Subject", "subject", subject, required=True),
        inputs.area("Headers", "headers", headers, hint="One per line: Name: value"),
        whole or inputs.area("Payload", "payload", payload),
        tag("button", "Publish", class_="main"),
        class_="stack",
    )
    title = "Publish a message"
    ways = message_tabs("publish", subject=subject)
    labels = {"subject": "Subject", "headers": "Headers", "payload": "Payload"}
    note = call.refusal_note(labels)
    top = [heading(title), ways, note]
    return PageAnswer(page(call.visit, "streams", title, top, card("", content)))


def message_tabs(here: str, *, subject: str = "") -> Markup:
    """The two ways to send a message."""
    return tabs(
        [
            ("Publish to a stream", address("publish", subject=subject), here == "publish"),
            ("Send a request", address("request", subject=subject), here == "request"),
        ]
    )


def kept_headers(message: ListedMessage) -> list[tuple[str, str]]:
    """The headers of a message that its copy should have, too."""
    return [pair for pair in message.headers if not pair[0].startswith(NOT_COPIED)]


def is_editable(data: bytes) -> bool:
    """Whether a payload returns unchanged from a form in which nothing was typed."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return len(data) <= SHOWN_BYTES_MAX and shown_text(text) == text


def parse_headers(text: str) -> Headers:
    """The headers in a form; BadFormError names the line."""
    headers = Headers()
    for index, line in enumerate(text.split("\n"), 1):
        name, colon, value = line.partition(":")
        if line.strip() and (not colon or not name.strip()):
            raise BadFormError(
                f"headers, line {index} must be Name: value, not {line[:60]!r}", field="headers"
            )
        if line.strip():
            headers.add(name.strip(), value.strip())
    return headers


async def publish(call: Call) -> Answer:
    """Publish a message, and show where it was stored."""
    fields = call.fields
    subject = fields.get("subject", "").strip()
    if not is_valid_literal(subject):
        raise BadFormError(
            f"subject must be dotted tokens, no wildcards, not {subject[:80]!r}", field="subject"
        )
    data = fields.get("payload", "").encode()
    stream = fields.get("stream", "")
    if fields.get("copy") and stream:
        info = await call.workspace.jetstream.manager.streams.info(stream)
        reader = MessageReader(call.workspace.jetstream, info)
        copied = await reader.one(number(fields, "copy", least=1))
        if copied is None:
            raise NoMessageFoundError(404, 10037, "the message no longer exists")
        data = copied.data
    ack = await call.workspace.jetstream.publish(
        subject, data, headers=parse_headers(fields.get("headers", ""))
    )
    return RedirectAnswer(
        address("streams", ack.stream, "messages"), f"Stored as message {ack.seq} of {ack.stream}."
    )
