"""`tradewind consumer next` and `sub`: shows messages of a consumer and acknowledges them.

Owns the display and acknowledgement of delivered messages.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.frame.account_catalog import open_catalog
from tradewind.cli.frame.command_loop import connect_async, run_until_stopped, stamp
from tradewind.cli.frame.completion import complete_consumer, complete_stream
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.message_text import write_body
from tradewind.cli.frame.output import flush, line, print_json_line
from tradewind.cli.frame.settings import current, jetstream
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.cli.streams.stream_messages import message_document, show_headers
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg
    from tradewind.client.streams.pulled import ConsumerMessages
    from tradewind.client.streams.pushed import PushedMessages

app = CommandApp("Read from consumers")

StreamName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
ConsumerName = Annotated[str, Argument(metavar="CONSUMER", autocompletion=complete_consumer)]
AckFlag = Annotated[bool, Option("--ack/--no-ack", help="Acknowledge the messages")]
JsonLinesFlag = Annotated[bool, Option("--json", "-j", help="Print a line of JSON per message")]
RawFlag = Annotated[bool, Option("--raw", "-r", help="Show only bodies")]
COUNT_MAX: Final = 100_000


@app.command("next")
def next_messages(
    stream: StreamName,
    consumer: ConsumerName,
    ack: AckFlag = True,
    nak: Annotated[
        bool, Option("--nak", help="Reject the messages, to be redelivered (nak)")
    ] = False,
    term: Annotated[
        bool, Option("--term", help="Terminate the messages: never redeliver them")
    ] = False,
    raw: RawFlag = False,
    json: JsonLinesFlag = False,
    wait: Annotated[str, Option("--wait", metavar="DURATION", help="Maximum time to wait")] = "",
    count: Annotated[int, Option("--count", min=1, max=COUNT_MAX, help="Number of messages")] = 1,
) -> None:
    """Fetch the next messages of a pull consumer."""
    if nak and term:
        raise CommandError("--nak and --term: use only one of them", exit_code=EXIT_USAGE)
    seconds = parse_duration_ns(wait, "--wait") / SECOND_NS if wait else current().timeout
    shown = 0
    with open_catalog() as catalog:
        config = catalog.consumer(stream, consumer).config
        if config.deliver_subject:
            raise CommandError(
                f"Consumer {stream} > {consumer} pushes to {config.deliver_subject!r}",
                f"read it with: tradewind consumer sub {stream} {consumer}",
            )
        settle = "nak" if nak else "term" if term else "ack" if ack else ""
        if config.ack_policy == "none":
            settle = ""
        reader = jetstream(catalog.connection).consumers.get(stream, consumer)
        for message in reader.fetch(count, expires=seconds):
            show_message(message, raw=raw, json=json)
            shown += 1
            _settle(message, settle, quiet=raw or json)
        catalog.connection.flush()
    if not shown:
        raise CommandError(f"no message arrived within {seconds:g} s")


_SETTLED: Final = {
    "ack": "Acknowledged message",
    "nak": "Negative Acknowledged message",
    "term": "Terminated message",
}


def _settle(message: Msg, how: str, *, quiet: bool) -> None:
    if how == "ack":
        message.ack_sync()
    elif how == "nak":
        message.nak()
    elif how == "term":
        message.term()
    if how and not quiet:
        line(_SETTLED[how])
        line()


def show_message(message: Msg, *, raw: bool, json: bool) -> None:
    """A delivered message with its numbers, or only its body."""
    info = message.metadata
    if json:
        document = message_document(
            message.subject, info.stream_sequence, message, info.timestamp_ns
        )
        document |= {
            "consumer_seq": info.consumer_sequence,
            "tries": info.delivered_count,
            "pending": info.pending_count,
        }
        print_json_line(document)
        flush()
        return
    if not raw:
        now = time.strftime("%H:%M:%S")
        line(
            f"[{now}] subj: {message.subject} / tries: {info.delivered_count} / cons seq: "
            f"{info.consumer_sequence} / str seq: {info.stream_sequence} / pending: "
            f"{info.pending_count}"
        )
        line()
        show_headers(message.headers)
    write_body(message.data, raw=raw)
    if not raw:
        line()
    flush()


@app.command("sub")
def follow(
    stream: StreamName = "",
    consumer: ConsumerName = "",
    ack: AckFlag = True,
    raw: RawFlag = False,
    json: JsonLinesFlag = False,
    count: Annotated[int, Option("--count", min=0, help="Stop after this many messages")] = 0,
    deliver_group: Annotated[
        str, Option("--deliver-group", help="Delivery group, for scripts", hidden=True)
    ] = "",
) -> None:
    """Show the messages of a consumer as they arrive, until Ctrl-C."""
    with open_catalog() as catalog:
        info = catalog.consumer(stream, consumer)
    config = info.config
    if deliver_group and deliver_group != config.deliver_group:
        raise CommandError(f"--deliver-group: the consumer's group is {config.deliver_group!r}")
    acknowledges = ack and config.ack_policy != "none"

    async def main() -> None:
        async with await connect_async() as connection:
            js = connection.jetstream()
            messages: PushedMessages | ConsumerMessages
            if config.deliver_subject:
                messages = await js.subscribe_push(info.stream_name, info.name)
            else:
                reader = await js.consumers.get(info.stream_name, info.name)
                # No more than are wanted are taken from other readers.
                messages = await reader.consume(min(count, 100) if count else 100)
            if not raw and not json:
                stamp(f"Subscribed to Consumer {info.stream_name} > {info.name}")
            shown = 0
            async with messages:
                async for message in messages:
                    show_message(message, raw=raw, json=json)
                    if acknowledges:
                        await message.ack_sync()
                    shown += 1
                    if shown == count:
                        break

    run_until_stopped(main())
