"""Collections of Python: named where they make a turn too long, and never of all objects."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tradewind.broker.turn_watch import TurnWatch
from tradewind.server.lifecycle import garbage
from tradewind.server.lifecycle.garbage import (
    YOUNG_COLLECTIONS_MAX,
    YOUNG_OBJECTS_MAX,
    Collector,
    collect_only_what_is_new,
    name_collections,
)
from tradewind.server.lifecycle.generations import make_young, parts_of
from tradewind.testing import FakeClock, MemoryLog


def test_a_long_collection_is_named() -> None:
    clock, log = FakeClock(), MemoryLog()
    watch = TurnWatch(clock, log)
    end = name_collections(watch)

    def takes_long(phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            clock.work_ns(60_000_000 * (1 + facts["generation"]))

    gc.callbacks.append(takes_long)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(takes_long)
        end()
    watch.end_turn()
    assert list(watch.kinds) == ["garbage collection"]
    assert "mostly with garbage collection (180 ms)" in log.texts("warn")[0]


def test_collections_of_other_threads_are_no_part_of_a_turn() -> None:
    clock = FakeClock()
    watch = TurnWatch(clock, MemoryLog())
    end = name_collections(watch)
    try:
        clock.work_ns(60_000_000)
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
    finally:
        end()
    watch.end_turn()
    assert list(watch.kinds) == ["end of turn"]


@pytest.fixture
def settings() -> Iterator[None]:
    """Those of the tests again, afterwards.

    All that exists stays frozen: with millions of objects of the tests themselves, each collection
    of the later ones would take seconds.
    """
    threshold = gc.get_threshold()
    collect_only_what_is_new()
    yield
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("settings")
def test_what_is_there_after_the_start_is_left_out() -> None:
    kept = [{"number": [number]} for number in range(1000)]
    before = gc.get_freeze_count()
    collect_only_what_is_new()
    assert gc.get_freeze_count() >= before + len(kept)
    assert gc.isenabled()


@pytest.mark.usefixtures("settings")
def test_no_collection_visits_all_objects_however_many_there_are() -> None:
    full, middle = gc.get_stats()[2]["collections"], gc.get_stats()[1]["collections"]
    kept = [[number] for number in range(20 * YOUNG_OBJECTS_MAX * YOUNG_COLLECTIONS_MAX)]
    assert gc.get_stats()[1]["collections"] >= middle + 15
    assert gc.get_stats()[2]["collections"] == full, len(kept)


class Node:
    """Half of a cycle, with something that stays."""

    def __init__(self, surroundings: object) -> None:
        self.other: Any = None
        self.surroundings = surroundings


class Surroundings:
    """In use."""

    def __init__(self) -> None:
        self.parts = [[number] for number in range(1000)]


def dropped_cycle(surroundings: object) -> Node:
    first, second = Node(surroundings), Node(surroundings)
    first.other, second.other = [second], {"first": first}
    return first


def test_a_walk_ends_at_what_stays() -> None:
    surroundings = Surroundings()
    node = dropped_cycle(surroundings)
    parts = parts_of([node], [surroundings], 100_000)
    assert {id(each) for each in parts} == {
        id(each) for each in (node, node.other, node.other[0], node.other[0].other)
    }
    assert len(parts_of([node], [], 100_000)) > 1000
    assert len(parts_of([node], [], 10)) == 10


class ManyAttributes:
    """So many that Python keeps them in a dict."""

    def __init__(self) -> None:
        for number in range(100):
            setattr(self, f"part_{number}", {number: [number]})


def test_a_walk_ends_at_what_stays_however_many_attributes_it_has() -> None:
    surroundings: Any = ManyAttributes()
    node = dropped_cycle(surroundings.part_77)
    parts = parts_of([node], [surroundings], 100_000)
    assert not [part for part in parts if part in ([77], {77: [77]})]


class Empty:
    """Is false, and there."""

    def __init__(self) -> None:
        self.parts = [[number] for number in range(1000)]

    def __len__(self) -> int:
        return 0


@pytest.mark.usefixtures("settings")
def test_no_step_deals_with_all_that_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with those that are gone already, nor with the surroundings of those that are not."""
    monkeypatch.setattr(garbage, "STEP_OBJECTS_MAX", 100)
    sizes: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        collector = Collector(loop, TurnWatch(FakeClock(), MemoryLog()), first_seconds=0)
        monkeypatch.setattr(
            garbage, "make_young", lambda parts: sizes.append(len(parts)) or make_young(parts)
        )
        surroundings = Empty()
        kept = dropped_cycle(surroundings)
        collector.let_go(kept, surroundings)
        for _ in range(1000):
            collector.let_go(Node(None))
        collector._step()
        assert 800 < collector.waiting_count < 1000
        collector.stop()

    asyncio.run(run())
    assert sizes == [4]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)


@pytest.mark.usefixtures("settings")
def test_a_dropped_cycle_is_freed_however_old_it_is() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        collector = Collector(loop, TurnWatch(FakeClock(), MemoryLog()), first_seconds=0.001)
        surroundings = Surroundings()
        node = dropped_cycle(surroundings)
        gc.freeze()
        gone = weakref.ref(node)
        collector.let_go(node, surroundings)
        await asyncio.wait_for(until(lambda: collector.waiting_count == 1), 10)
        del node
        await asyncio.wait_for(until(lambda: gone() is None), 10)
        await asyncio.wait_for(until(lambda: not collector.waiting_count), 10)
        collector.stop()

    asyncio.run(run())


@pytest.mark.usefixtures("settings")
def test_what_stays_in_use_is_given_up_in_the_end() -> None:
    async def run() -> Node:
        loop = asyncio.get_running_loop()
        collector = Collector(loop, TurnWatch(FakeClock(), MemoryLog()), first_seconds=0.0001)
        node = dropped_cycle(None)
        collector.let_go(node)
        await asyncio.wait_for(until(lambda: not collector.waiting_count), 10)
        return node

    assert asyncio.run(run()).other
