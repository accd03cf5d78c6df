"""Random jumps of the clock around publishes, waits, stops and power failures; beside it what has
to hold whatever the clock does.

    stamps      follow the clock: none is more than two seconds from it
    lifetimes   nothing goes before a time that was believed, or true, says so, and everything goes
                when the clock has been left alone for as long as it may live
    ids         are duplicates for one window of time that passes, not of the clock
    schedules   run again when the clock has been left alone for their interval, never in a flood
    start times find the first message in the order of the stream that is not older
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from clock_kit import HOUR, SECOND, YEAR, ClockWorld
from tradewind.broker.turn import CLOCK_BELIEVED_NS
from tradewind.clock import CLOCK_SLACK_NS
from tradewind.jetstream.clock_watch import LOOK_NS

AGE_NS = 400 * SECOND
TTL_NS = 150 * SECOND
MARKER_NS = 20 * SECOND
WINDOW_NS = 100 * SECOND
EVERY_NS = 60 * SECOND
# How late a jump is noticed and believed, and the rounding of schedules.
LATE_NS = LOOK_NS + CLOCK_BELIEVED_NS + 2 * CLOCK_SLACK_NS
JUMPS = [sign * size for sign in (1, -1) for size in (SECOND, 10 * SECOND, HOUR, YEAR)]
STREAMS: dict[str, dict[str, Any]] = {
    "A": {"max_age": AGE_NS, "duplicate_window": WINDOW_NS},
    "T": {
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": MARKER_NS,
        "allow_rollup_hdrs": True,
        "duplicate_window": WINDOW_NS,
    },
    "P": {"allow_msg_schedules": True},
}


class Stored(msgspec.Struct):
    """A message: what it may live, when it came, and by which clocks it may have been judged."""

    life_ns: int
    came_ns: int  # monotonic
    earliest_ns: int  # the lowest that it may count as stored
    latest_ns: int  # the highest time that may have been believed since


class Model:
    """A server and what has to hold of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = ClockWorld()
        for name, config in STREAMS.items():
            answer = self.world.peer.create(name, storage="file", **config)
            assert "error" not in answer, answer
        self.messages: dict[str, dict[int, Stored]] = {"A": {}, "T": {}}
        self.ids: dict[str, int] = {}  # when each came
        self.started_ns = self.now_ns
        self.disturbed_ns = self.now_ns  # the last jump or start
        self.jumped_ns = self.now_ns
        self.offset_ns = self.world.clock.wall_ns() - self.now_ns  # of the time that is believed
        self.world.publish("P.plan", "Nats-Schedule: @every 60s", "Nats-Schedule-Target: P.out")
        self.ran = 0
        self.checked_ns = self.now_ns

    @property
    def now_ns(self) -> int:
        return self.world.clock.monotonic_ns()

    # ------------------------------------------------------------------ steps

    def step(self) -> None:
        kind = self.chance.choices(
            ["publish", "id", "jump", "correct", "wait", "restart"], [8, 4, 3, 3, 6, 1]
        )[0]
        getattr(self, kind)()
        self.check()

    def publish(self) -> None:
        name = self.chance.choice("AT")
        lines = (f"Nats-TTL: {TTL_NS // SECOND}",) if name == "T" else ()
        subject = f"{name}.{self.chance.randrange(3)}"
        self._stored(name, self.world.publish(subject, *lines)["seq"])

    def id(self) -> None:
        text = str(self.chance.randrange(4))
        answer = self.world.publish("A.id", f"Nats-Msg-Id: {text}")
        came_ns = self.ids.get(text)
        is_known = came_ns is not None and self.now_ns - came_ns < WINDOW_NS
        if self.started_ns > (came_ns or 0) and self.now_ns - self.started_ns < WINDOW_NS:
            # A start knows ids by their stamps: by a clock that was wrong it may not know it, or
            # for a window more.
            is_known = answer.get("duplicate", False)
        assert answer.get("duplicate", False) == is_known, (text, answer)
        if not is_known:
            self.ids[text] = self.now_ns
            self._stored("A", answer["seq"])

    def _stored(self, name: str, seq: int) -> None:
        wall_ns = self.world.clock.wall_ns()
        stamp_ns = self.world.store(name).get(seq).timestamp_ns
        assert abs(stamp_ns - wall_ns) <= CLOCK_SLACK_NS + SECOND // 1000, (seq, stamp_ns, wall_ns)
        life_ns = AGE_NS if name == "A" else TTL_NS
        believed_ns = max(self._believed(), wall_ns - self.world.error_ns)
        earliest_ns = min(wall_ns, stamp_ns)
        self.messages[name][seq] = Stored(life_ns, self.now_ns, earliest_ns, believed_ns)

    def jump(self) -> None:
        self._move(self.chance.choice(JUMPS))

    def correct(self) -> None:
        if self.world.error_ns:
            self._move(-self.world.error_ns)

    def _move(self, distance_ns: int) -> None:
        self.wait(1)  # a clock is followed back at most once a second
        self.world.jump(distance_ns)
        self.disturbed_ns = self.now_ns
        if abs(distance_ns) > CLOCK_SLACK_NS:
            self.jumped_ns = self.now_ns
        self._see()

    def wait(self, seconds: int = 0) -> None:
        self.world.wait(seconds or self.chance.choice([1, 5, 20, 40, 100, 300]))
        self._see()

    def restart(self) -> None:
        self.world.restart(kill=self.chance.random() < 0.5)
        self.started_ns = self.disturbed_ns = self.now_ns
        self.jumped_ns = self.now_ns - CLOCK_BELIEVED_NS  # it is believed at once
        self._see()

    # ------------------------------------------------------------------ what holds

    def _believed(self) -> int:
        """The clock if it may be believed, else what was believed before, and has gone on."""
        offset_ns = self.world.clock.wall_ns() - self.now_ns
        is_held = self.now_ns - self.jumped_ns >= CLOCK_BELIEVED_NS - SECOND
        if is_held or offset_ns < self.offset_ns:
            self.offset_ns = offset_ns
        return self.now_ns + self.offset_ns

    def _see(self) -> None:
        """Time has passed, or the clock was set."""
        wall_ns = self.world.clock.wall_ns()
        true_ns = wall_ns - self.world.error_ns
        for messages in self.messages.values():
            for stored in messages.values():
                stored.earliest_ns = min(stored.earliest_ns, wall_ns)
                stored.latest_ns = max(stored.latest_ns, self._believed(), true_ns)

    def check(self) -> None:
        for name, messages in self.messages.items():
            live = set(self.world.live(name))
            for seq, stored in list(messages.items()):
                if seq in live:
                    since_ns = max(stored.came_ns, self.disturbed_ns)
                    assert self.now_ns - since_ns <= stored.life_ns + LATE_NS, (name, seq)
                else:
                    aged_ns = stored.latest_ns - stored.earliest_ns
                    aged_ns = max(aged_ns, self.now_ns - stored.came_ns)
                    assert aged_ns >= stored.life_ns - 3 * CLOCK_SLACK_NS, (name, seq, aged_ns)
                    del messages[seq]
            self.world.store(name).verify()
            self._check_start_time(name)
        if self.now_ns - self.disturbed_ns > TTL_NS + MARKER_NS + 2 * LATE_NS:
            first_ns = self.now_ns - TTL_NS - MARKER_NS - 2 * LATE_NS
            assert all(one.came_ns >= first_ns for one in self.messages["T"].values())
        self._check_runs()

    def _check_start_time(self, name: str) -> None:
        store = self.world.store(name)
        found = list(store.messages())
        wanted = [self.world.clock.wall_ns() + shift for shift in (0, -50 * SECOND, HOUR, -YEAR)]
        for time_ns in [*wanted, *(one.timestamp_ns for one in found[-2:])]:
            expected = next((one.seq for one in found if one.timestamp_ns >= time_ns), None)
            assert store.sequence_at(time_ns) == expected or expected is None, (name, time_ns)

    def _check_runs(self) -> None:
        state = self.world.store("P").subject_state(b"P.out")
        count = (state.msgs if state is not None else 0) - self.ran
        passed_ns = self.now_ns - self.checked_ns
        self.ran, self.checked_ns = self.ran + count, self.now_ns
        assert count <= passed_ns // EVERY_NS + 2, (count, passed_ns)
        if self.now_ns - self.disturbed_ns > EVERY_NS + LATE_NS:
            due_ns = self.world.store("P").schedules.next_expiry
            assert due_ns is not None
            assert due_ns - self.world.clock.wall_ns() <= EVERY_NS + SECOND, due_ns


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_everything_that_depends_on_time_stays_right_when_the_clock_jumps(seed: int) -> None:
    model = Model(seed)
    for _ in range(60):
        model.step()
    # The clock is left alone: whatever may not live for ever goes.
    model.correct()
    for _ in range(8):
        model.wait(100)
    model.check()
    assert not model.messages["A"]
    assert not model.messages["T"]
