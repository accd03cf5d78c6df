"""`tradewind trace`: shows the path of a message as a tree.

Owns collecting and drawing traces. A message is only traced, not delivered, unless requested. Other
servers of a cluster send their own traces, which are shown below the delivery that led to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from tradewind.cli.frame.command_loop import Troubles, connect_async, run_async
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.message_text import header_fields
from tradewind.cli.frame.output import line, note, print_json, styled
from tradewind.cli.frame.settings import current
from tradewind.cli.frame.text_formats import size_text
from tradewind.client.core.headers import Headers

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.subscription import Subscription

app = CommandApp("Trace the path of a message")

HOP: Final = "Nats-Trace-Hop"
# How long traces of other servers may take once the first one is there.
HOP_SECONDS: Final = 2.0
_CLIENT: Final = 0
_KINDS: Final = ("client", "route", "gateway", "system", "leaf node", "jetstream", "account")


@dataclass(slots=True)
class Branch:
    """A line of the tree, and what hangs below it."""

    text: str
    is_bad: bool = False
    below: list[Branch] = field(default_factory=list)


@app.command()
def trace(
    subject: Annotated[str, Argument(help="Subject to publish to")],
    body: Annotated[str, Argument(help="Body of the message")] = "",
    deliver: Annotated[
        bool, Option("--deliver", help="Deliver and store the message as well")
    ] = False,
    header: Annotated[
        list[str] | None, Option("--header", "-H", help="A header, NAME:VALUE", show_default=False)
    ] = None,
    timestamp: Annotated[
        bool, Option("--timestamp", "-t", help="Show the time of each step")
    ] = False,
    json: JsonFlag = False,
) -> int:
    """Show which clients and streams a message reaches; by default it is not delivered.

    Exit code 1 if no one would receive it.
    """
    fields = header_fields(header or [])
    documents = run_async(_collect(subject, body.encode(), fields, deliver=deliver))
    if json:
        print_json(documents)
    else:
        for text in tree_lines(document_tree(documents, times=timestamp)):
            line(text)
    return 0 if is_received(documents) else 1


async def _collect(
    subject: str, body: bytes, fields: dict[str, str | list[str]], *, deliver: bool
) -> list[dict[str, Any]]:
    """The traces of all servers, beginning with the one this client is connected to."""
    troubles = Troubles()
    async with await connect_async(on_event=troubles.on_event) as connection:
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        headers = Headers(fields)
        headers["Nats-Trace-Dest"] = inbox
        if not deliver:
            headers["Nats-Trace-Only"] = "true"
        await connection.publish(subject, body, headers=headers)
        await connection.flush()
        return await _receive(connection, subscription, troubles)


async def _receive(
    connection: Connection, subscription: Subscription, troubles: Troubles
) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    missing = 1
    # What was refused may have a trace all the same, which says why; or there is none.
    wait = HOP_SECONDS if troubles.errors else current().timeout
    while missing > 0:
        try:
            message = await subscription.next(timeout=wait)
        except TimeoutError:
            break
        document = msgspec.json.decode(message.data, type=dict[str, Any])
        documents.append(document)
        missing += int(document.get("hops", 0)) - 1
        wait = min(wait, HOP_SECONDS)
    if not documents:
        troubles.check()
        version = connection.info.version
        raise CommandError(
            "no trace arrived", f"tracing requires a server from 2.11 on; this one is {version}"
        )
    if missing > 0:
        note(f"{missing} traces of other servers did not arrive")
    return sorted(documents, key=lambda one: _hop(one).count(".") + bool(_hop(one)))


# ------------------------------------------------------------------ what they say


def _hop(document: dict[str, Any]) -> str:
    values = document.get("request", {}).get("header", {}).get(HOP) or [""]
    return str(values[0])


def is_received(documents: list[dict[str, Any]]) -> bool:
    """Whether a client or a stream got it, or would get it."""
    return any(
        not event.get("error")
        and (
            event["type"] == "js"
            or (event["type"] == "eg" and event["kind"] == _CLIENT)
            or (event["type"] == "si" and event["acc"] == "$SYS")
        )
        for document in documents
        for event in document["events"]
    )


def document_tree(documents: list[dict[str, Any]], *, times: bool = False) -> Branch:
    """The traces as one tree; those of other servers below the step that leads to them."""
    steps: dict[str, Branch] = {}
    root = Branch("")
    for number, document in enumerate(documents):
        came, *events = document["events"]
        top = _arrival(document, came)
        if number == 0:
            root = top
        else:
            steps.get(_hop(document), root).below.append(top)
        account = came.get("acc", "")
        place = top
        for event in events:
            branch = Branch(_event_text(event, account), bool(event.get("error")))
            if times:
                branch.text = f"{event['ts']}  {branch.text}"
            place.below.append(branch)
            if event["type"] in ("si", "sm"):
                place = branch
            if event.get("hop"):
                steps[str(event["hop"])] = branch
        if not events and not came.get("error"):
            top.below.append(Branch("nobody is listening", is_bad=True))
    return root


def _arrival(document: dict[str, Any], came: dict[str, Any]) -> Branch:
    server = document["server"]
    text = f"{came['subj']}: {size_text(int(document['request'].get('msgsize', 0)))}"
    text += f" from {_connection(came)}, account {came['acc']}, server {server['name']}"
    if error := came.get("error"):
        text += f": {error}"
    return Branch(text, bool(error))


def _connection(event: dict[str, Any]) -> str:
    number = int(event["kind"])
    kind = _KINDS[number] if 0 <= number < len(_KINDS) else "connection"
    name = f' "{event["name"]}"' if event.get("name") else ""
    return f"{kind} {event['cid']}{name}"


def _event_text(event: dict[str, Any], account: str) -> str:
    kind = event["type"]
    if kind == "sm":
        return f"mapped to {event['to']}"
    if kind == "se":
        return f"account {event['acc']} imports it as {event['to']}"
    if kind == "si":
        return f"service of account {event['acc']}: {event['from']} becomes {event['to']}"
    if kind == "js":
        text = f"stream {event['stream']}"
        if event.get("subject"):
            text += f": {event['subject']}"
        if event.get("nointerest"):
            text += " is not kept: no consumer is interested in it"
        return f"{text}: {event['error']}" if event.get("error") else text
    if kind != "eg":
        return f"{kind}: {msgspec.json.encode(event).decode()}"
    text = _connection(event)
    if event.get("acc") and event["acc"] != account:
        text += f", account {event['acc']}"
    if event.get("sub"):
        text += f" by {event['sub']}"
    if event.get("queue"):
        text += f", queue {event['queue']}"
    return f"{text}: {event['error']}" if event.get("error") else text


def tree_lines(root: Branch) -> Iterator[str]:
    """The lines of the tree."""
    yield styled(root.text, "red") if root.is_bad else root.text
    yield from _lines_below(root, "")


def _lines_below(branch: Branch, indent: str) -> Iterator[str]:
    for index, one in enumerate(branch.below):
        is_last = index == len(branch.below) - 1
        text = styled(one.text, "red") if one.is_bad else one.text
        yield f"{indent}{'└─' if is_last else '├─'} {text}"
        yield from _lines_below(one, indent + ("   " if is_last else "│  "))
