"""Proves that a read through a server has missed nothing.

Owns the accounting of the sequences of one range. A message may be missing only if it was gone when
the read was planned: planning records these sequences, and how many messages the stream had removed
altogether, a number that only grows. Any other missing message is judged by `data_loss`.

Where the gaps of a stream are too many to be named, planning counts the messages of each range
instead, and so does its reader.

If the server filters by subject, most sequences are not seen at all. Then the stream is asked
regularly whether it has removed anything ahead of the current position.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.spark.contract.data_loss import LossRule, MissingMessages

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo, StreamState
    from tradewind.client.connection import Connection

# A stream with more holes is not asked for all of them.
DELETED_MAX: Final = 200_000
MESSAGES_PER_CHECK: Final = 16_384
# A server that starts may not have found all of its streams yet.
GONE_SECONDS: Final = 2.0
ASK_AGAIN_SECONDS: Final = 0.2
Gap = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """A stream when a read of it was planned.

    `deleted` are sequences that were gone, None if they are too many to be named; then `count` is
    the number of messages that the server has for the range, None if that is unknown. Nothing below
    `from_seq` is promised.
    """

    created: str
    removed_count: int
    deleted: array[int] | None
    rule: LossRule
    from_seq: int = 1
    count: int | None = None

    def is_of(self, created: str, removed: int, rule: LossRule) -> bool:
        """Whether nothing was removed from that stream since, which is read by the same rule."""
        return (self.created, self.removed_count, self.rule) == (created, removed, rule)

    def between(self, first_seq: int, last_seq: int, count: int | None = None) -> PlannedRead:
        """The same for a part of the sequences; `count` as in the fields."""
        deleted = self.deleted
        if deleted:
            begin, end = bisect_left(deleted, first_seq), bisect_right(deleted, last_seq)
            deleted = deleted[begin:end]
        return replace(self, deleted=deleted, count=count)


def removed_count(state: StreamState) -> int:
    """How many sequences the stream has no message for; it never becomes less."""
    return state.last_seq - state.messages


def head_of(state: StreamState) -> int:
    """The first sequence that has a message, one after the last if there is none."""
    return state.first_seq if state.messages else state.last_seq + 1


async def is_gone(connection: Connection, stream: str) -> bool:
    """Whether there is no such stream, and none appears in a moment."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        try:
            await connection.jetstream_manager().streams.info(stream)
        except StreamNotFoundError:
            if time.monotonic() >= deadline:
                return True
            await asyncio.sleep(ASK_AGAIN_SECONDS)
        else:
            return False


class RangeProof:
    """The knowledge about the sequences from `first_seq` to `last_seq` while they are read."""

    def __init__(self, stream: str, first_seq: int, last_seq: int, planned: PlannedRead) -> None:
        self._stream = stream
        self._last_seq = last_seq
        self._planned = planned
        self._gaps: list[Gap] = []  # not seen, and not explained yet
        # The same, if the gaps at the time of planning have no names.
        self._unnamed = MissingMessages()
        self._unchecked = 0
        self._at_head = MissingMessages()
        self._elsewhere = MissingMessages()
        self.seen = 0  # messages of the range
        self.is_filtered = False  # whether the server has left subjects out
        self.after_seq = first_seq - 1

    def saw(self, gaps: Sequence[Gap], last_seq: int, count: int) -> None:
        """This many messages came, the last one being `last_seq`, with these gaps between them."""
        if self._planned.rule.is_proved and last_seq > self.after_seq:
            first = max(self.after_seq + 1, self._planned.from_seq)
            self.seen += max(last_seq - first + 1, 0) - self._note(gaps)
        self.after_seq = max(self.after_seq, last_seq)
        self._unchecked += count

    def _note(self, gaps: Sequence[Gap]) -> int:
        """Keep gaps that are not explained; how many sequences all of them have."""
        planned = self._planned
        total = 0
        for begin, last in gaps:
            first = max(begin, planned.from_seq)
            if first > last:
                continue
            total += last - first + 1
            if planned.deleted is None:
                self._unnamed += MissingMessages(last - first + 1, first, last)
            elif _left_of((first, last), planned.deleted):
                self._gaps.append((first, last))
        return total

    @property
    def is_due(self) -> bool:
        """Whether the stream should be asked what it has removed."""
        return self.is_filtered and bool(self._gaps) and self._unchecked >= MESSAGES_PER_CHECK

    async def finish(self, connection: Connection) -> None:
        """Judge what was not seen; nothing more comes."""
        if self.after_seq < self._last_seq:
            self.saw([(self.after_seq + 1, self._last_seq)], self._last_seq, 0)
        info = await self.check(connection)
        if info is not None and self._unnamed.count:
            self._compare(info.state)
        self._judge()

    async def pause(self, connection: Connection) -> None:
        """Judge the messages that were not seen up to now; another reader takes the rest."""
        await self.check(connection)
        self._judge()

    def _judge(self) -> None:
        at_head, elsewhere = self._at_head, self._elsewhere
        self._at_head = self._elsewhere = MissingMessages()
        self._planned.rule.judge(at_head, elsewhere)

    async def check(self, connection: Connection) -> StreamInfo | None:
        """Explain what was not seen up to now, or note that it is missing; None: all is lost."""
        streams = connection.jetstream_manager().streams
        info = await streams.info(self._stream)
        self._unchecked = 0
        planned = self._planned
        if info.created != planned.created:
            self._gaps.clear()
            planned.rule.lost(f"stream {self._stream} was deleted and recreated while it was read")
            return None
        if not self._gaps:
            return info
        before = planned.deleted
        assert before is not None
        if self.is_filtered:
            removed = removed_count(info.state) - planned.removed_count
            if removed and info.state.num_deleted <= DELETED_MAX:
                info = await streams.info(self._stream, deleted_details=True)
                self._gaps = self._removed_since(info.state, before)
            elif removed:
                self._note_some(removed, info.state)
            else:
                self._gaps.clear()
        for gap in self._gaps:
            self._split(gap, head_of(info.state), before)
        self._gaps.clear()
        return info

    def _split(self, gap: Gap, head: int, before: array[int]) -> None:
        """Note what is missing in a gap, below the head of the stream and after it."""
        first, last = gap
        below, behind = (first, min(last, head - 1)), (max(first, head), last)
        self._at_head += self._missing(below, before)
        self._elsewhere += self._missing(behind, before)

    def _missing(self, gap: Gap, before: array[int]) -> MissingMessages:
        count = _left_of(gap, before) if gap[0] <= gap[1] else 0
        return MissingMessages(count, *gap, is_certain=not self.is_filtered)

    def _removed_since(self, state: StreamState, before: array[int]) -> list[Gap]:
        """The gaps that are not there because the server left out other subjects."""
        first_seq = head_of(state)
        now = array("Q", state.deleted or ())
        found: list[Gap] = []
        for first, last in self._gaps:
            head = (first, min(last, first_seq - 1))
            if head[0] <= head[1] and _left_of(head, before):
                found.append(head)
            begin, end = bisect_left(now, max(first, first_seq)), bisect_right(now, last)
            found += [(seq, seq) for seq in now[begin:end] if _left_of((seq, seq), before)]
        return found

    def _compare(self, state: StreamState) -> None:
        """Note what is missing of the messages that were counted."""
        planned, unseen = self._planned, self._unnamed
        removed = removed_count(state) - planned.removed_count
        if planned.count is not None:
            missing = min(planned.count - self.seen, unseen.count)
            is_certain = True
        else:
            missing, is_certain = min(removed, unseen.count), False
        self._unnamed = MissingMessages()
        if missing > 0:
            self._note_count(replace(unseen, count=missing, is_certain=is_certain), state)

    def _note_some(self, removed: int, state: StreamState) -> None:
        """Note that some of the gaps were removed: there are too many now to say which."""
        before = self._planned.deleted or array("Q")
        unseen = sum(
            (MissingMessages(_left_of(gap, before), *gap) for gap in self._gaps), MissingMessages()
        )
        self._gaps.clear()
        missing = min(removed, unseen.count)
        self._note_count(replace(unseen, count=missing, is_certain=False), state)

    def _note_count(self, missing: MissingMessages, state: StreamState) -> None:
        """Note missing messages without names; as many are at the head as fit there."""
        head = min(head_of(state), missing.last_seq + 1)
        count = min(missing.count, max(head - missing.first_seq, 0))
        if count:
            self._at_head += replace(missing, count=count, last_seq=head - 1)
        if missing.count > count:
            first = max(missing.first_seq, head)
            self._elsewhere += replace(missing, count=missing.count - count, first_seq=first)


def _left_of(gap: Gap, deleted: array[int]) -> int:
    """How many sequences of a gap are not among these."""
    first, last = gap
    return last - first + 1 - (bisect_right(deleted, last) - bisect_left(deleted, first))
