"""`tradewind counter`: counters in streams, one per subject.

Owns the commands and their output; the client library does the counting.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import Columns, Table, line, print_json
from tradewind.cli.frame.settings import connect, jetstream

if TYPE_CHECKING:
    from tradewind.sync import JetStream

app = CommandApp("Counters in streams")

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}", re.ASCII)

SubjectArgument = Annotated[str, Argument(help="Counter subject", show_default=False)]
ValueArgument = Annotated[str, Argument(help="Amount to add or subtract")]


@app.command("get")
def get(subject: SubjectArgument, json: JsonFlag = False) -> None:
    """Show the value of a counter."""
    with connect() as connection:
        js = jetstream(connection)
        stream = _stream_of(js, subject)
        value = js.counter(stream, subject)
    if json:
        print_json({"stream": stream, "subject": subject, "value": str(value)})
    else:
        line(str(value))


@app.command("view")
def view(subject: SubjectArgument) -> None:
    """Show a counter: its value, and the last change."""
    with connect() as connection:
        js = jetstream(connection)
        stream = _stream_of(js, subject)
        value = js.counter(stream, subject)
        columns = Columns(f"Counter {subject}")
        columns.row("Stream", stream)
        columns.row("Value", str(value))
        found = js.manager.streams.get_message(stream, last_by_subject=subject)
    columns.row("Last Change", found.headers.get("Nats-Incr", ""))
    columns.row("Sequence", str(found.seq))
    columns.row("Time", found.time.astimezone().isoformat(timespec="seconds"))
    columns.print()


@app.command("increment", aliases=("incr", "inc", "add"))
def increment(subject: SubjectArgument, value: ValueArgument = "1", json: JsonFlag = False) -> None:
    """Add to a counter, and show its new value."""
    _change(subject, _number(value), as_json=json)


@app.command("decrement", aliases=("decr", "dec", "sub"))
def decrement(subject: SubjectArgument, value: ValueArgument = "1", json: JsonFlag = False) -> None:
    """Subtract from a counter, and show its new value."""
    _change(subject, -_number(value), as_json=json)


@app.command("ls", aliases=("list",))
def list_counters(
    stream: Annotated[str, Argument(help="Stream name", show_default=False)],
    subjects: Annotated[
        str, Option("--subjects", help="Only counters that match this pattern", metavar="PATTERN")
    ] = ">",
    json: JsonFlag = False,
) -> None:
    """List the counters of a stream with their values."""
    with connect() as connection:
        js = jetstream(connection)
        info = js.manager.streams.info(stream, subjects_filter=subjects)
        if not info.config.allow_msg_counter:
            raise CommandError(f"stream {stream!r} has no counters", "it needs allow_msg_counter")
        found = {name: js.counter(stream, name) for name in sorted(info.state.subjects)}
    if json:
        print_json({name: str(value) for name, value in found.items()})
        return
    if not found:
        line(f"No counters found in {stream}")
        return
    table = Table(f"Counters of {stream}", "Subject", "Value")
    for name, value in found.items():
        table.row(name, str(value))
    table.print()


def _change(subject: str, by: int, *, as_json: bool) -> None:
    with connect() as connection:
        value = jetstream(connection).increment(subject, by)
    if as_json:
        print_json({"subject": subject, "value": str(value)})
    else:
        line(str(value))


def _stream_of(js: JetStream, subject: str) -> str:
    for name in js.manager.streams.names(subject):
        return name
    raise CommandError(
        f"no stream has the subject {subject!r}",
        "create one: tradewind stream add COUNTERS --subjects 'hits.>' --allow-counter --defaults",
    )


def _number(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise CommandError(
            f"value: an integer of at most 4000 digits, not {text[:40]!r}", exit_code=EXIT_USAGE
        )
    return int(text)
