"""The checkpoints that a chain is compared with: those of its own folder and those kept elsewhere.

Owns which of them count: by signature, key, stream, and order in a file. The verifier decides
whether one fits the entries. The checkpoints of a folder are read when they are due, so that their
number does not matter; those kept elsewhere are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import ChainError
from tradewind.chain.checkpoints import Checkpoint
from tradewind.chain.report import CHECKPOINT, ChainFault, ChainReport


class SignedHead(NamedTuple):
    """A checkpoint: its origin and its line."""

    place: str
    line: bytes


class SignedHeads:
    """Checkpoints by size. One that does not count becomes a fault of the report.

    `own` are those of the chain, in order; `is_whole`: the first of them is the first that was
    made. With `keys`, only those of these public keys count.
    """

    def __init__(
        self,
        report: ChainReport,
        own: Iterator[SignedHead],
        kept: Sequence[SignedHead],
        keys: Sequence[str],
        *,
        is_whole: bool,
    ) -> None:
        self._report = report
        self._own = own
        self._keys = keys
        self._previous = "" if is_whole else None
        self._size = 0
        self._next: tuple[str, Checkpoint] | None = None
        found = [read for head in kept if (read := self._read(head)) is not None]
        self._kept = sorted(found, key=lambda one: one[1].size, reverse=True)

    def due(self, size: int) -> tuple[str, Checkpoint] | None:
        """The next checkpoint that covers no more than `size` entries."""
        if self._kept and self._kept[-1][1].size <= size:
            return self._kept.pop()
        if self._next is None:
            self._next = self._read_own()
        if self._next is None or self._next[1].size > size:
            return None
        found, self._next = self._next, None
        return found

    def rest(self) -> Iterator[tuple[str, int]]:
        """The origins of all others, with the number of entries that each covers."""
        while self._kept:
            place, checkpoint = self._kept.pop()
            yield place, checkpoint.size
        while self._next is not None:
            yield self._next[0], self._next[1].size
            self._next = self._read_own()

    def _read_own(self) -> tuple[str, Checkpoint] | None:
        for head in self._own:
            previous, self._previous = self._previous, checkpoints.digest(head.line)
            found = self._read(head)
            if found is None:
                continue
            place, checkpoint = found
            if previous is not None and checkpoint.previous != previous:
                self._refuse(place, "it does not follow the one before: one was changed or removed")
            if checkpoint.size < self._size:
                self._refuse(
                    place, f"it covers {checkpoint.size} entries, the one before {self._size}"
                )
                continue
            self._size = checkpoint.size
            return found
        return None

    def _read(self, head: SignedHead) -> tuple[str, Checkpoint] | None:
        """Decode a line; None if the checkpoint does not count."""
        try:
            checkpoint = checkpoints.decode(head.line)
        except ChainError as error:
            self._refuse(head.place, str(error))
            return None
        report = self._report
        if not checkpoints.is_signed(checkpoint):
            self._refuse(head.place, "it is forged: the signature does not match its key")
        elif self._keys and checkpoint.key not in self._keys:
            self._refuse(head.place, f"it was signed by another key, {checkpoint.key}")
        elif (checkpoint.stream, checkpoint.algorithm) != (report.stream, report.algorithm) or (
            report.created and checkpoint.created != report.created
        ):
            self._refuse(
                head.place,
                f"it is of stream {checkpoint.stream} created {checkpoint.created} with "
                f"{checkpoint.algorithm}",
            )
        else:
            return head.place, checkpoint
        return None

    def _refuse(self, place: str, text: str) -> None:
        self._report.add(ChainFault(CHECKPOINT, f"{place}: {text}"))


def signed_heads_in(lines: Iterator[tuple[int, bytes]], path: str) -> Iterator[SignedHead]:
    """The checkpoints of a file, identified by number and place."""
    for number, (offset, line) in enumerate(lines, 1):
        yield SignedHead(f"checkpoint {number} ({path}, byte {offset})", line)
