"""Determines the servers of the streams of a pipeline.

Owns the precedence of addresses: the table, then the file, then the command line. The module passes
them to Spark as options and to the client as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from tradewind.spark.connections.logins import (
    DEFAULT_SERVER,
    JobLogin,
    resolve_servers,
    spark_name,
)

if TYPE_CHECKING:
    from tradewind.client.core.connect_options import ConnectSettings
    from tradewind.sync import Connection


class AddressedPart(Protocol):
    """A part of a pipeline that may name its server."""

    @property
    def server(self) -> str:
        """Addresses, joined by commas."""

    @property
    def context(self) -> str:
        """The name of a context of the command line."""

    @property
    def login(self) -> JobLogin:
        """How to log in there."""


@dataclass(frozen=True, slots=True)
class PipelineAddress:
    """One server or cluster and how to log in; never shown, as it may hold a password."""

    server: str = field(default="", repr=False)
    context: str = ""
    login: JobLogin = field(default_factory=JobLogin)

    @classmethod
    def first_of(cls, *places: AddressedPart) -> PipelineAddress:
        """The address of the first place that names a server or a context.

        The login may stand elsewhere: in a place that is nearer, or in one that names no server of
        its own, to which it would belong. The login is taken as a whole.
        """
        server, context, login = "", "", JobLogin()
        for place in places:
            is_named = bool(server or context)
            if not login and not (is_named and (place.server or place.context)):
                login = place.login
            if not is_named:
                server, context = place.server, place.context
        return cls(server if server or context else DEFAULT_SERVER, context, login)

    def spark_options(self) -> dict[str, str]:
        """The same for the format `jetstream`; references stay what they are."""
        default = "" if self.context else DEFAULT_SERVER
        named = {"servers": self.server or default, "context": self.context}
        named |= {spark_name(name): text for name, text in self.login.given().items()}
        return {name: value for name, value in named.items() if value}

    def connect(self) -> Connection:
        """A connection of the client."""
        import tradewind.sync

        settings = {**self.login.settings(), "name": "tradewind-pipeline"}
        return tradewind.sync.connect(
            resolve_servers([self.server]) if self.server else None,
            context=self.context or None,
            **cast("ConnectSettings", settings),
        )
