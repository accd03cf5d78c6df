"""Everything that reads input of others takes time that is linear in the size of that input.

Each entry point is fed every repetition and nesting that its grammar knows, and what a small search
finds beyond them. Processor time is measured, at a size and at half of it; what takes next to no
time at that size is not looked at any further. An exception that is not a refusal fails, too.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from entry_points import EntryPoint, all_entry_points
from input_shapes import InputShape, atom_shapes, paired_shapes, plain_shapes, random_shape, varied
from sweeps import sweep

from cpu_clock import thread_seconds
from thoroughness import IS_THOROUGH, some

ROOT = Path(__file__).parent.parent.parent
ENTRIES = all_entry_points()
# Large enough that work by the square shows, and small enough that all shapes are tried.
BYTES = some(8 * 1024, 32 * 1024)
PIECEWISE_BYTES = 16 * 1024
PLAIN = some(60, 100_000)
PAIRS = some(16, 400)
SEARCHES = some(16, 200)
LARGE_BYTES = some(256 * 1024, 1024 * 1024)
# What takes longer at the small size is made of steps that show their square there.
FAST_SECONDS = 0.001
# Below this, the noise of the machine is as large as what is measured.
FLOOR_SECONDS = 0.004
GROWTH_MAX = 3.0


def seconds(entry: EntryPoint, shape: InputShape, size: int, times: int) -> float:
    data = shape.of(size)
    return thread_seconds(lambda: entry.run(data), times=times)


def check_growth(entry: EntryPoint, shape: InputShape) -> float:
    """How long the shape takes; it fails if twice the size takes more than thrice the time."""
    size = min(PIECEWISE_BYTES if entry.piecewise else BYTES, entry.bytes_max)
    once = seconds(entry, shape, size, 1)
    if once < FLOOR_SECONDS:
        return once
    return check_growth_at(entry, shape, size)


def check_growth_at(entry: EntryPoint, shape: InputShape, size: int) -> float:
    for times in (2, 5, 15):
        half, whole = (seconds(entry, shape, part, times) for part in (size // 2, size))
        if whole < FLOOR_SECONDS or whole <= GROWTH_MAX * half:
            break
    else:
        pytest.fail(
            f"{entry}: {shape}: {half:.4f} s for {size // 2} bytes, {whole:.4f} s for {size}"
        )
    at_most = whole * entry.bytes_max / size
    if at_most > entry.seconds_max:
        # Other bounds may end it before that, such as those on how many parts there are.
        at_most = seconds(entry, shape, entry.bytes_max, 1)
    assert at_most <= entry.seconds_max, f"{entry}: {shape}: {at_most:.2f} s for {entry.bytes_max}"
    return whole


def check_large(entry: EntryPoint, shape: InputShape) -> None:
    """The same at a larger size. Copying is so fast that only there its square shows."""
    small, large = min(BYTES, entry.bytes_max), min(LARGE_BYTES, entry.bytes_max)
    before = max(seconds(entry, shape, small, 2), FLOOR_SECONDS * small / large)
    if before > FAST_SECONDS and not IS_THOROUGH:
        return
    if seconds(entry, shape, large, 1) > GROWTH_MAX * before * large / small:
        check_growth_at(entry, shape, large)


def chosen_shapes(entry: EntryPoint, chance: random.Random) -> list[InputShape]:
    """All shapes, or in an ordinary run those of the grammar's own parts and some of the others."""
    plain, pairs = list(plain_shapes(entry)), paired_shapes(entry)
    chance.shuffle(plain)
    chance.shuffle(pairs)
    return [*atom_shapes(entry), *plain[:PLAIN], *pairs[:PAIRS]]


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_time_grows_no_faster_than_the_input(entry: EntryPoint) -> None:
    chance = random.Random(entry.name)
    worst, worst_seconds = None, 0.0
    is_short = entry.piecewise and not IS_THOROUGH
    for shape in atom_shapes(entry) if is_short else chosen_shapes(entry, chance):
        taken = check_growth(entry, shape)
        if worst is None or taken > worst_seconds:
            worst, worst_seconds = shape, taken
    assert worst is not None
    for _ in range(0 if is_short else SEARCHES):
        shape = (
            varied(worst, entry, chance) if chance.random() < 0.7 else random_shape(entry, chance)
        )
        taken = check_growth(entry, shape)
        if taken > worst_seconds:
            worst, worst_seconds = shape, taken
    if IS_THOROUGH:
        whole = seconds(entry, worst, entry.bytes_max, 3)
        assert whole <= entry.seconds_max, f"{entry}: {worst}: {whole:.2f} s"


@pytest.mark.slow
@pytest.mark.parametrize("entry", [each for each in ENTRIES if not each.piecewise], ids=str)
def test_time_grows_no_faster_than_large_input(entry: EntryPoint) -> None:
    for shape in atom_shapes(entry):
        if IS_THOROUGH or shape.frame == entry.frames[0]:
            check_large(entry, shape)


@sweep("entry", ENTRIES, ids=str)
def test_entry_point_reads_its_examples(entry: EntryPoint) -> None:
    """What nothing valid passes through would be fast without being tested."""
    for example in entry.examples:
        entry.read(example)
