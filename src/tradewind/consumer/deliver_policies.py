"""The start position of a new consumer: the six deliver policies, and the rules for a reset.

Owns only this choice; it reads the totals of a store and nothing else.
"""

from __future__ import annotations

from array import array
from typing import Final

import msgspec

from tradewind.api.consumer_types import ConsumerConfig, DeliverPolicy
from tradewind.api.times import parse_time
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.subject_index import SubjectFilter

# This many messages are counted at once, with any filter.
NEAR_MAX: Final = 10_000


class Start(msgspec.Struct, frozen=True):
    """A start position: `skip` are single messages that come first; `next_seq` is where it
    continues then.
    """

    next_seq: int
    skip: array[int] = array("Q")
    # Nothing below this is delivered; 0: nothing below the first one is.
    floor: int = 0

    @property
    def first_seq(self) -> int:
        """The lowest sequence that is delivered."""
        if self.floor:
            return self.floor
        return self.skip[0] if self.skip else self.next_seq


def filters_of(config: ConsumerConfig) -> tuple[bytes, ...]:
    """The patterns of a consumer; empty for all messages."""
    patterns = [config.filter_subject] if config.filter_subject else config.filter_subjects
    return tuple(pattern.encode() for pattern in patterns if pattern)


def is_by_last(config: ConsumerConfig) -> bool:
    """Whether the start depends on the last messages of subjects."""
    by_last = (DeliverPolicy.LAST, DeliverPolicy.LAST_PER_SUBJECT)
    return config.deliver_policy in by_last and not config.opt_start_seq


class PreparedStart(msgspec.Struct, frozen=True):
    """Slow results that a new consumer needs, computed before it is created."""

    chosen: SubjectFilter
    # With the last message of each subject: where it starts, None if there is none.
    start: Start | None = None


def is_by_subject(store: MessageStore, config: ConsumerConfig, chosen: SubjectFilter) -> bool:
    """Whether it starts with the last message of each subject, and others may be before them.

    If every subject has one message only, those are all messages. A filter that matches few
    subjects finds them sooner by subject, nevertheless.
    """
    return (
        config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT
        and not config.opt_start_seq
        and store.first_seq > 0
        and (store.limits.subject_msgs_max != 1 or chosen.is_narrow)
    )


def starts_inside(store: MessageStore, config: ConsumerConfig) -> bool:
    """Whether messages have to be counted from somewhere inside the stream on."""
    if config.deliver_policy is DeliverPolicy.BY_START_TIME and not config.opt_start_seq:
        return True
    seq = config.opt_start_seq
    return store.first_seq + NEAR_MAX < seq and seq + NEAR_MAX < store.last_seq


def choose_start(
    store: MessageStore, config: ConsumerConfig, prepared: PreparedStart | None = None
) -> Start:
    """The start position of a consumer that has never delivered anything."""
    if prepared is not None and prepared.start is not None:
        return prepared.start
    first_seq, last_seq = store.first_seq, store.last_seq
    if config.opt_start_seq:
        return Start(max(config.opt_start_seq, first_seq))
    if first_seq == 0:
        return Start(1)
    patterns = filters_of(config)
    chosen = patterns if prepared is None else prepared.chosen
    seq = last_seq + 1
    match config.deliver_policy:
        case DeliverPolicy.ALL:
            seq = first_seq
        case DeliverPolicy.LAST:
            seq = store.last_sequence(chosen) if patterns else last_seq
        case DeliverPolicy.LAST_PER_SUBJECT:
            if store.limits.subject_msgs_max == 1:
                seq = first_seq
            elif prepared is None and (skip := store.last_sequences(patterns)):
                return Start(last_seq + 1, skip)
            else:
                seq = last_seq
        case DeliverPolicy.BY_START_TIME:
            seq = store.sequence_at(parse_time(config.opt_start_time or ""))
        case _:
            pass
    return Start(min(max(seq, first_seq), last_seq + 1))


def reconcile(state: ConsumerState, last_seq: int) -> ConsumerState:
    """The saved state without messages that the stream has lost: those above its last sequence."""
    if not state.delivered.consumer_seq or state.delivered.stream_seq <= last_seq:
        return state
    if state.ack_floor.stream_seq > last_seq:
        delivered = SequencePair(state.delivered.consumer_seq, last_seq)
        return ConsumerState(delivered, delivered)
    pending = {seq: entry for seq, entry in state.pending.items() if seq <= last_seq}
    redelivered = {seq: count for seq, count in state.redelivered.items() if seq <= last_seq}
    highest = max(pending, default=state.ack_floor.stream_seq)
    delivered = SequencePair(state.delivered.consumer_seq, highest)
    return ConsumerState(delivered, state.ack_floor, pending, redelivered)


def without_times_ahead(state: ConsumerState, now_ns: int) -> ConsumerState:
    """The saved state without times of deliveries that are in the future."""
    pending = {
        seq: PendingDelivery(entry.consumer_seq, min(entry.time_ns, now_ns))
        for seq, entry in state.pending.items()
    }
    return ConsumerState(state.delivered, state.ack_floor, pending, state.redelivered)


class ResetError(ValueError):
    """A reset that the deliver policy does not allow; the text is the official one."""


def check_reset(store: MessageStore, config: ConsumerConfig, seq: int) -> None:
    """ResetError unless a consumer may be reset to this explicit sequence."""
    match config.deliver_policy:
        case DeliverPolicy.ALL:
            return
        case DeliverPolicy.BY_START_SEQUENCE:
            if seq < config.opt_start_seq:
                raise ResetError("below start seq")
        case DeliverPolicy.BY_START_TIME:
            if seq < store.sequence_at(parse_time(config.opt_start_time or "")):
                raise ResetError("below start time")
        case _:
            raise ResetError("not allowed")
