"""Schedules, compared with a plain list; restarts, power failures, refusals, clocks that jump."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tradewind.api import errors
from tradewind.api.stream_types import DiscardPolicy
from tradewind.api.times import format_time
from tradewind.broker.turn import CLOCK_BELIEVED_NS
from tradewind.store.table.schedule_times import note_schedule
from tradewind.stream import header_fields
from tradewind.stream.stream import Stream
from tradewind.stream.stream_opening import open_stream
from unit.stream.stream_kit import SECOND_NS, StreamKit, close, frame, purge, update

CONFIG = {"allow_msg_schedules": True, "allow_rollup_hdrs": True}
# A schedule (which, once after so many seconds or every so many), its end, seconds that pass, and
# how the server ends and begins again.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("once"), st.integers(0, 2), st.integers(1, 6)),
        st.tuples(st.just("every"), st.integers(0, 2), st.integers(1, 6)),
        st.tuples(st.just("end"), st.integers(0, 2), st.sampled_from([0, 1])),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 9)),
        st.tuples(st.sampled_from(["restart", "kill"]), st.just(0), st.integers(0, 9)),
    ),
    max_size=12,
)


def plan(kit: StreamKit, key: int, pattern: str, *more: str) -> bytes:
    lines = (f"Nats-Schedule: {pattern}", f"Nats-Schedule-Target: s.out.{key}", *more)
    return kit.publish(f"s.{key}", b"x", "\r\n".join(lines).encode())


def set_time(kit: StreamKit, stream: Stream, wall_ns: int) -> None:
    """It is then; do all that is due."""
    kit.clock.advance_ns(wall_ns - kit.clock.wall_ns())
    kit.turn.now_ns = kit.clock.wall_ns()
    kit.turn.monotonic_ns = kit.clock.monotonic_ns()
    while 0 < stream.next_deadline_ns <= kit.turn.monotonic_ns:
        stream.tick()
        kit.engine.end_turn()


def runs(stream: Stream) -> Counter[str]:
    """How many messages each schedule has published."""
    return Counter(
        message.subject.decode().removeprefix("s.out.")
        for message in stream.store.messages()
        if message.subject.startswith(b"s.out.")
    )


class Model:
    """When each schedule is due, and how often it was."""

    def __init__(self) -> None:
        self.due: dict[int, tuple[int, int]] = {}
        self.runs: Counter[str] = Counter()

    def run(self, now_s: int) -> None:
        """What is due is done once, however often it should have been."""
        for key, (due_s, every_s) in list(self.due.items()):
            if due_s > now_s:
                continue
            self.runs[str(key)] += 1
            if not every_s:
                del self.due[key]
                continue
            next_s = due_s + every_s
            self.due[key] = (next_s if next_s > now_s else now_s + every_s, every_s)


@settings(max_examples=40)
@given(STEPS)
def test_runs_are_those_of_the_model(steps: list[tuple[str, int, int]]) -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, storage="file")
    model = Model()
    start_ns = kit.clock.wall_ns()
    now_s = 0

    def go_to(second: int) -> None:
        # A little later: then messages of this second are not stored before it.
        set_time(kit, stream, start_ns + second * SECOND_NS + 50_000_000)
        model.run(second)

    go_to(0)
    for what, key, number in steps:
        if what == "once":
            plan(kit, key, f"@at {format_time(start_ns + (now_s + number) * SECOND_NS)}")
            model.due[key] = (now_s + number, 0)
        elif what == "every":
            plan(kit, key, f"@every {number}s")
            model.due[key] = (now_s + number, number)
        elif what == "end":
            model.due.pop(key, None)
            if number:
                kit.publish(f"s.{key}", b"plain")
            else:
                purge(stream, f"s.{key}")
                kit.engine.end_turn()
        elif what == "wait":
            for _ in range(number):
                now_s += 1
                go_to(now_s)
        else:
            # Purges of ended schedules leave gaps, so a kill may have to leave out an overdue run.
            if what == "restart":
                close(stream)
                now_s += number
            else:
                stream.deactivate()
                kit.disk = kit.disk.crash_keeping_unsynced()
            stream = kit.reopen()
            go_to(now_s)
        assert runs(stream) == model.runs
        assert len(stream.store.schedules) == len(model.due)
    stream.store.verify()


@given(st.integers(1, 4), st.booleans())
def test_power_failure_neither_loses_nor_repeats_a_run(count: int, repeats: bool) -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, storage="file")
    start_ns = kit.clock.wall_ns()
    for key in range(count):
        pattern = "@every 5s" if repeats else f"@at {format_time(start_ns + 5 * SECOND_NS)}"
        assert b'"seq"' in plan(kit, key, pattern)
    kit.engine.auto_sync = False
    set_time(kit, stream, start_ns + 5 * SECOND_NS + 50_000_000)
    assert sum(runs(stream).values()) == count
    disk = kit.disk
    for step in [0, *disk.unsynced_steps()]:
        kit.disk = disk.crash_keeping_steps(step)
        reopened, _ = open_stream(kit.context, kit.folder("S"), kit.clock.wall_ns())
        set_time(kit, reopened, kit.clock.wall_ns())
        assert runs(reopened) == {str(key): 1 for key in range(count)}
        assert len(reopened.store.schedules) == (count if repeats else 0)
        left = reopened.store.count_matching((b"s.*",))
        assert left == (count if repeats else 0)


def test_refused_run_is_made_when_there_is_room() -> None:
    room = [10**6]

    def resources(size: int) -> errors.ApiError | None:
        return errors.ACCOUNT_RESOURCES_EXCEEDED() if size > room[0] else None

    kit = StreamKit(resources=resources)
    stream = kit.create(**CONFIG, storage="file")
    start_ns = kit.clock.wall_ns()
    plan(kit, 1, "@every 5s")
    room[0] = 0
    set_time(kit, stream, start_ns + 6 * SECOND_NS)
    assert not runs(stream)
    assert stream.next_deadline_ns > kit.turn.monotonic_ns
    close(stream)
    room[0] = 10**6
    stream = kit.reopen()
    set_time(kit, stream, start_ns + 7 * SECOND_NS)
    assert runs(stream) == {"1": 1}
    fields = header_fields.special_fields(stream.store.last_message(b"s.out.1").header)
    assert fields[header_fields.SCHEDULE_NEXT] == format_time(start_ns + 10 * SECOND_NS).encode()


def test_sealed_stream_loads_and_rests() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, storage="file")
    start_ns = kit.clock.wall_ns()
    plan(kit, 1, "@every 1s")
    update(stream, replace(stream.config, sealed=True, discard=DiscardPolicy.NEW, deny_purge=True))
    close(stream)
    stream = kit.reopen()
    set_time(kit, stream, start_ns + 10 * SECOND_NS)
    assert not runs(stream)
    assert stream.store.msgs == 1


def test_clock_that_jumps_repeats_nothing() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG)
    start_ns = kit.clock.wall_ns()
    plan(kit, 1, "@every 10s")
    # A day ahead: nobody believes it at first; then the runs of that day are one.
    kit.clock.jump_ns(86_400 * SECOND_NS)
    set_time(kit, stream, kit.clock.wall_ns() + SECOND_NS)
    assert not runs(stream)
    set_time(kit, stream, kit.clock.wall_ns() + CLOCK_BELIEVED_NS)
    ran = runs(stream)["1"]
    assert ran in (1, 2, 3)
    # A day back: the next one comes after ten seconds, not after a day.
    kit.clock.jump_ns(start_ns + 40 * SECOND_NS - kit.clock.wall_ns())
    set_time(kit, stream, kit.clock.wall_ns())
    stream.clock_moved(ahead=False)
    set_time(kit, stream, kit.clock.wall_ns())
    assert runs(stream) == {"1": ran}
    set_time(kit, stream, kit.clock.wall_ns() + 11 * SECOND_NS)
    assert runs(stream) == {"1": ran + 1}
    # The clock may be set while nothing is due: somebody looks again soon.
    assert stream.next_deadline_ns <= kit.turn.monotonic_ns + 60 * SECOND_NS


def test_run_on_the_subject_of_another_schedule_does_not_end_it() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, storage="file")
    start_ns = kit.clock.wall_ns()
    plan(kit, 1, "@every 3s")
    kit.publish("s.2", b"", b"Nats-Schedule: @every 2s\r\nNats-Schedule-Target: s.1")
    set_time(kit, stream, start_ns + 2 * SECOND_NS + 1)
    assert len(stream.store.schedules) == 2
    close(stream)
    stream = kit.reopen()
    assert len(stream.store.schedules) == 2
    kit.publish("s.1", b"plain")
    assert len(stream.store.schedules) == 1


def test_batch_that_is_refused_leaves_no_schedule() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG, allow_atomic=True)
    header = (
        b"Nats-Schedule: @daily\r\nNats-Schedule-Target: s.out.1\r\n"
        b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1"
    )
    kit.peer.send(frame("s.1", b"", header))
    last = b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: 2\r\nNats-Batch-Commit: 1\r\n"
    kit.peer.send(frame("s.2", b"", last + b"Nats-Expected-Last-Sequence: 9"))
    assert json.loads(kit.replies()[-1])["error"]["err_code"] == 10071
    assert len(stream.store.schedules) == 0


def test_hundred_thousand_schedules_take_little_memory() -> None:
    kit = StreamKit()
    stream = kit.create(**CONFIG)
    block = b"NATS/1.0\r\nNats-Schedule: @daily\r\nNats-Schedule-Target: s.out\r\n\r\n"
    for number in range(100_000):
        seq = stream.ingest.append(b"s.%d" % number, block, b"")
        note_schedule(stream.store, seq, 2**62 + number)
    assert stream.store.schedules.memory_bytes < 10 * 1024 * 1024
    # Nothing is due: one look at the first of them, and no deadline before a minute.
    assert stream.next_deadline_ns >= kit.turn.monotonic_ns + 59 * SECOND_NS
