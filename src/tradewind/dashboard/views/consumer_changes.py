"""Changes of a consumer: create, edit with a preview, pause, reset, unpin, delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from tradewind.api.configs import consumer_config_from_dict
from tradewind.client.streams.api_requests import check_answer
from tradewind.dashboard.data.changes import BadConfigError, parse_consumer, parse_new
from tradewind.dashboard.data.config_entries import CONSUMER_FORM, with_filters, without_filters
from tradewind.dashboard.data.page_texts import count, many, time_text
from tradewind.dashboard.look.elements import Child, address, tag
from tradewind.dashboard.look.inputs import submit, why_off
from tradewind.dashboard.look.page_layout import card, form, heading, page
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
    AS_JSON,
    blamed,
    check_base,
    config_editor,
    edit_page,
    entered_config,
    raw_config,
    review_page,
    with_own_metadata,
)
from tradewind.dashboard.views.stream_changes import check_typed, typed_form
from tradewind.durations import SECOND_NS

_ONLY_ACKED: Final = ("ack_wait", "max_ack_pending")


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


def start_config() -> dict[str, Any]:
    """The configuration with which the form begins."""
    return {"name": "", "ack_policy": "explicit", "deliver_policy": "all", "max_deliver": -1}


async def show_new(call: Call) -> Answer:
    """Show the form for a new consumer."""
    stream = call.parts["stream"]
    if call.refusal is not None:
        refusal = blamed(CONSUMER_FORM, call.refusal, is_json=AS_JSON in call.fields)
        call = replace(call, refusal=refusal)
    made = config_editor(
        call,
        CONSUMER_FORM,
        start_config(),
        path=("streams", stream, "consumers"),
        action=address("streams", stream, "new-consumer"),
        button="Create the consumer",
    )
    return _page(call, f"New consumer of {stream}", *made)


def _parse_new(text: str) -> dict[str, Any]:
    made = parse_new(text, consumer_config_from_dict)
    if not made.get("name") and not made.get("durable_name"):
        raise BadConfigError("the configuration: name must not be empty")
    return made


async def create(call: Call) -> Answer:
    """Create a consumer."""
    stream = call.parts["stream"]
    config = entered_config(call, CONSUMER_FORM, _first(call.fields), _parse_new)
    config = without_filters(config)
    if AS_JSON not in call.fields:
        config["durable_name"] = config["name"]
        if config["ack_policy"] == "none":
            # The form has them for the other policies.
            config = {key: value for key, value in config.items() if key not in _ONLY_ACKED}
    info = await call.workspace.jetstream.manager.consumers.add(stream, config)
    call.workspace.catalog.changed(stream)
    target = address("streams", stream, "consumers", info.name)
    return RedirectAnswer(target, f"Consumer {info.name} was created.")


def _first(fields: Mapping[str, str]) -> dict[str, Any]:
    """The start of a configuration, with the usual limits where clients acknowledge."""
    made = start_config()
    if fields.get("ack_policy", "explicit") != "none":
        made |= {"ack_wait": 30 * SECOND_NS, "max_ack_pending": 1000}
    return made


# ---------------------------------------------------------------------- edit


async def _config(call: Call) -> dict[str, Any]:
    api = call.workspace.jetstream.manager.api
    return raw_config(
        await api.call_raw("consumer_info", call.parts["stream"], call.parts["consumer"])
    )


async def show_edit(call: Call) -> Answer:
    """Show the form with the configuration."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    why_not = await call.refusal_of("consumer_create", stream, name)
    current = with_filters(await _config(call))
    return edit_page(call, _page, _path(call), CONSUMER_FORM, current, why_not=why_not)


async def review(call: Call) -> Answer:
    """Show what would change, without applying it."""
    current = with_filters(await _config(call))
    wanted = entered_config(call, CONSUMER_FORM, current, lambda text: _parsed(call, text))
    return review_page(call, _page, _path(call), CONSUMER_FORM, current, wanted)


def _parsed(call: Call, text: str) -> dict[str, Any]:
    return with_filters(parse_consumer(text, call.parts["consumer"]))


async def apply(call: Call) -> Answer:
    """Change the consumer, if it is still the version that was reviewed."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    wanted = _parsed(call, call.fields.get(AS_JSON, ""))
    current = with_filters(await _config(call))
    check_base(current, call.fields.get("base", ""))
    config = without_filters(with_own_metadata(current, wanted))
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
    pause_ns = duration_ns(call.fields, "duration")
    if not pause_ns:
        raise BadFormError(f"duration must be like 10m or 24h, not {text[:40]!r}", field="duration")
    try:
        span = timedelta(microseconds=pause_ns // 1000)
        answer = await call.workspace.jetstream.manager.consumers.pause(
            call.parts["stream"], call.parts["consumer"], span
        )
    except OverflowError:
        raise BadFormError(
            f"duration must end before the year 10000, not {text[:40]!r}", field="duration"
        ) from None
    return _done(call, f"It is paused until {time_text(answer.pause_until or '')}.")


async def resume(call: Call) -> Answer:
    """Resume deliveries."""
    await call.workspace.jetstream.manager.consumers.resume(
        call.parts["stream"], call.parts["consumer"]
    )
    return _done(call, "It was resumed.")


async def show_reset(call: Call) -> Answer:
    """Ask for confirmation, with what is delivered again."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    info = await call.workspace.jetstream.manager.consumers.info(stream, name)
    why_not = await call.refusal_of("consumer_reset", stream, name)
    floor = info.ack_floor.stream_seq
    states = [
        (
            f"It has delivered messages up to sequence {count(info.delivered.stream_seq)}, and "
            f"all up to {count(floor)} are acknowledged."
        ),
        (
            f"Without a sequence it starts again at {count(floor + 1)}: "
            f"{many(info.num_ack_pending, 'unacknowledged message')} and all after them are "
            "delivered again."
        ),
        (
            "With a sequence it starts there: everything from there on is delivered again, and "
            "unacknowledged messages before it are never delivered again. This cannot be undone."
        ),
    ]
    ask = form(
        call.visit,
        address(*_path(call), "reset"),
        call.inputs().text(
            "Start at sequence",
            "seq",
            numeric=True,
            hint="Empty: redeliver what is not acknowledged",
        ),
        tag(
            "div",
            submit("Reset the consumer", why_not, class_="danger"),
            tag("a", "Cancel", href=address(*_path(call)), class_="button"),
            class_="actions",
        ),
        why_off([why_not]),
        class_="stack",
    )
    note = call.refusal_note({"seq": "Start at sequence"})
    return _page(call, f"Reset {name}?", note, card("", *(tag("p", text) for text in states), ask))


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
    """Ask for confirmation, with what is lost."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    info = await call.workspace.jetstream.manager.consumers.info(stream, name)
    why_not = await call.refusal_of("consumer_delete", stream, name)
    target = address("streams", stream, "consumers", name, "delete")
    ask = typed_form(call, target, name, "Delete the consumer", why_not)
    text = (
        "Its clients will receive nothing, and its position is lost: "
        f"{many(info.num_pending, 'message')} not yet delivered, "
        f"{count(info.num_ack_pending)} unacknowledged. The messages stay in the stream."
    )
    return _page(call, f"Delete {name}?", card("", tag("p", text), ask))


async def delete(call: Call) -> Answer:
    """Delete the consumer."""
    stream, name = call.parts["stream"], call.parts["consumer"]
    check_typed(call, name)
    await call.workspace.jetstream.manager.consumers.delete(stream, name)
    call.workspace.catalog.changed(stream, name)
    return RedirectAnswer(address("streams", stream, "consumers"), f"Consumer {name} was deleted.")
