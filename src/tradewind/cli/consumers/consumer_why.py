"""`tradewind consumer why`: explains why a consumer is not moving.

Owns the flags; the explanations are in `tradewind.client.why`.
"""

from __future__ import annotations

from typing import Annotated

from tradewind.cli.frame.account_catalog import open_catalog
from tradewind.cli.frame.completion import complete_consumer, complete_stream
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.why_output import show_reason

app = CommandApp("Explain consumers")


@app.command("why")
def explain_consumer(
    stream: Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)] = "",
    consumer: Annotated[str, Argument(metavar="CONSUMER", autocompletion=complete_consumer)] = "",
    seconds: Annotated[
        float, Option("--seconds", help="How long to observe, in seconds", min=0, max=3600)
    ] = 1.0,
    json: JsonFlag = False,
) -> None:
    """Explain why a consumer makes no progress, and how to change that."""
    with open_catalog() as catalog:
        stream, name = catalog.pick_consumer(stream, consumer)
        reason = catalog.connection.jetstream().why.consumer(stream, name, seconds=seconds)
    show_reason(f"{stream} > {name}", reason, json=json)
