"""One deadline per owner."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.jetstream.timers import Timers


@dataclass(frozen=True, eq=False)
class Owner:
    """An object whose deadlines the test knows by heart."""

    name: str = ""
    next_deadline_ns: int = 0

    def tick(self) -> None:
        raise AssertionError("timers call nobody")


def test_owners_are_taken_when_they_are_due_in_order() -> None:
    timers = Timers()
    one, two, three = Owner("one"), Owner("two"), Owner("three")
    for owner, due_ns in ((one, 30), (two, 10), (three, 20)):
        timers.set(owner, due_ns)
    assert timers.next_ns() == 10
    assert timers.take_due(20) == [two, three]
    assert timers.take_due(20) == []
    assert timers.next_ns() == 30


def test_the_earliest_are_taken_when_not_all_are_wanted() -> None:
    timers = Timers()
    owners = [Owner() for _ in range(5)]
    for due_ns, owner in enumerate(owners, 1):
        timers.set(owner, due_ns)
    assert timers.take_due(4, 3) == owners[:3]
    assert timers.take_due(4, 3) == owners[3:4]
    assert timers.take_due(4, 3) == []


def test_earlier_deadline_wins_and_a_later_one_is_said_again() -> None:
    timers = Timers()
    owner = Owner("owner")
    timers.set(owner, 30)
    timers.set(owner, 10)
    timers.set(owner, 50)
    assert timers.take_due(10) == [owner]
    assert timers.next_ns() is None
    timers.set(owner, 50)
    assert timers.take_due(50) == [owner]


def test_forgotten_owner_is_never_taken() -> None:
    timers = Timers()
    owner, other = Owner("owner"), Owner("other")
    timers.set(owner, 10)
    timers.set(other, 20)
    timers.forget(owner)
    assert timers.next_ns() == 20
    assert timers.take_due(30) == [other]


def test_no_deadline_changes_nothing() -> None:
    timers = Timers()
    owner = Owner("owner")
    timers.set(owner, 0)
    assert timers.next_ns() is None


def test_deadline_that_moves_away_does_not_fill_the_heap() -> None:
    timers = Timers()
    owner = Owner("owner")
    for due_ns in range(1, 10_000):
        timers.set(owner, due_ns)
    assert timers.take_due(1) == [owner]
    assert timers.next_ns() is None


def test_near_deadlines_in_front_of_far_ones_do_not_fill_the_heap() -> None:
    """As of a consumer whose requests end every now and then, and that itself ends in a year."""
    timers = Timers()
    owners = [Owner("one"), Owner("two"), Owner("three")]
    for now_ns in range(1, 5_000):
        for owner in owners:
            timers.set(owner, 10**12 + now_ns % 7)
            timers.set(owner, now_ns)
        assert timers.take_due(now_ns) == owners
        assert len(timers) < 200
    for owner in owners:
        timers.set(owner, 10**12)
    assert timers.next_ns() == 10**12
    assert timers.take_due(10**13) == owners
