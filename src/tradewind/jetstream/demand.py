"""Which consumers of a stream to wake when messages have come.

Owns who waits for messages, and an index of what the consumers want, so that a message wakes those
that would take it and no others, however many there are. It reads subjects and nothing else, and
never sends: a consumer that was woken for nothing finds nothing, one that is forgotten would wait
for ever. So whoever waits for something else than messages (a request, an acknowledgement, time) is
woken by that, and looks at everything that has come meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tradewind.consumer.starts import filters_of
from tradewind.errors import StoreError

if TYPE_CHECKING:
    from tradewind.broker.turn import Turn
    from tradewind.consumer.consumer import Consumer
    from tradewind.store.messages import MessageStore

# So few are woken without a look at the subjects.
FEW_CONSUMERS: Final = 8
# With more new messages than this the index costs more than it saves.
MESSAGES_MAX: Final = 64
SUBJECTS_KEPT_MAX: Final = 8192


class Demand:
    """The consumers of one stream, from `add` to `remove`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._waiting: dict[Consumer, None] = {}
        self._literals: dict[Consumer, tuple[bytes, ...]] = {}
        self._by_literal: dict[bytes, dict[Consumer, None]] = {}
        self._patterned: dict[Consumer, None] = {}  # those with a wildcard in a filter
        self._unfiltered: dict[Consumer, None] = {}
        self._known: dict[bytes, list[Consumer]] = {}  # subject -> those of `_patterned`
        self._seen_seq = 0

    @property
    def waiting_count(self) -> int:
        """Consumers that would take a message."""
        return len(self._waiting)

    def add(self, consumer: Consumer) -> None:
        """It has come, or wants something else than before."""
        self.remove(consumer)
        filters = tuple(set(filters_of(consumer.config)))
        if not filters:
            self._unfiltered[consumer] = None
        elif any(_is_pattern(subject) for subject in filters):
            self._patterned[consumer] = None
            self._known.clear()
        else:
            self._literals[consumer] = filters
            for subject in filters:
                self._by_literal.setdefault(subject, {})[consumer] = None

    def remove(self, consumer: Consumer) -> None:
        """It is gone."""
        self._waiting.pop(consumer, None)
        self._unfiltered.pop(consumer, None)
        if consumer in self._patterned:
            del self._patterned[consumer]
            self._known.clear()
        for subject in self._literals.pop(consumer, ()):
            takers = self._by_literal[subject]
            takers.pop(consumer, None)
            if not takers:
                del self._by_literal[subject]

    def filled(self, consumer: Consumer) -> None:
        """It has sent what it could; does it wait for more?"""
        if consumer.has_demand:
            self._waiting[consumer] = None
        else:
            self._waiting.pop(consumer, None)

    def wake(self, turn: Turn, visible_seq: int) -> None:
        """All messages up to `visible_seq` may be sent: wake those who may want the new ones."""
        first_seq, self._seen_seq = self._seen_seq + 1, max(self._seen_seq, visible_seq)
        if not self._waiting or first_seq > visible_seq:
            return
        subjects: set[bytes] | None = None
        if len(self._waiting) > FEW_CONSUMERS and visible_seq - first_seq < MESSAGES_MAX:
            with suppress(StoreError):
                subjects = self._store.subjects_between(first_seq, visible_seq)
        if subjects is None:
            for consumer in self._waiting:
                turn.add_woken(consumer)
            return
        for consumer in self._unfiltered:
            self._wake_waiting(turn, consumer)
        for subject in subjects:
            for consumer in self._by_literal.get(subject, ()):
                self._wake_waiting(turn, consumer)
            for consumer in self._takers(subject):
                self._wake_waiting(turn, consumer)

    def _wake_waiting(self, turn: Turn, consumer: Consumer) -> None:
        if consumer in self._waiting:
            turn.add_woken(consumer)

    def _takers(self, subject: bytes) -> list[Consumer]:
        known = self._known.get(subject)
        if known is None:
            known = [each for each in self._patterned if each.cursor.accepts(subject)]
            if len(self._known) >= SUBJECTS_KEPT_MAX:
                self._known.clear()
            self._known[subject] = known
        return known


def _is_pattern(subject: bytes) -> bool:
    return b"*" in subject or b">" in subject
