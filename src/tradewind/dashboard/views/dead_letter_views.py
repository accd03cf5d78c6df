"""Dead letters: the streams that hold them, a list, one of them, and what can be done with them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from tradewind.api.dead_letter_rules import REASONS
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.streams.dead_letters import RATE_MIN, LetterFilter, StoredDeadLetter
from tradewind.dashboard.data.dead_letter_data import (
    LetterSearch,
    LetterStream,
    Redrive,
    as_letter,
    find_streams,
    has_own_letters,
)
from tradewind.dashboard.data.message_data import MessagePage, MessageReader, as_text, excerpt
from tradewind.dashboard.data.page_texts import count, many, size
from tradewind.dashboard.data.problems import MissingError, problem_of
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    choice,
    facts,
    field,
    form,
    heading,
    live,
    page,
    problem_note,
    switch,
    table,
)
from tradewind.dashboard.look.time_texts import ago, at
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    PageAnswer,
    RedirectAnswer,
    number,
)
from tradewind.dashboard.views.message_views import is_editable, parse_headers, payload_views
from tradewind.errors import TradewindError
from tradewind.subjects import is_valid_literal, is_valid_subject

if TYPE_CHECKING:
    from tradewind.dashboard.data.message_data import ListedMessage

PLACE: Final = "dead-letters"
NO_OWN: Final = (
    "This server does not store dead letters: it only publishes an event when a consumer "
    "gives up on a message. Dead letters need a Tradewind server."
)
COLUMNS: Final = ("Sequence#", "Age", "Given up by", "Reason", "Attempts#", "Subject", "Payload")
ONLY_CONSUMER: Final = "Only to the consumer that gave up on it, as stored in its stream"
GIVERS_SHOWN: Final = 10
REDRIVES_SHOWN: Final = 5
_REDRIVE_LABELS: Final = {
    "rate": "Per second, at most",
    "limit": "How many, at most",
    "to": "To this subject",
}
_STATES: Final = {"done": "good", "failed": "bad", "stopped": "warning"}


# ---------------------------------------------------------------------- streams


async def show_streams(call: Call) -> Answer:
    """Show the streams that hold dead letters."""
    top = heading("Dead letters")
    if not has_own_letters(call.workspace):
        return PageAnswer(page(call.visit, PLACE, "Dead letters", top, _no_own(call)))
    seen = await find_streams(call.workspace)
    content: list[Child] = [problem_note(seen.problem)]
    if seen.value is not None:
        rows = [_stream_row(each) for each in seen.value.streams]
        content += [
            problem_note(seen.value.problem),
            card(
                "",
                table(
                    ("Stream", "Messages#", "Messages that these consumers give up on"),
                    rows,
                    empty="No consumer has a stream for dead letters.",
                ),
            ),
        ]
        if seen.value.is_cut:
            text = "Not all streams were checked."
            content.append(tag("p", text, class_="notice warning"))
    return PageAnswer(page(call.visit, PLACE, "Dead letters", top, live("letter-streams", content)))


def _no_own(call: Call) -> Markup | None:
    if has_own_letters(call.workspace):
        return None
    return tag("p", NO_OWN, class_="notice", data_problem="missing")


def _stream_row(found: LetterStream) -> list[Child]:
    givers: list[Child] = []
    for stream, consumer in found.givers[:GIVERS_SHOWN]:
        target = address(PLACE, found.name, origin=stream, consumer=consumer)
        givers += [tag("a", f"{stream} > {consumer}", href=target), " "]
    if len(found.givers) > GIVERS_SHOWN:
        givers.append(f"and {count(len(found.givers) - GIVERS_SHOWN)} more")
    if found.messages is None:
        missing = badge("does not exist: its consumers keep their messages", "bad")
        return [[found.name, " ", missing], "-", givers]
    link = tag("a", found.name, href=address(PLACE, found.name))
    return [link, count(found.messages), givers or "-"]


# ---------------------------------------------------------------------- a list


def read_filter(fields: Mapping[str, str]) -> LetterFilter:
    """The filter in a form or query; BadFormError names the field that is not valid."""
    subject = fields.get("subject", "").strip()
    if subject and not is_valid_subject(subject):
        raise BadFormError(
            f"subject must be tokens joined by dots, * and > match any, not {subject[:80]!r}"
        )
    reason = fields.get("reason", "")
    if reason and reason not in REASONS:
        raise BadFormError(f"reason must be {' or '.join(REASONS)}, not {reason[:80]!r}")
    origin, consumer = fields.get("origin", "").strip(), fields.get("consumer", "").strip()
    return LetterFilter(origin, consumer, reason, subject)


def _filter_fields(wanted: LetterFilter) -> dict[str, str]:
    return {
        "origin": wanted.origin,
        "consumer": wanted.consumer,
        "reason": wanted.reason,
        "subject": wanted.subject,
    }


async def show(call: Call) -> Answer:
    """Show the dead letters of a stream."""
    name = call.parts["stream"]
    wanted = read_filter(call.query)
    start = number(call.query, "start")
    info = await call.workspace.jetstream.manager.streams.info(name)
    found, problem = MessagePage(), None
    try:
        search = LetterSearch(start, stream=name, wanted=wanted)
        found = await MessageReader(call.workspace.jetstream, info).page(search)
    except TradewindError as error:
        problem = problem_of(error)
    content = [
        _redrives(call, name),
        problem_note(problem),
        card("", _rows(name, found, is_newest=not start), _more(name, wanted, found, start)),
    ]
    actions: list[Child] = [tag("a", "Stream", href=address("streams", name), class_="button")]
    if _may_change(call):
        target = address(PLACE, name, "redrive", **_filter_fields(wanted))
        actions.append(tag("a", "Redrive", href=target, class_="button"))
    above = tag("a", "Dead letters", href="/dead-letters")
    return PageAnswer(
        page(
            call.visit,
            PLACE,
            f"{name}: dead letters",
            heading(name, *actions, above=above),
            _no_own(call),
            card("", _finder(name, wanted)),
            live("letters", content),
        )
    )


def _may_change(call: Call) -> bool:
    return not call.visit.is_read_only and has_own_letters(call.workspace)


def _check_own(call: Call) -> None:
    """Raise MissingError if the server has no transactions, which changes of dead letters need."""
    if not has_own_letters(call.workspace):
        raise MissingError(NO_OWN)


def _finder(name: str, wanted: LetterFilter) -> Markup:
    reasons = [("", "all"), *((each, each) for each in REASONS)]
    return tag(
        "form",
        field("From stream", "origin", wanted.origin, placeholder="all"),
        field("Consumer", "consumer", wanted.consumer, placeholder="all"),
        choice("Reason", "reason", reasons, wanted.reason),
        field("Subject", "subject", wanted.subject, placeholder="all"),
        tag("button", "Show", class_="main"),
        tag("a", "All", href=address(PLACE, name), class_="button"),
        action=address(PLACE, name),
        method="get",
        class_="row",
    )


def _rows(name: str, found: MessagePage, *, is_newest: bool) -> Markup:
    now_ns = time.time_ns()
    rows: list[list[Child]] = []
    for message in reversed(found.messages) if is_newest else found.messages:
        letter = as_letter(name, message)
        if letter is None:
            continue
        rows.append(
            [
                tag("a", str(letter.seq), href=address(PLACE, name, str(letter.seq))),
                ago(message.time_ns, now_ns),
                f"{letter.origin_stream} > {letter.origin_consumer}",
                [letter.reason, " ", tag("small", letter.detail[:80])],
                count(letter.deliveries),
                tag("span", letter.origin_subject, class_="mono"),
                tag("span", excerpt(letter.data), class_="mono faint"),
            ]
        )
    return table(COLUMNS, rows, empty="No dead letters found.")


def _more(name: str, wanted: LetterFilter, found: MessagePage, start: int) -> list[Child]:
    parts: list[Child] = []
    if found.is_cut:
        text = f"{many(found.looked_at, 'message')} searched; there may be more."
        parts.append(tag("p", text, class_="notice warning"))
    query = _filter_fields(wanted)
    steps: list[Child] = []
    if start:
        steps.append(tag("a", "Newest", href=address(PLACE, name, **query)))
    steps.append(tag("a", "From the oldest", href=address(PLACE, name, start=1, **query)))
    if found.next_start:
        target = address(PLACE, name, start=found.next_start, **query)
        steps.append(
            tag("a", "Search further" if found.is_cut else "Newer", href=target, rel="next")
        )
    return [*parts, tag("p", steps, class_="pager")]


# ---------------------------------------------------------------------- one of them


async def _stored(call: Call) -> tuple[ListedMessage, StoredDeadLetter]:
    name, sequence = call.parts["stream"], number(call.parts, "sequence", least=1)
    info = await call.workspace.jetstream.manager.streams.info(name)
    found = await MessageReader(call.workspace.jetstream, info).one(sequence)
    if found is None:
        raise NoMessageFoundError(404, 10037, f"message {sequence} does not exist or was removed")
    letter = as_letter(name, found)
    if letter is None:
        raise MissingError(f"Message {sequence} of {name} is not a dead letter.")
    return found, letter


def _path(letter: StoredDeadLetter, *more: str) -> str:
    return address(PLACE, letter.stream, str(letter.seq), *more)


async def show_one(call: Call) -> Answer:
    """Show a dead letter: why it was given up, its deliveries, and its content."""
    stored, letter = await _stored(call)
    name = letter.stream
    parts = (PLACE, name, str(letter.seq))
    payload = address("streams", name, "messages", str(letter.seq), "payload")
    actions: list[Child] = [
        tag("a", "Download", href=payload, class_="button", download=True),
    ]
    if _may_change(call):
        actions += [
            tag("a", "Send back", href=_path(letter, "redrive"), class_="button main"),
            tag("a", "Edit", href=_path(letter, "edit"), class_="button"),
        ]
    if not call.visit.is_read_only:
        actions.append(tag("a", "Remove", href=_path(letter, "remove"), class_="button"))
    headers: list[tuple[str, Child]] = list(letter.own_headers().fields())
    return PageAnswer(
        page(
            call.visit,
            PLACE,
            f"{name}: dead letter {letter.seq}",
            heading(f"Dead letter {letter.seq}", *actions, above=_crumbs(name)),
            _no_own(call),
            card("", facts(_about(stored, letter))),
            _attempts(letter),
            card("Headers of its publisher", facts(headers)) if headers else None,
            card("Payload", *payload_views(letter.data, parts, call.query.get("as", ""))),
        )
    )


def _crumbs(name: str) -> list[Child]:
    return [
        tag("a", "Dead letters", href="/dead-letters"),
        " / ",
        tag("a", name, href=address(PLACE, name)),
    ]


def _about(stored: ListedMessage, letter: StoredDeadLetter) -> list[tuple[str, Child]]:
    consumer = address("streams", letter.origin_stream, "consumers", letter.origin_consumer)
    reason = f"{letter.reason}: {letter.detail}" if letter.detail else letter.reason
    about: list[tuple[str, Child]] = [
        ("Reason", reason),
        (
            "Given up by",
            tag("a", f"{letter.origin_stream} > {letter.origin_consumer}", href=consumer),
        ),
        ("Given up", at(stored.time_ns)),
        ("Subject", tag("span", letter.origin_subject, class_="mono")),
        ("Sequence there", str(letter.origin_seq)),
        ("Attempts", count(letter.deliveries)),
        ("Size", f"{size(len(letter.data))} ({count(len(letter.data))} bytes)"),
    ]
    if letter.redriven:
        about.append(("Sent back before", many(letter.redriven, "time")))
    return about


def _attempts(letter: StoredDeadLetter) -> Markup | None:
    if not letter.attempts:
        return None
    rows: list[list[Child]] = [
        [str(index), at(when or ""), client or "?"]
        for index, (when, client) in enumerate(zip_longest(letter.attempts, letter.clients), 1)
    ]
    return card("Attempts", table(("Attempt#", "Delivered", "To client"), rows, empty=""))


# ---------------------------------------------------------------------- changes


async def show_edit(call: Call) -> Answer:
    """Show a form with the payload and the headers of its publisher."""
    _, letter = await _stored(call)
    if is_editable(letter.data):
        text = as_text(letter.data)
        payload = call.inputs().area("Payload", "payload", text)
    else:
        note = f"The payload, {size(len(letter.data))}, is not text and is left unchanged."
        payload = tag("p", note, class_="notice")
    content = form(
        call.visit,
        _path(letter, "edit"),
        call.refusal_note({"headers": "Headers", "payload": "Payload"}),
        call.inputs().area(
            "Headers", "headers", _header_lines(letter), hint="One per line: Name: value"
        ),
        payload,
        _buttons("Save", _path(letter)),
        class_="stack",
    )
    return _asked(call, f"Edit dead letter {letter.seq}", letter.stream, content)


def _header_lines(letter: StoredDeadLetter) -> str:
    return "\n".join(f"{name}: {value}" for name, value in letter.own_headers().fields())


def _buttons(label: str, back: str, kind: str = "main") -> Markup:
    return tag(
        "div",
        tag("button", label, class_=kind),
        tag("a", "Cancel", href=back, class_="button"),
        class_="actions",
    )


def _asked(call: Call, title: str, name: str, *content: Child) -> Answer:
    return PageAnswer(
        page(call.visit, PLACE, title, heading(title, above=_crumbs(name)), card("", *content))
    )


async def edit(call: Call) -> Answer:
    """Store the edited dead letter, which gets another sequence."""
    _check_own(call)
    _, letter = await _stored(call)
    # Unedited parts stay byte for byte.
    lines = call.fields.get("headers", _header_lines(letter))
    headers = None if lines == _header_lines(letter) else parse_headers(lines)
    text = call.fields.get("payload")
    data = None if text is None or not is_editable(letter.data) else text.encode()
    if headers is None and data in (None, letter.data):
        return RedirectAnswer(_path(letter), "Nothing was changed.")
    letters = call.workspace.jetstream.dead_letters
    changed = await letters.edit(letter, data=data, headers=headers)
    return RedirectAnswer(
        _path(changed), f"Dead letter {letter.seq} was changed, and is now {changed.seq}."
    )


async def show_redrive(call: Call) -> Answer:
    """Ask for the destination."""
    _, letter = await _stored(call)
    text = f"It is published with the headers of its publisher ({size(len(letter.data))}), and is "
    content = form(
        call.visit,
        _path(letter, "redrive"),
        tag("p", text, "no longer a dead letter once it is stored there."),
        call.refusal_note({"to": "Subject"}),
        call.inputs().text("Subject", "to", letter.origin_subject, required=True),
        None if letter.is_edited else switch(ONLY_CONSUMER, "consumer"),
        _buttons("Send it back", _path(letter)),
        class_="stack",
    )
    return _asked(call, f"Send dead letter {letter.seq} back?", letter.stream, content)


def _read_target(fields: Mapping[str, str]) -> str:
    target = fields.get("to", "").strip()
    if target and not is_valid_literal(target):
        raise BadFormError(
            f"to must be tokens joined by dots, no wildcards, not {target[:80]!r}", field="to"
        )
    return target


async def redrive(call: Call) -> Answer:
    """Send one dead letter back."""
    _check_own(call)
    _, letter = await _stored(call)
    letters = call.workspace.jetstream.dead_letters
    if call.fields.get("consumer"):
        await letters.redrive(letter, consumer=True)
        to = f"{letter.origin_stream} > {letter.origin_consumer}"
        return RedirectAnswer(
            address(PLACE, letter.stream), f"{to} delivers dead letter {letter.seq} again."
        )
    target = _read_target(call.fields)
    sequence = await letters.redrive(letter, to=target)
    place = target or letter.origin_subject
    notice = f"Dead letter {letter.seq} was sent to {place}, where it is message {sequence}."
    return RedirectAnswer(address(PLACE, letter.stream), notice)


async def show_remove(call: Call) -> Answer:
    """Ask for confirmation."""
    _, letter = await _stored(call)
    ask = form(
        call.visit,
        _path(letter, "remove"),
        _buttons("Remove the dead letter", _path(letter), "danger"),
    )
    text = f"{letter.origin_subject}, {size(len(letter.data))}. This cannot be undone."
    return _asked(call, f"Remove dead letter {letter.seq}?", letter.stream, tag("p", text), ask)


async def remove(call: Call) -> Answer:
    """Remove one dead letter."""
    _, letter = await _stored(call)
    await call.workspace.jetstream.dead_letters.remove(letter)
    return RedirectAnswer(address(PLACE, letter.stream), f"Dead letter {letter.seq} was removed.")


# ---------------------------------------------------------------------- many at once


async def show_redrive_many(call: Call) -> Answer:
    """Ask for the rate."""
    name = call.parts["stream"]
    wanted = read_filter(call.query)
    fields = _filter_fields(wanted)
    chosen = [f"{key} {value}" for key, value in fields.items() if value]
    which = ", ".join(chosen) or "no filter: all of them"
    inputs = call.inputs()
    content = form(
        call.visit,
        address(PLACE, name, "redrive"),
        tag("p", f"The current dead letters ({which}) are sent back, oldest first."),
        [tag("input", type="hidden", name=key, value=value) for key, value in fields.items()],
        call.refusal_note(_REDRIVE_LABELS),
        [
            inputs.text(_REDRIVE_LABELS["rate"], "rate", "100", hint="Empty: as fast as possible"),
            inputs.text(_REDRIVE_LABELS["limit"], "limit", numeric=True, placeholder="all"),
            inputs.text(_REDRIVE_LABELS["to"], "to", placeholder="the original one of each"),
        ],
        _buttons("Send them back", address(PLACE, name, **fields)),
        class_="stack",
    )
    return _asked(call, f"Send dead letters of {name} back?", name, content)


async def redrive_many(call: Call) -> Answer:
    """Start sending dead letters back; the page shows the progress."""
    _check_own(call)
    name = call.parts["stream"]
    wanted = read_filter(call.fields)
    made = Redrive(
        name,
        wanted,
        _read_target(call.fields),
        _read_rate(call.fields),
        number(call.fields, "limit"),
    )
    await call.workspace.redrives.begin(call.workspace.jetstream, made)
    return RedirectAnswer(
        address(PLACE, name, **_filter_fields(wanted)), "They are being sent back."
    )


def _read_rate(fields: Mapping[str, str]) -> float:
    text = fields.get("rate", "").strip()
    try:
        rate = float(text or 0)
    except ValueError:
        rate = -1.0
    if rate != 0 and not RATE_MIN <= rate < math.inf:
        raise BadFormError(
            f"rate must be dead letters per second, {RATE_MIN} or more, or empty, not "
            f"{text[:40]!r}",
            field="rate",
        )
    return rate


def _redrives(call: Call, name: str) -> Markup | None:
    found = call.workspace.redrives.of(name)[:REDRIVES_SHOWN]
    if not found:
        return None
    rows: list[list[Child]] = []
    for each in found:
        chosen = ", ".join(value for value in _filter_fields(each.wanted).values() if value)
        end: Child
        if each.state != "running":
            end = [badge(each.state, _STATES[each.state]), " ", tag("small", each.text)]
        elif call.visit.is_read_only:
            end = None
        else:
            end = form(call.visit, address("redrives", each.id, "stop"), tag("button", "Stop"))
        progress = tag("progress", value=round(each.part, 3), max=1)
        done = many(each.done, "dead letter")
        rows.append([chosen or "all", [progress if each.state == "running" else None, done], end])
    return card("Sent back", table(("Which", "So far", ""), rows, empty=""))


async def stop(call: Call) -> Answer:
    """Stop sending dead letters back."""
    found = call.workspace.redrives.find(call.parts["redrive"])
    if found is None:
        raise BadFormError("redrive is no longer known")
    found.stop()
    sent = f"{many(found.done, 'dead letter')} {'was' if found.done == 1 else 'were'} sent back."
    return RedirectAnswer(address(PLACE, found.stream), f"It is stopped; {sent}")
