"""Templates: streams that their first publish creates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.configs import stream_config_from_dict
from tradewind.api.template_types import STREAMS_DEFAULT
from tradewind.client.errors import NotTradewindError
from tradewind.dashboard.data.changes import config_text, parse_new
from tradewind.dashboard.data.human_values import duration_entry
from tradewind.dashboard.data.page_texts import count, many, span_ns
from tradewind.dashboard.data.problems import MissingError
from tradewind.dashboard.look.elements import Child, address, tag
from tradewind.dashboard.look.inputs import action_link, danger_zone, submit, why_off
from tradewind.dashboard.look.page_layout import card, form, heading, page, table
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    PageAnswer,
    RedirectAnswer,
    duration_ns,
    number,
)
from tradewind.dashboard.views.stream_changes import check_typed, typed_form
from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.api.template_types import StreamTemplate, TemplateStatus

NO_OWN: Final = "This server has no templates: they need a Tradewind server with JetStream."
COLUMNS: Final = ("Template", "Subjects", "Streams", "Existing#", "At most#", "Deleted if idle for")
LABELS: Final = {
    "name": "Name",
    "match": "Subjects",
    "stream": "Name of the streams",
    "max_streams": "Streams, at most",
    "idle": "Delete streams without consumers if idle for",
    "config": "Configuration of the streams, as JSON",
}


async def _templates(call: Call) -> list[TemplateStatus]:
    try:
        return list(await call.workspace.jetstream.manager.templates.list())
    except NotTradewindError:
        raise MissingError(NO_OWN) from None


def _page(call: Call, title: str, *content: Child, actions: Child = None) -> Answer:
    above = tag("a", "Templates", href="/templates") if title != "Templates" else None
    top = heading(title, actions, above=above)
    return PageAnswer(page(call.visit, "templates", title, top, *content))


async def show_all(call: Call) -> Answer:
    """Show all templates, and what a first publish to a subject would do."""
    found = await _templates(call)
    rows: list[list[Child]] = [
        [
            tag("a", each.template.name, href=address("templates", each.template.name)),
            tag("span", each.template.match, class_="mono"),
            tag("span", each.template.stream, class_="mono"),
            count(each.streams),
            count(each.template.max_streams),
            span_ns(each.template.idle) if each.template.idle > 0 else "never",
        ]
        for each in found
    ]
    empty = "There are no templates. A template creates a stream when something is first published."
    new = tag("a", "New template", href="/new-template", class_="button main")
    return _page(
        call,
        "Templates",
        card("", table(COLUMNS, rows, empty=empty)),
        await _trial(call) if found else None,
        actions=None if call.visit.is_read_only else new,
    )


async def _trial(call: Call) -> Child:
    subject = call.query.get("subject", "").strip()
    answer: Child = None
    if subject:
        would = await call.workspace.jetstream.manager.templates.try_subject(subject)
        text = would.reason or "Nothing would be created."
        if would.would_create:
            subjects = ", ".join(would.subjects)
            text = f"Template {would.template} would create {would.stream} for {subjects}."
        answer = tag("p", text, class_="notice", role="status")
    ask = tag(
        "form",
        tag(
            "input",
            name="subject",
            value=subject,
            placeholder="k8s.web.pods",
            aria_label="Subject",
        ),
        tag("button", "Try"),
        action="/templates",
        method="get",
        class_="row",
    )
    return card("What would a first publish do?", ask, answer)


# ---------------------------------------------------------------------- one template


def _form(call: Call, template: StreamTemplate | None, why_not: str) -> Child:
    inputs = call.inputs()
    config: dict[str, Any] = {"max_age": 0, "storage": "file"}
    if template is not None:
        config = msgspec.to_builtins(template.config)
    idle = duration_entry(template.idle) if template is not None else ""
    most = str(template.max_streams) if template is not None else str(STREAMS_DEFAULT)
    return form(
        call.visit,
        "/new-template",
        inputs.text(
            LABELS["name"], "name", template.name if template is not None else "", required=True
        ),
        inputs.text(
            LABELS["match"],
            "match",
            template.match if template is not None else "",
            required=True,
            hint="For example k8s.*.>",
        ),
        inputs.text(
            LABELS["stream"],
            "stream",
            template.stream if template is not None else "",
            required=True,
            hint="k8s_{1}: {1} is the token at the first *",
        ),
        inputs.text(LABELS["max_streams"], "max_streams", most, numeric=True, hint="1 to 10,000"),
        inputs.text(LABELS["idle"], "idle", idle, hint="For example 30 days. Empty: never"),
        inputs.area(
            LABELS["config"],
            "config",
            config_text(config),
            hint="Without name, subjects, mirror and sources; durations are nanoseconds",
        ),
        tag("div", submit("Save the template", why_not, class_="main"), class_="actions"),
        why_off([why_not]),
        class_="stack",
    )


async def show_new(call: Call) -> Answer:
    """Show the form for a template."""
    why_not = await call.refusal_of("template_put", "x")
    note = call.refusal_note(LABELS)
    return _page(call, "New template", note, card("", _form(call, None, why_not)))


async def _one(call: Call) -> TemplateStatus:
    name = call.parts["template"]
    found = next((each for each in await _templates(call) if each.template.name == name), None)
    if found is None:
        raise MissingError(f"There is no template {name!r}.")
    return found


async def show(call: Call) -> Answer:
    """Show one template with its form."""
    found = await _one(call)
    name = found.template.name
    put = await call.refusal_of("template_put", name)
    delete = await call.refusal_of("template_delete", name)
    zone = danger_zone(
        [
            (
                "Delete the template; the streams that it created stay.",
                action_link("Delete", address("templates", name, "delete"), delete),
            )
        ]
    )
    text = f"It has created {many(found.streams, 'stream')} that exist."
    text += " Changes concern streams that are created from now on."
    body = [tag("p", text), _form(call, found.template, put)]
    is_fixed = call.visit.is_read_only
    return _page(call, name, card("", *body), None if is_fixed else zone)


async def put(call: Call) -> Answer:
    """Create or change a template."""
    fields = call.fields
    config = parse_new(fields.get("config", "") or "{}", stream_config_from_dict)
    name = fields.get("name", "").strip()
    most = number(fields, "max_streams") or STREAMS_DEFAULT
    idle = duration_ns(fields, "idle") / SECOND_NS
    for key in ("name", "match", "stream"):
        if not fields.get(key, "").strip():
            raise BadFormError(f"{key} must not be empty", field=key)
    try:
        await call.workspace.jetstream.manager.templates.put(
            name,
            match=fields.get("match", "").strip(),
            stream=fields.get("stream", "").strip(),
            max_streams=most,
            idle=idle or None,
            config=config,
        )
    except NotTradewindError:
        raise MissingError(NO_OWN) from None
    return RedirectAnswer("/templates", f"Template {name} was saved.")


async def show_delete(call: Call) -> Answer:
    """Ask for confirmation."""
    found = await _one(call)
    name = found.template.name
    text = (
        f"First publishes to {found.template.match} create no streams from then on. The "
        f"{many(found.streams, 'stream')} that it has created stay."
    )
    why_not = await call.refusal_of("template_delete", name)
    target = address("templates", name, "delete")
    ask = typed_form(call, target, name, "Delete the template", why_not)
    return _page(call, f"Delete {name}?", card("", tag("p", text), ask))


async def delete(call: Call) -> Answer:
    """Delete a template."""
    name = call.parts["template"]
    check_typed(call, name)
    try:
        await call.workspace.jetstream.manager.templates.delete(name)
    except NotTradewindError as error:
        raise TradewindError(str(error)) from None
    return RedirectAnswer("/templates", f"Template {name} was deleted.")
