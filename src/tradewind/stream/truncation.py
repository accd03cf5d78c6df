"""Selects the messages that a truncation removes, in steps.

Owns the walk through the store: where it begins and ends, and how many messages one step may look
at. Messages stored after the beginning stay. Removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tradewind.api.times import format_time
from tradewind.api.truncation_types import Criteria, RemovedMessages
from tradewind.store.contract import NotFoundError
from tradewind.store.table.bounded_walk import look_for

if TYPE_CHECKING:
    from tradewind.store.contract import MessageCopy
    from tradewind.store.table.message_store import MessageStore

# The messages that one step may examine: the loop serves all others after it.
LOOKED_AT_PER_STEP: Final = 1000
BYTES_PER_STEP: Final = 1024 * 1024
# ... and may spend on looking for them.
SEARCH_NS_PER_STEP: Final = 2_000_000


class Tally:
    """The count and size of messages, with the first and the last one."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._first: MessageCopy | None = None
        self._last: MessageCopy | None = None

    def add(self, message: MessageCopy, size: int) -> None:
        """Add a message; they are added in order."""
        self.messages += 1
        self.bytes += size
        self._first = self._first or message
        self._last = message

    def members(self) -> RemovedMessages:
        """The members of an answer."""
        if self._first is None or self._last is None:
            return RemovedMessages()
        return RemovedMessages(
            messages=self.messages,
            bytes=self.bytes,
            first_seq=self._first.seq,
            first_time=format_time(self._first.timestamp_ns),
            last_seq=self._last.seq,
            last_time=format_time(self._last.timestamp_ns),
        )


class Selection:
    """The messages of a store that a request selects, as of now."""

    def __init__(self, store: MessageStore, criteria: Criteria) -> None:
        self._store = store
        self._criteria = criteria
        self._chosen = store.filter(criteria.patterns)
        self._last_seq = store.last_seq
        self._first_seq = 0
        if criteria.after_ns is not None:
            self._first_seq = store.sequence_at(criteria.after_ns + 1)
        if criteria.before_ns is not None:
            self._last_seq = min(self._last_seq, store.sequence_at(criteria.before_ns) - 1)
        self._passed_over = 0

    def steps(self) -> Iterator[list[MessageCopy]]:
        """The messages, in order; each step yields some of them, which may be none."""
        criteria = self._criteria
        if criteria.newest:
            if criteria.patterns or criteria.header_name:
                yield from self._count()
            else:
                self._first_seq = self._begin_of_newest(criteria.newest)
        passed_over = self._passed_over
        for found in self._walk():
            yield found[passed_over:] if passed_over else found
            passed_over = max(passed_over - len(found), 0)

    def _walk(self) -> Iterator[list[MessageCopy]]:
        store, seq = self._store, self._first_seq
        while seq <= self._last_seq:
            found: list[MessageCopy] = []
            looked_at = size = 0
            left_ns = SEARCH_NS_PER_STEP
            while looked_at < LOOKED_AT_PER_STEP and size < BYTES_PER_STEP:
                next_seq, passed, left_ns = look_for(store, self._chosen, seq, left_ns)
                if not next_seq:
                    # The others go first, if the search has to go on.
                    seq = max(seq, passed + 1)
                    break
                seq = next_seq + 1
                if next_seq > self._last_seq:
                    break
                try:
                    message = store.get(next_seq)
                except NotFoundError:
                    continue
                looked_at += 1
                size += len(message.header) + len(message.payload)
                if self._criteria.takes(message.timestamp_ns, message.header):
                    found.append(message)
            yield found

    def _count(self) -> Iterator[list[MessageCopy]]:
        """Count the matching messages, to skip those that are not among the newest."""
        total = 0
        for found in self._walk():
            total += len(found)
            yield []
        self._passed_over = max(total - self._criteria.newest, 0)

    def _begin_of_newest(self, count: int) -> int:
        """The sequence from which on there are this many matching messages."""
        store, behind = self._store, self._store.count_matching(self._chosen, self._last_seq + 1)
        low, high = self._first_seq, self._last_seq + 1
        while low < high:
            middle = (low + high + 1) // 2
            if store.count_matching(self._chosen, middle) - behind >= count:
                low = middle
            else:
                high = middle - 1
        return low
