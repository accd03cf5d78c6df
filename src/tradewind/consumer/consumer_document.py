"""The part of CONSUMER.INFO that the consumer itself knows.

Owns nothing and changes nothing, except that requests whose receivers are gone end before those
that wait are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.consumer_types import ConsumerInfo, PriorityGroupState, SequenceInfo
from tradewind.api.times import ZERO_TIME_NS, format_time

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer


def consumer_document(consumer: ServerConsumer) -> ConsumerInfo:
    """The consumer's configuration and state at the time of the turn."""
    config, delivery, acks = consumer.config, consumer.delivery, consumer.acks
    consumer.sweep_requests()
    acks.settle_floor()
    left_ns = consumer.pause_left_ns
    return ConsumerInfo(
        stream_name=consumer.stream_name,
        name=consumer.name,
        created=format_time(consumer.created_ns),
        config=config,
        delivered=SequenceInfo(
            consumer_seq=acks.delivered_consumer,
            stream_seq=acks.delivered_stream,
            last_active=_time_or_none(delivery.last_delivered_ns),
        ),
        ack_floor=SequenceInfo(
            consumer_seq=acks.floor_consumer,
            stream_seq=acks.floor_stream,
            last_active=_time_or_none(delivery.last_acked_ns),
        ),
        num_ack_pending=acks.awaited_count,
        num_redelivered=0 if config.max_deliver == 1 else len(acks.redelivered),
        num_waiting=consumer.pulls.count if consumer.pulls is not None else 0,
        num_pending=consumer.cursor.pending() + acks.parked_count,
        push_bound=delivery.is_bound,
        paused=left_ns > 0,
        pause_remaining=left_ns,
        ts=format_time(consumer.turn.now_ns),
        priority_groups=_group_states(consumer),
    )


def _group_states(consumer: ServerConsumer) -> list[PriorityGroupState]:
    if not consumer.config.priority_groups:
        return []
    pinned = consumer.pinned
    return [
        PriorityGroupState(
            group=consumer.config.priority_groups[0],
            pinned_client_id=pinned.pin.decode(),
            pinned_ts=format_time(pinned.pinned_ns or ZERO_TIME_NS),
        )
    ]


def _time_or_none(time_ns: int) -> str | None:
    return format_time(time_ns) if time_ns else None
