"""`tradewind dead-letters`: what consumers have given up.

Owns the commands and what they print; the client library finds, changes and sends back.
"""

from __future__ import annotations

import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tradewind.api.dead_letter_rules import REASONS
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.editor import run_editor
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.message_text import write_body
from tradewind.cli.frame.output import Columns, Table, line, print_json
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, jetstream
from tradewind.client.api_errors import NoMessageFoundError, SequenceNotFoundError
from tradewind.client.streams.dead_letters import StoredDeadLetter

if TYPE_CHECKING:
    from tradewind.sync import JetStream

app = CommandApp("Messages that consumers gave up on")

SHOWN_MAX: Final = 100
# Fewer messages are read in a moment.
PROGRESS_MESSAGES: Final = 1000
StreamName = Annotated[
    str,
    Argument(metavar="STREAM", help="Dead-letter stream", autocompletion=complete_stream),
]
SequenceNumber = Annotated[int, Argument(metavar="SEQUENCE", min=1)]
OriginFlag = Annotated[
    str, Option("--origin", metavar="STREAM", help="Only messages from this stream")
]
ConsumerFlag = Annotated[
    str,
    Option("--consumer", metavar="CONSUMER", help="Only messages that this consumer gave up on"),
]
ReasonFlag = Annotated[
    str, Option("--reason", metavar="REASON", help=f"Only this reason: {' or '.join(REASONS)}")
]
ToFlag = Annotated[
    str, Option("--to", metavar="SUBJECT", help="Send to this subject, not to the original one")
]


@app.command("ls", aliases=("list",))
def list_letters(
    stream: StreamName,
    origin: OriginFlag = "",
    consumer: ConsumerFlag = "",
    reason: ReasonFlag = "",
    limit: Annotated[int, Option("--limit", min=1, help="Show at most this many")] = SHOWN_MAX,
    json: JsonFlag = False,
) -> None:
    """List the dead letters of a stream."""
    _check_reason(reason)
    found: list[StoredDeadLetter] = []
    with connect() as connection:
        js = jetstream(connection)
        state = js.manager.streams.info(stream).state
        is_large = state.messages > PROGRESS_MESSAGES
        with ProgressBar(f"Reading {stream}", state.last_seq, shown=is_large) as bar:
            # One more than is shown tells whether there are more.
            found += js.dead_letters.listing(
                stream,
                origin=origin,
                consumer=consumer,
                reason=reason,
                limit=limit + 1,
                progress=bar.set,
            )
    if json:
        print_json([_document(letter) for letter in found[:limit]])
        return
    if not found:
        line(f"No dead letters found in {stream}")
        return
    table = Table(
        f"Dead letters of {stream}",
        *("Sequence", "Given Up By", "Reason", "Deliveries", "Subject"),
        drop=("Deliveries",),
    )
    for letter in found[:limit]:
        table.row(
            str(letter.seq),
            f"{letter.origin_stream} > {letter.origin_consumer}",
            letter.reason,
            str(letter.deliveries),
            letter.origin_subject,
        )
    table.print()
    if len(found) > limit:
        line(f"There are more than {limit}; use --limit")


@app.command("show", aliases=("get", "info"))
def show(stream: StreamName, sequence: SequenceNumber, json: JsonFlag = False) -> None:
    """Show a dead letter: why it was given up, its headers and its body."""
    with connect() as connection:
        letter = _get(jetstream(connection), stream, sequence)
    if json:
        print_json(_document(letter))
        return
    columns = Columns(f"Dead letter {stream}#{letter.seq}")
    columns.row("Reason", letter.reason)
    if letter.detail:
        columns.row("Detail", letter.detail)
    columns.row("Stream", letter.origin_stream)
    columns.row("Consumer", letter.origin_consumer)
    columns.row("Subject", letter.origin_subject)
    columns.row("Sequence", str(letter.origin_seq))
    columns.row("Deliveries", str(letter.deliveries))
    for number, (time, client) in enumerate(zip_longest(letter.attempts, letter.clients), 1):
        columns.row(f"Delivery {number}", f"{time or '?'} to {client}" if client else time)
    columns.row("Times Redriven", str(letter.redriven))
    for name, value in letter.own_headers().fields():
        columns.row(f"Header {name}", value)
    columns.print()
    write_body(letter.data, "")


@app.command("edit")
def edit(
    stream: StreamName,
    sequence: SequenceNumber,
    body: Annotated[
        str | None, Option("--body", metavar="TEXT", help="New body; without it an editor opens")
    ] = None,
) -> None:
    """Change the body of a dead letter."""
    with connect() as connection:
        js = jetstream(connection)
        letter = _get(js, stream, sequence)
        data = body.encode() if body is not None else _edited(letter.data)
        if data == letter.data:
            line("Nothing was changed")
            return
        changed = js.dead_letters.edit(letter, data=data)
    line(f"Dead letter {sequence} is now {changed.seq}")


@app.command("redrive")
def redrive(
    stream: StreamName,
    sequence: Annotated[int, Argument(metavar="SEQUENCE", min=0)] = 0,
    everything: Annotated[bool, Option("--all", help="Send back all that match")] = False,
    origin: OriginFlag = "",
    consumer: ConsumerFlag = "",
    reason: ReasonFlag = "",
    to: ToFlag = "",
    to_consumer: Annotated[
        bool, Option("--to-consumer", help="Only to the consumer that gave up on them")
    ] = False,
    rate: Annotated[
        float, Option("--rate", min=0.0, metavar="NUMBER", help="At most this many per second")
    ] = 0.0,
    limit: Annotated[int, Option("--limit", min=0, help="At most this many")] = 0,
    force: ForceFlag = False,
) -> None:
    """Send dead letters back to the subjects they came from."""
    _check_reason(reason)
    if to and to_consumer:
        raise CommandError("use --to or --to-consumer, not both", exit_code=EXIT_USAGE)
    if bool(sequence) == everything:
        raise CommandError("specify a sequence or --all", exit_code=EXIT_USAGE)
    with connect() as connection:
        js = jetstream(connection)
        if sequence:
            letter = _get(js, stream, sequence)
            seq = js.dead_letters.redrive(letter, to=to, consumer=to_consumer)
            target = to or letter.origin_subject
            if to_consumer:
                target = f"{letter.origin_stream} > {letter.origin_consumer}"
            line(f"Dead letter {sequence} was sent to {target} as {seq}")
            return
        confirm_or_stop(f"Really send back the dead letters of {stream}", force=force)
        count = js.dead_letters.redrive_all(
            stream,
            origin=origin,
            consumer=consumer,
            reason=reason,
            to=to,
            to_consumer=to_consumer,
            rate=rate,
            limit=limit,
        )
    line(f"Dead letters sent back: {count}")


@app.command("rm", aliases=("delete",))
def remove(stream: StreamName, sequence: SequenceNumber, force: ForceFlag = False) -> None:
    """Delete a dead letter."""
    with connect() as connection:
        js = jetstream(connection)
        letter = _get(js, stream, sequence)
        confirm_or_stop(f"Really delete dead letter {sequence} of {stream}", force=force)
        js.dead_letters.remove(letter)


def _get(js: JetStream, stream: str, sequence: int) -> StoredDeadLetter:
    try:
        return js.dead_letters.get(stream, sequence)
    except (NoMessageFoundError, SequenceNotFoundError):
        raise CommandError(f"Stream {stream} has no message {sequence}") from None


def _check_reason(reason: str) -> None:
    if reason and reason not in REASONS:
        raise CommandError(
            f"--reason: {' or '.join(REASONS)}, not {reason!r}", exit_code=EXIT_USAGE
        )


def _document(letter: StoredDeadLetter) -> dict[str, Any]:
    """A dead letter for machines; the body is Base64."""
    return {
        "stream": letter.stream,
        "seq": letter.seq,
        "subject": letter.subject,
        "reason": letter.reason,
        "detail": letter.detail,
        "origin_stream": letter.origin_stream,
        "origin_consumer": letter.origin_consumer,
        "origin_subject": letter.origin_subject,
        "origin_seq": letter.origin_seq,
        "deliveries": letter.deliveries,
        "attempts": letter.attempts,
        "clients": letter.clients,
        "redriven": letter.redriven,
        "hdrs": {name: letter.headers.get_all(name) for name in letter.headers},
        "data": letter.data,
    }


def _edited(data: bytes) -> bytes:
    """A body as it is after the editor was closed."""
    with tempfile.TemporaryDirectory(prefix="tradewind-edit-") as folder:
        path = Path(folder) / "body"
        path.write_bytes(data)
        run_editor(str(path))
        return path.read_bytes()
