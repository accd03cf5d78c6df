"""The acknowledgement state against a naive model, over random operations."""

from __future__ import annotations

import pytest
from consumer_model import WAIT_SLACK_NS, AckModel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from thoroughness import some
from tradewind.consumer.pending import AckState

NS_PER_SECOND = 1_000_000_000
# The end of a wait is within 40 ns, or within 40 ns of a millisecond.
times = st.builds(int.__add__, st.integers(0, 40), st.sampled_from([0, WAIT_SLACK_NS]))


class AckMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(["none", "all", "explicit", "explicit"]),
        ack_wait_ns=st.sampled_from([0, 10, 30]),
        backoff_ns=st.sampled_from([[], [], [5, 20, 10]]),
        max_deliver=st.integers(0, 4),
    )
    def start(self, policy: str, ack_wait_ns: int, backoff_ns: list[int], max_deliver: int) -> None:
        self.now_ns = 1000
        self.last_seq = 0
        self.state = AckState(policy, ack_wait_ns, backoff_ns, max_deliver)
        self.model = AckModel(policy, ack_wait_ns, backoff_ns, max_deliver)
        self.config = (policy, ack_wait_ns, backoff_ns, max_deliver)

    @rule(gaps=st.lists(st.integers(1, 3), min_size=1, max_size=8), passed_ns=times)
    def deliver_new(self, gaps: list[int], passed_ns: int) -> None:
        for gap in gaps:
            self.last_seq += gap
            self.state.deliver(self.last_seq, self.now_ns)
            self.model.deliver(self.last_seq, self.now_ns)
        self.now_ns += passed_ns

    @rule(passed_ns=times, count=st.integers(1, 5))
    def redeliver(self, passed_ns: int, count: int) -> None:
        self.now_ns += passed_ns
        for _ in range(count):
            seq = self.state.next_redelivery()
            assert seq == self.model.next_redelivery()
            if not seq:
                break
            assert self.state.deliveries(seq) == self.model.deliveries(seq)
            self.state.deliver(seq, self.now_ns)
            self.model.deliver(seq, self.now_ns)

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data(), consumer_seq=st.integers(0, 40))
    def ack(self, data: st.DataObject, consumer_seq: int) -> None:
        seq = data.draw(self._some_seq())
        was_pending = seq in self.model.pending
        assert self.state.acknowledge(seq, consumer_seq) in (was_pending, False)
        self.model.ack(seq, consumer_seq)

    @precondition(lambda self: self.model.pending)
    @rule(count=st.integers(1, 6))
    def ack_the_first(self, count: int) -> None:
        for seq in sorted(self.model.pending)[:count]:
            consumer_seq = self.model.pending[seq].consumer_seq
            self.state.acknowledge(seq, consumer_seq)
            self.model.ack(seq, consumer_seq)

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data(), consumer_seq=st.integers(0, 40), delay_ns=st.sampled_from([-1, 0, 15]))
    def nak(self, data: st.DataObject, consumer_seq: int, delay_ns: int) -> None:
        seq = data.draw(self._some_seq())
        self.state.nak(seq, consumer_seq, delay_ns, self.now_ns)
        self.model.nak(seq, consumer_seq, delay_ns, self.now_ns)

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data())
    def progress(self, data: st.DataObject) -> None:
        seq = data.draw(self._some_seq())
        self.state.progress(seq, self.now_ns)
        self.model.progress(seq, self.now_ns)

    @precondition(lambda self: self.last_seq)
    @rule(data=st.data())
    def message_leaves_the_stream(self, data: st.DataObject) -> None:
        seq = data.draw(self._some_seq())
        self.state.forget(seq)
        self.model.forget(seq)

    @rule(passed_ns=times)
    def expire(self, passed_ns: int) -> None:
        self.now_ns += passed_ns
        self.state.expire(self.now_ns)
        self.model.expire(self.now_ns)

    @rule(part=st.integers(0, 10))
    def purge(self, part: int) -> None:
        first_seq = self.last_seq * part // 10 + 1
        self.state.purge(first_seq, self.last_seq + 1)
        self.model.purge(first_seq, self.last_seq + 1)

    @rule(offset_ns=st.sampled_from([0, 10**18]))
    def save_and_restore(self, offset_ns: int) -> None:
        # What waits for its redelivery is due by its time again after a restart.
        saved = self.state.export(offset_ns)
        self.state = AckState(*self.config)
        self.state.restore(saved, offset_ns)
        self.model.queue.clear()
        self.model.pending = {
            seq: entry for seq, entry in self.model.pending.items() if seq > self.model.floor[1]
        }
        for entry in self.model.pending.values():
            entry.is_exact = (entry.time_ns + offset_ns) % NS_PER_SECOND != 0

    def _some_seq(self) -> st.SearchStrategy[int]:
        return st.integers(1, self.last_seq + 1)

    @invariant()
    def same_as_the_model(self) -> None:
        if not hasattr(self, "state"):
            return
        state, model = self.state, self.model
        state.verify()
        assert (state.delivered_consumer, state.delivered_stream) == model.delivered
        assert (state.floor_consumer, state.floor_stream) == model.floor
        assert {
            seq: (entry.consumer_seq, entry.time_ns) for seq, entry in state.pending().items()
        } == {seq: (entry.consumer_seq, entry.time_ns) for seq, entry in model.pending.items()}
        assert state.redelivered == model.redelivered
        assert state.queue_count == len(model.queue)
        assert state.next_due_ns() == model.next_due_ns()
        model.exceeded, exceeded = [], model.exceeded
        assert state.take_exceeded() == exceeded


TestAckState = pytest.mark.slow(AckMachine.TestCase)
TestAckState.settings = settings(max_examples=some(50, 150), stateful_step_count=40, deadline=None)
