"""TLS handshakes take turns with everything else that the loop does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from tls_link_kit import every_step_is_cheap

from tradewind.server.tls.handshakes import (
    ENDS_PER_TURN,
    STEP_NS_MAX,
    STEPS_PER_TURN,
    HandshakeTurns,
)

CROWD = 50


@dataclass(eq=False)
class FakeShaker:
    """Notes its name when it is its turn."""

    name: str
    steps: list[str] = field(repr=False)
    fails: bool = False

    def take_step(self) -> None:
        self.steps.append(self.name)
        if self.fails:
            raise RuntimeError(self.name)


def busy_turns() -> HandshakeTurns:
    """This iteration of the loop has done its part: everybody has to wait for the next one."""
    turns = HandshakeTurns(every_step_is_cheap)
    for _ in range(STEPS_PER_TURN):
        turns.request(FakeShaker("before", []), "10.0.0.9")
    return turns


async def iterate(until: Callable[[], bool]) -> None:
    """Let the loop run, one iteration after the other, until something is true."""
    for _ in range(10 * CROWD):
        if until():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


async def test_each_iteration_of_the_loop_takes_few_steps() -> None:
    turns, steps, iterations = HandshakeTurns(every_step_is_cheap), list[str](), list[int]()
    loop = asyncio.get_running_loop()
    for number in range(CROWD):
        turns.request(FakeShaker(str(number), steps), "10.0.0.1")

    def bystander() -> None:
        iterations.append(len(steps))
        if len(steps) < CROWD:
            loop.call_soon(bystander)

    loop.call_soon(bystander)
    await iterate(lambda: len(steps) == CROWD)
    served = [later - earlier for earlier, later in pairwise(iterations)]
    assert max(served) <= STEPS_PER_TURN
    assert steps == [str(number) for number in range(CROWD)]


async def test_who_comes_when_nobody_waits_is_served_at_once() -> None:
    turns, steps = HandshakeTurns(every_step_is_cheap), list[str]()
    for number in range(STEPS_PER_TURN + 1):
        turns.request(FakeShaker(str(number), steps), "10.0.0.1")
    assert len(steps) == STEPS_PER_TURN
    await iterate(lambda: len(steps) == STEPS_PER_TURN + 1)


async def test_expensive_step_is_the_last_of_its_iteration() -> None:
    """A key that is slow to sign with must not hold the loop for several handshakes."""
    processor_ns = itertools.count(0, STEP_NS_MAX + 1).__next__
    turns, steps, iterations = HandshakeTurns(processor_ns), list[str](), list[int]()
    loop = asyncio.get_running_loop()
    for number in range(CROWD):
        turns.request(FakeShaker(str(number), steps), "10.0.0.1")

    def bystander() -> None:
        iterations.append(len(steps))
        if len(steps) < CROWD:
            loop.call_soon(bystander)

    loop.call_soon(bystander)
    await iterate(lambda: len(steps) == CROWD)
    assert max(later - earlier for earlier, later in pairwise(iterations)) == 1


async def test_addresses_take_turns() -> None:
    turns, steps = busy_turns(), list[str]()
    for _ in range(CROWD):
        turns.request(FakeShaker("flood", steps), "10.0.0.1")
    turns.request(FakeShaker("other", steps), "10.0.0.2")
    await iterate(lambda: "other" in steps)
    assert steps.index("other") < STEPS_PER_TURN


async def test_who_leaves_is_not_called() -> None:
    turns, steps = busy_turns(), list[str]()
    gone, stays = FakeShaker("gone", steps), FakeShaker("stays", steps)
    turns.request(gone, "10.0.0.1")
    turns.request(stays, "10.0.0.1")
    turns.withdraw(gone, "10.0.0.1")
    await iterate(lambda: bool(steps))
    assert steps == ["stays"]
    assert len(turns) == 0


async def test_step_that_fails_does_not_stop_the_others() -> None:
    turns, steps, faults = busy_turns(), list[str](), list[object]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
    turns.request(FakeShaker("bad", steps, fails=True), "10.0.0.1")
    turns.request(FakeShaker("good", steps), "10.0.0.1")
    await iterate(lambda: "good" in steps)
    assert len(faults) == 1


async def test_strangers_that_all_leave_at_once_are_seen_off_in_parts() -> None:
    turns, ended, seen = HandshakeTurns(every_step_is_cheap), list[int](), list[int]()

    def end(number: int) -> None:
        ended.append(number)
        if number == ENDS_PER_TURN + 1:
            raise RuntimeError("one that fails stops no other")

    for number in range(4 * ENDS_PER_TURN):
        turns.finish(partial(end, number))
    seen.append(len(ended))
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    while len(ended) < 4 * ENDS_PER_TURN:
        await asyncio.sleep(0)
        seen.append(len(ended))
    assert ended == list(range(4 * ENDS_PER_TURN))
    assert seen[0] == ENDS_PER_TURN
    assert all(after - before <= ENDS_PER_TURN for before, after in pairwise(seen))
