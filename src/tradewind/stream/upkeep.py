"""Removes messages of a stream in short steps.

Owns the order of these steps: the rest of a failed batch, messages that were rolled up, messages
above lowered limits, and expired messages. A stream may have a million messages to remove at once,
and all other streams are served by the same event loop. It never decides which messages to remove,
which is up to the store.

A message that rolls up others is hidden until those are removed, and so are all later messages: its
acknowledgement says that it replaced them, so no reader may see both. A few messages are removed
immediately; many wait here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tradewind.chain.chain_entries import EXPIRED
from tradewind.durations import later
from tradewind.errors import StoreError
from tradewind.store.table.stamps_ahead import correct_timers

if TYPE_CHECKING:
    from tradewind.broker.turn import Turn
    from tradewind.store.contract import MessageCopy
    from tradewind.store.table.message_store import MessageStore
    from tradewind.store.table.subject_index import SubjectFilter
    from tradewind.stream.commit_path import CommitPath

REMOVED_PER_STEP: Final = 10_000
# A removal that notifies this many consumers costs twice as much as one that notifies none.
CONSUMERS_PER_COST: Final = 8
REMOVED_PER_STEP_MIN: Final = 100
# A marker costs as much as this many removals. One that is not stored is tried again later.
MARK_COST: Final = 10
MARK_AGAIN_NS: Final = 2_000_000_000
# The same for messages that a keeper is asked about. A retained one is looked at again later.
KEPT_COST: Final = 20
KEPT_AGAIN_NS: Final = 60_000_000_000


class ConsumerInterest(Protocol):
    """The consumers of the stream; provided by the engine."""

    @property
    def consumer_count(self) -> int:
        """How many consumers are notified of each removal."""

    def has_interest(self, subject: bytes) -> bool:
        """Whether some consumer wants messages of this subject."""

    def before_purge(self) -> None:
        """Called before messages are purged."""

    def after_purge(self, pattern: bytes, first_left: int) -> None:
        """Called when messages that match a pattern (empty: all) were purged up to `first_left`."""


class ExpiryKeeper(Protocol):
    """An object that may retain expired messages; provided by the engine where one is needed."""

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more messages for now."""

    def takes(self, seq: int) -> bool:
        """Whether it retains an expired message, which it then removes by itself."""


class RollUp(msgspec.Struct):
    """Message `seq` replaces all earlier ones, of one subject or (empty) of the stream."""

    subject: bytes
    seq: int
    steps: Iterator[int] | None = None


class Upkeep:
    """The removals of one stream that take longer than a moment."""

    def __init__(
        self,
        store: MessageStore,
        commits: CommitPath,
        turn: Turn,
        mark_expired: Callable[[MessageCopy], bool],
    ) -> None:
        self._store = store
        self._commits = commits
        self._ingest = commits.ingest
        self._turn = turn
        self.interest: ConsumerInterest | None = None
        self._roll_ups: deque[RollUp] = deque()
        # Messages that rolled up others and are hidden still: those may be gone, but not durably.
        self._hidden: deque[int] = deque()
        # First and last sequences of messages that must not be seen, nor stay.
        self._discarded: deque[tuple[int, int]] = deque()
        self._mark_expired = mark_expired
        self.keeper: ExpiryKeeper | None = None
        # Aging messages below this sequence are removed, or retained by the keeper.
        self._aged_to = 0
        self._held_until_ns = 0  # nothing expires before that, because a marker was not stored
        self._corrects_from = 0  # timers of messages from here on may be wrong; 0: they are not
        self._spare = REMOVED_PER_STEP  # this much may be rolled up before others have their turn

    @property
    def step_size(self) -> int:
        """How many messages are removed in one step."""
        consumers = self.interest.consumer_count if self.interest is not None else 0
        size = REMOVED_PER_STEP * CONSUMERS_PER_COST // (CONSUMERS_PER_COST + consumers)
        return max(size, min(REMOVED_PER_STEP_MIN, REMOVED_PER_STEP))

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do at any time."""
        if (self._roll_ups or self._discarded) and not self._store.read_only:
            return True
        return self._store.is_overdue or self._corrects_from > 0

    def step(self, now_ns: int) -> bool:
        """Remove some messages; returns whether to call it again now."""
        before, size = self._store.msgs, self.step_size
        try:
            if self._discarded and not self._store.read_only:
                self._discard_first()
            elif self._roll_ups and not self._store.read_only:
                self._spare = size
                self._continue_roll_ups()
            elif self._store.is_overdue:
                self._store.limit_step(size)
            elif self._corrects_from:
                self._corrects_from = correct_timers(self._store, self._corrects_from, now_ns, size)
            else:
                return self._expire(now_ns, size)
        finally:
            if self._store.msgs != before:
                self._turn.mark_dirty(self._ingest)
        return True

    # ---------------------------------------------------------------- age

    def next_expiry_ns(self, now_ns: int) -> int | None:
        """When the next message becomes too old; None: never."""
        if self.keeper is None:
            expiry_ns = self._store.next_expiry_ns(now_ns)
        else:
            expiry_ns = self._next_kept_ns(now_ns)
        if expiry_ns is None:
            return None
        # A clock that went back does not prolong the pause.
        return max(expiry_ns, min(self._held_until_ns, now_ns + MARK_AGAIN_NS))

    def correct_timers(self) -> None:
        """Have messages with a stamp ahead of the clock expire by their time to live."""
        self._corrects_from = 1
        self._ingest.deadline_changed()

    def _expire(self, now_ns: int, size: int) -> bool:
        """Remove expired messages; the last message of a subject may have to leave a marker."""
        if self.keeper is not None:
            return self._expire_kept(self.keeper, now_ns, size)
        left = size
        while left > 0:
            left -= self._store.expire(now_ns, limit=left)
            if left <= 0 or (expired := self._store.next_to_mark(now_ns)) is None:
                break
            if not self._mark_expired(expired):
                self._held_until_ns = now_ns + MARK_AGAIN_NS
                break
            left -= MARK_COST
        return left <= 0

    def _expire_kept(self, keeper: ExpiryKeeper, now_ns: int, size: int) -> bool:
        """Remove expired messages one by one, where the keeper may need them."""
        store, left = self._store, size
        while left > 0 and not store.read_only:
            if keeper.is_full:
                self._held_until_ns = now_ns + MARK_AGAIN_NS
                break
            seq = self._next_kept(now_ns)
            if not seq:
                break
            left -= KEPT_COST
            if keeper.takes(seq):
                continue
            if not store.leaves_marker(seq):
                store.remove(seq, reason=EXPIRED)
            elif not self._mark_expired(store.get(seq)):
                self._aged_to = min(self._aged_to, seq)
                self._held_until_ns = now_ns + MARK_AGAIN_NS
                break
        return left <= 0

    def _next_kept(self, now_ns: int) -> int:
        """The next expired message; each is returned once, and again if it still exists after a
        while.
        """
        store = self._store
        aging = self._next_aging(now_ns)
        if aging is not None and store.has_expired(aging[0], now_ns):
            self._aged_to = aging[0] + 1
            return aging[0]
        seq = store.timed_out(now_ns)
        if seq:
            store.put_off(seq, now_ns + KEPT_AGAIN_NS)
        return seq

    def _next_kept_ns(self, now_ns: int) -> int | None:
        store = self._store
        if store.read_only:
            return None
        found = store.timers.next_expiry
        aging = self._next_aging(now_ns)
        if aging is None:
            return found
        aged_ns = later(aging[1], store.limits.age_max_ns)
        return aged_ns if found is None else min(found, aged_ns)

    def _next_aging(self, now_ns: int) -> tuple[int, int] | None:
        """The (sequence, time) of the first message that ages and was not returned yet."""
        store = self._store
        if store.limits.age_max_ns <= 0:
            return None
        aging = store.aging_at(self._aged_to, now_ns)
        # Messages that never age are skipped once.
        self._aged_to = aging[0] if aging is not None else store.last_seq + 1
        return aging

    def look_again(self) -> None:
        """Look again at expired messages; called when the keeper has released one that still exists
        or has changed.
        """
        self._aged_to = 0
        self._ingest.deadline_changed()

    # ---------------------------------------------------------------- the end

    def finish(self) -> None:
        """Remove all messages that were replaced, because the stream ends with everything
        durable.
        """
        self.interest = None
        while self._discarded and not self._store.read_only:
            self._discard_first()
        while self._roll_ups and not self._store.read_only:
            while not self._roll_some(self._roll_ups[0]):
                pass
            self._roll_ups.popleft()

    # ---------------------------------------------------------------- purges

    def purge_step(self, steps: Iterator[int], chosen: SubjectFilter) -> int | None:
        """Purge some more messages and notify the consumers; None at the end."""
        pattern = chosen.patterns[0] if chosen.patterns else b""
        if self.interest is not None:
            self.interest.before_purge()
        purged = next(steps, None)
        if purged is not None:
            self._turn.mark_dirty(self._ingest)
        if self.interest is not None:
            first_left = self._store.first_seq
            # Before the end, that all below the first one are gone is enough.
            if pattern and (purged is None or (b"*" not in pattern and b">" not in pattern)):
                first_left = self._store.next_sequence(0, chosen) or self._store.last_seq + 1
            self.interest.after_purge(pattern, first_left)
        return purged

    # ---------------------------------------------------------------- half of a batch

    def discard(self, first_seq: int, last_seq: int) -> None:
        """Remove messages that were never acknowledged; they are hidden until that is done.

        They are removed as soon as the store takes changes again.
        """
        if first_seq > last_seq:
            return
        self._discarded.append((first_seq, last_seq))
        self._hidden.append(first_seq)
        self._ingest.hidden_from = self._hidden[0]
        self._ingest.discarded_from = self._ingest.discarded_from or first_seq
        self._ingest.deadline_changed()

    def _discard_first(self) -> None:
        first_seq, last_seq = self._discarded[0]
        for seq in range(first_seq, last_seq + 1):
            self._store.remove(seq, reason=EXPIRED)
        self._discarded.popleft()
        self._commits.when_durable(partial(self._show, last_seq))

    # ---------------------------------------------------------------- roll-ups

    def roll_up(self, subject: bytes, seq: int) -> None:
        """Called when a message was stored that replaces all older ones; few are removed at
        once.
        """
        roll_up = RollUp(subject, seq)
        self._roll_ups.append(roll_up)
        if len(self._roll_ups) == 1 and self._spare > 0:
            try:
                if self._roll_some(roll_up):
                    self._roll_ups.clear()
                    return
            except StoreError:
                self._roll_ups.clear()
                raise
        self._hidden.append(seq)
        self._ingest.hidden_from = self._hidden[0]
        self._ingest.deadline_changed()

    def _continue_roll_ups(self) -> None:
        while self._roll_ups and self._spare > 0:
            roll_up = self._roll_ups[0]
            if not self._roll_some(roll_up):
                continue
            self._roll_ups.popleft()
            self._commits.when_durable(partial(self._show, roll_up.seq))

    def _roll_some(self, roll_up: RollUp) -> bool:
        """Remove some of the replaced messages; whether all are gone."""
        size = self.step_size
        chosen = self._store.filter((roll_up.subject,) if roll_up.subject else ())
        if roll_up.steps is None:
            roll_up.steps = self._store.purge_steps(chosen, below=roll_up.seq, step=size)
        try:
            purged = self.purge_step(roll_up.steps, chosen)
        except StoreError:
            roll_up.steps = None  # try again from the beginning
            raise
        self._spare -= max(purged or 0, 1)
        return purged is None or purged < size

    def _show(self, seq: int, _error: StoreError | None) -> None:
        """Show a message whose replaced ones are gone for good, and messages that were hidden after
        it.
        """
        while self._hidden and self._hidden[0] <= seq:
            self._hidden.popleft()
        self._ingest.hidden_from = self._hidden[0] if self._hidden else 0
        if not self._discarded:
            self._ingest.discarded_from = 0
        self._commits.show()
