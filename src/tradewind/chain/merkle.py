"""The Merkle tree over the links of a chain, as in RFC 6962 and RFC 9162: heads and proofs.

Owns the shape of the tree, the two kinds of proofs and their verification. It never stores a node:
the root of any range of links is computed with a `Frontier`.

The links are the leaf hashes. An inner node is H(0x01  left  right). A tree of n leaves has on its
left the largest power of two that is less than n. The empty tree has the root H(nothing).
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.chain.chain_entries import HASH_BYTES, ChainError, Digest

Range = tuple[int, int]  # from the first index on, up to and without the second

_NODE = b"\x01"
# A tree of 2**64 leaves is this deep; no proof is longer than two paths.
DEPTH_MAX = 64
PATH_MAX = 2 * DEPTH_MAX


class Frontier:
    """The root of a growing tree: stores at most one complete subtree per power of two."""

    __slots__ = ("_digest", "_peaks", "size")

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._peaks: list[bytes] = []
        self.size = 0

    def append(self, link: bytes, level: int = 0) -> None:
        """Add the next leaf, or the root of the next 2**level leaves if the size allows that."""
        if self.size & ((1 << level) - 1):
            raise ChainError(f"a subtree of {1 << level} leaves does not begin at {self.size}")
        size = self.size >> level
        self.size += 1 << level
        peaks = self._peaks
        # As many complete subtrees end here as the size before has ones at its end.
        while size & 1:
            link = self._digest(_NODE + peaks.pop() + link)
            size >>= 1
        peaks.append(link)

    def peaks(self) -> list[tuple[int, bytes]]:
        """The complete subtrees from left to right: how many levels each has, and its root."""
        levels = [level for level in range(self.size.bit_length()) if self.size >> level & 1]
        return list(zip(reversed(levels), self._peaks, strict=True))

    def copy(self) -> Frontier:
        """A copy of the tree, which grows on its own."""
        made = Frontier(self._digest)
        made._peaks, made.size = list(self._peaks), self.size
        return made

    def root(self) -> bytes:
        """The root over all leaves so far."""
        if not self._peaks:
            return self._digest(b"")
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = self._digest(_NODE + peak + root)
        return root


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """The subtrees whose roots are the path from leaf `index` to the root of `size` leaves."""
    if not 0 <= index < size:
        raise ChainError(f"a tree of {size} entries has no entry {index}")
    first, end = 0, size
    ranges: list[Range] = []
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((first, middle))
            first = middle
    return ranges[::-1]


def consistency_ranges(first_size: int, size: int) -> list[Range]:
    """The subtrees whose roots prove that the tree of `size` continues the one of `first_size`."""
    if not 0 < first_size <= size:
        raise ChainError(f"a tree of {size} entries does not continue one of {first_size}")
    first, end = 0, size
    ranges: list[Range] = []
    is_whole = True  # until now the old tree is a left part, so its root is known to the verifier
    while first_size != end:
        middle = first + _split(end - first)
        if first_size <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((first, middle))
            first = middle
            is_whole = False
    if not is_whole:
        ranges.append((first, end))
    return ranges[::-1]


def root_by_inclusion(
    digest: Digest, index: int, size: int, link: bytes, path: Sequence[bytes]
) -> bytes | None:
    """The root of `size` entries if `link` is entry `index`; None if the path cannot be of these.

    As RFC 9162, 2.1.3.2.
    """
    if not 0 <= index < size or not _is_path(path) or len(link) != HASH_BYTES:
        return None
    position, last = index, size - 1
    root = link
    for node in path:
        if not last:
            return None
        if position & 1 or position == last:
            root = digest(_NODE + node + root)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            root = digest(_NODE + root + node)
        position >>= 1
        last >>= 1
    return None if last else root


def is_included(
    digest: Digest, index: int, size: int, link: bytes, path: Sequence[bytes], root: bytes
) -> bool:
    """Whether the path proves that `link` is entry `index` of the tree with this root."""
    return root_by_inclusion(digest, index, size, link, path) == root


def is_consistent(
    digest: Digest,
    first_size: int,
    size: int,
    first_root: bytes,
    root: bytes,
    path: Sequence[bytes],
) -> bool:
    """Whether the path proves that the tree of `size` begins with the one of `first_size`.

    As RFC 9162, 2.1.4.2.
    """
    if not 0 < first_size <= size or not _is_path(path):
        return False
    if first_size == size:
        return not path and first_root == root
    nodes = list(path)
    if not first_size & (first_size - 1):  # it is a whole subtree: its root begins the path
        nodes.insert(0, first_root)
    if not nodes:
        return False
    position, last = first_size - 1, size - 1
    while position & 1:
        position >>= 1
        last >>= 1
    old = new = nodes[0]
    for node in nodes[1:]:
        if not last:
            return False
        if position & 1 or position == last:
            old = digest(_NODE + node + old)
            new = digest(_NODE + node + new)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            new = digest(_NODE + new + node)
        position >>= 1
        last >>= 1
    return not last and old == first_root and new == root


def _is_path(path: Sequence[bytes]) -> bool:
    return len(path) <= PATH_MAX and all(len(node) == HASH_BYTES for node in path)


def _split(size: int) -> int:
    """The largest power of two that is less than `size`."""
    return 1 << (size - 1).bit_length() - 1
