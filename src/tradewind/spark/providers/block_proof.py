"""Proves that a read of block files has missed nothing.

Owns what a task compares while the server goes on writing, erasing and compacting: a block file
that is the same as when the read was planned has all that was planned. For another one it is looked
up which sequences are missing, and of these which are known by now to be removed. A finding is
judged by `data_loss`. A message that was deleted after planning and is still in its file is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.spark.columnar.rows import RowDecoder
from tradewind.spark.contract.data_loss import MissingMessages
from tradewind.spark.files.stream_contents import StreamContentsReader, key_of
from tradewind.store.format.sequence_set import SequenceSet

if TYPE_CHECKING:
    from tradewind.spark.columnar.memory import Piece
    from tradewind.spark.contract.data_loss import LossRule
    from tradewind.spark.files.store_files import StreamFiles

# A file system may give two writes within this the same time.
FRESH_NS: Final = 2_000_000_000
Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The blocks of a task when it was planned; `identities` are in their order.

    Nothing below `from_seq` is promised.
    """

    rule: LossRule
    identities: tuple[Identity, ...]
    planned_at_ns: int
    from_seq: int = 1


class BlockProof:
    """The messages that one task has found to be missing."""

    def __init__(self, files: StreamFiles, plan: BlockPlan, removed: SequenceSet) -> None:
        self._files = files
        self._plan = plan
        self._removed = removed
        self._vanished: list[tuple[int, int]] = []
        self._absent = SequenceSet()

    def vanished(self, first_seq: int, last_seq: int) -> None:
        """Note that a whole block is gone."""
        first_seq = max(first_seq, self._plan.from_seq)
        if self._plan.rule.is_proved and first_seq <= last_seq:
            self._vanished.append((first_seq, last_seq))

    def took(
        self,
        place: int,
        number: int,
        data: bytes | Piece,
        first_seq: int,
        last_seq: int,
        row_count: int | None,
    ) -> None:
        """Look for messages that are missing in a block of which this was read.

        `row_count`: how many messages were found in these bounds, None if not all were wanted.
        """
        plan = self._plan
        first_seq = max(first_seq, plan.from_seq)
        if not plan.rule.is_proved or first_seq > last_seq:
            return
        span = last_seq - first_seq + 1 - self._removed.count_in(first_seq, last_seq)
        if plan.from_seq == 1 and row_count is not None and row_count >= span:
            return
        planned = plan.identities[place]
        is_fresh = plan.planned_at_ns - planned[1] < FRESH_NS
        if not is_fresh and self._files.block_identity(number) == planned:
            return
        for low, high in self._gaps(number, data, first_seq, last_seq):
            self._absent.insert_range(low, high)

    def _gaps(
        self, number: int, data: bytes | Piece, first_seq: int, last_seq: int
    ) -> list[tuple[int, int]]:
        """The ranges of a block without a message, whatever its subject and time."""
        decoder = RowDecoder(first_seq=first_seq, last_seq=last_seq)
        decoder.take_block(
            data,
            key_of(self._files.name, number),
            self._files.block_path(number),
            first_seq=first_seq,
            last_seq=last_seq,
            ends_torn=True,
            skips_damage=True,
        )
        gaps, after_seq = [], first_seq - 1
        with memoryview(decoder.seqs(0, decoder.row_count)).cast("B").cast("q") as found:
            for seq in found:
                if seq > after_seq + 1:
                    gaps.append((after_seq + 1, seq - 1))
                after_seq = seq
        if after_seq < last_seq:
            gaps.append((after_seq + 1, last_seq))
        return gaps

    def finish(self) -> None:
        """Judge what is missing; all blocks are read."""
        if not self._vanished and not self._absent.count:
            return
        reader = StreamContentsReader(self._files)
        view = reader.view()
        head = reader.first_message(view)
        at_head = elsewhere = MissingMessages()
        for first, last in self._vanished:
            for low, high in ((first, min(last, head - 1)), (max(first, head), last)):
                if low > high:
                    continue
                missing = MissingMessages(
                    high - low + 1 - self._removed.count_in(low, high), low, high
                )
                if high < head:
                    at_head += missing
                else:
                    elsewhere += missing
        for seq in self._absent:
            if seq in self._removed:
                continue
            if seq < head:
                at_head += MissingMessages(1, seq, seq)
            elif seq in view.removed:
                elsewhere += MissingMessages(1, seq, seq)
        self._plan.rule.judge(at_head, elsewhere)
