"""The interface of everything that streams can be read from.

Owns the contract between the Spark side (`source`, `streaming`) and the ways to read: block files
(`blocks`), a server (`network`, `backup_reads`), a backup (`backup_reading`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.spark.contract.filters import RowFilter


@dataclass(frozen=True, slots=True)
class ReadState:
    """A stream at one moment; without messages first_seq is last_seq + 1.

    `created_ns` distinguishes it from another stream of the same name. `subject_msgs_max` is how
    many messages of a subject it keeps, 0 if that is not limited or not known. How many messages
    and bytes it has is None where that is not known without a look at all of it. `replaces`: a
    message goes when enough newer ones of its subject have come. `table` is what its metadata says
    of a lake table (`tiers`).
    """

    name: str
    created_ns: int
    first_seq: int
    last_seq: int
    subject_msgs_max: int = 0
    messages: int | None = None
    bytes: int | None = None
    replaces: bool = False
    table: str = ""


class ReadTask(Protocol):
    """A part of a read that one executor does; it can be pickled."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows, in order of sequence."""


class Provider(Protocol):
    """All streams of one query."""

    def states(self) -> list[ReadState]:
        """The streams as they are now, by name."""

    def tasks(self, name: str, rows: RowFilter, partitions_min: int) -> Sequence[ReadTask]:
        """The parts of a read of one stream."""

    def close(self) -> None:
        """Close all connections."""


class GrowingProvider(Provider, Protocol):
    """Streams that messages come to, for streaming queries."""

    def expect(self, names: Iterable[str]) -> None:
        """Note that streams existed before; one that seems to be missing is looked for again."""

    def begin(self, name: str, after_seq: int) -> int:
        """The first sequence that has a message, for a query that has read up to `after_seq`.

        The sequence is exact if it is above `after_seq + 1`; otherwise the query has missed
        nothing.
        """

    def seq_at_time(self, name: str, time_ns: int) -> int:
        """The first sequence of a message that is not older; one after the last if none is."""

    def time_behind(self, name: str, after_seq: int) -> int | None:
        """When the first message after a sequence was stored, in nanoseconds; None if none is."""

    def bytes_behind(self, name: str, after_seq: int) -> int | None:
        """The size of what is after a sequence, if that is known better than by the average."""

    def advance(
        self, name: str, after_seq: int, last_seq: int, msgs_max: int, bytes_max: int
    ) -> tuple[int, int, int]:
        """The last sequence, messages and bytes of a batch after `after_seq` within the limits.

        The batch goes at most to `last_seq`, and holds at least one message if there is one.
        """
