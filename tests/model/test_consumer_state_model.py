"""The states of consumers on disk against a naive model: whatever happens to the consumer, and
wherever the power fails, the state that is found is one that the model has had, and none from
before a promise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from consumer_model import AckModel, Entry
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from thoroughness import some
from tradewind.consumer.ack_codec import encode_whole, take_changes
from tradewind.consumer.pending import AckState
from tradewind.errors import StoreError
from tradewind.store.commits.commit import Commit
from tradewind.store.folder import consumer_states
from tradewind.store.folder.consumer_states import ConsumerStates
from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.meta import ConsumerMeta, StreamMeta
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

SECOND = 1_000_000_000
OFFSET_NS = 1_700_000_000_123_456_789
ROOT = "/disk"
seconds = st.integers(0, 40)
whom = st.integers(0, 1)


def folder_on(disk: SimulatedDisk) -> StreamFolder:
    return StreamFolder(disk, ROOT, "$G", "S")


class Source:
    """What a consumer is to `ConsumerStates`."""

    def __init__(self, acks: AckState) -> None:
        self._acks = acks

    @property
    def entry_count(self) -> int:
        return self._acks.count + len(self._acks.redelivered)

    def encode_whole(self, now_ns: int) -> bytes:
        return encode_whole(self._acks, OFFSET_NS, now_ns)

    def take_changes(self) -> bytes | None:
        return take_changes(self._acks, OFFSET_NS)


def comparable(state: ConsumerState) -> ConsumerState:
    """Redeliveries at the floor and below are not kept exactly: the official format cannot.

    Nor is it read what is pending there.
    """
    floor = state.ack_floor.stream_seq
    pending = {seq: entry for seq, entry in state.pending.items() if seq > floor}
    redelivered = {seq: count for seq, count in state.redelivered.items() if seq > floor}
    return ConsumerState(state.delivered, state.ack_floor, pending, redelivered)


def kept_time_ns(entry: Entry) -> int:
    """On disk: whole seconds, unless somebody has named the time."""
    time_ns = entry.time_ns + OFFSET_NS
    return time_ns if entry.is_exact else time_ns // SECOND * SECOND


class Tracked:
    """A consumer, its model, and what was promised of it."""

    def __init__(self, name: str, config: tuple[str, int, list[int], int]) -> None:
        self.name = name
        self.config = config
        self.last_seq = 0
        self.acks = AckState(*config)
        self.model = AckModel(*config)
        self.begin_life()

    def begin_life(self) -> None:
        self.source = Source(self.acks)
        self.history = [self.expected()]
        self.promised = self.written = 0
        self.marks: list[tuple[int, int]] = []  # (ticket, place in the history)

    def expected(self) -> ConsumerState:
        """What the model says is to be on disk."""
        model = self.model
        pending = {
            seq: PendingDelivery(entry.consumer_seq, kept_time_ns(entry))
            for seq, entry in model.pending.items()
        }
        delivered, floor = SequencePair(*model.delivered), SequencePair(*model.floor)
        return comparable(ConsumerState(delivered, floor, pending, dict(model.redelivered)))

    def both(self, act: Callable[[Any], object]) -> None:
        """Something happens to the consumer and to the model."""
        act(self.acks)
        act(self.model)
        self.note()

    def note(self) -> None:
        self.history.append(self.expected())

    def deliver(self, seq: int, now_ns: int) -> None:
        self.acks.deliver(seq, now_ns)
        self.model.deliver(seq, now_ns)
        self.note()

    def found_on(self, disk: SimulatedDisk) -> ConsumerState:
        return comparable(folder_on(disk).read_consumer(self.name).state)

    def note_promises(self, states: ConsumerStates) -> None:
        kept, written = states.kept_ticket(self.name), states.written_ticket(self.name)
        self.written = max([self.written, *(at for ticket, at in self.marks if ticket <= written)])
        while self.marks and self.marks[0][0] <= kept:
            self.promised = max(self.promised, self.marks.pop(0)[1])

    def start_again(self, disk: SimulatedDisk) -> None:
        """Go on with what is found, which the model must have been."""
        found = self.found_on(disk)
        assert found in self.history[self.promised :]
        self.acks = AckState(*self.config)
        self.acks.restore(folder_on(disk).read_consumer(self.name).state, OFFSET_NS)
        self.model = AckModel(
            *self.config,
            delivered=tuple(found.delivered),
            floor=tuple(found.ack_floor),
            pending={
                seq: Entry(
                    entry.consumer_seq, entry.time_ns - OFFSET_NS, entry.time_ns % SECOND != 0
                )
                for seq, entry in found.pending.items()
            },
            redelivered=dict(self.acks.redelivered),
        )
        self.last_seq = max(self.last_seq, found.delivered.stream_seq)
        self.begin_life()


class StateMachine(RuleBasedStateMachine):
    """Two consumers of one stream, which share its log."""

    limits = (
        consumer_states.SMALL_ENTRIES_MAX,
        consumer_states.LOG_BYTES_MIN,
        consumer_states.LOG_FILE_BYTES_MIN,
        consumer_states.COMMIT_FILES_MAX,
        consumer_states.URGENT_COMMITS_PER_FILE,
    )

    def __init__(self) -> None:
        super().__init__()
        # So that few messages are enough for all ways to write them.
        self.set_limits(2, 150, 300, 1, 2)

    def set_limits(self, small: int, records: int, log: int, files: int, urgent: int) -> None:
        consumer_states.SMALL_ENTRIES_MAX = small
        consumer_states.LOG_BYTES_MIN = records
        consumer_states.LOG_FILE_BYTES_MIN = log
        consumer_states.COMMIT_FILES_MAX = files
        consumer_states.URGENT_COMMITS_PER_FILE = urgent

    def teardown(self) -> None:
        self.set_limits(*self.limits)

    @initialize(
        policies=st.lists(
            st.sampled_from(["none", "all", "explicit", "explicit"]), min_size=2, max_size=2
        ),
        ack_wait=st.sampled_from([0, 10, 30]),
        max_deliver=st.integers(0, 4),
    )
    def start(self, policies: list[str], ack_wait: int, max_deliver: int) -> None:
        self.now_ns = SECOND
        self.disk = SimulatedDisk()
        folder_on(self.disk).create(StreamMeta({"name": "S", "subjects": ["a"]}, OFFSET_NS))
        self.all = []
        for name, policy in zip("CD", policies, strict=True):
            meta = ConsumerMeta(name, {"durable_name": name, "ack_policy": policy}, OFFSET_NS)
            folder_on(self.disk).create_consumer(meta, ConsumerState(), OFFSET_NS)
            self.all.append(Tracked(name, (policy, ack_wait * SECOND, [], max_deliver)))
        self.begin_life()

    def begin_life(self) -> None:
        folder = folder_on(self.disk)
        found, skipped = folder.consumers()
        assert len(found) == 2
        assert not skipped
        self.states = folder.states
        self.commit: Commit | None = None

    # ---------------------------------------------------------------- the consumers

    @rule(who=whom, gaps=st.lists(st.integers(1, 3), min_size=1, max_size=8), passed=seconds)
    def deliver_new(self, who: int, gaps: list[int], passed: int) -> None:
        one = self.all[who]
        for gap in gaps:
            one.last_seq += gap
            one.deliver(one.last_seq, self.now_ns)
        self.now_ns += passed * SECOND

    @rule(who=whom, passed=seconds, count=st.integers(1, 5))
    def redeliver(self, who: int, passed: int, count: int) -> None:
        self.now_ns += passed * SECOND
        one = self.all[who]
        one.both(lambda each: each.expire(self.now_ns))
        for _ in range(count):
            seq = one.acks.next_redelivery()
            assert seq == one.model.next_redelivery()
            one.note()
            if seq:
                one.deliver(seq, self.now_ns)

    @rule(who=whom, data=st.data(), consumer_seq=st.integers(0, 40))
    def ack(self, who: int, data: st.DataObject, consumer_seq: int) -> None:
        one = self.all[who]
        seq = data.draw(st.integers(0, one.last_seq))
        one.acks.acknowledge(seq, consumer_seq)
        one.model.ack(seq, consumer_seq)
        one.note()

    @rule(
        who=whom,
        data=st.data(),
        consumer_seq=st.integers(0, 40),
        delay=st.sampled_from([-1, 0, 15]),
    )
    def nak(self, who: int, data: st.DataObject, consumer_seq: int, delay: int) -> None:
        one = self.all[who]
        seq = data.draw(st.integers(0, one.last_seq))
        delay_ns = delay * SECOND if delay >= 0 else -1
        one.both(lambda each: each.nak(seq, consumer_seq, delay_ns, self.now_ns))

    @rule(who=whom, data=st.data())
    def message_is_in_progress_or_gone(self, who: int, data: st.DataObject) -> None:
        one = self.all[who]
        seq = data.draw(st.integers(0, one.last_seq))
        if data.draw(st.booleans()):
            one.both(lambda each: each.progress(seq, self.now_ns))
        else:
            one.both(lambda each: each.forget(seq))

    @rule(who=whom, part=st.integers(0, 10))
    def purge(self, who: int, part: int) -> None:
        one = self.all[who]
        first_seq = one.last_seq * part // 10 + 1
        one.both(lambda each: each.purge(first_seq, one.last_seq + 1))

    @rule(who=whom, data=st.data())
    def reset(self, who: int, data: st.DataObject) -> None:
        one = self.all[who]
        one.last_seq = data.draw(st.integers(0, one.last_seq))
        one.acks.reset(one.last_seq + 1)
        at = (0, one.last_seq)
        one.model = AckModel(*one.config, delivered=at, floor=at)
        one.note()

    # ---------------------------------------------------------------- their states

    def mark(self, one: Tracked, *, is_urgent: bool) -> None:
        ticket = self.states.mark(one.name, one.source, is_urgent=is_urgent)
        one.marks.append((ticket, len(one.history) - 1))

    @rule(who=whom, is_urgent=st.booleans())
    def save(self, who: int, is_urgent: bool) -> None:
        self.mark(self.all[who], is_urgent=is_urgent)

    @rule(who=whom)
    def write_for_the_system(self, who: int) -> None:
        one = self.all[who]
        self.mark(one, is_urgent=True)
        if self.states.write(one.name, self.now_ns + OFFSET_NS):
            assert self.states.written_ticket(one.name) >= one.marks[-1][0]
        self.note_promises()
        self.kill()

    @rule()
    def be_quiet(self) -> None:
        """Nothing has changed for a while: records are to be folded, also if a commit is under way
        or a state changes before the next one.
        """
        self.states.fold_quiet()

    def kill(self) -> None:
        """What a killed process has handed to the system is found."""
        disk = self.disk.crash_keeping_unsynced()
        for one in self.all:
            assert one.found_on(disk) in one.history[one.written :]

    @rule(steps=st.integers(1, 5), is_failing=st.booleans(), data=st.data())
    def save_with_commits(self, steps: int, is_failing: bool, data: st.DataObject) -> None:
        if is_failing:
            operation = data.draw(st.sampled_from(["create", "write", "sync", "rename", "open"]))
            self.disk.fail(operation, "*", nth=data.draw(st.integers(1, 3)))
        with suppress(StoreError):
            for _ in range(steps):
                self.step()
        self.disk.clear_faults()
        self.note_promises()

    def step(self) -> None:
        """Begin a commit, or end the one that has begun."""
        if self.commit is None:
            self.commit = self.states.begin_commit(self.now_ns + OFFSET_NS)
        else:
            commit, self.commit = self.commit, None
            commit.run()
            self.states.finish_commit(commit)

    def note_promises(self) -> None:
        for one in self.all:
            one.note_promises(self.states)

    @rule(steps=st.integers(0, 12), outcome=st.integers(0, 1000))
    def power_fails(self, steps: int, outcome: int) -> None:
        """In the middle of a commit, at any of its calls."""
        self.note_promises()
        self.disk.stop_at = self.disk.steps + steps + 1
        with suppress(PowerLoss):
            for _ in range(6):
                self.step()
                self.note_promises()
        for one in self.all:
            found = one.found_on(self.disk.crash_losing_unsynced())
            assert found in one.history[one.promised :]
        self.kill()
        self.start_again(self.disk.crash(outcome))

    @rule()
    def clean_stop(self) -> None:
        if self.commit is not None:
            self.step()
        for one in self.all:
            self.mark(one, is_urgent=False)
        self.states.close(self.now_ns + OFFSET_NS)
        folder = folder_on(self.disk)
        assert self.disk.open_files == 0
        assert not [name for name in self.disk.list_directory(folder.path) if "acks" in name]
        disk = self.disk.crash_losing_unsynced()
        for one in self.all:
            assert one.found_on(disk) == one.history[-1]
            one.promised = len(one.history) - 1
        self.start_again(disk)

    def start_again(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        for one in self.all:
            one.start_again(disk)
        self.begin_life()


TestStateOnDisk = pytest.mark.slow(StateMachine.TestCase)
TestStateOnDisk.settings = settings(
    max_examples=some(50, 150), stateful_step_count=40, deadline=None
)
