"""Answers about a chain from its files: entries, and proofs over the tree of its links.

Owns reading them; all of it is for worker threads and may run while the chain grows: only entries
that were synced at the time of the request are read. A file of links is a complete subtree, so its
root is computed once and kept; a proof reads the files that it splits, and no others.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from tradewind.chain.chain_entries import HASH_BYTES
from tradewind.chain.chain_folder import HEADER_BYTES, decode_header, segment_name
from tradewind.chain.merkle import Range, consistency_ranges, inclusion_ranges
from tradewind.errors import CorruptRecord
from tradewind.store.format.chain_hash import chain_digest
from tradewind.store.table.chain_links import find_message, split_records, tree_root

if TYPE_CHECKING:
    from tradewind.store.folder.stream_chain import ChainPoint, StreamChain

PIECE_BYTES: Final = 1 << 20
# Places of entries that are remembered: a client that reads page after page continues from the last
# one.
PLACES_KEPT: Final = 64


class ChainReader:
    """Reads one chain, for one worker at a time."""

    def __init__(self, chain: StreamChain) -> None:
        self._chain = chain
        self._number = chain.settings.number
        self._segment_entries = chain.settings.segment_entries
        self._roots: dict[int, bytes] = {}  # of complete files, by their first entry
        # By entry: where it begins in its file, and the link before it.
        self._places: OrderedDict[int, tuple[int, bytes]] = OrderedDict()

    # ---------------------------------------------------------------- files

    def _path(self, segment: int) -> str:
        return f"{self._chain.folder}/{segment_name(segment)}"

    def _read(self, segment: int, offset: int, size: int) -> bytes:
        with self._chain.disk.open(self._path(segment)) as file:
            return file.read(offset, min(size, max(file.size - offset, 0)))

    def _header_link(self, segment: int) -> bytes:
        return decode_header(self._read(segment, 0, HEADER_BYTES), self._path(segment)).before

    def _place(self, index: int) -> tuple[int, int, bytes]:
        """The file of an entry, its offset there, and the link before it."""
        segment = index - index % self._segment_entries
        known = max((at for at in self._places if segment <= at <= index), default=segment)
        offset, before = self._places.get(known, (HEADER_BYTES, b""))
        before = before or self._header_link(segment)
        while known < index:
            links, offset = self._links_at(segment, offset, index - known)
            known += len(links) // HASH_BYTES
            before = links[-HASH_BYTES:]
        self._remember(index, offset, before)
        return segment, offset, before

    def _remember(self, index: int, offset: int, before: bytes) -> None:
        if index % self._segment_entries == 0:
            return  # there the next file begins
        self._places[index] = (offset, before)
        if len(self._places) > PLACES_KEPT:
            self._places.popitem(last=False)

    def _links_at(self, segment: int, offset: int, count: int) -> tuple[bytes, int]:
        """Up to `count` links, at least one, and where the next record begins."""
        links, used = split_records(self._read(segment, offset, PIECE_BYTES), 0, count)
        if used <= 0:
            raise CorruptRecord(self._path(segment), offset, "not a record of a chain")
        return links, offset + used

    def _links(self, first: int, end: int) -> bytes:
        """The links of the entries from `first` to `end`, which are in one file."""
        segment, offset, _ = self._place(first)
        parts = []
        while first < end:
            links, offset = self._links_at(segment, offset, end - first)
            parts.append(links)
            first += len(links) // HASH_BYTES
        return b"".join(parts)

    # ---------------------------------------------------------------- entries

    def entries(self, index: int, count: int, size: int, bytes_max: int) -> tuple[bytes, bytes]:
        """The link before entry `index`, and as many of the next `count` records as fit."""
        segment, offset, before = self._place(index)
        count = min(count, size - index, segment + self._segment_entries - index)
        data = self._read(segment, offset, bytes_max)
        links, used = split_records(data, 0, count)
        if used < 0 or not links:
            raise CorruptRecord(self._path(segment), offset, "not a record of a chain")
        self._remember(index + len(links) // HASH_BYTES, offset + used, links[-HASH_BYTES:])
        return before, data[:used]

    def link(self, index: int) -> bytes:
        """The link of one entry."""
        return self._links(index, index + 1)

    def find(self, seq: int, point: ChainPoint) -> int | None:
        """The index of the entry of a message; None if there is none."""
        low, high = 0, (point.size - 1) // self._segment_entries
        while low < high:
            middle = (low + high + 1) // 2
            first, at = None, middle
            while first is None and at <= high:  # files with nothing but removals say nothing
                first = self._first_seq(at * self._segment_entries)
                at += 1
            if first is not None and first <= seq:
                low = at - 1
            else:
                high = middle - 1
        segment = low * self._segment_entries
        index, offset = segment, HEADER_BYTES
        while data := self._read(segment, offset, PIECE_BYTES):
            count, is_there, used = find_message(data, 0, seq)
            index += count
            if is_there:
                return index if index < point.size else None
            if used == 0:
                break
            offset += used
        return None

    def _first_seq(self, segment: int) -> int | None:
        """The sequence of the first message in a file."""
        offset = HEADER_BYTES
        while data := self._read(segment, offset, PIECE_BYTES):
            _, is_there, used = find_message(data, 0, 0)
            if is_there:
                return int.from_bytes(data[used + 1 : used + 9], "little")
            if used == 0:
                break
            offset += used
        return None

    # ---------------------------------------------------------------- proofs

    def inclusion(self, index: int, size: int) -> tuple[list[bytes], bytes]:
        """The path from an entry to the root of `size` entries, and this root."""
        return [self._root(*each) for each in inclusion_ranges(index, size)], self._root(0, size)

    def consistency(self, first_size: int, size: int) -> tuple[list[bytes], bytes]:
        """The path that proves that `size` entries begin with `first_size`, and their root."""
        path = [self._root(*each) for each in consistency_ranges(first_size, size)]
        return path, self._root(0, size)

    def _root(self, first: int, end: int) -> bytes:
        """The root of a subtree; one that spans files begins with a file."""
        if end - first <= self._segment_entries:
            return self._root_in_file((first, end))
        middle = first + (1 << (end - first - 1).bit_length() - 1)
        return chain_digest(
            self._number, b"\x01", self._root(first, middle), self._root(middle, end)
        )

    def _root_in_file(self, links: Range) -> bytes:
        first, end = links
        is_whole = end - first == self._segment_entries
        if is_whole and first in self._roots:
            return self._roots[first]
        root = tree_root(self._number, self._links(first, end))
        if is_whole:
            self._roots[first] = root
        return root
