"""Failures of commands: one line that says what happened, and what to type.

Owns the exception for commands, the exit codes, and the hints for client errors. Only `main` prints
them; a command never prints a traceback or exits the process itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tradewind.errors import TradewindError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


class CommandError(TradewindError):
    """A command cannot do what was asked. `hints` are lines with what to do or to type."""

    def __init__(self, text: str, *hints: str, exit_code: int = EXIT_FAILED) -> None:
        self.hints = hints
        self.exit_code = exit_code
        super().__init__(text)


def near(name: str, names: Iterable[str]) -> str:
    """`; did you mean "ORDERS"?` if a name is like this one, else an empty text."""
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), by_lower, 1, cutoff=0.6)
    return f"; did you mean {by_lower[found[0]]!r}?" if found else ""


# What to type, by the error code of the API.
_API_HINTS: Final = {
    10008: "no leader at the moment: an election is in progress, or too few servers are running",
    10013: "change it: tradewind consumer edit STREAM CONSUMER",
    10058: "change it: tradewind stream edit NAME",
    10065: "which stream has it: tradewind stream ls --subject SUBJECT",
    10130: "remove the stream first, or restore with another name: --config FILE",
    10148: "change it: tradewind consumer edit STREAM CONSUMER",
}


# What the client library says to programs, and what to type instead.
METHODS: Final = {
    "consumers.add": "consumer add",
    "consumers.get": "consumer next",
    "consumers.update": "consumer edit",
    "js.subscribe_push": "consumer sub",
    "streams.add": "stream add",
    "streams.find": "stream ls --subject",
    "streams.update": "stream edit",
}
_METHOD: Final = re.compile(r"\b(?:consumers|streams|js)\.[a-z_]+")


def for_people(text: str) -> str:
    """A text of the client library with commands in place of its methods."""
    return _METHOD.sub(
        lambda found: f"`tradewind {METHODS[found[0]]}`" if found[0] in METHODS else found[0], text
    )


def explain(error: TradewindError) -> tuple[str, tuple[str, ...]]:
    """One line that says what happened, and lines that say what to do."""
    if isinstance(error, CommandError):
        return str(error), error.hints
    text, hints = _of_client(error)
    return for_people(text), tuple(map(for_people, hints))


def _of_client(error: TradewindError) -> tuple[str, tuple[str, ...]]:
    from tradewind.client import errors as client
    from tradewind.client.api_errors import JetStreamApiError

    if isinstance(error, JetStreamApiError):
        hint = _API_HINTS.get(error.err_code, error.hint)
        return f"{error.description} ({error.err_code})", (hint,) if hint else ()
    if isinstance(error, client.NoServersError):
        return str(error), (
            "start one here:   tradewind server run --jetstream",
            "or use another:   tradewind --server nats://HOST:4222 ... (or NATS_URL, --context)",
        )
    if isinstance(error, client.NoLeaderError):
        return str(error), (
            "who leads:         tradewind server report jetstream",
            "wait longer with:  --timeout 30s",
        )
    if isinstance(error, client.BucketExistsError):
        return str(error).partition(": use update")[0], (
            "change it:   tradewind kv edit BUCKET, or tradewind object edit BUCKET",
        )
    if isinstance(error, client.NoTransactionsError):
        return str(error), ()
    if isinstance(error, client.JetStreamUnavailableError):
        return "JetStream is not enabled on this server or for this account", (
            "start it with JetStream:  tradewind server run --jetstream",
            "in another domain:        tradewind --js-domain NAME ...",
        )
    if isinstance(error, client.AuthorizationError):
        return str(error), ("log in with --user and --password, --creds, --nkey or --context",)
    if isinstance(error, client.OperationTimeoutError):
        return str(error), ("wait longer with --timeout 30s",)
    # Errors of a recovery bring their own.
    return str(error), tuple(getattr(error, "hints", ()))
