"""The register of micro benchmarks, and how one is timed. Imports nothing of the product."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import spread

Operation = Callable[[int], int]
"""Repeats its work as often as told and returns how many operations that were."""

SAMPLE_S = 0.2
SAMPLE_COUNT = 5


@dataclass(frozen=True)
class Micro:
    """One benchmark: `prepare` builds the data once and returns what is timed."""

    name: str
    summary: str
    prepare: Callable[[], Operation]


@dataclass(frozen=True)
class Timing:
    """Median time per operation, and how far the samples lie apart."""

    ns_per_operation: float
    spread: float | None


REGISTRY: dict[str, Micro] = {}


def micro(name: str, summary: str) -> Callable[[Callable[[], Operation]], Callable[[], Operation]]:
    """Registers the decorated function as the preparation of a benchmark."""

    def register(prepare: Callable[[], Operation]) -> Callable[[], Operation]:
        if name in REGISTRY:
            raise ValueError(f"two micro benchmarks are named {name!r}")
        REGISTRY[name] = Micro(name, summary, prepare)
        return prepare

    return register


def measure(
    operation: Operation,
    sample_s: float = SAMPLE_S,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Timing:
    """Doubles the repetitions until a sample lasts long enough, then takes the samples."""
    repetitions = 1
    while _sample(operation, repetitions, clock_ns)[0] < sample_s * 1e9:
        repetitions *= 2
    samples = []
    for _ in range(SAMPLE_COUNT):
        elapsed_ns, count = _sample(operation, repetitions, clock_ns)
        samples.append(elapsed_ns / count)
    return Timing(statistics.median(samples), spread(samples))


def _sample(operation: Operation, repetitions: int, clock_ns: Callable[[], int]) -> tuple[int, int]:
    start_ns = clock_ns()
    count = operation(repetitions)
    return clock_ns() - start_ns, count
