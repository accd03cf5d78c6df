"""Finds streams and consumers by name.

Owns how commands select what they work on. If no name is given, the user is asked on a terminal; if
a name does not exist, similar names are suggested.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tradewind.api.names import KV_STREAM, OBJECT_STREAM
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError, near
from tradewind.cli.frame.output import note
from tradewind.cli.frame.prompts import can_ask, choose
from tradewind.cli.frame.settings import connect, manager
from tradewind.client.api_errors import ConsumerNotFoundError, StreamNotFoundError
from tradewind.client.streams.api_requests import check_answer

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.api.stream_types import StreamInfo
    from tradewind.sync import Connection, JetStreamManager

# Streams that belong to buckets and bridges; lists show them only if asked to.
SYSTEM_PREFIXES: Final = (KV_STREAM, OBJECT_STREAM, "MQTT_", "$MQTT_")
NONE_DEFINED: Final = "could not pick a Stream to operate on: no Streams are defined"


def is_system_stream(name: str) -> bool:
    """Whether a stream belongs to a bucket or a bridge."""
    return name.startswith(SYSTEM_PREFIXES)


class AccountCatalog:
    """The streams and consumers of the account."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.manager: JetStreamManager = manager(connection)
        self.stream_name = ""
        self.consumer_name = ""

    def pick_stream(self, name: str) -> str:
        """The name that was given, or one that is chosen."""
        if not name:
            name = _choose("Stream", self.manager.streams.names().all(), NONE_DEFINED)
        self.stream_name = name
        return name

    def pick_consumer(self, stream: str, name: str) -> tuple[str, str]:
        """Stream and consumer as given, or as they are chosen."""
        stream = self.pick_stream(stream)
        if not name:
            none = f"Stream {stream} has no Consumers"
            name = _choose("Consumer", self.manager.consumers.names(stream).all(), none)
        self.consumer_name = name
        return stream, name

    def stream(self, name: str) -> StreamInfo:
        """A stream by name or choice."""
        return self.manager.streams.info(self.pick_stream(name))

    def existing_stream(self, name: str) -> StreamInfo:
        """A stream by name; on a terminal one is chosen if none is given or it does not exist."""
        try:
            return self.stream(name)
        except StreamNotFoundError:
            if not (name and can_ask()):
                raise
            note(str(self.no_stream()))
        return self.stream("")

    def consumer(self, stream: str, name: str) -> ConsumerInfo:
        """A consumer by names or choices."""
        return self.manager.consumers.info(*self.pick_consumer(stream, name))

    def ask(self, endpoint: str, stream: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that the manager has no method for, with all its members."""
        # `api` is not among the types of the blocking client, as programs have no use for it.
        answer = cast(Any, self.manager).api.call_raw(endpoint, stream, body=body)
        check_answer(answer)
        document: dict[str, Any] = msgspec.json.decode(answer)
        return document

    def no_stream(self) -> CommandError:
        """The error for a stream that does not exist, with a hint."""
        names = self.manager.streams.names().all()
        if not names:
            return CommandError(
                NONE_DEFINED, "create one: tradewind stream add NAME --subjects ..."
            )
        return CommandError(
            f"Stream {self.stream_name!r} does not exist{near(self.stream_name, names)}",
            "see: tradewind stream ls --all",
        )

    def no_consumer(self) -> CommandError:
        """The error for a consumer that does not exist, with a hint."""
        stream, name = self.stream_name, self.consumer_name
        names = self.manager.consumers.names(stream).all()
        return CommandError(
            f"Stream {stream} has no Consumer {name!r}{near(name, names)}",
            f"see: tradewind consumer ls {stream}"
            if names
            else f"create one: tradewind consumer add {stream} {name} --pull",
        )


@contextmanager
def open_catalog() -> Iterator[AccountCatalog]:
    """A connection with the catalog; streams and consumers that are missing are explained."""
    with connect() as connection:
        catalog = AccountCatalog(connection)
        try:
            yield catalog
        except StreamNotFoundError:
            raise catalog.no_stream() from None
        except ConsumerNotFoundError:
            raise catalog.no_consumer() from None


def _choose(kind: str, names: list[str], none_text: str) -> str:
    if not names:
        raise CommandError(none_text)
    names.sort()
    if not can_ask():
        raise CommandError(
            f"which {kind}? Specify its name; available: {', '.join(names)}", exit_code=EXIT_USAGE
        )
    return choose(f"Select a {kind}", names, flag=f"the name of a {kind}")
