"""Failover and failback lose nothing that they promise to keep, whoever is killed and when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import wait_for
from move_kit import ACKNOWLEDGED, Packer, Publisher, numbers
from recovery_kit import (
    OFFICIAL,
    STREAM,
    Sites,
    Writer,
    connect,
    drawn,
    wait_until_protected,
    with_kills,
)
from tradewind.recovery import RecoveryJournal, RecoveryKind, RecoveryState
from tradewind.recovery.recovery_journal import load_recovery
from tradewind.recovery.saved import read_saved

THOROUGH = os.environ.get("TRADEWIND_THOROUGH") == "1"
OURS = ("tradewind", "tradewind")
PAIRS = [OURS, ("tradewind", OFFICIAL), (OFFICIAL, "tradewind")]
OLD = 80
SEEDS = range(12) if THOROUGH else range(1)


@pytest.fixture
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sites]:
    pair = Sites(tmp_path, *getattr(request, "param", OURS))
    yield pair
    pair.stop()


def place_of(number: int) -> int:
    """The sequence of a number that was published with nothing lost before it."""
    return OLD + number + 1 if number >= 0 else -number


def check_twice(packer: Packer, *journals: RecoveryJournal) -> None:
    """A message that was finished below the floor of a change-over has not come again behind it."""
    floor = max(each.floor for journal in journals for each in journal.consumers)
    assert [number for number in packer.twice if place_of(number) <= floor] == []


@pytest.mark.timeout(300)  # some twenty resumes each way, and messages all the while
@pytest.mark.parametrize("sites", PAIRS if THOROUGH else PAIRS[:1], indirect=True)
def test_planned_change_overs_lose_nothing_though_the_tool_is_killed_behind_every_change(
    sites: Sites, tmp_path: Path
) -> None:
    sites.make(OLD)
    publisher, packer = Publisher(STREAM, sites.urls), Packer(STREAM, sites.urls)
    publisher.start()
    packer.start()
    over, back = tmp_path / "over.json", tmp_path / "back.json"
    try:
        wait_for(lambda: publisher.count > 5, lambda: "nothing is published")
        kills = with_kills(sites, lambda recovery: recovery.failover(STREAM, over), over)
        assert kills >= 6  # park, pause, create, reset, promote, resume
        count = publisher.count
        wait_for(lambda: publisher.count > count + 5, lambda: "nothing is published at the standby")
        with sites.recovery() as recovery:
            assert recovery.status(STREAM).state is RecoveryState.FAILED_OVER
        api = sites.standby_api
        kills = with_kills(sites, lambda r: r.failback(STREAM, back, standby_api=api), back)
        assert kills >= 10
        count = publisher.count
        wait_for(lambda: publisher.count > count + 5, lambda: "nothing is published at the origin")
        publisher.end()
        old = [-number for number in range(1, OLD + 1)]
        expected = {*old[ACKNOWLEDGED:], *range(publisher.count)}
        wait_for(lambda: packer.handled >= expected, lambda: expected - packer.handled, seconds=60)
    finally:
        publisher.end()
        packer.end()
    assert numbers(sites.origin.url, STREAM) == [*old, *range(publisher.count)]
    assert packer.handled == expected
    check_twice(packer, load_recovery(over), load_recovery(back))
    assert list(tmp_path.glob("*.saved.jsonl")) == []
    with sites.recovery() as recovery:
        wait_until_protected(recovery)
        assert recovery.verify(STREAM).is_same


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sites", PAIRS if THOROUGH else PAIRS[:1], indirect=True)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_origin_costs_what_is_reported_and_a_failback_saves_the_rest(
    sites: Sites, tmp_path: Path, seed: int
) -> None:
    sites.make(OLD)
    writer, packer = Writer(sites.origin.url, 0, 5000), Packer(STREAM, [sites.origin.url] * 2)
    with sites.recovery() as recovery:
        recovery.record(STREAM)
        writer.start()
        packer.start()
        for limit in (drawn(seed, 5, 60), drawn(seed + 1000, 61, 150)):
            wait_for(lambda limit=limit: len(writer.acknowledged) > limit, seconds=60)
            recorded = recovery.record(STREAM)
    sites.origin.kill()
    writer.join(60)
    packer.end()
    floor = recorded.consumers[0].recorded_floor
    assert floor is not None
    assert floor >= ACKNOWLEDGED

    with sites.recovery(has_origin=False) as recovery:
        assert recovery.status(STREAM).state is RecoveryState.ORIGIN_AWAY
        journal = recovery.failover(STREAM, tmp_path / "over.json", is_lost=True)
    # All that is reported to be there is there, without a gap, and nothing else.
    last = journal.last_seq
    held = numbers(sites.standby.url, STREAM)
    assert [place_of(number) for number in held] == list(range(1, last + 1))
    assert set(writer.acknowledged) - set(held) == {
        number for number in writer.acknowledged if place_of(number) > last
    }
    # Consumers go on behind the floor that was recorded, or the end of what there is.
    after = Writer(sites.standby.url, 10_000, 20)
    after.run()
    second = Packer(STREAM, [sites.standby.url] * 2)
    second.start()
    start = min(floor, last)
    expected = {*(number for number in held if place_of(number) > start), *after.acknowledged}
    wait_for(lambda: second.handled >= expected, lambda: expected - second.handled, seconds=60)
    second.end()
    assert second.handled == expected

    check_failback(sites, tmp_path, journal, [*held, *after.acknowledged], writer.acknowledged)


def check_failback(
    sites: Sites, folder: Path, over: RecoveryJournal, held: list[int], acknowledged: list[int]
) -> None:
    """The old origin comes back, takes a message before anybody looks, and is made the origin."""
    sites.origin.start()
    sites.origin.process.wait_ready()
    before = numbers(sites.origin.url, STREAM)
    if OFFICIAL not in (sites.origin.kind, sites.standby.kind):
        # Two writers: whoever still knows only the old origin. A leaf would take it to both.
        Writer(sites.origin.url, 20_000, 3).run()
        before += [20_000, 20_001, 20_002]
    with sites.recovery() as recovery:
        assert recovery.status(STREAM).state is RecoveryState.TWO_WRITERS
        api, path = sites.standby_api, folder / "back.json"
        back = recovery.failback(STREAM, path, standby_api=api)
        assert (back.kind, back.shared_seq) == (RecoveryKind.FAILBACK, over.last_seq)
        saved = []
        if back.saved_messages:
            saved = [int(message.data) for message in read_saved(Path(back.saved_file))]
        assert saved == before[over.last_seq :]
        assert set(acknowledged) <= {*held, *saved}
        assert numbers(sites.origin.url, STREAM) == held
        wait_until_protected(recovery)
        assert recovery.verify(STREAM).is_same
        if saved:
            file = Path(back.saved_file)
            assert recovery.publish_saved(file, STREAM) == len(saved)
            assert recovery.publish_saved(file, STREAM) == 0
    assert numbers(sites.origin.url, STREAM) == [*held, *saved]
    with connect(sites.origin.url) as connection:
        assert not connection.jetstream_manager().consumers.info(STREAM, "packer").paused
