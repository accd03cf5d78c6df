"""Order per key: one message of a key at a time, in the order of the stream.

Owns how a key is found, and the messages of each key that wait. It knows no handler and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

from tradewind.client.core.message import Msg
from tradewind.client.errors import OptionsError

OrderBy = str | int | Callable[[Msg], Hashable]
TOKENS_MAX: Final = 256
Waiter = TypeVar("Waiter")


def key_function(order_by: object) -> Callable[[Msg], Any]:
    """The function that gives the key of a message; see `RunSettings.order_by`."""
    if order_by == "subject":
        return lambda message: message.subject
    if isinstance(order_by, bool):
        pass
    elif isinstance(order_by, int) and 1 <= abs(order_by) <= TOKENS_MAX:
        index = order_by - 1 if order_by > 0 else order_by
        return lambda message: _token(message.subject, index)
    elif isinstance(order_by, str) and order_by and ":" not in order_by and order_by.isprintable():
        name = order_by
        return lambda message: message.headers.get(name, "")
    elif callable(order_by):
        return order_by
    raise OptionsError(
        'order_by: "subject", the number of a token of the subject (1 is the first, -1 the last), '
        f"the name of a header, or a function of the message, not {order_by!r}"
    )


def _token(subject: str, index: int) -> str:
    tokens = subject.split(".")
    return tokens[index] if -len(tokens) <= index < len(tokens) else ""


class KeyOrder(Generic[Waiter]):
    """Decides which messages may start. A key is in `_waiting` while one of its messages has its
    turn, with the other messages of the key that have arrived.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[tuple[int, int, Waiter]]] = {}
        self._arrivals = 0

    def enter(self, key: Hashable, sequence: int, waiter: Waiter) -> bool:
        """Whether a message may start now; if not, a later `leave` returns it."""
        queue = self._waiting.get(key)
        if queue is None:
            self._waiting[key] = []
            return True
        self._arrivals += 1  # so that waiters themselves are never compared
        heappush(queue, (sequence, self._arrivals, waiter))
        return False

    def leave(self, key: Hashable) -> Waiter | None:
        """Called when the message that had its turn is settled; returns the next that may start."""
        queue = self._waiting[key]
        if queue:
            return heappop(queue)[2]
        del self._waiting[key]
        return None
