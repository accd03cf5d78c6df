"""Decides whether a micro-batch waits for more messages.

Owns `minMsgsPerTrigger` and `maxTriggerDelay`: a batch is held back until there are enough
messages, or until the first of them has waited long enough. Messages that existed when a run began
are never held back, because it is unknown how long they have been waiting; a query that is
restarted repeatedly therefore makes progress too. The module reads no clock but the given one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tradewind.clock import Clock


class BatchHold:
    """The wait of one query; sequences count as messages."""

    def __init__(self, msgs_min: int, delay_ns: int, clock: Clock) -> None:
        self._msgs_min = msgs_min
        self._delay_ns = delay_ns
        self._clock = clock
        self._is_begun = False
        self._since_ns: int | None = None  # when messages were first seen that wait

    def holds(self, waiting_count: int) -> bool:
        """Whether a batch of this many messages is to wait; called at each look."""
        was_begun, self._is_begun = self._is_begun, True
        if was_begun and 0 < waiting_count < self._msgs_min:
            now_ns = self._clock.monotonic_ns()
            if self._since_ns is None:
                self._since_ns = now_ns
            if now_ns - self._since_ns < self._delay_ns:
                return True
        self._since_ns = None
        return False
