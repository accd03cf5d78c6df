"""A set of mostly consecutive sequences: one bit each, and nothing for large gaps.

Owns the pieces. A range may be as large as a sequence can be: only members cost time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_SHIFT: Final = 12
_PIECE: Final = 1 << _SHIFT
_MASK: Final = _PIECE - 1


class SequenceBits:
    """Sequences in order; about one bit each where they are dense."""

    __slots__ = ("_pieces", "count")

    def __init__(self) -> None:
        self._pieces: dict[int, int] = {}
        self.count = 0

    def __contains__(self, sequence: int) -> bool:
        return bool(self._pieces.get(sequence >> _SHIFT, 0) >> (sequence & _MASK) & 1)

    def add(self, sequence: int) -> None:
        """Add a sequence."""
        number, bit = sequence >> _SHIFT, 1 << (sequence & _MASK)
        old = self._pieces.get(number, 0)
        if not old & bit:
            self._pieces[number] = old | bit
            self.count += 1

    def add_range(self, first: int, last: int) -> None:
        """Add all from `first` to `last`, at a cost proportional to their number."""
        for number in range(first >> _SHIFT, (last >> _SHIFT) + 1):
            old, bits = self._pieces.get(number, 0), _mask_of(number, first, last)
            self._pieces[number] = old | bits
            self.count += (bits & ~old).bit_count()

    def discard(self, sequence: int) -> None:
        """Remove a sequence, if it is present."""
        self.take(sequence, sequence)

    def take(self, first: int, last: int) -> SequenceBits:
        """Remove a range; returns the removed sequences."""
        taken = SequenceBits()
        for number in self._numbers(first, last):
            old = self._pieces[number]
            found = old & _mask_of(number, first, last)
            if not found:
                continue
            taken._pieces[number] = found
            taken.count += found.bit_count()
            if old == found:
                del self._pieces[number]
            else:
                self._pieces[number] = old ^ found
        self.count -= taken.count
        return taken

    def merge(self, other: SequenceBits) -> None:
        """Add all sequences of another set."""
        for number, bits in other._pieces.items():
            old = self._pieces.get(number, 0)
            self._pieces[number] = old | bits
            self.count += (bits & ~old).bit_count()

    def without(self, other: SequenceBits) -> SequenceBits:
        """The sequences that are not in another set."""
        found = SequenceBits()
        for number, bits in self._pieces.items():
            if left := bits & ~other._pieces.get(number, 0):
                found._pieces[number] = left
                found.count += left.bit_count()
        return found

    def ranges(self) -> Iterator[tuple[int, int]]:
        """All sequences as ranges in order; both ends are in the set."""
        first = last = -1
        for number in sorted(self._pieces):
            start, bits = number << _SHIFT, self._pieces[number]
            while bits:
                zeros = (bits & -bits).bit_length() - 1
                bits >>= zeros
                start += zeros
                ones = (~bits & (bits + 1)).bit_length() - 1
                bits >>= ones
                if start != last + 1:
                    if last >= 0:
                        yield first, last
                    first = start
                start += ones
                last = start - 1
        if last >= 0:
            yield first, last

    def _numbers(self, first: int, last: int) -> list[int]:
        """The pieces that a range touches, found without visiting missing ones."""
        low, high = first >> _SHIFT, last >> _SHIFT
        if high - low < len(self._pieces):
            return [number for number in range(low, high + 1) if number in self._pieces]
        return [number for number in self._pieces if low <= number <= high]


def _mask_of(number: int, first: int, last: int) -> int:
    start = number << _SHIFT
    low, high = max(first - start, 0), min(last - start, _MASK)
    return ((1 << (high - low + 1)) - 1) << low if high >= low else 0
