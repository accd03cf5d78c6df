"""`tradewind stream get`, `view` and `rmm`: single messages of a stream.

Owns the display of stored messages. It never needs a durable consumer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.api.times import format_time
from tradewind.cli.frame.account_catalog import AccountCatalog, open_catalog
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.message_text import write_body
from tradewind.cli.frame.output import is_terminal, line, print_json, print_json_line
from tradewind.cli.frame.prompts import can_ask, confirm, confirm_or_stop
from tradewind.cli.frame.settings import jetstream
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.client.api_errors import NoMessageFoundError, SequenceNotFoundError
from tradewind.durations import MICROSECOND_NS, SECOND_NS
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from tradewind.client.core.headers import Headers
    from tradewind.client.core.message import Msg
    from tradewind.client.streams.manager import StoredMsg
    from tradewind.sync import OrderedMessages

app = CommandApp("Read and delete messages of streams")

PAGE_MAX = 25
# The messages of a page are there already, so this is only for a server that went away.
PAGE_SECONDS = 10.0
StreamName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
TranslateFlag = Annotated[
    str, Option("--translate", metavar="COMMAND", help="Pipe bodies through a command")
]


@app.command("get")
def get_message(
    stream: StreamName = "",
    sequence: Annotated[int, Argument(metavar="SEQUENCE", min=0)] = 0,
    last_for: Annotated[
        str,
        Option("--last-for", "-S", metavar="SUBJECT", help="Get the last message of this subject"),
    ] = "",
    json: JsonFlag = False,
    translate: TranslateFlag = "",
) -> None:
    """Show a message by its sequence, or the last one of a subject."""
    if bool(sequence) == bool(last_for):
        raise CommandError("specify a sequence or --last-for SUBJECT", exit_code=EXIT_USAGE)
    with open_catalog() as catalog:
        found = _get(catalog, catalog.pick_stream(stream), sequence, last_for)
    if json:
        print_json(message_document(found.subject, found.seq, found, found.time_ns))
        return
    received = moment_text(found.time_ns)
    line(f"Item: {found.stream}#{found.seq} received {received} on Subject {found.subject}")
    line()
    show_headers(found.headers)
    write_body(found.data, translate)
    line()


def message_document(
    subject: str, sequence: int, message: StoredMsg | Msg, time_ns: int
) -> dict[str, Any]:
    """A message for machines, as the API shows it: the body is Base64."""
    headers = message.headers
    return {
        "subject": subject,
        "seq": sequence,
        "hdrs": {name: headers.get_all(name) for name in headers},
        "data": message.data,
        "time": format_time(time_ns),
    }


def _get(catalog: AccountCatalog, stream: str, sequence: int, last_for: str) -> StoredMsg:
    streams = catalog.manager.streams
    try:
        return streams.get_message(stream, seq=sequence, last_by_subject=last_for)
    except (NoMessageFoundError, SequenceNotFoundError):
        state = streams.info(stream).state
        what = f"no message {sequence}" if sequence else f"no message on {last_for!r}"
        holds = (
            f"it holds {state.first_seq} to {state.last_seq}" if state.messages else "it is empty"
        )
        raise CommandError(f"Stream {stream} has {what}; {holds}") from None


@app.command("rmm")
def remove_message(
    stream: StreamName = "",
    sequence: Annotated[int, Argument(metavar="SEQUENCE", min=0)] = 0,
    force: ForceFlag = False,
) -> None:
    """Delete a message and overwrite its data."""
    if not sequence:
        raise CommandError("which message? Specify its sequence", exit_code=EXIT_USAGE)
    with open_catalog() as catalog:
        name = catalog.stream(stream).config.name
        confirm_or_stop(f"Really remove message {sequence} from Stream {name}", force=force)
        try:
            catalog.manager.streams.delete_message(name, sequence)
        except (NoMessageFoundError, SequenceNotFoundError):
            raise CommandError(f"Stream {name} has no message {sequence}") from None


@app.command("view")
def view_messages(
    stream: StreamName = "",
    size: Annotated[
        int, Argument(metavar="SIZE", min=1, max=PAGE_MAX, help="Messages per page")
    ] = 10,
    start: Annotated[int, Option("--id", min=0, help="Start at a sequence")] = 0,
    since: Annotated[str, Option("--since", metavar="DURATION", help="Start this long ago")] = "",
    raw: Annotated[bool, Option("--raw", help="Print only bodies")] = False,
    json: Annotated[bool, Option("--json", "-j", help="Print a line of JSON per message")] = False,
    subject: Annotated[str, Option("--subject", help="Only messages of this subject")] = "",
    translate: TranslateFlag = "",
) -> None:
    """Page through the messages of a stream; shows one page when not on a terminal."""
    if start and since:
        raise CommandError("--id and --since: use only one of them", exit_code=EXIT_USAGE)
    start_time = None
    if since:
        ago = timedelta(microseconds=parse_duration_ns(since, "--since") // MICROSECOND_NS)
        start_time = datetime.now(UTC) - ago
    with open_catalog() as catalog:
        name = catalog.stream(stream).config.name
        consumer = jetstream(catalog.connection).consumers.ordered(
            name,
            filter_subjects=[subject] if subject else (),
            start_sequence=start,
            start_time=start_time,
        )
        pages = can_ask() and is_terminal(sys.stdout)
        with consumer.consume(size) as messages:
            left = messages.info.num_pending
            bare = raw or json
            if not left and not bare:
                line("No messages")
            while left:
                show = partial(_show, raw=raw, json=json, translate=translate)
                left = _show_page(messages, min(size, left), show)
                if not left and not bare:
                    line("Reached apparent end of data")
                elif left and not (pages and confirm("Next Page?", default=True)):
                    break


def _show_page(messages: OrderedMessages, count: int, show: Callable[[Msg], None]) -> int:
    """Shows this many messages; how many are left behind them."""
    left = 0
    for _ in range(count):
        message = messages.next(PAGE_SECONDS)
        left = message.metadata.pending_count
        show(message)
    return left


def _show(message: Msg, *, raw: bool, json: bool, translate: str) -> None:
    metadata = message.metadata
    sequence, time_ns = metadata.stream_sequence, metadata.timestamp_ns
    if json:
        print_json_line(message_document(message.subject, sequence, message, time_ns))
        return
    if not raw:
        line(f"[{sequence}] Subject: {message.subject} Received: {moment_text(time_ns)}")
        line()
        show_headers(message.headers)
    write_body(message.data, translate, raw=raw)
    if not raw:
        line()


def show_headers(headers: Headers) -> None:
    """The headers of a message, indented, and an empty line; nothing if there are none."""
    for name, value in headers.fields():
        line(visible(f"  {name}: {value}"))
    if headers:
        line()


def moment_text(time_ns: int) -> str:
    """Local time of a message: `2026-01-02 03:04:05`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ns // SECOND_NS))
