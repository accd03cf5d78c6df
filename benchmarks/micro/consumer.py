"""What it takes to say how far a consumer has come: after one ack, and as a whole.

Encoding only; the bytes are not written.
"""

from typing import TYPE_CHECKING

from benchmarks.micro.registry import Operation, micro

if TYPE_CHECKING:
    from tradewind.consumer.pending import AckState

PENDING = 100_000
OFFSET_NS = 1_700_000_000_000_000_000


def _pending(count: int) -> "AckState":
    from tradewind.consumer.pending import AckState

    acks = AckState("explicit", 30_000_000_000)
    for seq in range(1, count + 1):
        acks.deliver(seq, seq * 1_000_000)
    return acks


def _acknowledging(count: int) -> Operation:
    """Each operation delivers a message, acknowledges another one and says so."""
    from tradewind.consumer.ack_codec import encode_whole, take_changes

    acks = _pending(count)
    encode_whole(acks, OFFSET_NS, OFFSET_NS)

    def operate(repetitions: int) -> int:
        for _ in range(repetitions):
            seq = acks.delivered_stream + 1
            acks.deliver(seq, seq * 1_000_000)
            acks.acknowledge(seq - count // 2, 0)
            if take_changes(acks, OFFSET_NS) is None:
                raise AssertionError("what has changed is not known")
        return repetitions

    return operate


@micro("consumer_ack", "an ack and what it changes, 1,000 messages pending")
def consumer_ack() -> Operation:
    """A consumer that keeps up."""
    return _acknowledging(1000)


@micro("consumer_ack_100k", "the same with 100,000 pending")
def consumer_ack_100k() -> Operation:
    """A consumer that does not."""
    return _acknowledging(PENDING)


@micro("consumer_whole_100k", "the whole state of 100,000 pending messages as o.dat")
def consumer_whole_100k() -> Operation:
    """As it is written when the log has become as large."""
    from tradewind.consumer.ack_codec import encode_whole

    acks = _pending(PENDING)

    def operate(repetitions: int) -> int:
        for _ in range(repetitions):
            encode_whole(acks, OFFSET_NS, OFFSET_NS)
        return repetitions

    return operate
