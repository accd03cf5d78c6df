"""What becomes of stamps, ages, ids, schedules, pauses and replays when the clock jumps."""

from __future__ import annotations

from typing import Any

import pytest

from clock_kit import HOUR, SECOND, YEAR, ClockWorld
from tradewind.api.times import format_time
from tradewind.broker.turn import CLOCK_BELIEVED_NS
from tradewind.errors import StoreError
from tradewind.jetstream.clock_watch import TOLD_PER_STEP
from tradewind.store.contract import MessageCopy
from tradewind.store.format.timing_wheel import TimingWheel
from tradewind.stream.schedules import Schedules

BELIEVED_S = CLOCK_BELIEVED_NS // SECOND
STORAGES = pytest.mark.parametrize("storage", ["memory", "file"])
AGE_S = 600


def world_with(storage: str = "file", **config: object) -> ClockWorld:
    world = ClockWorld()
    answer = world.peer.create("S", storage=storage, **config)
    assert "error" not in answer, answer
    return world


def glance_ahead(world: ClockWorld, *lines: str, distance_ns: int = YEAR) -> int:
    """Publish once while the clock is ahead for a second; gives the sequence."""
    world.jump(distance_ns)
    seq: int = world.publish("S.ahead", *lines)["seq"]
    world.wait(1)
    world.correct()
    return seq


def warnings(world: ClockWorld) -> list[str]:
    return [text for text in world.server.log.texts("warn") if "behind the last message" in text]


# ---------------------------------------------------------------------- stamps


@STORAGES
@pytest.mark.parametrize("distance_ns", [10 * SECOND, HOUR, YEAR, 200 * YEAR])
def test_stamps_follow_a_clock_that_is_set_right(storage: str, distance_ns: int) -> None:
    world = world_with(storage)
    glance_ahead(world, distance_ns=distance_ns)
    for _ in range(3):
        seq = world.publish("S.a")["seq"]
        stamp = world.store().get(seq).timestamp_ns
        assert 0 <= stamp - world.clock.wall_ns() < 10
    assert len(warnings(world)) == 1
    world.store().verify()


def test_stamps_rise_while_the_clock_is_a_little_behind() -> None:
    world = world_with()
    world.publish("S.a")
    world.jump(-SECOND)
    world.publish("S.a")
    first, second = world.store().messages()
    assert second.timestamp_ns == first.timestamp_ns + 1
    assert not warnings(world)


def test_stamps_of_a_batch_follow_the_clock() -> None:
    world = world_with(allow_atomic=True)
    glance_ahead(world)
    for number, commit in ((1, ()), (2, ("Nats-Batch-Commit: 1",))):
        lines = ("Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}", *commit)
        head = "NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
        world.peer.connection.send(
            f"HPUB S.b inbox.b {len(head)} {len(head) + 1}\r\n{head}x\r\n".encode()
        )
    stamps = [message.timestamp_ns for message in world.store().messages()][1:]
    assert len(stamps) == 2
    assert all(0 <= stamp - world.clock.wall_ns() < 10 for stamp in stamps)
    assert len(world.store().blocks) == 2


def test_clock_that_jumps_all_the_time_makes_few_blocks() -> None:
    world = world_with()
    for _ in range(300):
        world.jump(HOUR)
        world.publish("S.a")
        world.jump(-HOUR)
        world.publish("S.a")
    assert len(world.store().blocks) <= 3
    assert world.store().msgs == 600


@pytest.mark.parametrize("wall_ns", [2**63 - 1, 0, 1, -YEAR])
def test_clock_at_the_end_of_time_hinders_nothing_later(wall_ns: int) -> None:
    world = world_with(max_age=AGE_S * SECOND)
    world.publish("S.a")
    world.jump(wall_ns - world.clock.wall_ns())
    world.publish("S.b", "Nats-Msg-Id: 1")
    world.correct()
    assert "duplicate" not in world.publish("S.c", "Nats-Msg-Id: 2")
    world.restart()
    world.publish("S.d")
    world.wait(AGE_S + 120)
    assert world.live() == []


# ---------------------------------------------------------------------- ids


@STORAGES
def test_id_is_a_duplicate_for_one_window_whatever_the_clock_does(storage: str) -> None:
    world = world_with(storage, duplicate_window=100 * SECOND)
    world.jump(YEAR)
    assert world.publish("S.a", "Nats-Msg-Id: a")["seq"] == 1
    world.wait(1)
    world.correct()
    assert world.publish("S.a", "Nats-Msg-Id: a")["duplicate"]
    world.wait(97)
    assert world.publish("S.a", "Nats-Msg-Id: a")["duplicate"]
    world.wait(3)
    assert "duplicate" not in world.publish("S.a", "Nats-Msg-Id: a")
    # Nor is the window shorter when the clock jumps ahead.
    world.jump(YEAR)
    world.wait(BELIEVED_S + 40)
    assert world.publish("S.a", "Nats-Msg-Id: a")["duplicate"]


@pytest.mark.parametrize("kill", [False, True])
def test_id_from_ahead_of_the_clock_is_forgotten_a_window_after_the_start(kill: bool) -> None:
    world = world_with(duplicate_window=100 * SECOND)
    world.publish("S.a", "Nats-Msg-Id: before")
    world.jump(YEAR)
    world.publish("S.a", "Nats-Msg-Id: ahead")
    world.wait(1)
    world.correct()
    world.restart(kill=kill)
    for name in ("before", "ahead"):
        assert world.publish("S.a", f"Nats-Msg-Id: {name}")["duplicate"]
    world.wait(101)
    for name in ("before", "ahead"):
        assert "duplicate" not in world.publish("S.a", f"Nats-Msg-Id: {name}")


def test_start_with_a_clock_in_1970_knows_the_ids_of_the_last_window_only() -> None:
    world = world_with(duplicate_window=100 * SECOND)
    world.publish("S.a", "Nats-Msg-Id: old")
    world.wait(3600)
    world.publish("S.a", "Nats-Msg-Id: new")
    world.stop()
    world.jump(5 * SECOND - world.clock.wall_ns())
    world.start()
    assert world.publish("S.a", "Nats-Msg-Id: new")["duplicate"]
    assert "duplicate" not in world.publish("S.a", "Nats-Msg-Id: old")


# ---------------------------------------------------------------------- age and time to live


@STORAGES
def test_message_from_ahead_of_the_clock_ages_and_holds_up_no_others(storage: str) -> None:
    world = world_with(storage, max_age=AGE_S * SECOND)
    glance_ahead(world)
    world.publish("S.a")
    world.wait(AGE_S - 10)
    assert world.live() == [1, 2]
    world.wait(20)
    assert world.live() == []


@pytest.mark.parametrize("kill", [False, True])
def test_message_from_ahead_of_the_clock_ages_after_starts(kill: bool) -> None:
    """Not anew with every start: what was stored behind it tells when it was there."""
    world = world_with(max_age=AGE_S * SECOND)
    glance_ahead(world)
    world.publish("S.a")
    for _ in range(3):
        world.wait(AGE_S / 3 + 10)
        world.restart(kill=kill)
    assert world.live() == []


@STORAGES
def test_time_to_live_ends_after_a_jump(storage: str) -> None:
    world = world_with(storage, allow_msg_ttl=True)
    glance_ahead(world, "Nats-TTL: 100")
    world.wait(90)
    assert world.live() == [1]
    world.wait(15)
    assert world.live() == []


@pytest.mark.parametrize("kill", [False, True])
def test_time_to_live_that_began_ahead_of_the_clock_ends_after_a_start(kill: bool) -> None:
    world = world_with(allow_msg_ttl=True)
    world.jump(YEAR)
    world.wait(120)
    world.publish("S.a", "Nats-TTL: 100")
    world.correct()
    world.restart(kill=kill)
    world.wait(90)
    assert world.live() == [1]
    world.wait(20)
    assert world.live() == []


def test_believed_clock_that_is_set_back_prolongs_no_lifetime() -> None:
    world = world_with(allow_msg_ttl=True)
    world.jump(YEAR)
    world.wait(120)
    for _ in range(3):
        world.publish("S.a", "Nats-TTL: 100")
    world.correct()
    world.wait(100 + 60 + 2)
    assert world.live() == []


@STORAGES
def test_clock_that_is_ahead_for_a_second_removes_nothing(storage: str) -> None:
    world = world_with(storage, max_age=AGE_S * SECOND, allow_msg_ttl=True)
    world.publish("S.a", "Nats-TTL: 300")
    world.publish("S.b")
    glance_ahead(world)
    world.wait(1)
    assert world.live() == [1, 2, 3]
    world.wait(AGE_S + 60)
    assert world.live() == []


def test_clock_that_stays_ahead_is_believed() -> None:
    world = world_with(max_age=AGE_S * SECOND)
    world.publish("S.a")
    world.jump(YEAR)
    world.wait(BELIEVED_S - 1)
    assert world.live() == [1]
    # An idle server looks at the clock once a minute.
    world.wait(62)
    assert world.live() == []


def test_start_in_1970_loses_nothing() -> None:
    """A machine without a battery: its clock is set right some seconds after the start."""
    world = world_with(max_age=AGE_S * SECOND, allow_msg_ttl=True)
    world.publish("S.a")
    world.publish("S.b", "Nats-TTL: 300")
    world.stop()
    world.jump(5 * SECOND - world.clock.wall_ns())
    world.start()
    world.wait(5)
    world.correct()
    world.wait(100)
    assert world.live() == [1, 2]
    world.wait(210)
    assert world.live() == [1]
    world.wait(AGE_S - 300)
    assert world.live() == []


@pytest.mark.slow
def test_many_lifetimes_from_ahead_of_the_clock_are_corrected_in_steps() -> None:
    world = world_with("memory", allow_msg_ttl=True)
    world.jump(YEAR)
    world.wait(120)
    head = "NATS/1.0\r\nNats-TTL: 100\r\n\r\n"
    frame = f"HPUB S.a {len(head)} {len(head) + 1}\r\n{head}x\r\n".encode()
    world.peer.connection.send(frame * 25_000)
    assert world.store().msgs == 25_000
    world.correct()
    world.wait(100 + 60 + 2)
    assert world.store().msgs == 0


# ---------------------------------------------------------------------- schedules


def runs(world: ClockWorld) -> int:
    subjects = [message.subject for message in world.store().messages()]
    return subjects.count(b"S.out")


EVERY = ("Nats-Schedule: @every 60s", "Nats-Schedule-Target: S.out")


@pytest.mark.parametrize("kill", [None, False, True])
def test_repeating_schedule_does_not_wait_for_a_time_ahead(kill: bool | None) -> None:
    world = world_with(allow_msg_schedules=True)
    world.jump(YEAR)
    world.wait(120)
    world.publish("S.plan", *EVERY)
    world.wait(70)
    assert runs(world) == 1
    world.correct()
    if kill is not None:
        world.restart(kill=kill)
    world.wait(130)
    assert runs(world) in (2, 3)


def test_schedule_that_cannot_be_read_does_not_keep_others_from_being_planned_again() -> None:
    class Unreadable:
        """A store of schedules that repeat, one of which cannot be read."""

        def __init__(self) -> None:
            self.schedules = TimingWheel(1)

        def is_live(self, seq: int) -> bool:
            return seq > 0

        def get(self, seq: int) -> MessageCopy:
            if seq == 3:
                raise StoreError("as by a disk")
            header = b"NATS/1.0\r\nNats-Schedule: @every 10s\r\nNats-Schedule-Target: t\r\n\r\n"
            return MessageCopy(seq, 0, b"s", header, b"")

    store: Any = Unreadable()
    schedules = Schedules(store, lambda _publish: None)
    for seq in range(1, 6):
        store.schedules.add(seq, YEAR)
    schedules.clock_went_back()
    with pytest.raises(StoreError):
        schedules.tick(HOUR)
    schedules.tick(HOUR)
    times = dict(store.schedules.pending())
    assert {seq for seq, due_ns in times.items() if due_ns == YEAR} == {3}


def test_schedule_that_is_due_once_does_not_run_while_nobody_believes_the_clock() -> None:
    world = world_with(allow_msg_schedules=True)
    at = format_time(world.clock.wall_ns() + HOUR)
    world.publish("S.plan", f"Nats-Schedule: @at {at}", "Nats-Schedule-Target: S.out")
    world.jump(YEAR)
    world.wait(BELIEVED_S - 1)
    world.correct()
    world.wait(70)
    assert runs(world) == 0
    world.wait(3600)
    assert runs(world) == 1


# ---------------------------------------------------------------------- consumers


def consumer(world: ClockWorld, **config: object) -> None:
    body = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit", **config}}
    answer = world.peer.api("CONSUMER.DURABLE.CREATE.S.c", body)
    assert "error" not in answer, answer


def pull(world: ClockWorld) -> list[str]:
    """The subjects of what a pull of one message gives at once."""
    found = world.peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.c", {"batch": 1, "no_wait": True})
    return [subject for subject, *_ in found if not subject.startswith("inbox")]


@pytest.mark.parametrize("kill", [None, False, True])
def test_start_time_finds_the_first_message_that_is_not_older(kill: bool | None) -> None:
    world = world_with()
    world.publish("S.old")
    world.wait(10)
    wanted_ns = world.clock.wall_ns()
    glance_ahead(world)
    world.publish("S.new")
    if kill is not None:
        world.restart(kill=kill)
    # In the order of the stream: the one from ahead of the clock is not older.
    assert world.store().sequence_at(wanted_ns) == 2
    assert world.store().sequence_at(wanted_ns + HOUR) == 2
    assert world.store().sequence_at(wanted_ns + 2 * YEAR) == 4
    world.peer.api("STREAM.MSG.DELETE.S", {"seq": 2})
    assert world.store().sequence_at(wanted_ns) == 3


def test_pause_ends_by_the_clock_that_is_set() -> None:
    world = world_with()
    world.publish("S.a")
    consumer(world, pause_until=format_time(world.clock.wall_ns() + HOUR))
    assert pull(world) == []
    world.jump(HOUR)
    world.wait(60 + BELIEVED_S + 1)
    assert pull(world) == ["S.a"]


@pytest.mark.parametrize("kill", [False, True])
def test_delivery_that_was_saved_ahead_of_the_clock_is_repeated_in_time(kill: bool) -> None:
    world = world_with()
    consumer(world, ack_wait=30 * SECOND)
    world.jump(YEAR)
    world.publish("S.a")
    assert pull(world) == ["S.a"]
    world.wait(5)
    world.correct()
    world.restart(kill=kill)
    world.wait(32)  # files have whole seconds: it is up to one later
    assert pull(world) == ["S.a"]


def test_replay_does_not_wait_for_a_pause_that_never_was() -> None:
    world = world_with()
    world.publish("S.a")
    glance_ahead(world)
    world.wait(1)
    world.publish("S.b")
    world.peer.connection.send(b"SUB push 7\r\n")
    config = {"durable_name": "r", "deliver_subject": "push", "replay_policy": "original"}
    body = {"stream_name": "S", "config": config}
    found = world.peer.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.r", body)
    world.wait(3)
    found += world.peer.take()
    assert [subject for subject, *_ in found[1:]] == ["S.a", "S.ahead", "S.b"]


# ---------------------------------------------------------------------- mirrors


@pytest.mark.parametrize("kill", [False, True])
def test_mirror_goes_on_with_an_origin_that_was_created_ahead_of_the_clock(kill: bool) -> None:
    world = ClockWorld()
    world.jump(YEAR)
    world.peer.create("S", storage="file")
    world.wait(120)
    world.correct()
    world.publish("S.a")
    world.peer.api("STREAM.CREATE.M", {"name": "M", "storage": "file", "mirror": {"name": "S"}})
    world.wait(5)
    assert world.live("M") == [1]
    world.restart(kill=kill)
    world.publish("S.b")
    world.wait(60)
    assert world.live("M") == world.live("S")
    assert len(world.live("S")) == 2
    times = [message.timestamp_ns for message in world.store("S").messages()]
    assert [message.timestamp_ns for message in world.store("M").messages()] == times


def test_consumers_that_go_while_the_others_are_told_of_a_jump_have_no_deadline() -> None:
    world = world_with()
    for number in range(3 * TOLD_PER_STEP):
        durable = {"durable_name": f"c{number}", "deliver_subject": "d", "idle_heartbeat": SECOND}
        body = {"stream_name": "S", "config": durable}
        answer = world.peer.api(f"CONSUMER.CREATE.S.c{number}", body)
        assert "error" not in answer, answer
    engine = world.server.engine
    assert engine is not None
    hosted = engine.accounts["$G"].streams["S"]
    gone = list(hosted.consumers.values())
    watch = engine._clock_watch
    world.jump(-HOUR)
    engine.set_time()
    engine.turn.steady_ns()
    watch.tick()
    assert watch._walk is not None
    for consumer in gone:
        hosted.remove_consumer(consumer)
    while watch._walk is not None:
        watch.tick()
    owners = engine.timers.take_due(2**62)
    assert watch in owners
    assert not [owner for owner in owners if owner in gone]


def test_consumer_that_fails_does_not_keep_a_jump_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with()
    until = format_time(world.clock.wall_ns() + HOUR)
    for name in ("a", "b"):
        config = {"durable_name": name, "ack_policy": "explicit", "pause_until": until}
        answer = world.peer.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        assert "error" not in answer, answer
    engine = world.server.engine
    assert engine is not None
    first, second = engine.accounts["$G"].streams["S"].consumers.values()

    def fail() -> None:
        raise RuntimeError("as by a bug")

    world.server.expects_faults = True
    monkeypatch.setattr(first, "clock_moved", fail)
    world.jump(HOUR)
    world.wait(60 + 2 * BELIEVED_S)
    assert not second.delivery.paused
    assert any("as by a bug" in text for text in world.server.log.texts("error"))
