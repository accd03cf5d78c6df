"""`tradewind stream why`: explains why a stream stores nothing, or keeps everything.

Owns the flags; the explanations are in `tradewind.client.why`.
"""

from __future__ import annotations

from typing import Annotated

from tradewind.cli.frame.account_catalog import open_catalog
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.why_output import show_reason

app = CommandApp("Explain streams")


@app.command("why")
def explain_stream(
    stream: Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)] = "",
    subject: Annotated[
        str, Option("--subject", help="Subject whose messages are missing in the stream")
    ] = "",
    seconds: Annotated[
        float, Option("--seconds", help="How long to observe, in seconds", min=0, max=3600)
    ] = 1.0,
    json: JsonFlag = False,
) -> None:
    """Explain why messages are not stored, not delivered or not removed."""
    with open_catalog() as catalog:
        name = catalog.pick_stream(stream)
        why = catalog.connection.jetstream().why
        reason = why.stream(name, subject=subject, seconds=seconds)
    show_reason(name, reason, json=json)
