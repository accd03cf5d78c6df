"""A message wakes the consumers that wait for it, and few others: the model asks everybody."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subject_model import matches

from thoroughness import some
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.broker.turn import Participant, Turn
from tradewind.jetstream.demand import FEW_CONSUMERS, MESSAGES_MAX, Demand
from tradewind.store.table.message_store import MessageStore

SUBJECTS = ("a.1", "a.2", "b.1", "b.2", "c")
FILTERS = ("", "a.1", "a.2", "b.1", "c", "a.*", "b.>", ">", "*.1")


@dataclass
class Position:
    """The filter of a consumer."""

    filters: list[str]

    def accepts(self, subject: bytes) -> bool:
        return not self.filters or any(matches(one, subject.decode()) for one in self.filters)


class FakeConsumer(Participant):
    """Has a filter, and perhaps somebody who waits."""

    def __init__(self, filters: list[str]) -> None:
        self.has_demand = False
        self.set_filters(filters)

    def set_filters(self, filters: list[str]) -> None:
        self.config = ConsumerConfig(filter_subjects=[one for one in filters if one])
        self.cursor = Position([one for one in filters if one])


@dataclass
class World:
    """The index, and what is true of it."""

    store: MessageStore = field(default_factory=lambda: MessageStore("S"))
    turn: Turn = field(default_factory=Turn)
    consumers: list[FakeConsumer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.demand = Demand(self.store, seed=0)

    def add(self, filters: list[str]) -> None:
        self.consumers.append(FakeConsumer(filters))
        self.demand.add(cast(Any, self.consumers[-1]))

    def publish(self, subjects: list[str]) -> set[FakeConsumer]:
        for number, subject in enumerate(subjects):
            self.store.store(subject.encode(), b"", b"x", number)
        self.demand.wake(self.turn, self.store.last_seq)
        return cast(set[FakeConsumer], set(self.turn.take_woken()))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.sampled_from(FILTERS), max_size=2)),
        st.tuples(st.just("change"), st.lists(st.sampled_from(FILTERS), max_size=2)),
        st.tuples(st.just("remove"), st.none()),
        st.tuples(st.just("wait"), st.booleans()),
        st.tuples(st.just("publish"), st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=3)),
    ),
    min_size=20,
    max_size=80,
)


@pytest.mark.slow
@settings(max_examples=some(60, 150), deadline=None)
@given(steps, st.integers(0, 1 << 30))
def test_everybody_who_waits_for_a_message_is_woken_and_nobody_who_does_not_wait(
    story: list[tuple[str, Any]], seed: int
) -> None:
    random, world = Random(seed), World()
    for _ in range(FEW_CONSUMERS + 2):
        world.add([random.choice(FILTERS)])
        world.consumers[-1].has_demand = True
        world.demand.update_waiting(cast(Any, world.consumers[-1]))
    for action, value in story:
        chosen = random.choice(world.consumers) if world.consumers else None
        if action == "add":
            world.add(value)
        elif chosen is None:
            continue
        elif action == "change":
            chosen.set_filters(value)
            world.demand.add(cast(Any, chosen))
            world.demand.update_waiting(cast(Any, chosen))
        elif action == "remove":
            world.consumers.remove(chosen)
            world.demand.remove(cast(Any, chosen))
        elif action == "wait":
            chosen.has_demand = value
            world.demand.update_waiting(cast(Any, chosen))
        else:
            woken = world.publish(value)
            waiting = {one for one in world.consumers if one.has_demand}
            wanted = {
                one
                for one in waiting
                if any(one.cursor.accepts(subject.encode()) for subject in value)
            }
            assert wanted <= woken <= waiting
            if len(waiting) > FEW_CONSUMERS:
                assert woken == wanted


def test_many_messages_wake_everybody_who_waits() -> None:
    world = World()
    for _ in range(FEW_CONSUMERS + 1):
        world.add(["a.1"])
        world.consumers[-1].has_demand = True
        world.demand.update_waiting(cast(Any, world.consumers[-1]))
    assert world.publish(["b.1"] * MESSAGES_MAX) == set()
    assert world.publish(["b.1"] * (MESSAGES_MAX + 1)) == set(world.consumers)
    assert world.publish([]) == set()
