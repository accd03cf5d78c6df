"""Requests to any subject: send one message, and see the replies that come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from tradewind.client.errors import NoRespondersError, OperationTimeoutError
from tradewind.dashboard.data.message_data import as_json, as_text
from tradewind.dashboard.data.page_texts import many, size
from tradewind.dashboard.look.elements import Child, Markup, tag
from tradewind.dashboard.look.folded_json import json_tree
from tradewind.dashboard.look.inputs import submit, why_off
from tradewind.dashboard.look.page_layout import card, facts, form, heading, page
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    PageAnswer,
    duration_ns,
    number,
)
from tradewind.dashboard.views.message_views import message_tabs, parse_headers
from tradewind.durations import SECOND_NS
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg

LABELS: Final = {
    "subject": "Subject",
    "headers": "Headers",
    "payload": "Payload",
    "wait": "Wait for replies",
    "most": "Replies, at most",
}
WAIT_SECONDS_MAX: Final = 30.0
REPLIES_MAX: Final = 100
REPLY_BYTES_MAX: Final = 4 << 20


async def show(call: Call) -> Answer:
    """Show the form for a request."""
    return await _page(call)


async def _page(call: Call, *replies: Child) -> Answer:
    inputs = call.inputs()
    query = call.query
    made = form(
        call.visit,
        "/request",
        inputs.text("Subject", "subject", query.get("subject", ""), required=True),
        inputs.area(
            "Headers", "headers", query.get("headers", ""), hint="One per line: Name: value"
        ),
        inputs.area("Payload", "payload", query.get("payload", "")),
        inputs.text(LABELS["wait"], "wait", query.get("wait", "2s"), hint="At most 30s"),
        inputs.text(
            LABELS["most"],
            "most",
            query.get("most", "1"),
            numeric=True,
            hint="1 ends with the first; more wait for several services",
        ),
        submit(
            "Send", "This dashboard is read-only." if call.visit.is_read_only else "", class_="main"
        ),
        why_off(["This dashboard is read-only."] if call.visit.is_read_only else []),
        class_="stack",
    )
    title = "Send a request"
    content = page(
        call.visit,
        "streams",
        title,
        heading(title),
        message_tabs("request", subject=query.get("subject", "")),
        call.refusal_note(LABELS),
        *replies,
        card("", made),
    )
    return PageAnswer(content)


async def send(call: Call) -> Answer:
    """Send a request, and show its replies beside the form."""
    fields = call.fields
    subject = fields.get("subject", "").strip()
    if not is_valid_literal(subject):
        raise BadFormError(
            f"subject must be dotted tokens, no wildcards, not {subject[:80]!r}", field="subject"
        )
    seconds = duration_ns(fields, "wait") / SECOND_NS or 2.0
    if seconds > WAIT_SECONDS_MAX:
        raise BadFormError(f"wait must be at most {WAIT_SECONDS_MAX:.0f}s", field="wait")
    most = number(fields, "most", least=1)
    if most > REPLIES_MAX:
        raise BadFormError(f"most must be at most {REPLIES_MAX}, not {most}", field="most")
    data = fields.get("payload", "").encode()
    headers = parse_headers(fields.get("headers", ""))
    begun = time.monotonic()
    found: list[tuple[Msg, float]] = []
    end = ""
    try:
        async for reply in call.workspace.connection.request_many(
            subject, data, headers=headers, timeout=seconds, max_messages=most
        ):
            found.append((reply, time.monotonic() - begun))
            if sum(len(each.data) for each, _ in found) > REPLY_BYTES_MAX:
                end = f"The replies have more than {REPLY_BYTES_MAX >> 20} MiB; the rest is left."
                break
    except NoRespondersError:
        end = f"Nobody answers on {subject}: no service or client subscribes to it."
    except (TimeoutError, OperationTimeoutError):
        end = ""
    if not found and not end:
        end = f"No reply within {seconds:g} seconds."
    shown = {key: value for key, value in fields.items() if key != "csrf"}
    again = Call(
        call.workspace, call.visit, call.machine, call.run_refusal, call.parts, shown, {}, None
    )
    return await _page(again, _replies(found, end))


def _replies(found: list[tuple[Msg, float]], end: str) -> Markup:
    parts: list[Child] = [
        tag("p", f"{many(len(found), 'reply', 'replies')}. ", end or None, role="status")
    ]
    for index, (reply, seconds) in enumerate(found, 1):
        about: list[tuple[str, Child]] = [
            ("Round-trip time", f"{seconds * 1000:.1f} ms"),
            ("Size", size(len(reply.data))),
            *((name, value) for name, value in _headers(reply)),
        ]
        text = as_json(reply.data)
        shown = json_tree(text, id_=f"reply-{index}") if text is not None else None
        parts += [
            tag("h3", f"Reply {index}"),
            facts(about),
            shown or tag("pre", text or as_text(reply.data), id=f"reply-{index}"),
        ]
    return card("Replies", parts)


def _headers(reply: Any) -> list[tuple[str, str]]:
    headers = reply.headers
    return [(name, value) for name in headers for value in headers.get_all(name)]
