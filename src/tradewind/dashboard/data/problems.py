"""Why something cannot be shown, in words for the one who looks.

Owns the translation of errors. What a login may not do is a fact about the login, not a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from tradewind.client import errors as client
from tradewind.client.api_errors import JetStreamApiError
from tradewind.errors import TradewindError

Kind = Literal["denied", "away", "missing", "refused", "failed"]
NOT_FOUND: Final = 404
_SUBJECT: Final = re.compile(r'"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence about what is not there, and of which kind it is."""

    kind: Kind
    text: str


def problem_of(error: BaseException) -> Problem:
    """The problem in an error of the client; other errors are ours and must not be hidden."""
    if isinstance(error, client.PermissionsError):
        found = _SUBJECT.search(error.wire_text)
        about = f" ({found[1]})" if found else ""
        return Problem("denied", f"This login may not see or do this{about}.")
    if isinstance(error, JetStreamApiError):
        kind: Kind = "missing" if error.code == NOT_FOUND else "refused"
        return Problem(kind, f"The server says: {error.description}.")
    if isinstance(error, client.JetStreamUnavailableError):
        return Problem("missing", "JetStream is not enabled on this server or for this account.")
    if isinstance(error, client.NoRespondersError):
        return Problem("missing", f"Nobody answers on {error.subject}.")
    if isinstance(error, client.AuthorizationError):
        return Problem("denied", f"The server refuses the login: {error}.")
    if isinstance(
        error,
        client.DisconnectedError | client.ConnectionClosedError | client.NoServersError,
    ):
        return Problem("away", "The server is away; the dashboard tries to reach it again.")
    if isinstance(error, TimeoutError):
        return Problem("away", "The server has not answered in time.")
    if isinstance(error, TradewindError):
        return Problem("failed", str(error))
    raise error
