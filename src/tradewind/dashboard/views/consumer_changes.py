"""Changes of a consumer: create, edit with a preview, pause, reset, unpin, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from tradewind.client.streams.api_requests import check_answer
from tradewind.dashboard.data.changes import parse_consumer
from tradewind.dashboard.data.page_texts import time_text
from tradewind.dashboard.look.elements import Child, address, tag
from tradewind.dashboard.look.page_layout import card, choice, field, form, heading, page
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    PageAnswer,
    RedirectAnswer,
    duration_ns,
    number,
)
from tradewind.dashboard.views.editing import (
    check_base,
    edit_page,
    raw_config,
    review_page,
    with_own_metadata,
)
from tradewind.dashboard.views.stream_changes import check_typed, typed_form
from tradewind.durations import parse_duration_ns
from tradewind.subjects import is_valid_subject

ACKS: Final = (
    ("explicit", "each message"),
    ("all", "a message and all before it"),
    ("none", "nothing"),
)
STARTS: Final = (
    ("all", "the first message"),
    ("new", "the next message"),
    ("last", "the last message"),
    ("last_per_subject", "the last message of each subject"),
    ("by_start_sequence", "this sequence:"),
)


def _path(call: Call) -> tuple[str, ...]:
    return ("streams", call.parts["stream"], "consumers", call.parts["consumer"])


def _page(call: Call, title: str, *content: Child) -> Answer:
    stream = call.parts["stream"]
    above: list[Child] = [
        tag("a", stream, href=address("streams", stream)),
        " / ",
        tag("a", "Consumers", href=address("streams", stream, "consumers")),
    ]
    if "consumer" in call.parts:
        above += [" / ", tag("a", call.parts["consumer"], href=address(*_path(call)))]
    return PageAnswer(page(call.visit, "consumers", title, heading(title, above=above), *content))


# ---------------------------------------------------------------------- a new consumer


async def show_new(call: Call) -> Answer:
    """Show the form for a new consumer."""
    stream = call.parts["stream"]
    made = form(
        call.visit,
        address("streams", stream, "new-consumer"),
        field("Name", "name", required=True, hint="No blanks, dots, slashes or wildcards"),
        field("Description", "description"),
        field("Only these subjects", "filters", hint="Joined by commas. Empty: all"),
        choice("Clients acknowledge", "ack_policy", ACKS),
        field("Redeliver if not acknowledged within", "ack_wait", "30s"),
        field(
            "Maximum deliveries of a message", "max_deliver", kind="number", hint="Empty: no limit"
        ),
        field("Maximum unacknowledged messages", "max_ack_pending", "1000", kind="number"),
        choice("Start with", "deliver_policy", STARTS),
        field("Sequence", "start", kind="number"),
        field("Push to this subject", "deliver_subject", hint="Empty: clients pull"),
        field("Queue group of the push", "deliver_group"),
        field("Remove if unused for", "inactive_threshold", hint="Like 5m. Empty: never"),
        tag("div", tag("button", "Create the consumer", class_="main"), class_="actions"),
        class_="stack",
    )
    return _page(call, f"New consumer of {stream}", card("", made))


def new_config(fields: dict[str, str]) -> dict[str, Any]:
    """The configuration in the form, as in JSON; BadFormError names the field."""
    filters = [each.strip() for each in fields.get("filters", "").split(",") if each.strip()]
    for each in filters:
        if not is_valid_subject(each):
            raise BadFormError(f"filters must be subjects joined by commas, not {each[:80]!r}")
    start = fields.get("deliver_policy", "all")
    acks = fields.get("ack_policy", "explicit")
    made: dict[str, Any] = {
        "durable_name": fields.get("name", "").strip(),
        "description": fields.get("description", ""),
        "ack_policy": acks,
        "deliver_policy": start,
        "max_deliver": number(fields, "max_deliver") or -1,
        "deliver_subject": fields.get("deliver_subject", "").strip(),
        "deliver_group": fields.get("deliver_group", "").strip(),
        "inactive_threshold": duration_ns(fields, "inactive_threshold"),
    }
    if not made["durable_name"]:
        raise BadFormError("name must not be empty")
    if start == "by_start_sequence":
        made["opt_start_seq"] = number(fields, "start", least=1)
    if acks != "none":
        made["ack_wait"] = duration_ns(fields, "ack_wait")
        made["max_ack_pending"] = number(fields, "max_ack_pending")
    if len(filters) == 1:
        made["filter_subject"] = filters[0]
    else:
        made["filter_subjects"] = filters
    return made


async def create(call: Call) -> Answer:
    """Create a consumer."""
    stream = call.parts["stream"]
    config = new_config(dict(call.fields))
    info = await call.workspace.jetstream.manager.consumers.add(stream, config)
    call.workspace.catalog.changed(stream)
    target = address("streams", stream, "consumers", info.name)
    return RedirectAnswer(target, f"Consumer {info.name} was created.")


# ---------------------------------------------------------------------- edit


async def _config(call: Call) -> dict[str, Any]:
    api = call.workspace.jetstream.manager.api
    return raw_config(
        await api.call_raw("consumer_info", call.parts["stream"], call.parts["consumer"])
    )


async def show_edit(call: Call) -> Answer:
    """Show the configuration as text."""
    return edit_page(call, _page, _path(call), await _config(call))


async def review(call: Call) -> Answer:
    """Show what would change, without applying it."""
    wanted = parse_consumer(call.fields.get("config", ""), call.parts["consumer"])
    return review_page(call, _page, _path(call), await _config(call), wanted)


async def apply(call: Call) -> Answer:
    """Change the consumer, if it is still the version that was reviewed."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    wanted = parse_consumer(call.fields.get("config", ""), name)
    current = await _config(call)
    check_base(current, call.fields.get("base", ""))
    config = with_own_metadata(current, wanted)
    # An ephemeral consumer has its name only in its info.
    config = {**config, "name": name}
    body = {"stream_name": stream, "config": config, "action": "update"}
    filtered = config.get("filter_subject") or ""
    api = call.workspace.jetstream.manager.api
    endpoint = "consumer_create_filtered" if filtered else "consumer_create"
    check_answer(await api.call_raw(endpoint, stream, name, filtered, body=body))
    return _done(call, f"Consumer {name} was changed.")


# ---------------------------------------------------------------------- smaller changes


def _done(call: Call, text: str) -> RedirectAnswer:
    stream, name = call.parts["stream"], call.parts["consumer"]
    call.workspace.catalog.changed(stream, name)
    return RedirectAnswer(address("streams", stream, "consumers", name), text)


async def pause(call: Call) -> Answer:
    """Pause deliveries for some time."""
    text = call.fields.get("duration", "").strip()
    pause_ns = parse_duration_ns(text)
    if not pause_ns or pause_ns < 0:
        raise BadFormError(f"duration must be like 10m or 24h, not {text[:40]!r}")
    try:
        span = timedelta(microseconds=pause_ns // 1000)
        answer = await call.workspace.jetstream.manager.consumers.pause(
            call.parts["stream"], call.parts["consumer"], span
        )
    except OverflowError:
        raise BadFormError(f"duration must end before the year 10000, not {text[:40]!r}") from None
    return _done(call, f"It is paused until {time_text(answer.pause_until or '')}.")


async def resume(call: Call) -> Answer:
    """Resume deliveries."""
    await call.workspace.jetstream.manager.consumers.resume(
        call.parts["stream"], call.parts["consumer"]
    )
    return _done(call, "It was resumed.")


async def reset(call: Call) -> Answer:
    """Reset the consumer's position."""
    sequence = number(call.fields, "seq")
    await call.workspace.jetstream.manager.consumers.reset(
        call.parts["stream"], call.parts["consumer"], seq=sequence
    )
    return _done(call, f"It was reset to sequence {sequence}." if sequence else "It was reset.")


async def unpin(call: Call) -> Answer:
    """Unpin the group, so that another client can take over."""
    await call.workspace.jetstream.manager.consumers.unpin(
        call.parts["stream"], call.parts["consumer"], call.fields.get("group", "")
    )
    return _done(call, "The group is no longer pinned.")


async def show_delete(call: Call) -> Answer:
    """Ask for confirmation."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    ask = typed_form(
        call, address("streams", stream, "consumers", name, "delete"), name, "Delete the consumer"
    )
    text = "Its clients will receive nothing, and its position is lost."
    return _page(call, f"Delete {name}?", card("", tag("p", text), ask))


async def delete(call: Call) -> Answer:
    """Delete the consumer."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    check_typed(call, name)
    await call.workspace.jetstream.manager.consumers.delete(stream, name)
    call.workspace.catalog.changed(stream, name)
    return RedirectAnswer(address("streams", stream, "consumers"), f"Consumer {name} was deleted.")
