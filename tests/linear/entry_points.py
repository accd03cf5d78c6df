"""The registry of what reads input of others: how it is called, and what its grammar is made of.

An entry point is declared where its group is, in a module `entries_<group>.py` of this folder, by
`register`. The tests find all of these modules by their names, so a new group needs no change here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Reader = Callable[[bytes], object]
Frame = tuple[bytes, bytes]


@dataclass(frozen=True)
class EntryPoint:
    """One entry point for foreign input.

    `bytes_max` is the most that the product passes to it. A shape is put into each of the `frames`.
    `seconds_max` is the processor time that input of `bytes_max` may take. Of one that is fed
    `piecewise`, which takes long, an ordinary run repeats only the atoms.
    """

    name: str
    modules: tuple[str, ...]
    bytes_max: int
    read: Reader
    atoms: tuple[bytes, ...]
    examples: tuple[bytes, ...] = ()
    frames: tuple[Frame, ...] = ((b"", b""),)
    refusals: tuple[type[Exception], ...] = ()
    seconds_max: float = 1.0
    piecewise: bool = False

    def run(self, data: bytes) -> None:
        """Read it; a refusal is as good as an answer."""
        with suppress(*self.refusals):
            self.read(data)

    def __str__(self) -> str:
        return self.name


REGISTRY: dict[str, EntryPoint] = {}


def register(entry: EntryPoint) -> None:
    """Have the tests feed it."""
    assert entry.name not in REGISTRY, entry.name
    REGISTRY[entry.name] = entry


def text_reader(read: Callable[[str], object]) -> Reader:
    """For what is given text: bytes that are none are read as one character each."""
    return lambda data: read(data.decode("latin-1"))


def all_entry_points() -> list[EntryPoint]:
    """All that the groups have declared."""
    for path in sorted(Path(__file__).parent.glob("entries_*.py")):
        importlib.import_module(path.stem)
    return list(REGISTRY.values())
