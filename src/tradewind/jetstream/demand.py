"""Finds the consumers of a stream that want a message: which to wake, and which may still need it.

Owns an index of the filters of consumers, and of the consumers that wait for messages. A message
therefore concerns only the consumers that would take it, however many there are. Consumers with the
same filter form a group; a subject has few groups, because it has few patterns. It reads subjects
only, and never sends. Waking a consumer without need is harmless, but forgetting one would leave it
waiting forever. A consumer that waits for something else (a request, an acknowledgement, time) is
woken by that, and then looks at all messages that have arrived meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tradewind.consumer.deliver_policies import filters_of
from tradewind.errors import StoreError
from tradewind.route.sublist import Sublist

if TYPE_CHECKING:
    from tradewind.broker.turn import Turn
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.consumer.taker import Taker
    from tradewind.store.table.message_store import MessageStore

# So few are woken without a look at the subjects.
FEW_CONSUMERS: Final = 8
# With more new messages than this the index costs more than it saves.
MESSAGES_MAX: Final = 64
EVERYTHING: Final = b">"


class FilterGroup:
    """The consumers that want one subject or pattern; `handle` is its place in the index.

    `start` is where the last search for a consumer that needs a message ended: those before it have
    probably settled the earlier messages, so the next search begins there and wraps around.
    """

    __slots__ = ("_places", "handle", "members", "start", "waiting")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.members: list[Taker] = []
        self._places: dict[Taker, int] = {}
        self.waiting: dict[Taker, None] = {}
        self.start = -1

    def add(self, consumer: Taker) -> None:
        """Add a consumer to the group."""
        self._places[consumer] = len(self.members)
        self.members.append(consumer)

    def remove(self, consumer: Taker) -> None:
        """Remove a consumer from the group; the order of the others does not matter."""
        self.waiting.pop(consumer, None)
        place, last = self._places.pop(consumer), self.members.pop()
        if last is not consumer:
            self.members[place] = last
            self._places[last] = place


class Demand:
    """Index of the consumers of one stream, from `add` to `remove`."""

    def __init__(self, store: MessageStore, seed: int) -> None:
        self._store = store
        self._filters = Sublist(seed)
        self._by_handle: dict[int, FilterGroup] = {}
        self._by_filter: dict[bytes, FilterGroup] = {}
        # The filters of each taker; stays the same object.
        self.takers: dict[Taker, list[bytes]] = {}
        self._waiting: dict[Taker, None] = {}
        self._seen_seq = 0

    def __del__(self) -> None:
        # A stream goes with its consumers, and nothing else frees what `Sublist.add` has made.
        for handle in self._by_handle:
            self._filters.discard(handle)

    def __len__(self) -> int:
        """The number of consumers."""
        return len(self.takers)

    def __contains__(self, consumer: object) -> bool:
        return consumer in self.takers

    @property
    def waiting_count(self) -> int:
        """The number of consumers that wait for a message."""
        return len(self._waiting)

    def add(self, consumer: ServerConsumer) -> None:
        """Add a consumer, or update its filters."""
        self.add_taker(consumer, filters_of(consumer.config))

    def add_taker(self, consumer: Taker, patterns: tuple[bytes, ...]) -> None:
        """Add a taker of messages with these subjects, or of all messages without any, or update
        it.
        """
        self.remove(consumer)
        filters = list(set(patterns)) or [EVERYTHING]
        self.takers[consumer] = filters
        for pattern in filters:
            group = self._by_filter.get(pattern)
            if group is None:
                handle = self._filters.add(pattern)
                group = self._by_filter[pattern] = self._by_handle[handle] = FilterGroup(handle)
            group.add(consumer)

    def remove(self, consumer: Taker) -> None:
        """Remove a consumer."""
        self._waiting.pop(consumer, None)
        consumer.is_waiting = False
        for pattern in self.takers.pop(consumer, ()):
            group = self._by_filter[pattern]
            group.remove(consumer)
            if not group.members:
                del self._by_filter[pattern], self._by_handle[group.handle]
                self._filters.discard(group.handle)

    def update_waiting(self, consumer: Taker) -> None:
        """Update whether a consumer waits for more messages, after it has sent what it could."""
        waits = consumer.has_demand
        if waits == (consumer in self._waiting) or consumer not in self.takers:
            return
        consumer.is_waiting = waits
        groups = [self._by_filter[pattern] for pattern in self.takers[consumer]]
        for waiting in (self._waiting, *(group.waiting for group in groups)):
            if waits:
                waiting[consumer] = None
            else:
                del waiting[consumer]

    def wake(self, turn: Turn, visible_seq: int) -> None:
        """Wake the consumers that may want the messages that have become visible, up to
        `visible_seq`.
        """
        first_seq, self._seen_seq = self._seen_seq + 1, max(self._seen_seq, visible_seq)
        if not self._waiting or first_seq > visible_seq:
            return
        subjects: set[bytes] | None = None
        if len(self._waiting) > FEW_CONSUMERS and visible_seq - first_seq < MESSAGES_MAX:
            with suppress(StoreError):
                subjects = self._store.subjects_between(first_seq, visible_seq)
        if subjects is None:
            for consumer in self._waiting:
                turn.wake(consumer)
            return
        for subject in subjects:
            for group in self.groups(subject):
                for consumer in group.waiting:
                    turn.wake(consumer)

    @property
    def needed_from(self) -> int:
        """The sequence from which on some consumer wants all messages; 0 if none wants all."""
        group = self._by_filter.get(EVERYTHING)
        return min(each.limit_seq for each in group.members) if group is not None else 0

    def groups(self, subject: bytes) -> list[FilterGroup]:
        """The groups of the consumers that want messages of this subject."""
        return [self._by_handle[handle] for handle in self._filters.find(subject)[0]]

    def has_takers(self, subject: bytes) -> bool:
        """Whether some consumer wants messages of this subject."""
        return self._filters.has_interest(subject)
