"""Publishes that a cluster neither stores nor refuses, as while it elects a leader.

Owns which publishes waited at the last look already. They are sent again, so each is sent again
after RESEND_SECONDS to twice that. All of them must have ids, so that a stream stores each once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from tradewind.client.streams.api_requests import RESEND_SECONDS

_Key = TypeVar("_Key", bound=Hashable)


class SilentPublishes(Generic[_Key]):
    """The silent publishes of one window. A key stands for one publish, and is never reused."""

    def __init__(self) -> None:
        self._seen: set[_Key] = set()

    def look(
        self, now: float, waiting: Iterable[_Key], send_again: Callable[[_Key], None] | None
    ) -> float | None:
        """Send again what waited at the last look too, in the order of `waiting`; with
        `send_again=None` nothing is sent this time. Returns when to look next; None: never.
        """
        found = list(waiting)
        if send_again is not None:
            for key in found:
                if key in self._seen:
                    send_again(key)
        self._seen = set(found)
        return now + RESEND_SECONDS if found else None
