"""`nats-pub`, `nats-req` and `nats-sub` as used and shown in articles about the previews.

Owns their flags and output. They never use JetStream themselves: storing a publish and delivering
from a consumer is done by the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.settings import connect, current
from tradewind.cli.legacy.program import (
    CONNECT_FLAGS,
    Arguments,
    ProgramFlags,
    run_program,
    say,
    take_flags,
)
from tradewind.status_codes import NO_RESPONDERS

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg

PUB_USAGE: Final = "Usage: nats-pub [-s server] [-creds file] [-reply subject] <subject> <message>"
REQ_USAGE: Final = "Usage: nats-req [-s server] [-creds file] [-timeout 5s] <subject> <message>"
SUB_USAGE: Final = "Usage: nats-sub [-s server] [-creds file] [-t] <subject>"


def start(
    arguments: Arguments, known: tuple[str, ...], usage: str, count: int, *switches: str
) -> tuple[ProgramFlags, list[str]]:
    """The flags and the `count` other words of a tool; no words if only help is wanted."""
    flags, words = take_flags(arguments, (*CONNECT_FLAGS, *known), switches)
    if flags.is_help:
        say(usage)
        return flags, []
    if len(words) != count:
        raise CommandError(
            f"expected {count} arguments, not {len(words)}", usage, exit_code=EXIT_USAGE
        )
    return flags, words


def _text(message: Msg) -> str:
    return message.data.decode("utf-8", "replace")


def _publish(arguments: Arguments) -> int:
    flags, words = start(arguments, ("reply",), PUB_USAGE, 2)
    if words:
        with connect() as connection:
            connection.publish(words[0], words[1], reply=flags.values.get("reply"))
            connection.flush(current().timeout)
        say(f"Published [{words[0]}] : '{words[1]}'")
    return 0


def _request(arguments: Arguments) -> int:
    _, words = start(arguments, (), REQ_USAGE, 2)
    if not words:
        return 0
    with connect() as connection:
        inbox = connection.new_inbox()
        # Its own subscription: a consumer answers under the subject of the stored message.
        with connection.subscribe(inbox, max_msgs=1) as subscription:
            connection.publish(words[0], words[1], reply=inbox)
            say(f"Published [{words[0]}] : '{words[1]}'")
            message = subscription.next(timeout=current().timeout)
    if message.status == NO_RESPONDERS and not message.data:
        raise CommandError(f"nobody is listening on {words[0]!r}")
    say(f"Received  [{message.subject}] : '{_text(message)}'")
    return 0


def _subscribe(arguments: Arguments) -> int:
    import datetime

    flags, words = start(arguments, (), SUB_USAGE, 1, "t")
    if not words:
        return 0
    with connect() as connection:
        subscription = connection.subscribe(words[0])
        connection.flush(current().timeout)
        say(f"Listening on [{words[0]}]")
        for number, message in enumerate(subscription, 1):
            now = datetime.datetime.now().astimezone()
            stamp = f"{now:%Y/%m/%d %H:%M:%S} " if "t" in flags.values else ""
            say(f"{stamp}[#{number}] Received on [{message.subject}]: '{_text(message)}'")
    return 0


def pub_main() -> int:
    """The executable `nats-pub`."""
    return run_program("nats-pub", _publish)


def req_main() -> int:
    """The executable `nats-req`."""
    return run_program("nats-req", _request)


def sub_main() -> int:
    """The executable `nats-sub`."""
    return run_program("nats-sub", _subscribe)
