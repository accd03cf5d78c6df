"""Servers that a command names beside the one of the shared flags: a context or a URL.

Owns connecting to them. A place is written to journals, so it never contains a login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.settings import current

if TYPE_CHECKING:
    from tradewind.sync import Connection


def check_places(flags: str, *places: str) -> None:
    """Usage error if one of them contains a login. `flags` are those that have named them."""
    if any("@" in place for place in places):
        raise CommandError(
            f"{flags}: the URL must not contain a login, because it is saved in the journal",
            "create a context: tradewind context add NAME --server URL --user USER ...",
            exit_code=EXIT_USAGE,
        )


def connect_place(place: str) -> Connection:
    """A connection to the server of a context, or with this URL."""
    from tradewind.sync import connect

    timeout = current().timeout
    if "://" in place or ":" in place:
        return connect(place, timeout=timeout)
    return connect(context=place, timeout=timeout)
