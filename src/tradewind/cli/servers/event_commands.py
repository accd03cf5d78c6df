"""`tradewind events`: shows events of servers and JetStream.

Owns the subjects of events and their display for people; programs receive the original JSON.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from tradewind.cli.frame.command_loop import Troubles, connect_async, run_until_stopped
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import Columns, flush, line, note, value_text
from tradewind.cli.frame.settings import current
from tradewind.cli.frame.text_formats import time_text
from tradewind.cli.messaging.subscribe import SubscribePlan, read_messages, since_start

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg

app = CommandApp("Show server and JetStream events")

_SERVER: Final = {
    "$SYS.ACCOUNT.*.CONNECT": "Client Connection events",
    "$SYS.ACCOUNT.*.DISCONNECT": "Client Disconnection events",
    "$SYS.SERVER.*.CLIENT.AUTH.ERR": "Authentication Errors events",
    "$SYS.SERVER.*.SHUTDOWN": "Server Shutdown events",
    "$SYS.SERVER.*.LAMEDUCK": "Server Lame Duck events",
}
# Written as they are in titles.
_WORDS: Final = {"api": "API", "jetstream": "JetStream", "nats": "NATS"}
_HEAD: Final = frozenset({"type", "id", "timestamp"})
_LONG: Final = frozenset({"request", "response"})
SHORT_PARTS: Final = 8


@dataclass(frozen=True, slots=True)
class EventStyle:
    """How events are shown, and which of them."""

    json: bool
    short: bool
    pattern: re.Pattern[str]

    def show(self, message: Msg) -> bool:
        """Print an event, if it is wanted; whether it was."""
        text = message.data.decode(errors="replace")
        if not self.pattern.search(text):
            return False
        if self.json:
            line(text)
        else:
            try:
                document = msgspec.json.decode(message.data, type=dict[str, Any])
            except msgspec.DecodeError:
                line(f"[{message.subject}] {text}\n")
            else:
                (_show_short if self.short else _show)(message.subject, document)
        flush()
        return True


@app.command()
def events(
    everything: Annotated[bool, Option("--all", "-a", help="All events")] = False,
    json: JsonFlag = False,
    short: Annotated[bool, Option("--short", help="One line per event")] = False,
    pattern: Annotated[
        str,
        Option("--filter", help="Only events that match this regular expression", metavar="REGEX"),
    ] = ".",
    js_metric: Annotated[bool, Option("--js-metric", help="JetStream metrics")] = False,
    js_advisory: Annotated[bool, Option("--js-advisory", help="JetStream advisories")] = False,
    srv_advisory: Annotated[
        bool, Option("--srv-advisory", help="Server events; requires the system account")
    ] = False,
    subjects: Annotated[
        list[str] | None, Option("--subjects", help="Events on these subjects", show_default=False)
    ] = None,
    stream: Annotated[str, Option("--stream", help="Read stored events from this stream")] = "",
    since: Annotated[str, Option("--since", help="Start at this time", metavar="DURATION")] = "",
    count: Annotated[int, Option("--count", min=0, help="Stop after this many events")] = 0,
) -> None:
    """Show events as they arrive, until Ctrl-C; by default those of JetStream and of servers."""
    try:
        look = EventStyle(json, short, re.compile(pattern, re.IGNORECASE))
    except re.error as error:
        raise CommandError(f"--filter {pattern!r}: {error}", exit_code=EXIT_USAGE) from None
    if since and not stream:
        raise CommandError("--since requires --stream, which stores events", exit_code=EXIT_USAGE)
    nothing = not (js_metric or js_advisory or srv_advisory or subjects or stream)
    chosen: dict[str, str] = dict.fromkeys(subjects or [], "events")
    prefix = current().text("js_event_prefix") or "$JS.EVENT"
    if js_advisory or everything or nothing:
        chosen[f"{prefix}.ADVISORY.>"] = "Advisories"
    if js_metric or everything:
        chosen[f"{prefix}.METRIC.>"] = "Metrics"
    if srv_advisory or everything or nothing:
        chosen |= _SERVER
    if stream:
        start = since_start(since) or {"deliver_policy": "all"}
        wanted = SubscribePlan(subjects=subjects or [], stream=stream, is_stream=True, start=start)
    else:

        def tell(subscribed: list[str]) -> None:
            for subject in subscribed:
                note(f"Listening for {chosen[subject]} on {subject}")

        wanted = SubscribePlan(subjects=list(chosen), on_ready=tell)
    run_until_stopped(_follow(wanted, look, count))


async def _follow(wanted: SubscribePlan, look: EventStyle, count: int) -> None:
    troubles = Troubles()
    shown = 0
    async with await connect_async(on_event=troubles.on_event) as connection:
        async with aclosing(read_messages(connection, wanted)) as messages:
            async for message in messages:
                shown += look.show(message)
                if count and shown >= count:
                    break
        await connection.flush()
        troubles.check()


def _title(document: dict[str, Any], subject: str) -> str:
    """The kind of an event in words: `JetStream Advisory API Audit`."""
    kind = str(document.get("type", ""))
    if not kind:
        return subject
    words = re.sub(r"^io\.nats\.|\.v\d+", "", kind).replace(".", "_").split("_")
    return " ".join(_WORDS.get(word, word.capitalize()) for word in words if word)


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """All members of an event, with the way to each."""
    found: dict[str, str] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name} ")
        elif value not in ("", None, []):
            is_count = isinstance(value, int) and not isinstance(value, bool)
            text = str(value) if is_count else value_text(value)
            found[f"{prefix}{name}".replace("_", " ").title()] = text
    return found


def _head(document: dict[str, Any], subject: str) -> str:
    at = time_text(document.get("timestamp"))
    event_id = document.get("id", "")
    mark = f" [{event_id}]" if isinstance(event_id, str) and event_id else ""
    return f"[{at}]{mark} {_title(document, subject)}"


def _show(subject: str, document: dict[str, Any]) -> None:
    columns = Columns(_head(document, subject))
    rest = {name: value for name, value in document.items() if name not in _HEAD}
    for name, value in _flat(rest).items():
        columns.row(name, value)
    columns.print()


def _show_short(subject: str, document: dict[str, Any]) -> None:
    rest = {name: value for name, value in document.items() if name not in _HEAD | _LONG}
    own = {name: value for name, value in rest.items() if not isinstance(value, dict)}
    parts = [f"{name.lower()}: {value}" for name, value in _flat({**own, **rest}).items()]
    line(f"{_head(document, subject)} - {', '.join(parts[:SHORT_PARTS])}")
