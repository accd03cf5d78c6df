"""File transfers between a browser and the server: their progress, and cancelling them.

Owns the counters and the limits; it never holds data of a file. A finished transfer is remembered
for a while, so that a page can show its result.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Final, Literal, TypeVar

from tradewind.dashboard.data.problems import problem_of
from tradewind.errors import TradewindError

Kind = Literal["upload", "download", "backup", "restore"]
State = Literal["running", "done", "failed", "stopped"]
Result = TypeVar("Result")
# The limits for concurrent transfers of one login, and for remembered ones.
TRANSFERS_MAX: Final = 16
KEPT_MAX: Final = 32
STOPPED: Final = "It was stopped; nothing was kept."
LEFT: Final = "The browser cancelled it; nothing was kept."


class TooManyTransfersError(TradewindError):
    """The limit for concurrent transfers is reached."""


class TransferStoppedError(TradewindError):
    """A visitor has stopped a transfer."""


class BrokenOffError(TradewindError):
    """The browser closed the connection in the middle of an upload."""


class Transfer:
    """One file. `total` is its size in bytes, None if unknown."""

    def __init__(self, kind: Kind, name: str, place: str, total: int | None) -> None:
        self.id = secrets.token_hex(8)
        self.kind = kind
        self.name = name
        self.place = place
        self.total = total
        self.done = 0
        self.state: State = "running"
        self.text = ""
        self.began = time.monotonic()
        self._is_stopped = False
        self._limit: asyncio.Timeout | None = None

    def stop(self) -> None:
        """Stop the transfer where it is."""
        self._is_stopped = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)

    async def carry(self, work: Awaitable[Result]) -> Result:
        """Do the work of the transfer, which ends when it is stopped."""
        result = await self.prepare(work)
        self.state = "done"
        return result

    async def prepare(self, work: Awaitable[Result]) -> Result:
        """Do the work before the first byte."""
        try:
            return await self._stoppable(work)
        except BaseException as error:
            self._failed(error)
            raise

    async def passing(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks, counted while they pass; used inside `carry`."""
        async for chunk in chunks:
            self.done += len(chunk)
            yield chunk

    async def counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks, counted while they pass; ends the transfer at the last one."""
        source = aiter(chunks)
        try:
            while (chunk := await self._stoppable(anext(source, None))) is not None:
                self.done += len(chunk)
                yield chunk
                self._check_stopped()
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()
        self.state = "done"

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise TransferStoppedError(STOPPED)

    async def _stoppable(self, work: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(None) as self._limit:
                return await work
        except TimeoutError:
            if self._is_stopped:
                raise TransferStoppedError(STOPPED) from None
            raise
        finally:
            self._limit = None

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, TransferStoppedError):
            self.state, self.text = "stopped", STOPPED
        elif isinstance(error, TradewindError) and not isinstance(error, BrokenOffError):
            self.state, self.text = "failed", problem_of(error).text
        elif isinstance(error, Exception) and not isinstance(error, BrokenOffError):
            self.state, self.text = "failed", "The dashboard has failed; see its log."
        else:
            self.state, self.text = "stopped", LEFT


class Transfers:
    """The transfers of one login."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Transfer] = OrderedDict()

    def begin(self, kind: Kind, name: str, place: str, total: int | None = None) -> Transfer:
        """Begin a transfer; TooManyTransfersError if there are too many."""
        running = sum(each.state == "running" for each in self._known.values())
        if running >= TRANSFERS_MAX:
            raise TooManyTransfersError(
                f"{TRANSFERS_MAX} transfers are already in progress: wait for one, or stop it"
            )
        made = Transfer(kind, name, place, total)
        self._known[made.id] = made
        for each in list(self._known.values()):
            if len(self._known) > KEPT_MAX and each.state != "running":
                del self._known[each.id]
        return made

    def of(self, place: str) -> list[Transfer]:
        """The transfers of a stream or store, newest first."""
        return [each for each in reversed(self._known.values()) if each.place == place]

    def find(self, number: str) -> Transfer | None:
        """The transfer with a number, or None."""
        return self._known.get(number)
