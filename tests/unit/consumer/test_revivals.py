"""Messages that a consumer is done with and delivers again, against a naive model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tradewind.consumer.pending import AckState

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "ack", "revive", "redeliver", "restart"]), st.integers(1, 12)
    )
)


@given(STEPS)
def test_revived_messages_are_pending_in_order_and_survive_a_restart(
    steps: list[tuple[str, int]],
) -> None:
    acks = AckState("explicit", 30, start_seq=1)
    delivered, pending = 0, set[int]()
    for number, (step, seq) in enumerate(steps, 1):
        if step == "deliver":
            delivered += 1
            acks.deliver(delivered, number)
            pending.add(delivered)
        elif step == "ack":
            assert acks.acknowledge(seq, 0) == (seq in pending)
            pending.discard(seq)
        elif step == "revive":
            is_done = seq <= delivered and seq not in pending
            assert acks.revive(seq, number) == is_done
            pending |= {seq} if is_done else set()
        elif step == "redeliver":
            if again := acks.next_redelivery():
                assert again in pending
                acks.deliver(again, number)
        else:
            state = acks.export()
            acks = AckState("explicit", 30, start_seq=1)
            acks.restore(state)
        acks.verify()
        found = acks.pending()
        assert set(found) == pending
        numbers = [found[each].consumer_seq for each in sorted(found)]
        assert numbers == sorted(set(numbers))
        assert all(acks.floor_consumer < each <= acks.delivered_consumer for each in numbers)
        assert acks.floor_stream < min(pending, default=delivered + 1)
    for seq in sorted(pending):
        assert acks.acknowledge(seq, 0)
    assert (acks.floor_stream, acks.floor_consumer) == (
        acks.delivered_stream,
        acks.delivered_consumer,
    )


def test_a_revived_message_counts_as_delivered_once() -> None:
    acks = AckState("explicit", 30, max_deliver=3)
    for now in range(3):
        acks.deliver(1, now)
    assert acks.acknowledge(1, 0)
    assert acks.revive(1, 10)
    assert acks.next_redelivery() == 1
    acks.deliver(1, 11)
    assert acks.deliveries(1) == 2


def test_only_what_was_delivered_and_is_done_is_revived() -> None:
    acks = AckState("explicit", 30)
    acks.deliver(5, 1)
    assert not acks.revive(5, 2)
    assert not acks.revive(6, 2)
    assert not acks.revive(0, 2)
    assert acks.acknowledge(5, 1)
    assert acks.revive(5, 3)
    others = AckState("all", 30)
    others.deliver(1, 1)
    others.acknowledge(1, 1)
    assert not others.revive(1, 2)
