"""The form for a new stream, with all of its fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tradewind.api.configs import stream_config_from_dict
from tradewind.dashboard.data.changes import BadConfigError, parse_new
from tradewind.dashboard.data.config_entries import STREAM_FORM
from tradewind.dashboard.look.elements import address, tag
from tradewind.dashboard.look.page_layout import heading, page
from tradewind.dashboard.views.call import Answer, Call, PageAnswer, RedirectAnswer
from tradewind.dashboard.views.editing import AS_JSON, blamed, config_editor, entered_config


def start_config() -> dict[str, Any]:
    """The configuration with which the form begins."""
    return {
        "name": "",
        "subjects": [],
        "storage": "file",
        "retention": "limits",
        "max_msgs": -1,
        "max_bytes": -1,
        "allow_direct": True,
        "num_replicas": 1,
    }


async def show_new(call: Call) -> Answer:
    """Show the form for a new stream."""
    if call.refusal is not None:
        refusal = blamed(STREAM_FORM, call.refusal, is_json=AS_JSON in call.fields)
        call = replace(call, refusal=refusal)
    name = call.fields.get("name", "").strip() or "*"
    made = config_editor(
        call,
        STREAM_FORM,
        start_config(),
        path=("streams",),
        action="/new-stream",
        button="Create the stream",
        why_not=await call.refusal_of("stream_create", name) if name != "*" else "",
    )
    top = heading("New stream", above=tag("a", "Streams", href="/streams"))
    return PageAnswer(page(call.visit, "streams", "New stream", top, *made))


async def create(call: Call) -> Answer:
    """Create a stream."""
    config = entered_config(call, STREAM_FORM, start_config(), parse_stream)
    info = await call.workspace.jetstream.manager.streams.add(config)
    call.workspace.catalog.changed(info.config.name)
    return RedirectAnswer(
        address("streams", info.config.name), f"Stream {info.config.name} was created."
    )


def parse_stream(text: str) -> dict[str, Any]:
    """The configuration of a new stream as JSON; BadConfigError says what is not valid."""
    made = parse_new(text, stream_config_from_dict)
    if not made.get("name"):
        raise BadConfigError("the configuration: name must not be empty")
    return made
