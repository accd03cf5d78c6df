"""The part of a message's page that decodes its payload by a format of the visitor's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.dashboard.data.payload_decoding import WITH_SCHEMA, decode_payload_as, formats
from tradewind.dashboard.data.problems import problem_of
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.folded_json import json_tree
from tradewind.dashboard.look.inputs import Inputs
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.dashboard.data.message_data import ListedMessage
    from tradewind.dashboard.views.call import Call


async def decoded_card(call: Call, message: ListedMessage, path: tuple[str, ...]) -> Markup:
    """The choice of a format, and the payload in it."""
    name, bucket = call.query.get("format", ""), call.query.get("schema", "").strip()
    names = formats()
    options = [(each, each) for each in names]
    inputs = Inputs({"format": name or names[0], "schema": bucket})
    choose = tag(
        "form",
        inputs.choice("Format", "format", options),
        inputs.text("Bucket of the schema", "schema", hint=f"For {' and '.join(WITH_SCHEMA)} only"),
        tag("button", "Decode"),
        action=address(*path),
        method="get",
        class_="row",
    )
    made: Child = None
    if name:
        try:
            text = await decode_payload_as(
                call.workspace.jetstream, message.data, name, path[1], message.subject, bucket
            )
        except TradewindError as error:
            made = tag("p", problem_of(error).text, class_="notice warning", role="alert")
        else:
            made = json_tree(text, id_="decoded") or tag("pre", text, id="decoded")
    return tag(
        "details", tag("summary", "Decode"), choose, made, class_="card decode", open=bool(name)
    )
