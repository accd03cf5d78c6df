"""The known losses of a stream, as its info reports them.

Owns the sequences and the number of bytes. They come from reports: those of a start, of earlier
starts, and of damage that is found later. Never looks for damage itself.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tradewind.store.contract import LostMessages

if TYPE_CHECKING:
    from tradewind.store.repair.damage import RecoveryReport
    from tradewind.store.table.message_store import MessageStore


class KnownLosses:
    """The losses of one store."""

    def __init__(self, table: MessageStore) -> None:
        self._table = table
        self._lost: LostMessages | None = None
        # Losses below the first message are reported until that one is removed too.
        self._first_seq_after = 0

    @property
    def messages(self) -> LostMessages | None:
        """The unreadable messages that were not removed since."""
        lost, first_seq = self._lost, self._table.first_seq
        if lost is None or lost.sequences[0] >= first_seq or first_seq <= self._first_seq_after:
            return lost
        rest = lost.sequences[bisect_left(lost.sequences, first_seq) :]
        return LostMessages(rest, lost.bytes) if rest else None

    def add(self, report: RecoveryReport) -> None:
        """Record that more is lost; lost messages that have reappeared are removed."""
        known = self._lost or LostMessages((), 0)
        sequences = sorted(
            seq for seq in {*known.sequences, *report.lost} if not self._table.is_live(seq)
        )
        size = known.bytes + report.damaged_bytes
        self._lost = LostMessages(tuple(sequences), size) if sequences else None
        self._first_seq_after = max(self._first_seq_after, report.first_seq)
