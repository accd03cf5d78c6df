"""Messages whose acknowledgement is overdue: if they are very many, they come back in steps."""

from __future__ import annotations

from tradewind.consumer.pending import AckState

MILLISECOND_NS = 1_000_000  # a wait is longer by this much


def test_very_many_messages_that_are_due_together_are_queued_in_steps_and_in_order() -> None:
    acks = AckState("explicit", ack_wait_ns=10)
    for seq in range(1, 50_001):
        acks.deliver(seq, 1)
    counts = []
    while 0 < acks.next_due_ns() <= MILLISECOND_NS + 20:
        counts.append(acks.expire(MILLISECOND_NS + 20))
    assert counts == [20_000, 20_000, 10_000]
    acks.verify()
    for seq in range(1, 50_001):
        assert acks.next_redelivery() == seq
        acks.deliver(seq, 30)
    assert acks.next_redelivery() == 0


def test_messages_that_are_due_first_come_back_first() -> None:
    acks = AckState("explicit", ack_wait_ns=10)
    for seq in range(1, 30_001):
        acks.deliver(seq, 5 if seq <= 10_000 else 1)
    assert acks.expire(MILLISECOND_NS + 11) == 20_000
    assert acks.next_redelivery() == 10_001
    assert acks.expire(MILLISECOND_NS + 15) == 10_000
