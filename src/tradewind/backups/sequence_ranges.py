"""Sets of sequences as sorted ranges: which messages of a stream no longer exist.

Owns the representation, a flat array of first and last sequences, and its packed form. The cost of
every operation is that of the ranges it touches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from tradewind.store.format.varint import append_uvarint


class SequenceRanges:
    """A set of sequences. `bounds` holds the first and last of each range, in order."""

    def __init__(self, bounds: array[int] | None = None) -> None:
        self.bounds = array("Q") if bounds is None else bounds
        self._totals: array[int] | None = None  # of the ranges before each

    @classmethod
    def of_sequences(cls, sequences: Iterable[int]) -> SequenceRanges:
        """The set of sequences that come in rising order."""
        found = cls()
        for seq in sequences:
            found.add(seq, seq)
        return found

    def add(self, first: int, last: int) -> None:
        """Add a range after all others; neighbours become one."""
        bounds = self.bounds
        self._totals = None
        if bounds and first <= bounds[-1] + 1:
            bounds[-1] = max(bounds[-1], last)
        else:
            bounds.append(first)
            bounds.append(last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        bounds = self.bounds
        return zip(bounds[::2], bounds[1::2], strict=True)

    def __len__(self) -> int:
        return len(self.bounds) // 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceRanges) and self.bounds == other.bounds

    __hash__ = None  # type: ignore[assignment]  # it changes

    def within(self, first: int, last: int) -> SequenceRanges:
        """The part of the set from a first to a last sequence."""
        found = SequenceRanges()
        start, end = self._places(first, last)
        for place in range(start, end):
            found.add(max(self.bounds[2 * place], first), min(self.bounds[2 * place + 1], last))
        return found

    def count(self, first: int, last: int) -> int:
        """How many sequences are in the set, from a first to a last."""
        start, end = self._places(first, last)
        if start >= end:
            return 0
        bounds = self.bounds
        low = max(bounds[2 * start], first)
        high = min(bounds[2 * end - 1], last)
        if end - start == 1:
            return high - low + 1
        totals = self._sums()
        middle = totals[end - 1] - totals[start + 1]
        return (bounds[2 * start + 1] - low + 1) + middle + (high - bounds[2 * end - 2] + 1)

    def _sums(self) -> array[int]:
        if self._totals is None:
            self._totals = array("Q", [0])
            for first, last in self:
                self._totals.append(self._totals[-1] + last - first + 1)
        return self._totals

    def _places(self, first: int, last: int) -> tuple[int, int]:
        """The numbers of the ranges that overlap, from one to before another."""
        # A last bound below `first` ends a range before it; a first bound above `last` begins one
        # after it.
        start = (bisect_left(self.bounds, first)) // 2
        end = (bisect_right(self.bounds, last) + 1) // 2
        return start, end

    def packed(self) -> bytes:
        """The set as numbers: the distance to each range and its length, less one."""
        target = bytearray()
        at = 0
        for first, last in self:
            append_uvarint(target, first - at)
            append_uvarint(target, last - first)
            at = last
        return bytes(target)

    @classmethod
    def unpacked(cls, data: bytes) -> SequenceRanges:
        """The set of a packed form; ValueError if that is not valid."""
        found = cls()
        numbers = list(_numbers(data))
        if len(numbers) % 2:
            raise ValueError("it ends in the middle of a range")
        at = 0
        for distance, length in zip(numbers[::2], numbers[1::2], strict=True):
            first = at + distance
            if (at and distance < 2) or first + length >> 62:
                raise ValueError("its ranges are not in order")
            found.bounds.append(first)
            found.bounds.append(first + length)
            at = first + length
        return found


def _numbers(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            yield value
            value = shift = 0
        else:
            shift += 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")
    if shift:
        raise ValueError("it ends in the middle of a number")
