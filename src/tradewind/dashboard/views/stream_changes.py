"""Changes of a stream: edit with a preview, purge with the count first, seal, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.client.streams.api_requests import check_answer
from tradewind.dashboard.data.changes import Purge, parse_config, preview_purge
from tradewind.dashboard.data.config_entries import STREAM_FORM
from tradewind.dashboard.data.page_texts import count, many, size
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.inputs import submit, why_off
from tradewind.dashboard.look.page_layout import card, form, heading, page
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    PageAnswer,
    RedirectAnswer,
    number,
)
from tradewind.dashboard.views.editing import (
    check_base,
    edit_page,
    entered_config,
    raw_config,
    review_page,
    with_own_metadata,
)
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo

CONFIG_ENDPOINT = "stream_info"


def _page(call: Call, title: str, *content: Child) -> Answer:
    name = call.parts["stream"]
    above = [
        tag("a", "Streams", href="/streams"),
        " / ",
        tag("a", name, href=address("streams", name)),
    ]
    return PageAnswer(page(call.visit, "streams", title, heading(title, above=above), *content))


async def _info(call: Call) -> StreamInfo:
    return await call.workspace.jetstream.manager.streams.info(call.parts["stream"])


async def _config(call: Call) -> dict[str, Any]:
    api = call.workspace.jetstream.manager.api
    return raw_config(await api.call_raw(CONFIG_ENDPOINT, call.parts["stream"]))


# ---------------------------------------------------------------------- edit


async def show_edit(call: Call) -> Answer:
    """Show the form with the configuration."""
    name = call.parts["stream"]
    why_not = await call.refusal_of("stream_update", name)
    config = await _config(call)
    return edit_page(call, _page, ("streams", name), STREAM_FORM, config, why_not=why_not)


async def review(call: Call) -> Answer:
    """Show what would change, without applying it."""
    name = call.parts["stream"]
    current = await _config(call)
    wanted = entered_config(call, STREAM_FORM, current, lambda text: parse_config(text, name))
    return review_page(call, _page, ("streams", name), STREAM_FORM, current, wanted)


async def apply(call: Call) -> Answer:
    """Change the stream, if it is still the version that was reviewed."""
    name = call.parts["stream"]
    wanted = parse_config(call.fields.get("config", ""), name)
    current = await _config(call)
    check_base(current, call.fields.get("base", ""))
    api = call.workspace.jetstream.manager.api
    body = with_own_metadata(current, wanted)
    check_answer(await api.call_raw("stream_update", name, body=body))
    call.workspace.catalog.changed(name)
    return RedirectAnswer(address("streams", name), f"Stream {name} was changed.")


# ---------------------------------------------------------------------- purge


async def show_purge(call: Call) -> Answer:
    """Show the form that selects the messages to remove."""
    name = call.parts["stream"]
    info = await _info(call)
    inputs = call.inputs()
    why_not = await call.refusal_of("stream_purge", name)
    content = form(
        call.visit,
        address("streams", name, "purge"),
        inputs.text("Only this subject", "subject", hint="Empty: all subjects; * and > match any"),
        inputs.text("Keep the newest", "keep", numeric=True, hint="Empty: keep none"),
        inputs.text("Only below this sequence", "below", numeric=True, hint="Empty: all"),
        tag("div", submit("Show what would be removed", why_not, class_="main"), class_="actions"),
        why_off([why_not]),
        class_="stack",
    )
    has = f"It has {many(info.state.messages, 'message')}, {size(info.state.bytes)}."
    labels = {
        "subject": "Only this subject",
        "keep": "Keep the newest",
        "below": "Only below this sequence",
    }
    note = call.refusal_note(labels)
    return _page(call, f"Purge {name}", note, card("", tag("p", has), content))


def _purge(call: Call) -> Purge:
    subject = call.fields.get("subject", "").strip()
    if subject and not is_valid_subject(subject):
        raise BadFormError(
            f"subject must be tokens joined by dots, not {subject[:80]!r}", field="subject"
        )
    purge = Purge(subject, number(call.fields, "keep"), number(call.fields, "below"))
    if purge.keep and purge.below:
        raise BadFormError("keep and below must not both be given", field="below")
    return purge


async def review_purge(call: Call) -> Answer:
    """Show how many messages would be removed, without removing them."""
    name = call.parts["stream"]
    purge = _purge(call)
    found = await preview_purge(call.workspace.jetstream, await _info(call), purge)
    what = "them" if found.messages is None else many(found.messages, "message")
    do = form(
        call.visit,
        address("streams", name, "purge-now"),
        tag("input", type="hidden", name="subject", value=purge.subject),
        tag("input", type="hidden", name="keep", value=purge.keep or ""),
        tag("input", type="hidden", name="below", value=purge.below or ""),
        tag(
            "div",
            tag("button", f"Remove {what}", class_="danger"),
            tag("a", "Cancel", href=address("streams", name), class_="button"),
            class_="actions",
        ),
    )
    return _page(call, f"Purge {name}?", card("", tag("p", found.text, id="preview"), do))


async def purge(call: Call) -> Answer:
    """Remove the selected messages."""
    name = call.parts["stream"]
    wanted = _purge(call)
    removed = await call.workspace.jetstream.manager.streams.purge(
        name, filter=wanted.subject, keep=wanted.keep, seq=wanted.below
    )
    call.workspace.catalog.changed(name)
    return RedirectAnswer(
        address("streams", name), f"{many(removed, 'message')} of {name} were removed."
    )


# ---------------------------------------------------------------------- seal and delete


def typed_form(call: Call, action: str, name: str, button: str, why_not: str = "") -> Markup:
    """A form whose button is enabled when the name has been typed."""
    error = call.refusal.errors.get("typed", "") if call.refusal is not None else ""
    other = call.refusal.text if call.refusal is not None and not error else ""
    return form(
        call.visit,
        action,
        tag("p", other, class_="entry-error", role="alert") if other else None,
        tag(
            "label",
            tag("span", f"Type {name} to confirm"),
            tag("input", name="typed", autocomplete="off", data_typed=name),
            tag("span", error, class_="entry-error", role="alert") if error else None,
        ),
        tag("div", submit(button, why_not, class_="danger"), class_="actions"),
        why_off([why_not]),
        class_="stack",
    )


def check_typed(call: Call, name: str) -> None:
    """Check that the name was typed, even if no script has checked it."""
    if call.fields.get("typed", "") != name:
        raise BadFormError(
            f"typed must be the name {name!r}, to confirm; nothing was done", field="typed"
        )


async def show_seal(call: Call) -> Answer:
    """Ask for confirmation."""
    name = call.parts["stream"]
    text = "A sealed stream accepts no messages and loses none. This cannot be undone."
    why_not = await call.refusal_of("stream_update", name)
    ask = typed_form(call, address("streams", name, "seal"), name, "Seal the stream", why_not)
    return _page(call, f"Seal {name}?", card("", tag("p", text), ask))


async def seal(call: Call) -> Answer:
    """Seal a stream: nothing in it can change."""
    name = call.parts["stream"]
    check_typed(call, name)
    await call.workspace.jetstream.manager.streams.update(name, sealed=True)
    call.workspace.catalog.changed(name)
    return RedirectAnswer(address("streams", name), f"Stream {name} is sealed.")


async def show_delete(call: Call) -> Answer:
    """Ask for confirmation."""
    name = call.parts["stream"]
    state = (await _info(call)).state
    text = (
        f"It is deleted with {many(state.messages, 'message')} ({size(state.bytes)}) and "
        f"{count(state.consumer_count)} consumers. This cannot be undone."
    )
    why_not = await call.refusal_of("stream_delete", name)
    ask = typed_form(call, address("streams", name, "delete"), name, "Delete the stream", why_not)
    return _page(call, f"Delete {name}?", card("", tag("p", text), ask))


async def delete(call: Call) -> Answer:
    """Delete the stream."""
    name = call.parts["stream"]
    check_typed(call, name)
    await call.workspace.jetstream.manager.streams.delete(name)
    call.workspace.catalog.changed(name)
    return RedirectAnswer("/streams", f"Stream {name} was deleted.")
