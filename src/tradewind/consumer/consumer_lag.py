"""How far a consumer is behind its stream, in time.

Owns the two messages that decide it, the oldest unacknowledged and the next undelivered one, and
remembers when they were stored. It reads a message only when it is another one than at the last
look, so that looking at a consumer that stands still costs nothing. It never changes what the
consumer delivers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.consumer.cursor import message_time_ns
from tradewind.errors import StoreError

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.store.table.message_store import MessageStore


class ConsumerLag:
    """The lag of one consumer; ages in nanoseconds, 0 if no message waits.

    `unacknowledged_ns` is the age of the oldest message that was delivered and not acknowledged,
    `undelivered_ns` that of the next message to deliver. A message whose record cannot be read has
    no age.
    """

    __slots__ = ("_next", "_oldest", "unacknowledged_ns", "undelivered_ns")

    def __init__(self) -> None:
        self.unacknowledged_ns = 0
        self.undelivered_ns = 0
        self._oldest = (0, 0)
        self._next = (0, 0)

    @property
    def lag_ns(self) -> int:
        """The age of the oldest message that the consumer is not done with."""
        return max(self.unacknowledged_ns, self.undelivered_ns)

    def look(self, consumer: ServerConsumer, now_ns: int) -> None:
        """Update the ages; `now_ns` is on the wall clock, as the times of messages are."""
        store = consumer.context.store
        oldest_seq = consumer.acks.oldest_seq
        next_seq = consumer.acks.parked_seq
        if not next_seq and consumer.cursor.pending():
            next_seq = consumer.cursor.waiting_seq()
        self._oldest = _stored(store, oldest_seq, self._oldest)
        self._next = _stored(store, next_seq, self._next)
        self.unacknowledged_ns = _age_ns(self._oldest[1], now_ns)
        self.undelivered_ns = _age_ns(self._next[1], now_ns)


def _stored(store: MessageStore, seq: int, known: tuple[int, int]) -> tuple[int, int]:
    """A sequence and the time of its message, 0 if it has none; `known` is the last such pair."""
    if seq == known[0]:
        return known
    try:
        return (seq, message_time_ns(store, seq) if seq else 0)
    except StoreError:
        return (seq, 0)


def _age_ns(time_ns: int, now_ns: int) -> int:
    return max(now_ns - time_ns, 0) if time_ns else 0
