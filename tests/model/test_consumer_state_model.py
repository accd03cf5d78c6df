"""The state of a consumer on disk against a naive model: whatever happens to the consumer, and
wherever the power fails, the state that is found is one that the model has had, and none from
before a promise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from consumer_model import AckModel, Entry
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tradewind.consumer.ack_codec import encode_whole, take_changes
from tradewind.consumer.pending import AckState
from tradewind.errors import StoreError
from tradewind.store import consumer_states
from tradewind.store.commit import Commit
from tradewind.store.consumer_file import ConsumerState, Pending, SequencePair
from tradewind.store.meta import ConsumerMeta, StreamMeta
from tradewind.store.stream_folder import StreamFolder
from tradewind.testing.disk import PowerLoss, SimulatedDisk

SECOND = 1_000_000_000
OFFSET_NS = 1_700_000_000_123_456_789
ROOT = "/disk"
CONSUMER = ConsumerMeta("C", {"durable_name": "C", "ack_policy": "explicit"}, OFFSET_NS)
seconds = st.integers(0, 40)


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


class StateMachine(RuleBasedStateMachine):
    limits = (consumer_states.SMALL_ENTRIES_MAX, consumer_states.LOG_BYTES_MIN)

    def __init__(self) -> None:
        super().__init__()
        # So that few messages are enough for both ways to write them.
        consumer_states.SMALL_ENTRIES_MAX, consumer_states.LOG_BYTES_MIN = 2, 150

    def teardown(self) -> None:
        consumer_states.SMALL_ENTRIES_MAX, consumer_states.LOG_BYTES_MIN = self.limits

    @initialize(
        policy=st.sampled_from(["none", "all", "explicit", "explicit", "explicit"]),
        ack_wait=st.sampled_from([0, 10, 30]),
        max_deliver=st.integers(0, 4),
    )
    def start(self, policy: str, ack_wait: int, max_deliver: int) -> None:
        self.config: tuple[str, int, list[int], int] = (policy, ack_wait * SECOND, [], max_deliver)
        self.now_ns = SECOND
        self.last_seq = 0
        self.acks = AckState(*self.config)
        self.model = AckModel(*self.config)
        self.disk = SimulatedDisk()
        folder_on(self.disk).create(StreamMeta({"name": "S", "subjects": ["a"]}, OFFSET_NS))
        folder_on(self.disk).create_consumer(CONSUMER, ConsumerState(), OFFSET_NS)
        self.begin_life()

    def begin_life(self) -> None:
        folder = folder_on(self.disk)
        folder.read_consumer("C")
        self.states = folder.states
        self.source = Source(self.acks)
        self.commit: Commit | None = None
        self.history = [self.expected()]
        self.promised = self.written = 0
        self.marks: list[tuple[int, int]] = []  # (ticket, place in the history)

    def expected(self) -> ConsumerState:
        """What the model says is to be on disk."""
        model = self.model
        return comparable(
            ConsumerState(
                SequencePair(*model.delivered),
                SequencePair(*model.floor),
                {
                    seq: Pending(entry.consumer_seq, (entry.time_ns + OFFSET_NS) // SECOND * SECOND)
                    for seq, entry in model.pending.items()
                },
                dict(model.redelivered),
            )
        )

    def both(self, act: Callable[[Any], object]) -> None:
        """Something happens to the consumer and to the model."""
        act(self.acks)
        act(self.model)
        self.history.append(self.expected())

    # ---------------------------------------------------------------- the consumer

    @rule(gaps=st.lists(st.integers(1, 3), min_size=1, max_size=8), passed=seconds)
    def deliver_new(self, gaps: list[int], passed: int) -> None:
        for gap in gaps:
            self.last_seq += gap
            self.acks.delivered_now(self.last_seq, self.now_ns)
            self.both(self._delivered_by_model)
        self.now_ns += passed * SECOND

    def _delivered_by_model(self, one: AckState | AckModel) -> None:
        if isinstance(one, AckModel):
            one.deliver(self.last_seq, self.now_ns)

    @rule(passed=seconds, count=st.integers(1, 5))
    def redeliver(self, passed: int, count: int) -> None:
        self.now_ns += passed * SECOND
        self.both(lambda one: one.expire(self.now_ns))
        for _ in range(count):
            seq = self.acks.redelivery()
            assert seq == self.model.next_redelivery()
            if seq:
                self.acks.delivered_now(seq, self.now_ns)
                self.model.deliver(seq, self.now_ns)
            self.history.append(self.expected())

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data(), consumer_seq=st.integers(0, 40))
    def ack(self, data: st.DataObject, consumer_seq: int) -> None:
        seq = data.draw(st.integers(1, self.last_seq))
        self.acks.acked(seq, consumer_seq)
        self.model.ack(seq, consumer_seq)
        self.history.append(self.expected())

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data(), consumer_seq=st.integers(0, 40), delay=st.sampled_from([-1, 0, 15]))
    def nak(self, data: st.DataObject, consumer_seq: int, delay: int) -> None:
        seq = data.draw(st.integers(1, self.last_seq))
        delay_ns = delay * SECOND if delay >= 0 else -1
        self.both(lambda one: one.nak(seq, consumer_seq, delay_ns, self.now_ns))

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data())
    def message_is_in_progress_or_gone(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(1, self.last_seq))
        if data.draw(st.booleans()):
            self.both(lambda one: one.progress(seq, self.now_ns))
        else:
            self.both(lambda one: one.forget(seq))

    @rule(part=st.integers(0, 10))
    def purge(self, part: int) -> None:
        first_seq = self.last_seq * part // 10 + 1
        self.both(lambda one: one.purge(first_seq, self.last_seq + 1))

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        self.last_seq = data.draw(st.integers(0, self.last_seq))
        self.acks.reset(self.last_seq + 1)
        at = (0, self.last_seq)
        self.model = AckModel(*self.config, delivered=at, floor=at)
        self.history.append(self.expected())

    # ---------------------------------------------------------------- its state

    @rule(is_urgent=st.booleans())
    def save(self, is_urgent: bool) -> None:
        ticket = self.states.mark("C", self.source, is_urgent=is_urgent)
        self.marks.append((ticket, len(self.history) - 1))

    @rule()
    def write_for_the_system(self) -> None:
        ticket = self.states.mark("C", self.source, is_urgent=True)
        place = len(self.history) - 1
        self.marks.append((ticket, place))
        if self.states.write("C"):
            assert self.states.written_ticket >= ticket
        self.note_promises()
        self.kill()

    def kill(self) -> None:
        """What a killed process has handed to the system is found."""
        assert self.found_on(self.disk.crash_keeping_unsynced()) in self.history[self.written :]

    @rule(to_the_end=st.booleans(), is_failing=st.booleans(), data=st.data())
    def save_with_a_commit(self, to_the_end: bool, is_failing: bool, data: st.DataObject) -> None:
        if is_failing:
            operation = data.draw(st.sampled_from(["create", "write", "sync", "rename", "open"]))
            self.disk.fail(operation, "*/C/*", nth=data.draw(st.integers(1, 3)))
        with suppress(StoreError):
            for _ in range(3 if to_the_end else 1):
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
        kept, written = self.states.synced_ticket, self.states.written_ticket
        self.written = max([self.written, *(at for ticket, at in self.marks if ticket <= written)])
        while self.marks and self.marks[0][0] <= kept:
            self.promised = max(self.promised, self.marks.pop(0)[1])

    @rule(steps=st.integers(0, 8), outcome=st.integers(0, 1000))
    def power_fails(self, steps: int, outcome: int) -> None:
        """In the middle of a commit, at any of its calls."""
        self.note_promises()
        self.disk.stop_at = self.disk.steps + steps + 1
        with suppress(PowerLoss):
            for _ in range(4):
                self.step()
                self.note_promises()
        assert self.found_on(self.disk.crash_losing_unsynced()) in self.history[self.promised :]
        self.kill()
        self.start_again(self.disk.crash(outcome))

    @rule()
    def clean_stop(self) -> None:
        if self.commit is not None:
            self.step()
        self.states.mark("C", self.source)
        self.states.close(self.now_ns + OFFSET_NS)
        folder = folder_on(self.disk)
        assert self.disk.open_files == 0
        names = self.disk.list_directory(f"{folder.path}/obs/C")
        assert not [name for name in names if name.startswith("acks.")]
        assert self.found_on(self.disk.crash_losing_unsynced()) == self.history[-1]
        self.promised = len(self.history) - 1
        self.start_again(self.disk.crash_losing_unsynced())

    def found_on(self, disk: SimulatedDisk) -> ConsumerState:
        return comparable(folder_on(disk).read_consumer("C").state)

    def start_again(self, disk: SimulatedDisk) -> None:
        """Go on with what is found, which the model must have been."""
        found = self.found_on(disk)
        assert found in self.history[self.promised :]
        self.disk = disk
        self.acks = AckState(*self.config)
        self.acks.restore(folder_on(disk).read_consumer("C").state, OFFSET_NS)
        self.model = AckModel(
            *self.config,
            delivered=tuple(found.delivered),
            floor=tuple(found.ack_floor),
            pending={
                seq: Entry(entry.consumer_seq, entry.time_ns - OFFSET_NS)
                for seq, entry in found.pending.items()
                if seq > found.ack_floor.stream_seq
            },
            redelivered=dict(self.acks.redelivered),
        )
        self.last_seq = max(self.last_seq, found.delivered.stream_seq)
        self.begin_life()


TestStateOnDisk = StateMachine.TestCase
TestStateOnDisk.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
