"""The hash chain of a stream, and a verification of its end that is bounded in cost.

Owns the bounds on entries, on seconds, and on verifications at a time. The result of a verification
is determined in `tradewind.chain`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.api.chain import ChainInfo
from tradewind.api.own_errors import STREAM_NO_CHAIN
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import NotTradewindError
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.chain.report import ChainReport
    from tradewind.client.jetstream import JetStream

ENTRIES_DEFAULT: Final = 1000
ENTRIES_MAX: Final = 10_000
VERIFY_SECONDS: Final = 10.0
AT_ONCE_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class ChainLook:
    """The state of a chain: `absence` says why there is none, `problem` why its state is
    unknown.
    """

    info: ChainInfo | None = None
    absence: str = ""
    problem: Problem | None = None


class TooLongError(TradewindError):
    """A verification did not finish in the time that a page may take."""


class Integrity:
    """Reads and verifies chains for the visitors of one login."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE_MAX)

    async def look(self, js: JetStream, stream: str) -> ChainLook:
        """The head of a chain, or the reason why there is none."""
        try:
            return ChainLook(await js.chains.info(stream))
        except NotTradewindError:
            return ChainLook(
                absence="This server has no hash chains: it is not a tradewind-server."
            )
        except JetStreamApiError as error:
            if error.err_code != STREAM_NO_CHAIN.err_code:
                return ChainLook(problem=problem_of(error))
            return ChainLook(
                absence="This stream has no hash chain. A stream gets one when it is created with "
                "the metadata tradewind.chain."
            )
        except TradewindError as error:
            return ChainLook(problem=problem_of(error))

    async def verify(self, js: JetStream, stream: str, entries: int) -> ChainReport:
        """Verify the last entries, as many as the limits allow; TooLongError if it takes too
        long.
        """
        try:
            async with asyncio.timeout(VERIFY_SECONDS), self._room:
                return await js.chains.verify(stream, last=min(entries, ENTRIES_MAX))
        except TimeoutError:
            raise TooLongError(
                f"This took more than {VERIFY_SECONDS:g} seconds. Verify fewer entries, or use "
                "tradewind stream verify."
            ) from None
