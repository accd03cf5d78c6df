"""Run work of the control plane in steps, so that no turn of the event loop is long.

Owns the size of a step in time. The work is a generator that yields wherever it may be interrupted,
and often: the yielded values mean nothing. Everything can change between two steps, so a generator
copies the keys of what it walks over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeAlias, TypeVar

_Result = TypeVar("_Result")
# Work that may be interrupted at each `yield`, and its result.
Stepped: TypeAlias = Generator[None, None, _Result]

# A step ends after this time; then all other work has a turn.
STEP_NS: Final = 5_000_000


class StepWatch(Protocol):
    """The part of a `TurnWatch` that steps need."""

    def begin(self) -> int:
        """Begin a step and return the time."""

    def lap(self, kind: str, detail: object) -> int:
        """End the step, begin the next one and return the time."""

    def end_turn(self) -> object:
        """End the turn."""


async def in_steps(watch: StepWatch, kind: str, detail: object, work: Stepped[_Result]) -> _Result:
    """The result of the work; its steps count as `kind`, and other work has turns between them."""
    began_ns = watch.begin()
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _Result = end.value
            return result
        finally:
            now_ns = watch.lap(kind, detail)
        if now_ns - began_ns >= STEP_NS:
            watch.end_turn()
            await asyncio.sleep(0)
            began_ns = watch.begin()


def is_done_in_one_step(watch: StepWatch, kind: str, detail: object, work: Stepped[None]) -> bool:
    """Do work for the time of a step; False if some is left."""
    began_ns = watch.begin()
    return all(watch.lap(kind, detail) - began_ns < STEP_NS for _ in work)


def at_once(work: Stepped[_Result]) -> _Result:
    """The result of the work, in one step: nothing is waiting for a turn."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _Result = end.value
            return result


def result_of(built: _Result | Stepped[_Result]) -> Stepped[_Result]:
    """The result of a page that is built already, or is built in steps."""
    if isinstance(built, Generator):
        result: _Result = yield from built
        return result
    return built


# Begins work without waiting for its result; its kind and detail are those of `in_steps`.
StartWork: TypeAlias = Callable[[str, object, Stepped[None]], None]


def start_at_once(_kind: str, _detail: object, work: Stepped[None]) -> None:
    """Do the work in one step."""
    at_once(work)
