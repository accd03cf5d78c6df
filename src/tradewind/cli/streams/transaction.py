"""`tradewind transaction`: publishes, acknowledgements and deletes that happen together.

Owns how a transaction is written in a file and in flags, and what is printed; the client commits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tradewind.api.errors import ApiError
from tradewind.api.transaction_types import (
    TransactionDelete,
    TransactionPublish,
    TransactionRequest,
    decode_transaction,
)
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.message_text import INPUT_BYTES_MAX, read_input
from tradewind.cli.frame.output import line, print_json
from tradewind.cli.frame.settings import connect, jetstream
from tradewind.client.core.headers import Headers
from tradewind.client.errors import OptionsError

app = CommandApp("Publish, acknowledge and delete messages in one transaction")
STDIN = "-"


@app.command()
def transaction(
    file: Annotated[
        str, Argument(metavar="[FILE]", help="JSON of the transaction; - for standard input")
    ] = "",
    publish: Annotated[
        list[str] | None,
        Option("--publish", metavar="SUBJECT=DATA", help="Publish a message; may be repeated"),
    ] = None,
    ack: Annotated[
        list[str] | None,
        Option("--ack", metavar="REPLY", help="Acknowledge the message with this reply subject"),
    ] = None,
    delete: Annotated[
        list[str] | None,
        Option("--delete", metavar="STREAM:SEQUENCE", help="Delete a message; may be repeated"),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Publish, acknowledge and delete messages together: all of it, or nothing."""
    request = _read(file) if file else TransactionRequest()
    publishes = [*request.publishes, *map(_publish, publish or ())]
    acks = [*request.acks, *(ack or ())]
    deletes = [*request.deletes, *map(_delete, delete or ())]
    if not (publishes or acks or deletes or request.revivals):
        raise CommandError(
            "the transaction is empty",
            "for example:  tradewind transaction --publish bills.17=paid --delete DRAFTS:17",
            "or a file:    tradewind transaction FILE",
            exit_code=EXIT_USAGE,
        )
    with connect() as connection:
        made = jetstream(connection).transaction()
        try:
            for each in publishes:
                made.publish(each.subject, each.payload, headers=_headers(each))
            for reply in acks:
                made.ack(reply)
            for one in deletes:
                made.delete(one.stream, one.seq)
            for again in request.revivals:
                made.revive(again.stream, again.consumer, again.seq)
        except OptionsError as error:
            raise CommandError(str(error), exit_code=EXIT_USAGE) from None
        result = made.commit()
    if json:
        print_json(result)
        return
    for each, place in zip(publishes, result.publishes, strict=True):
        line(f"Published {each.subject}: message {place.seq} of {place.stream}")
    if result.acks:
        line(f"Acknowledged: {result.acks}")
    if result.deletes:
        line(f"Deleted: {result.deletes}")
    if result.revivals:
        line(f"Delivered again: {result.revivals}")


def _headers(message: TransactionPublish) -> Headers | None:
    made = Headers()
    for name, values in message.headers.items():
        for value in [values] if isinstance(values, str) else values:
            made.add(name, value)
    return made or None


def _read(file: str) -> TransactionRequest:
    try:
        data = read_input() if file == STDIN else _content(Path(file))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    try:
        return decode_transaction(data)
    except ApiError as error:
        raise CommandError(
            f"{'the input' if file == STDIN else file}: {error.description}", exit_code=EXIT_USAGE
        ) from None


def _content(path: Path) -> bytes:
    with path.open("rb") as source:
        data = source.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise CommandError(f"{path}: larger than {INPUT_BYTES_MAX >> 20} MiB")
    return data


def _publish(text: str) -> TransactionPublish:
    subject, equals, data = text.partition("=")
    if not equals or not subject:
        raise CommandError(f"--publish {text!r}: write SUBJECT=DATA", exit_code=EXIT_USAGE)
    return TransactionPublish(subject=subject, payload=data.encode("utf-8", "surrogateescape"))


def _delete(text: str) -> TransactionDelete:
    stream, _, sequence = text.rpartition(":")
    is_number = sequence.isascii() and sequence.isdigit() and len(sequence) <= 20
    if not stream or not is_number or not int(sequence):
        raise CommandError(f"--delete {text!r}: write STREAM:SEQUENCE", exit_code=EXIT_USAGE)
    return TransactionDelete(stream=stream, seq=int(sequence))
