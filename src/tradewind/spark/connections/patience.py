"""Retries while a server is unreachable: what is retried, and for how long.

Owns the list of transient errors. Only work that is safe to repeat is ever retried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import (
    BucketNotFoundError,
    ClientError,
    DisconnectedError,
    JetStreamUnavailableError,
    NoRespondersError,
    OperationTimeoutError,
)
from tradewind.status_codes import FAILED

RETRY_SECONDS: Final = 0.2
_Result = TypeVar("_Result")
# Nothing is known of these but that an answer did not come. A bucket whose stream is being opened
# looks as if it were not there.
PASSING: Final = (
    BucketNotFoundError,
    DisconnectedError,
    OperationTimeoutError,
    NoRespondersError,
    JetStreamUnavailableError,
)


def passes(error: ClientError) -> bool:
    """Whether the same may work in a moment; 503 and its like: JetStream is starting."""
    if isinstance(error, JetStreamApiError):
        return error.code >= FAILED
    return isinstance(error, PASSING)


class Patience:
    """How long something is tried; what has worked gives new patience."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin to count again."""
        self._deadline = time.monotonic() + self._seconds

    async def wait_after(self, error: ClientError) -> None:
        """Wait a little, or raise the error if it does not pass or has not passed in time."""
        if not passes(error) or time.monotonic() >= self._deadline:
            raise error
        await asyncio.sleep(RETRY_SECONDS)


async def patiently(work: Callable[[], Awaitable[_Result]], seconds: float) -> _Result:
    """Do what can be done twice, again and again while the server is away."""
    patience = Patience(seconds)
    while True:
        try:
            return await work()
        except ClientError as error:
            await patience.wait_after(error)
