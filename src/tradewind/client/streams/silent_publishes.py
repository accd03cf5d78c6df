"""Publishes that a cluster neither stores nor refuses, as while it elects a leader.

Owns which of them waited at the last look already: those are sent again, so each is after
RESEND_SECONDS to twice that. Only what has an id may be given here, since a stream stores it once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from tradewind.client.streams.api_requests import RESEND_SECONDS

_Key = TypeVar("_Key", bound=Hashable)


class SilentPublishes(Generic[_Key]):
    """Of one window. A key stands for a publish, and no two publishes have the same."""

    def __init__(self) -> None:
        self._seen: set[_Key] = set()

    def look(
        self, now: float, waiting: Iterable[_Key], send_again: Callable[[_Key], None] | None
    ) -> float | None:
        """Send again what waits as it did at the last look, in the order of `waiting`; None sends
        nothing this time. When to look next, None: never.
        """
        found = list(waiting)
        if send_again is not None:
            for key in found:
                if key in self._seen:
                    send_again(key)
        self._seen = set(found)
        return now + RESEND_SECONDS if found else None
