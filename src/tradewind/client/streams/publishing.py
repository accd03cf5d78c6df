"""The window of publishes that wait for their acknowledgement.

Owns its limits, deadlines, retries, and resending after a reconnect. A message with an id is sent
again, because the stream stores it only once. The outcome of a message without an id is unknown,
and is reported as such.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tradewind.client.core.replies import nuid
from tradewind.client.errors import (
    DisconnectedError,
    JetStreamUnavailableError,
    NoLeaderError,
    OperationTimeoutError,
    PublishError,
)
from tradewind.client.streams.ack_inbox import AckInbox, PendingAck
from tradewind.client.streams.api_requests import RESEND_SECONDS
from tradewind.client.streams.inbox_owners import AckOwner
from tradewind.client.streams.silent_publishes import SilentPublishes
from tradewind.status_codes import NO_RESPONDERS

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg

# A stream that was just made, or whose leader moves, is not there for a moment.
ATTEMPTS = 3
RETRY_WAIT = 0.25
# Payloads of unacknowledged messages are kept in memory, up to this size in all.
WINDOW_BYTES_MAX = 33_554_432
# This many failures are remembered for `PublishError`; the others are counted.
FAILURES_MAX = 100


class PublishWindow(AckOwner):
    """Publishes of one JetStream context. At most `size` wait for their acknowledgement."""

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection = connection
        base = f"{connection.options.inbox_prefix}.{nuid.next()}."
        self._inbox = AckInbox(self, connection._wire, base)
        self.size = size
        self._loop = connection._loop
        self._line: deque[asyncio.Future[None]] = deque()  # who waits for room
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._failures: list[tuple[str, Exception]] = []
        self._failures_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0.0
        self._silent = SilentPublishes[PendingAck]()
        self._retries: dict[PendingAck, asyncio.TimerHandle] = {}
        self._lost: list[PendingAck] = []
        self._resending: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def unacknowledged(self) -> int:
        """How many messages wait for their acknowledgement."""
        return self._inbox.unacknowledged

    @property
    def has_room(self) -> bool:
        """Whether a message can be sent without waiting for others."""
        return not self._line and self._has_free_place and not self._connection.is_crowded

    def send(
        self, subject: str, payload: bytes, block: bytes | None, timeout: float, *, has_id: bool
    ) -> PendingAck:
        """Publish now; there must be room."""
        return self._inbox.send(subject, payload, block, self.begin(timeout), has_id)

    def begin(self, timeout: float) -> float:
        """The deadline of messages that are sent now; what has no answer then fails."""
        if not self._is_open:
            self._open()
        now = self._loop.time()
        deadline = now + timeout
        look = min(deadline, now + RESEND_SECONDS) if self._connection.info.cluster else deadline
        if self._timer is None or look < self._timer_deadline:
            self._set_timer(look)
        return deadline

    def is_ready(self, timeout: float) -> bool:
        """Whether `send` would touch nothing but the outbox, so that any thread may call it."""
        return (
            self._is_open
            and self._timer is not None
            and self._timer_deadline <= self._loop.time() + timeout
            and self.has_room
        )

    async def wait_for_room(self) -> None:
        """Wait until there is room; callers that have waited longer come first."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._line.append(waiter)
        self._watch_if_needed()
        try:
            while True:
                while self._line[0] is not waiter or not self._has_free_place:
                    if waiter.done():  # woken, but another caller was faster
                        fresh: asyncio.Future[None] = self._loop.create_future()
                        self._line[self._line.index(waiter)] = fresh
                        waiter = fresh
                    await waiter
                if not self._connection.is_crowded:
                    break
                # Still in the line: the next callers would find the same room, and fill it twice.
                await self._connection.wait_for_room()
        finally:
            self._line.remove(waiter)
            self._watch_if_needed()
            self._wake_next()

    async def wait_idle(self) -> None:
        """Wait until the outcome of every message is known."""
        while self.unacknowledged:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle_waiters.append(waiter)
            self._watch_if_needed()
            try:
                await waiter
            finally:
                if waiter in self._idle_waiters:
                    self._idle_waiters.remove(waiter)
                self._watch_if_needed()

    def take_failures(self) -> PublishError | None:
        """The failures since the last call that were reported to no caller; None if none."""
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
        for pending in self._inbox.waiting():
            if subject is None or pending.subject == subject:
                self._give_up(pending, error)

    def close(self, error: Exception) -> None:
        """Called when the connection is closed for good."""
        self.fail_all(error)
        self._connection._link_watchers.discard(self._on_link)
        if self._timer is not None:
            self._timer.cancel()
        if self._resending is not None:
            self._resending.cancel()
        for timer in self._retries.values():
            timer.cancel()
        self._retries.clear()
        for waiter in [*self._line, *self._idle_waiters]:
            if not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------------ what is called back

    def _on_acknowledged(self) -> None:
        """Called when the outcome of a message is known, while callers wait for outcomes."""
        self._wake_next()
        if not self.unacknowledged:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _on_failed(self, pending: PendingAck) -> None:
        """Called when a message was refused."""
        error = pending.error
        if pending.is_claimed or error is None:
            return
        self._failures_count += 1
        if len(self._failures) < FAILURES_MAX:
            self._failures.append((pending.subject, error))

    def _on_refused(self, pending: PendingAck, message: Msg) -> None:
        """Called for an answer without a body, whose status says why the message is not stored."""
        if message.status != NO_RESPONDERS:
            text = f"publish to {pending.subject!r}: {message.status} {message.description}"
            self._give_up(pending, JetStreamUnavailableError(text))
            return
        pending.attempts += 1
        # In a cluster a new leader is elected within seconds, and refused means not stored.
        if pending.attempts < ATTEMPTS or self._connection.info.cluster:
            self._retries[pending] = self._loop.call_later(RETRY_WAIT, self._retry, pending)
            return
        self._give_up(
            pending,
            JetStreamUnavailableError(
                f"no stream stores subject {pending.subject!r}: create one with streams.add, or "
                "check the account"
            ),
        )

    def _on_link(self) -> None:
        """The connection was lost, or is back."""
        if self._connection.is_connected:
            if self._lost:
                self._resending = self._loop.create_task(
                    self._send_lost(), name="tradewind publish again"
                )
            return
        if self._resending is not None:
            self._resending.cancel()
            self._resending = None
        self._lost = []
        for pending in self._inbox.waiting():
            if pending.has_id:
                self._lost.append(pending)
            else:
                text = (
                    f"publish to {pending.subject!r}: the connection was lost before the "
                    "acknowledgement arrived; with msg_id it would have been sent again"
                )
                self._give_up(pending, DisconnectedError(text))

    # ------------------------------------------------------------------ details

    @property
    def _has_free_place(self) -> bool:
        inbox = self._inbox
        return inbox.unacknowledged < self.size and inbox.unacknowledged_bytes < WINDOW_BYTES_MAX

    def _open(self) -> None:
        self._connection._check_open()
        self._is_open = True
        self._connection._subscribe(self._inbox)
        self._connection._link_watchers.add(self._on_link)

    def _watch_if_needed(self) -> None:
        self._inbox.watch(bool(self._line or self._idle_waiters))

    def _wake_next(self) -> None:
        """Let as many continue as there is room for."""
        room = self.size - self.unacknowledged
        if self._inbox.unacknowledged_bytes >= WINDOW_BYTES_MAX:
            return
        for waiter in self._line:
            if room <= 0:
                return
            room -= 1
            if not waiter.done():
                waiter.set_result(None)

    def _give_up(self, pending: PendingAck, error: Exception) -> None:
        if self._inbox.fail(pending, error):
            self._on_failed(pending)
            if (timer := self._retries.pop(pending, None)) is not None:
                timer.cancel()
            if self._line or self._idle_waiters:
                self._on_acknowledged()

    def _retry(self, pending: PendingAck) -> None:
        self._retries.pop(pending, None)
        if self._connection.is_connected:
            self._try_again(pending)

    def _try_again(self, pending: PendingAck) -> None:
        try:
            self._inbox.send_again(pending)
        except Exception as error:
            self._give_up(pending, error)

    async def _send_lost(self) -> None:
        """Send again what had no acknowledgement when the connection broke."""
        lost, self._lost = self._lost, []
        for pending in lost:
            self._try_again(pending)
            if self._connection.is_crowded:
                await self._connection.wait_for_room()

    def _send_silent(self, pending: PendingAck) -> None:
        """Nothing was said to it; what was refused has a time of its own."""
        if pending not in self._retries:
            pending.attempts += 1
            self._try_again(pending)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        self._timer = None
        nearest = None
        if self._connection.info.cluster:
            waiting = (p for p in self._inbox.waiting() if p.has_id and p.deadline > now)
            can_send = self._connection.is_connected
            nearest = self._silent.look(now, waiting, self._send_silent if can_send else None)
        for pending in self._inbox.waiting():
            if pending.deadline <= now:
                self._give_up(pending, unanswered(self._connection, pending.subject))
            elif nearest is None or pending.deadline < nearest:
                nearest = pending.deadline
        if nearest is not None:
            self._set_timer(nearest)


def unanswered(connection: Connection, subject: str) -> OperationTimeoutError:
    """The error of a publish that has no acknowledgement at its deadline."""
    text = f"publish to {subject!r}: no acknowledgement in time"
    if not connection.info.cluster:
        return OperationTimeoutError(text)
    return NoLeaderError(f"{text}: no leader at the moment, or no stream stores this subject")
