"""Full collections of Python are named where they make a turn too long."""

from __future__ import annotations

import gc
import threading

from tradewind.broker.turn_watch import TurnWatch
from tradewind.server.garbage import leave_out_what_is_there, name_collections
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


def test_what_is_there_after_the_start_is_left_out() -> None:
    kept = [{"number": [number]} for number in range(1000)]
    before = gc.get_freeze_count()
    leave_out_what_is_there()
    assert gc.get_freeze_count() >= before + len(kept)
    assert gc.isenabled()
