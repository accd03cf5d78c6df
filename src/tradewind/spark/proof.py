"""Proves that a read through a server has missed nothing.

Owns the accounting of the sequences of one range. A message may be missing only if it was gone when
the read was planned: planning records these sequences, and how many messages the stream had removed
altogether, a number that only grows. Messages that a limit, a purge or a delete removes between
planning and reading are data loss, and are reported.

If the server filters by subject, most sequences are not seen at all. Then the stream is asked
regularly whether it has removed anything ahead of the current position.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.spark.errors import DataLossError

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo, StreamState
    from tradewind.client.connection import Connection

logger = logging.getLogger(__name__)
# A stream with more holes is not asked for all of them.
DELETED_MAX: Final = 200_000
MESSAGES_PER_CHECK: Final = 16_384
Gap = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Planned:
    """A stream when a read of it was planned.

    `deleted` are sequences that were gone, None if they are too many to be named. The rows of a
    table (`is_exact` is false) may be replaced at any time; only the stream has to be the same.
    """

    created: str
    removed_count: int
    deleted: array[int] | None
    is_exact: bool
    fails: bool

    def between(self, first_seq: int, last_seq: int) -> Planned:
        """The same for a part of the sequences."""
        deleted = self.deleted
        if deleted:
            begin, end = bisect_left(deleted, first_seq), bisect_right(deleted, last_seq)
            deleted = deleted[begin:end]
        return Planned(self.created, self.removed_count, deleted, self.is_exact, self.fails)


def removed_count(state: StreamState) -> int:
    """How many sequences the stream has no message for; it never becomes less."""
    return state.last_seq - state.messages


class RangeProof:
    """What is known about the sequences from `first_seq` to `last_seq` while they are read."""

    def __init__(self, stream: str, first_seq: int, last_seq: int, planned: Planned) -> None:
        self._stream = stream
        self._last_seq = last_seq
        self._planned = planned
        self._gaps: list[Gap] = []  # not seen, and not explained yet
        self._unchecked = 0
        self.is_filtered = False  # whether the server has left subjects out
        self.after_seq = first_seq - 1

    def saw(self, gaps: Sequence[Gap], last_seq: int, count: int) -> None:
        """This many messages came, the last one being `last_seq`, with these gaps between them."""
        if self._planned.is_exact:
            self._gaps += [gap for gap in gaps if not self._was_gone(gap)]
        self.after_seq = max(self.after_seq, last_seq)
        self._unchecked += count

    def _was_gone(self, gap: Gap) -> bool:
        return not self._left_of(gap, self._planned.deleted or array("Q"))

    @staticmethod
    def _left_of(gap: Gap, deleted: array[int]) -> int:
        """How many sequences of a gap are not among these."""
        first, last = gap
        return last - first + 1 - (bisect_right(deleted, last) - bisect_left(deleted, first))

    @property
    def is_due(self) -> bool:
        """Whether the stream should be asked what it has removed."""
        needs_answer = self.is_filtered or self._planned.deleted is None
        return needs_answer and bool(self._gaps) and self._unchecked >= MESSAGES_PER_CHECK

    async def finish(self, connection: Connection) -> None:
        """Nothing more comes."""
        if self.after_seq < self._last_seq:
            self.saw([(self.after_seq + 1, self._last_seq)], self._last_seq, 0)
        await self.check(connection)

    async def check(self, connection: Connection) -> None:
        """Explain what was not seen up to now; DataLossError if that is not possible."""
        streams = connection.jetstream_manager().streams
        info = await streams.info(self._stream)
        self._unchecked = 0
        if info.created != self._planned.created:
            self._lost(f"stream {self._stream} was deleted and recreated while it was read")
        if not self._gaps:
            return
        planned = self._planned
        if self.is_filtered or planned.deleted is None:
            if removed_count(info.state) == planned.removed_count:
                self._gaps.clear()
                return
            if planned.deleted is not None and info.state.num_deleted <= DELETED_MAX:
                info = await streams.info(self._stream, deleted_details=True)
                self._gaps = self._removed_since(info, planned.deleted)
        if not self._gaps:
            return
        count = sum(self._left_of(gap, planned.deleted or array("Q")) for gap in self._gaps)
        first, last = self._gaps[0][0], self._gaps[-1][1]
        self._gaps.clear()
        doubt = "may have been removed" if self.is_filtered else "were removed"
        self._lost(
            f"stream {self._stream}: {count} messages among the sequences {first} to {last} {doubt}"
            " after the read was planned and before they were read; raise the limits of the stream,"
            " begin later (startingSeq, startingTime) or read its blocks (storeDir)"
        )

    def _removed_since(self, info: StreamInfo, before: array[int]) -> list[Gap]:
        """The gaps that are not there because the server left out other subjects."""
        state = info.state
        first_seq = state.first_seq if state.messages else state.last_seq + 1
        now = array("Q", state.deleted)
        found: list[Gap] = []
        for first, last in self._gaps:
            head = (first, min(last, first_seq - 1))
            if head[0] <= head[1] and self._left_of(head, before):
                found.append(head)
            begin, end = bisect_left(now, max(first, first_seq)), bisect_right(now, last)
            found += [(seq, seq) for seq in now[begin:end] if self._left_of((seq, seq), before)]
        return found

    def _lost(self, what: str) -> None:
        if self._planned.fails:
            raise DataLossError(f"{what}; set failOnDataLoss=false to continue without them")
        logger.warning("%s", what)
