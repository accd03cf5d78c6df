"""Disaster recovery for programs with an event loop.

Owns running the blocking code of `DisasterRecovery` in a worker thread, over connections of the
loop. It never repeats any of its logic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tradewind.client.blocking import BlockingTwin, BorrowedLoop
from tradewind.recovery.change import ACK_SECONDS, WAIT_SECONDS, Say
from tradewind.recovery.contents import Comparison, Progress
from tradewind.recovery.protection_status import StreamStatus
from tradewind.recovery.recovery import DisasterRecovery
from tradewind.recovery.recovery_journal import RecoveryJournal

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

Result = TypeVar("Result")


class AsyncDisasterRecovery:
    """`DisasterRecovery` for connections of `tradewind.connect`. Create it in the loop.

    `say` and `progress` are called in the loop. A cancelled call continues in its thread until its
    step ends or fails, as the connections do; its journal records where it is.
    """

    def __init__(
        self,
        origin: Connection | None,
        standby: Connection,
        *,
        origin_place: str = "",
        standby_place: str = "",
        say: Say = lambda _text: None,
        wait_seconds: float = WAIT_SECONDS,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        borrowed = BorrowedLoop(self._loop)

        def blocking(connection: Connection | None) -> Any:
            return None if connection is None else BlockingTwin(connection, borrowed)

        self._recovery = DisasterRecovery(
            cast(Any, blocking(origin)),
            cast(Any, blocking(standby)),
            origin_place=origin_place,
            standby_place=standby_place,
            say=self._in_loop(say),
            wait_seconds=wait_seconds,
            ack_seconds=ack_seconds,
        )

    async def status(self, stream: str) -> StreamStatus:
        """Report how well a stream is protected."""
        return await asyncio.to_thread(self._recovery.status, stream)

    async def record(self, stream: str) -> StreamStatus:
        """See `DisasterRecovery.record`."""
        return await asyncio.to_thread(self._recovery.record, stream)

    async def verify(
        self, stream: str, progress: Progress = lambda _seq: None, *, last_seq: int = 0
    ) -> Comparison:
        """See `DisasterRecovery.verify`."""
        return await asyncio.to_thread(
            self._recovery.verify, stream, self._in_loop(progress), last_seq=last_seq
        )

    async def failover(
        self,
        stream: str,
        path: Path,
        *,
        is_lost: bool = False,
        subjects: Collection[str] = (),
    ) -> RecoveryJournal:
        """See `DisasterRecovery.failover`."""
        return await asyncio.to_thread(
            self._recovery.failover, stream, path, is_lost=is_lost, subjects=subjects
        )

    async def failback(self, stream: str, path: Path, *, standby_api: str) -> RecoveryJournal:
        """See `DisasterRecovery.failback`."""
        return await asyncio.to_thread(
            self._recovery.failback, stream, path, standby_api=standby_api
        )

    async def resume(self, path: Path) -> RecoveryJournal:
        """See `DisasterRecovery.resume`."""
        return await asyncio.to_thread(self._recovery.resume, path)

    async def roll_back(self, path: Path) -> RecoveryJournal:
        """See `DisasterRecovery.roll_back`."""
        return await asyncio.to_thread(self._recovery.roll_back, path)

    async def publish_saved(self, path: Path, stream: str = "") -> int:
        """See `DisasterRecovery.publish_saved`."""
        return await asyncio.to_thread(self._recovery.publish_saved, path, stream)

    def _in_loop(self, callback: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda value: cast(None, self._loop.call_soon_threadsafe(callback, value))
