"""Long inputs made of few parts: what brings out work that grows faster than the input.

Nothing here uses the code under test.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations

from entry_points import EntryPoint, Frame

# One byte of each class that some grammar tells apart.
BYTE_CLASSES = tuple(
    bytes([byte]) for byte in b"aZ0 \t\r\n\x00\x7f\x80\xff\"'\\{}[]()<>.,;:=@#$%&*+-_/|~?!^`"
)


class InputShape:
    """Parts that are repeated, in a frame: an input of any size."""

    def __init__(self, name: str, head: bytes, unit: bytes, tail: bytes, frame: Frame) -> None:
        assert unit
        self.name = name
        self.unit = unit
        self._head = head
        self._tail = tail
        self.frame = frame

    def of(self, size: int) -> bytes:
        """An input of about this many bytes."""
        before, after = self.frame
        fixed = len(before) + len(self._head) + len(self._tail) + len(after)
        count = max((size - fixed) // len(self.unit), 1)
        return before + self._head + self.unit * count + self._tail + after

    def __str__(self) -> str:
        return self.name


class NestedShape(InputShape):
    """Opened many times, closed as many times."""

    def __init__(self, opening: bytes, closing: bytes, frame: Frame) -> None:
        super().__init__(f"{opening!r}..{closing!r} nested", b"", opening, b"", frame)
        self._closing = closing

    def of(self, size: int) -> bytes:
        before, after = self.frame
        room = size - len(before) - len(after)
        count = max(room // (len(self.unit) + len(self._closing)), 1)
        return before + self.unit * count + self._closing * count + after


class CountedShape(InputShape):
    """A part that is another one each time, because a number is in it."""

    def of(self, size: int) -> bytes:
        before, after = self.frame
        parts, left, number = [], size - len(before) - len(after), 0
        while left > 0:
            part = self.unit.replace(b"%d", b"%d" % number)
            parts.append(part)
            left -= len(part)
            number += 1
        return before + self._head + b"".join(parts) + self._tail + after


PAIRS = ((b"{", b"}"), (b"[", b"]"), (b"(", b")"), (b"{{", b"}}"), (b'{"a":', b"}"), (b"<", b">"))


def atom_shapes(entry: EntryPoint) -> list[InputShape]:
    """Each atom repeated, or with another number each time, and no more."""
    return [
        kind(f"{part!r} repeated", b"", part, b"", frame)
        for frame in entry.frames
        for part in (*entry.atoms, b"a")
        for kind in ((InputShape, CountedShape) if b"%d" in part else (InputShape,))
    ]


def plain_shapes(entry: EntryPoint) -> Iterator[InputShape]:
    """One part repeated, alone or behind the beginning of something valid."""
    for frame in entry.frames:
        for part in BYTE_CLASSES:
            yield InputShape(f"{part!r} repeated", b"", part, b"", frame)
        for opening, closing in PAIRS:
            yield NestedShape(opening, closing, frame)
        for example in entry.examples:
            yield InputShape(f"{example[:40]!r} repeated", b"", example, b"", frame)
            # The beginning of something valid, and then more and more of its last byte.
            for cut in range(1, len(example), max(len(example) // 6, 1)):
                name = f"{example[:cut][-40:]!r} drawn out"
                yield InputShape(name, example[: cut - 1], example[cut - 1 : cut], b"", frame)
                yield InputShape(
                    f"{name}, ended", example[:cut], example[cut - 1 : cut], example[cut:], frame
                )


def paired_shapes(entry: EntryPoint) -> list[InputShape]:
    """Two parts in turn, or many of one and then many of the other."""
    parts = tuple(dict.fromkeys((*entry.atoms, b"a", b" ", b".", b"\xff")))
    return [
        shape
        for frame in entry.frames
        for one, other in permutations(parts, 2)
        for shape in (
            InputShape(f"{one!r} {other!r} in turn", b"", one + other, b"", frame),
            InputShape(f"{one!r} repeated, {other!r} at the end", b"", one, other, frame),
        )
    ]


def random_shape(entry: EntryPoint, chance: random.Random) -> InputShape:
    """A few parts in a row, repeated behind some others and before some more."""
    parts = (*entry.atoms, *entry.examples, *BYTE_CLASSES)

    def some(least: int, most: int) -> bytes:
        return b"".join(chance.choices(parts, k=chance.randint(least, most)))

    head, unit, tail = some(0, 3), some(1, 4), some(0, 3)
    name = f"{head[-40:]!r} + {unit[:60]!r}... + {tail[:40]!r}"
    return InputShape(name, head, unit, tail, chance.choice(entry.frames))


def varied(shape: InputShape, entry: EntryPoint, chance: random.Random) -> InputShape:
    """A neighbour of a shape: one of its three pieces is another one."""
    other = random_shape(entry, chance)
    pieces = [(shape._head, other._head), (shape.unit, other.unit), (shape._tail, other._tail)]
    changed = chance.randrange(3)
    head, unit, tail = (pair[index == changed] for index, pair in enumerate(pieces))
    name = f"{head[-40:]!r} + {unit[:60]!r}... + {tail[:40]!r}"
    return InputShape(name, head, unit, tail, shape.frame)
