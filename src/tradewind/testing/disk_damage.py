"""Simulate damage of files at rest, by disks, drivers and people.

Owns the ways to damage a file of a simulated disk. The damage is durable immediately and is neither
a step nor a call. A file with unsynced changes is treated as written before it is damaged. Every
position is given by the caller or drawn from a seed, and must be inside the file: damage that
misses would make a test that cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from tradewind.testing.fake_disk import SimulatedDisk


class DiskDamage:
    """Ways to damage a named file of one disk, as seen in practice."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def flip_bits(self, path: str, bits: Iterable[int]) -> None:
        """Flip these bits, counted from the lowest bit of the first byte."""
        content = bytearray(self._disk.content_of(path))
        for bit in bits:
            _check(content, bit // 8, 1)
            content[bit // 8] ^= 1 << (bit % 8)
        self._disk.put_durable_file(path, bytes(content))

    def flip_random_bits(self, path: str, count: int, seed: int) -> list[int]:
        """Flip this many different bits and return their positions."""
        total = 8 * len(self._disk.content_of(path))
        random = Random(seed)  # noqa: S311 - must be repeatable, keeps no secret
        bits = sorted(random.sample(range(total), count))
        self.flip_bits(path, bits)
        return bits

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to a smaller size."""
        content = self._disk.content_of(path)
        _check(content, size, len(content) - size)
        self._disk.put_durable_file(path, content[:size])

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes with others, as a misdirected write does."""
        content = self._disk.content_of(path)
        _check(content, offset, len(data))
        changed = content[:offset] + data + content[offset + len(data) :]
        self._disk.put_durable_file(path, changed)

    def zero(self, path: str, offset: int, size: int) -> None:
        """Replace bytes by zeros, as after a write that never arrived."""
        self.overwrite(path, offset, bytes(size))

    def swap(self, path: str, first: int, second: int, size: int) -> None:
        """Exchange two chunks that do not overlap."""
        content = self._disk.content_of(path)
        assert abs(first - second) >= size, "the chunks overlap"
        _check(content, first, size)
        _check(content, second, size)
        self.overwrite(path, first, content[second : second + size])
        self.overwrite(path, second, content[first : first + size])

    def restore_chunk(
        self, path: str, checkpoint: Mapping[str, bytes], offset: int, size: int
    ) -> None:
        """Restore a chunk from `SimulatedDisk.file_contents`, as if the write since then had been
        lost.
        """
        stale = checkpoint[path]
        _check(stale, offset, size)
        self.overwrite(path, offset, stale[offset : offset + size])

    def restore_file(self, path: str, checkpoint: Mapping[str, bytes]) -> None:
        """Restore a whole file, even if it has been removed."""
        self._disk.put_durable_file(path, checkpoint[path])

    def duplicate(self, path: str, target: str) -> None:
        """Create a copy under another name, replacing a file of that name."""
        self._disk.put_durable_file(target, self._disk.content_of(path))


def _check(content: bytes | bytearray, offset: int, size: int) -> None:
    assert size > 0, "damage of nothing"
    assert 0 <= offset <= len(content) - size, (
        f"bytes {offset} to {offset + size} are not inside a file of {len(content)}"
    )
