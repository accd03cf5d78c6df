"""Policies of pull streams: how much to request, and the next step when a request has ended.

Owns the decisions alone, one policy per way of reading. A policy reads the counts of the inbox and
the clock that it is given; it never sends a request, sets a timer or ends a stream: `pulled.py`
does that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from tradewind.client.streams.pull_inbox import PullInbox


@dataclass(frozen=True, slots=True)
class PullOptions:
    """The settings of each pull request of a consumption. Times are in seconds."""

    expires: float
    idle_heartbeat: float
    max_bytes: int = 0
    no_wait: bool = False
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0


class RequestEnd(Enum):
    """The normal ways in which the server ends a request before all its messages have come."""

    EXPIRED = auto()
    COMPLETED = auto()
    TOO_LARGE = auto()  # the next message exceeds the bytes that are left


class PullStep(Enum):
    """The next step of a stream after the end of a request."""

    PULL = auto()
    WAIT = auto()
    FINISH = auto()
    FAIL = auto()  # the next message can never be delivered


class PullPolicy(Protocol):
    """The decisions of one way of reading. `is_finite`: the stream ends when no more is wanted."""

    options: PullOptions
    is_finite: bool

    def begin(self, inbox: PullInbox) -> None:
        """Set the counts at which the inbox reports that it runs low, or is complete."""

    def expires(self) -> float:
        """How many seconds the next request may last."""
        ...

    def wanted(self, inbox: PullInbox) -> tuple[int, int] | None:
        """The messages and bytes to request now (0: bytes are not limited); None for nothing."""
        ...

    def after(self, end: RequestEnd, inbox: PullInbox) -> PullStep:
        """The step after the end of a request."""
        ...


class FetchPolicy:
    """Requests a number of messages once, to arrive within a time."""

    is_finite = True

    def __init__(self, options: PullOptions, count: int, now: Callable[[], float]) -> None:
        self.options = options
        self._count = count
        self._now = now
        self._deadline = now() + options.expires

    def begin(self, inbox: PullInbox) -> None:
        """See `PullPolicy`."""
        inbox.set_batch()

    def expires(self) -> float:
        """See `PullPolicy`."""
        return max(self._deadline - self._now(), 0.001)

    def wanted(self, inbox: PullInbox) -> tuple[int, int] | None:
        """See `PullPolicy`."""
        left = self._count - inbox.received_messages
        if left <= 0 or self._now() >= self._deadline:
            return None
        return left, self.options.max_bytes

    def after(self, end: RequestEnd, inbox: PullInbox) -> PullStep:
        """See `PullPolicy`."""
        if end is RequestEnd.TOO_LARGE and not inbox.received_messages:
            return PullStep.FAIL
        return PullStep.FINISH


class EndlessPolicy:
    """Base of the policies that continue after each request."""

    is_finite = False

    def __init__(self, options: PullOptions, max_messages: int) -> None:
        self.options = options
        self._messages_max = max_messages
        self._too_large_at = -1

    def expires(self) -> float:
        """See `PullPolicy`."""
        return self.options.expires

    def after(self, end: RequestEnd, inbox: PullInbox) -> PullStep:
        """See `PullPolicy`."""
        if end is not RequestEnd.TOO_LARGE:
            return PullStep.PULL
        if inbox.pending_messages:
            return PullStep.WAIT  # there is room for the message when these are read
        if self._too_large_at == inbox.received_messages:
            return PullStep.FAIL
        self._too_large_at = inbox.received_messages
        return PullStep.PULL


class ConsumePolicy(EndlessPolicy):
    """Requests more when requested and unread messages have fallen to a share of the maximum."""

    def __init__(self, options: PullOptions, max_messages: int, threshold: float) -> None:
        super().__init__(options, max_messages)
        self._threshold = threshold

    def begin(self, inbox: PullInbox) -> None:
        """See `PullPolicy`."""
        messages_low = min(int(self._messages_max * self._threshold), self._messages_max - 1)
        inbox.set_refill(messages_low, int(self.options.max_bytes * self._threshold))

    def wanted(self, inbox: PullInbox) -> tuple[int, int] | None:
        """See `PullPolicy`."""
        if not inbox.wants_more():
            return None
        count = self._messages_max - inbox.wanted_messages - inbox.pending_messages
        size = self.options.max_bytes
        if size:
            size = max(size - inbox.wanted_bytes - inbox.pending_bytes, 1)
        return max(count, 1), size


class WindowPolicy(EndlessPolicy):
    """Keeps at most `max_messages` requested, unread or held; requests ask for `batch` or more.

    `held` messages were read and are not released: they still take room.
    """

    def __init__(self, options: PullOptions, max_messages: int, batch: int) -> None:
        super().__init__(options, max_messages)
        self._batch = batch
        self.held = 0

    def begin(self, inbox: PullInbox) -> None:
        """See `PullPolicy`. Only a release makes room, so the inbox never asks by itself."""
        inbox.set_refill(-1, 0)

    def wanted(self, inbox: PullInbox) -> tuple[int, int] | None:
        """See `PullPolicy`."""
        room = self._messages_max - inbox.wanted_messages - inbox.pending_messages - self.held
        return (room, 0) if room >= self._batch else None
