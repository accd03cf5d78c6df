"""Explain to the visitor why something cannot be shown.

Owns the translation of errors. A missing permission is presented as a property of the login, never
as a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from tradewind.client import errors as client
from tradewind.client.api_errors import JetStreamApiError
from tradewind.errors import TradewindError
from tradewind.status_codes import NOT_FOUND

Kind = Literal["denied", "away", "missing", "refused", "failed"]
# JetStream is not enabled, or not for the account.
NO_JETSTREAM: Final = frozenset((10076, 10039))
# In a cluster, JetStream has no leader.
NO_LEADER: Final = 10008
_NO_LEADER: Final = (
    "There is no leader at the moment: an election is in progress, or too few servers are running."
)
_SUBJECT: Final = re.compile(r'"([^"]+)"')
_MISSING: Final = (
    client.BucketNotFoundError,
    client.ObjectNotFoundError,
    client.ScheduleNotFoundError,
)
_REFUSED: Final = (
    client.WrongRevisionError,
    client.KeyExistsError,
    client.ObjectExistsError,
    client.BucketExistsError,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence about something missing, and the kind of the problem."""

    kind: Kind
    text: str


class MissingError(TradewindError):
    """The subject of a page does not exist; the text is a sentence."""


class NotAllowedError(TradewindError):
    """The dashboard itself refuses an action of this visitor; the text is a sentence."""


def problem_of(error: BaseException) -> Problem:
    """The problem behind an error; other errors are bugs and must not be hidden."""
    if isinstance(error, NotAllowedError):
        return Problem("denied", str(error))
    if isinstance(error, MissingError):
        return Problem("missing", str(error))
    if isinstance(error, client.PermissionsError):
        found = _SUBJECT.search(error.wire_text)
        about = f" ({found[1]})" if found else ""
        return Problem("denied", f"This login may not see or do this{about}.")
    if isinstance(error, JetStreamApiError) and error.err_code in NO_JETSTREAM:
        return Problem("missing", "JetStream is not enabled on this server or for this account.")
    if isinstance(error, client.NoLeaderError) or (
        isinstance(error, JetStreamApiError) and error.err_code == NO_LEADER
    ):
        return Problem("away", _NO_LEADER)
    if isinstance(error, JetStreamApiError):
        kind: Kind = "missing" if error.code == NOT_FOUND else "refused"
        return Problem(kind, f"The server says: {error.description}.")
    if isinstance(error, client.NoTransactionsError):
        return Problem("missing", f"{error}.")
    if isinstance(error, client.JetStreamUnavailableError):
        return Problem("missing", "JetStream is not enabled on this server or for this account.")
    if isinstance(error, client.NoRespondersError):
        return Problem("missing", f"No response on {error.subject}.")
    if isinstance(error, client.AuthorizationError):
        return Problem("denied", f"The server rejected the login: {error}.")
    if isinstance(
        error,
        client.DisconnectedError | client.ConnectionClosedError | client.NoServersError,
    ):
        return Problem("away", "The server is unreachable; reconnecting.")
    if isinstance(
        error,
        client.BucketNotFoundError | client.ObjectNotFoundError | client.ScheduleNotFoundError,
    ):
        return Problem("missing", str(error))
    if isinstance(error, _REFUSED):
        return Problem("refused", str(error))
    if isinstance(error, TimeoutError):
        return Problem("away", "The server did not respond in time.")
    if isinstance(error, TradewindError):
        return Problem("failed", str(error))
    raise error
