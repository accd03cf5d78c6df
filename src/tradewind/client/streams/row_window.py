"""The window of rows that one writer publishes, all with message ids.

Owns its limits, deadlines and retries, and sends unacknowledged rows again after a reconnect: the
stream stores them only once. Unlike `publishing.py`, it never reports the outcome of a single row,
only whether all were stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tradewind.client.core.replies import nuid
from tradewind.client.errors import (
    JetStreamUnavailableError,
    PublishError,
)
from tradewind.client.streams.api_requests import RESEND_SECONDS
from tradewind.client.streams.inbox_owners import RowOwner
from tradewind.client.streams.publishing import (
    ATTEMPTS,
    FAILURES_MAX,
    RETRY_WAIT,
    WINDOW_BYTES_MAX,
    unanswered,
)
from tradewind.client.streams.row_inbox import RowInbox
from tradewind.client.streams.silent_publishes import SilentPublishes
from tradewind.status_codes import NO_RESPONDERS

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg


class RowWindow(RowOwner):
    """Rows of one writer. At most about `size` wait for their acknowledgement.

    They are sent into its `inbox`, by compiled code.
    """

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection = connection
        base = f"{connection.options.inbox_prefix}.{nuid.next()}."
        self.inbox = RowInbox(self, connection._wire, base)
        self._size = size
        self._loop = connection._loop
        self._waiter: asyncio.Future[None] | None = None
        self._failures: list[tuple[str, Exception]] = []
        self._failures_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._silent = SilentPublishes[int]()
        self._retries: dict[int, asyncio.TimerHandle] = {}
        self._resending: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def unacknowledged(self) -> int:
        """How many rows wait for their acknowledgement."""
        return self.inbox.unacknowledged

    @property
    def has_room(self) -> bool:
        """Whether rows can be sent without waiting."""
        return (
            self.inbox.unacknowledged < self._size
            and self.inbox.unacknowledged_bytes < WINDOW_BYTES_MAX
            and not self._connection.is_crowded
        )

    def begin(self, timeout: float) -> float:
        """The deadline of rows that are sent now; what has no answer then fails."""
        if not self._is_open:
            self._connection._check_open()
            self._is_open = True
            self._connection._subscribe(self.inbox)
            self._connection._link_watchers.add(self._on_link)
        now = self._loop.time()
        deadline = now + timeout
        look = min(deadline, now + RESEND_SECONDS) if self._connection.info.cluster else deadline
        if self._timer is None or look < self._timer.when():
            self._set_timer(look)
        return deadline

    async def wait_for_room(self) -> None:
        """Wait until rows can be sent, or until something has failed."""
        while not self.has_room and not self._failures_count:
            if self._connection.is_crowded:
                await self._connection.wait_for_room()
            else:
                # Not for each row: what follows is a burst.
                await self._wait(min(self.inbox.unacknowledged - 1, self._size * 3 // 4))

    async def wait_idle(self) -> None:
        """Wait until the outcome of every row is known."""
        while self.inbox.unacknowledged:
            await self._wait(0)

    async def _wait(self, count: int) -> None:
        self._waiter = self._loop.create_future()
        self.inbox.wake_when(count)
        await self._waiter

    def take_failures(self) -> PublishError | None:
        """The failures since the last call; None if there are none."""
        failures, count = self._failures, self._failures_count
        self._failures, self._failures_count = [], 0
        if not count:
            return None
        subject, error = failures[0]
        return PublishError(
            f"{count} messages were not stored; the first on {subject!r}: {error}", failures, count
        )

    def fail_all(self, error: Exception, subject: str | None = None) -> None:
        """Called when the connection is closed, or the server refuses a subject."""
        for token in self._tokens():
            if subject is None or self.inbox.subject_of(token) == subject:
                self._on_failed(token, error)

    def close(self, error: Exception) -> None:
        """Called when the connection is closed for good."""
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
        """Called when a row was not stored, or it is unknown whether it was."""
        subject = self.inbox.subject_of(token)
        self._failures_count += 1
        if len(self._failures) < FAILURES_MAX:
            self._failures.append((subject, error))
        self.inbox.drop(token)
        self._wake()

    def _on_refused(self, token: int, message: Msg) -> None:
        """Called for an answer without a body, whose status says why the row is not stored."""
        subject = self.inbox.subject_of(token)
        if message.status != NO_RESPONDERS:
            text = f"publish to {subject!r}: {message.status} {message.description}"
            self._on_failed(token, JetStreamUnavailableError(text))
        elif self.inbox.count_refusal(token) < ATTEMPTS or self._connection.info.cluster:
            self._retries[token] = self._loop.call_later(RETRY_WAIT, self._retry, token)
        else:
            text = f"no stream stores subject {subject!r}: create one with streams.add, or check"
            self._on_failed(token, JetStreamUnavailableError(f"{text} the account"))

    def _on_link(self) -> None:
        """Called when the connection was lost, or is back."""
        if self._resending is not None:
            self._resending.cancel()
            self._resending = None
        if self._connection.is_connected and self.inbox.unacknowledged:
            self._resending = self._loop.create_task(
                self._send_all_again(), name="tradewind rows again"
            )

    # ------------------------------------------------------------------ details

    def _tokens(self) -> Iterator[int]:
        """All rows that wait, oldest first."""
        token = 0
        while token := self.inbox.waiting_from(token + 1):
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
            self.inbox.send_again(token)
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
        if self._connection.info.cluster:
            waiting = (each for each in self._tokens() if self.inbox.deadline_of(each) > now)
            is_resending = self._resending is not None and not self._resending.done()
            can_send = self._connection.is_connected and not is_resending
            nearest = self._silent.look(now, waiting, self._send_silent if can_send else None)
        for token in self._tokens():
            deadline = self.inbox.deadline_of(token)
            if deadline <= now:
                error = unanswered(self._connection, self.inbox.subject_of(token))
                self._on_failed(token, error)
            elif nearest is None or deadline < nearest:
                nearest = deadline
        if nearest is not None:
            self._set_timer(nearest)

    def _send_silent(self, token: int) -> None:
        """Nothing was said to it; what was refused has a time of its own."""
        if token not in self._retries:
            self._try_again(token)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)
