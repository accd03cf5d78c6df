"""TLS handshakes take turns with everything else that the loop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from tradewind.server.handshakes import STEPS_PER_TURN, HandshakeTurns

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


async def iterate(until: Callable[[], bool]) -> None:
    """Let the loop run, one iteration after the other, until something is true."""
    for _ in range(10 * CROWD):
        if until():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


async def test_each_iteration_of_the_loop_takes_few_steps() -> None:
    turns, steps, iterations = HandshakeTurns(), list[str](), list[int]()
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


async def test_addresses_take_turns() -> None:
    turns, steps = HandshakeTurns(), list[str]()
    for _ in range(CROWD):
        turns.request(FakeShaker("flood", steps), "10.0.0.1")
    turns.request(FakeShaker("other", steps), "10.0.0.2")
    await iterate(lambda: "other" in steps)
    assert steps.count("flood") <= STEPS_PER_TURN


async def test_who_leaves_is_not_called() -> None:
    turns, steps = HandshakeTurns(), list[str]()
    gone, stays = FakeShaker("gone", steps), FakeShaker("stays", steps)
    turns.request(gone, "10.0.0.1")
    turns.request(stays, "10.0.0.1")
    turns.withdraw(gone, "10.0.0.1")
    await iterate(lambda: bool(steps))
    assert steps == ["stays"]
    assert len(turns) == 0


async def test_step_that_fails_does_not_stop_the_others() -> None:
    turns, steps, faults = HandshakeTurns(), list[str](), list[object]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
    turns.request(FakeShaker("bad", steps, fails=True), "10.0.0.1")
    turns.request(FakeShaker("good", steps), "10.0.0.1")
    await iterate(lambda: "good" in steps)
    assert len(faults) == 1
