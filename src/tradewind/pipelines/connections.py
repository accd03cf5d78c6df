"""Where the streams of a pipeline are.

Owns the order in which an address is looked for: what a table says itself, what the file says for
all, what the command line says. Gives it to Spark as options and to the client as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tradewind.sync import Connection

DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"


class Addressed(Protocol):
    """Something that may say where its server is."""

    @property
    def server(self) -> str:
        """Addresses, joined by commas."""

    @property
    def context(self) -> str:
        """The name of a context of the command line."""

    @property
    def credentials(self) -> str:
        """A credentials file."""


@dataclass(frozen=True, slots=True)
class Address:
    """One server or cluster and how to log in; never shown, as it may hold a password."""

    server: str = field(default="", repr=False)
    context: str = ""
    credentials: str = ""

    @classmethod
    def first_of(cls, *places: Addressed) -> Address:
        """That of the first place that names a server or a context.

        Credentials may stand elsewhere: in a place that is nearer, or in one that names no server
        of its own, to which they would belong.
        """
        server, context, credentials = "", "", ""
        for place in places:
            is_named = bool(server or context)
            if not credentials and not (is_named and (place.server or place.context)):
                credentials = place.credentials
            if not is_named:
                server, context = place.server, place.context
        return cls(server if server or context else DEFAULT_SERVER, context, credentials)

    def spark_options(self) -> dict[str, str]:
        """The same for the format `jetstream`."""
        named = {
            "servers": self.server,
            "context": self.context,
            "credentials": self.credentials,
        }
        return {name: value for name, value in named.items() if value}

    def connect(self) -> Connection:
        """A connection of the client."""
        import tradewind.sync

        return tradewind.sync.connect(
            self.server or None,
            context=self.context or None,
            credentials=self.credentials,
            name="tradewind-pipeline",
        )
