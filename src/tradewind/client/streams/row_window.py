"""The window of rows that one writer publishes, all of them with message ids.

Owns its bounds, deadlines and retries, and sends again after a reconnect what had no answer: the
stream stores it only once. It is to `publishing.py` what a column is to a list: nobody can ask for
the outcome of a single row, only whether all were stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tradewind.client.core.replies import nuid
from tradewind.client.errors import (
    JetStreamUnavailableError,
    OperationTimeoutError,
    PublishError,
)
from tradewind.client.streams.publishing import (
    ATTEMPTS,
    FAILURES_MAX,
    NO_RESPONDERS,
    RETRY_WAIT,
    WINDOW_BYTES_MAX,
)
from tradewind.client.streams.row_core import RowCore

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.message import Msg


class RowWindow(RowCore):
    """Rows of one writer. At most about `size` wait for their acknowledgement."""

    def __init__(self, connection: Connection, size: int) -> None:
        super().__init__(connection, f"{connection.options.inbox_prefix}.{nuid.next()}.")
        self._connection = connection
        self._size = size
        self._loop = connection._loop
        self._waiter: asyncio.Future[None] | None = None
        self._failures: list[tuple[str, Exception]] = []
        self._failures_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._retries: dict[int, asyncio.TimerHandle] = {}
        self._resending: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def has_room(self) -> bool:
        """Whether rows can be sent without waiting."""
        return (
            self.unacknowledged < self._size
            and self.unacknowledged_bytes < WINDOW_BYTES_MAX
            and not self._connection.is_crowded
        )

    def begin(self, timeout: float) -> float:
        """The deadline of rows that are sent now; what has no answer then fails."""
        if not self._is_open:
            self._connection._check_open()
            self._is_open = True
            self._connection._subscribe(self)
            self._connection._link_watchers.add(self._on_link)
        deadline = self._loop.time() + timeout
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)
        return deadline

    async def wait_for_room(self) -> None:
        """Wait until rows can be sent, or until something has failed."""
        while not self.has_room and not self._failures_count:
            if self._connection.is_crowded:
                await self._connection.wait_for_room()
            else:
                # Not for each row: what follows is a burst.
                await self._wait(min(self.unacknowledged - 1, self._size * 3 // 4))

    async def wait_idle(self) -> None:
        """Wait until the outcome of every row is known."""
        while self.unacknowledged:
            await self._wait(0)

    async def _wait(self, count: int) -> None:
        self._waiter = self._loop.create_future()
        self._wake_when(count)
        await self._waiter

    def take_failures(self) -> PublishError | None:
        """What failed since the last call."""
        failures, count = self._failures, self._failures_count
        self._failures, self._failures_count = [], 0
        if not count:
            return None
        subject, error = failures[0]
        return PublishError(
            f"{count} messages were not stored; the first on {subject!r}: {error}", failures, count
        )

    def fail_all(self, error: Exception, subject: str | None = None) -> None:
        """The connection is closed, or the server refuses a subject."""
        for token in self._tokens():
            if subject is None or self._subject_of(token) == subject:
                self._on_failed(token, error)

    def close(self, error: Exception) -> None:
        """The connection is closed for good."""
        self.fail_all(error)
        self._connection._link_watchers.discard(self._on_link)
        for timer in (self._timer, *self._retries.values()):
            if timer is not None:
                timer.cancel()
        self._retries.clear()
        if self._resending is not None:
            self._resending.cancel()
        self._wake()

    # ------------------------------------------------------------------ what is called back

    def _on_low(self) -> None:
        self._wake()

    def _on_failed(self, token: int, error: Exception) -> None:
        """A row was not stored, or nobody knows."""
        subject = self._subject_of(token)
        self._failures_count += 1
        if len(self._failures) < FAILURES_MAX:
            self._failures.append((subject, error))
        self._drop(token)
        self._wake()

    def _on_refused(self, token: int, message: Msg) -> None:
        """An answer without a body: nobody listens, or the server says why not."""
        subject = self._subject_of(token)
        if message.status != NO_RESPONDERS:
            text = f"publish to {subject!r}: {message.status} {message.description}"
            self._on_failed(token, JetStreamUnavailableError(text))
        elif self._count_refusal(token) < ATTEMPTS:
            self._retries[token] = self._loop.call_later(RETRY_WAIT, self._retry, token)
        else:
            text = f"no stream stores subject {subject!r}: make one with streams.add, or check the"
            self._on_failed(token, JetStreamUnavailableError(f"{text} account"))

    def _on_link(self) -> None:
        """The connection was lost, or is back."""
        if self._resending is not None:
            self._resending.cancel()
            self._resending = None
        if self._connection.is_connected and self.unacknowledged:
            self._resending = self._loop.create_task(
                self._send_all_again(), name="tradewind rows again"
            )

    # ------------------------------------------------------------------ details

    def _tokens(self) -> Iterator[int]:
        """All rows that wait, oldest first."""
        token = 0
        while token := self._waiting_from(token + 1):
            yield token

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _retry(self, token: int) -> None:
        self._retries.pop(token, None)
        if self._connection.is_connected:
            self._try_again(token)

    def _try_again(self, token: int) -> None:
        try:
            self._send_again(token)
        except Exception as error:
            self._on_failed(token, error)

    async def _send_all_again(self) -> None:
        """Send what had no acknowledgement when the connection came back."""
        for token in self._tokens():
            self._try_again(token)
            if self._connection.is_crowded:
                await self._connection.wait_for_room()

    def _expire(self) -> None:
        """Rows whose deadline has passed fail; come back for the next one."""
        now, nearest = self._loop.time(), None
        self._timer = None
        for token in self._tokens():
            deadline = self._deadline_of(token)
            if deadline <= now:
                text = f"publish to {self._subject_of(token)!r}: no acknowledgement in time"
                self._on_failed(token, OperationTimeoutError(text))
            elif nearest is None or deadline < nearest:
                nearest = deadline
        if nearest is not None:
            self._set_timer(nearest)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)
