"""Explains in one sentence why a consumer is not moving, and what to do about it.

Owns the order of the reasons: the first that applies is the one to fix first. It works on given
facts and never sends requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tradewind.api.consumer_types import (
    AckPolicy,
    ConsumerInfo,
    PriorityPolicy,
    ReplayPolicy,
)
from tradewind.api.nak_policy import described_nak_policy
from tradewind.client.why.reasons import Reason, command
from tradewind.client.why.texts import count, many, size, span, span_ns, time_text

BITS_PER_BYTE: Final = 8
# Messages per second below which a consumer does not count as moving.
RATE_MIN: Final = 0.001
NUMBER_MAX: Final = 2**63 - 1
# Characters of a key that are shown.
KEY_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class Oldest:
    """The first message that is not acknowledged. With order per key, `key` is its key, and `part`
    the part of the message that is the key.
    """

    sequence: int
    age: float
    key: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The facts about a consumer that its reason depends on.

    The rates are recent, in messages per second. `clients` are those to which a push consumer
    sends; servers do not say which clients pull.
    """

    info: ConsumerInfo
    delivered_rate: float | None = None
    acked_rate: float | None = None
    oldest: Oldest | None = None
    filter_matches: bool | None = None
    stream_messages: int | None = None
    clients: Sequence[str] | None = None
    # Why its dead letters cannot go where they should, and the stream.
    dead_letter_problem: str = ""
    dead_letter_stream: str = ""


def explain(known: Knowledge) -> Reason:
    """The reason why a consumer delivers nothing, or that it does."""
    info = known.info
    for look in (_paused, _moving, _unbound, _undead, _full, _unasked, _pinned, _busy_key):
        if (reason := look(known)) is not None:
            return reason
    if not info.num_pending:
        return _nothing_left(known)
    return _slow(known)


def _paused(known: Knowledge) -> Reason | None:
    info = known.info
    if not info.paused:
        return None
    until = time_text(info.config.pause_until or "")
    left = f", another {span_ns(info.pause_remaining)}" if info.pause_remaining > 0 else ""
    return Reason(
        "stuck",
        f"It is paused until {until}{left}.",
        "Resume it if it should deliver before that.",
        _command(known, "resume"),
    )


def _moving(known: Knowledge) -> Reason | None:
    rate = known.delivered_rate
    if not rate or rate < RATE_MIN:
        return None
    info = known.info
    text = f"It is moving: about {_rate(rate)} messages per second are delivered"
    if not info.num_pending:
        return Reason("good", f"{text}, and none are left.")
    return Reason(
        "good",
        f"{text}, {count(info.num_pending)} are left (about {span(info.num_pending / rate)}).",
    )


def _unbound(known: Knowledge) -> Reason | None:
    info, config = known.info, known.info.config
    if not config.deliver_subject or info.push_bound:
        return None
    return Reason(
        "stuck" if info.num_pending else "waiting",
        f"Nobody subscribes to {config.deliver_subject}, where it delivers.",
        f"Start the client that subscribes to {config.deliver_subject}"
        + (f" in the queue group {config.deliver_group}." if config.deliver_group else "."),
        _command(known, "sub"),
    )


def _undead(known: Knowledge) -> Reason | None:
    info, stream = known.info, known.dead_letter_stream
    if not known.dead_letter_problem or not info.num_ack_pending:
        return None
    text = f"It keeps messages that it gave up on, because {known.dead_letter_problem}"
    return Reason(
        "stuck" if is_full(info) else "waiting",
        f"{text} ({many(info.num_ack_pending, 'message')} not acknowledged).",
        f"Make room in stream {stream}, or create it.",
        command("stream", "info", stream),
    )


def is_full(info: ConsumerInfo) -> bool:
    """Whether as many messages are unacknowledged as may be."""
    most = info.config.max_ack_pending
    return info.config.ack_policy is not AckPolicy.NONE and 0 < most <= info.num_ack_pending


def _full(known: Knowledge) -> Reason | None:
    info = known.info
    most = info.config.max_ack_pending
    if not is_full(info):
        return None
    return Reason(
        "stuck",
        f"{many(info.num_ack_pending, 'message')} are delivered and not acknowledged, which is all "
        f"that max_ack_pending ({count(most)}) allows{_held_by(known)}{_oldest(known)}.",
        "Find out why its clients do not acknowledge; add clients or raise max_ack_pending."
        + _refused(info),
        _command(known, "edit", "--max-pending", min(2 * most, NUMBER_MAX)),
    )


def _held_by(known: Knowledge) -> str:
    return f", held by {', '.join(known.clients)}" if known.clients else ""


def _oldest(known: Knowledge) -> str:
    info, oldest = known.info, known.oldest
    if oldest is None:
        return ""
    text = f"; the oldest is sequence {oldest.sequence}, stored {span(oldest.age)} ago"
    text += f", delivered {_attempts(info, oldest)}"
    if info.num_redelivered:
        text += f", and {count(info.num_redelivered)} of them were delivered more than once"
    return text


def _attempts(info: ConsumerInfo, oldest: Oldest) -> str:
    """How often the oldest message was delivered, as text. Servers count the deliveries of all
    messages together, so the number is exact only if no message was redelivered, or no later
    message was delivered.
    """
    if not info.num_redelivered:
        return "once"
    others = info.num_ack_pending - 1
    most = max(info.delivered.consumer_seq - info.ack_floor.consumer_seq - others, 1)
    is_known = info.delivered.stream_seq == oldest.sequence
    return f"{'' if is_known else 'at most '}{many(most, 'time')}"


def _unasked(known: Knowledge) -> Reason | None:
    info = known.info
    if info.config.deliver_subject or info.num_waiting or not info.num_pending:
        return None
    return Reason(
        "stuck",
        f"{many(info.num_pending, 'message')} are waiting, and no client is requesting them.",
        "Start a client that pulls from this consumer, or find out why it stopped "
        "requesting messages.",
        _command(known, "next"),
    )


def _pinned(known: Knowledge) -> Reason | None:
    info = known.info
    if info.config.priority_policy is not PriorityPolicy.PINNED_CLIENT or not info.num_pending:
        return None
    for group in info.priority_groups:
        if group.pinned_client_id:
            return Reason(
                "waiting",
                f"Group {group.group} is pinned to client {group.pinned_client_id} since "
                f"{time_text(group.pinned_ts or '')}, and only that one is served.",
                "Unpin the group if that client no longer works.",
                _command(known, "unpin", group.group),
            )
    return None


def _busy_key(known: Knowledge) -> Reason | None:
    info, oldest = known.info, known.oldest
    if not info.num_pending or not info.num_ack_pending or oldest is None or not oldest.key:
        return None
    key = oldest.key if len(oldest.key) <= KEY_SHOWN else f"{oldest.key[:KEY_SHOWN]}..."
    return Reason(
        "waiting",
        f"{many(info.num_pending, 'message')} are left, and wait for messages of their keys "
        f"({oldest.part}) that are not acknowledged. The oldest of these is of key {key!r}"
        f"{_oldest(known).replace('; the oldest is', ':', 1)}.",
        "Have its client acknowledge it, or terminate it. A message that always fails blocks its "
        "key until max_deliver." + _refused(info),
        _command(known, "info"),
    )


def _nothing_left(known: Knowledge) -> Reason:
    info = known.info
    if info.num_ack_pending:
        return _unacknowledged(known)
    if known.filter_matches is False and known.stream_messages:
        filters = ", ".join(filter_subjects(info))
        return Reason(
            "waiting",
            f"No message of the stream matches its filter ({filters}).",
            "Compare the filter with the subjects of the stream.",
            command("stream", "subjects", info.stream_name),
        )
    if not info.delivered.consumer_seq:
        return Reason(
            "idle", "There is nothing to deliver yet; it is waiting for the first message."
        )
    return Reason("good", "All messages are delivered and acknowledged.")


def _unacknowledged(known: Knowledge) -> Reason:
    info = known.info
    most = info.config.max_deliver
    again = (
        f"They are redelivered after {span_ns(info.config.ack_wait)}"
        if info.config.ack_wait > 0
        else "They are redelivered"
    )
    return Reason(
        "waiting",
        f"Everything is delivered, and {many(info.num_ack_pending, 'message')} not acknowledged "
        f"yet{_oldest(known)}.",
        f"{again}{f', at most {most} times' if most > 0 else ''}.{_refused(info)}",
    )


def _refused(info: ConsumerInfo) -> str:
    """When refused messages come again, where that is not at once."""
    policy = described_nak_policy(info.config.metadata)
    return (
        f" Messages that clients reject (NAK) are delayed by its policy: {policy}."
        if policy
        else ""
    )


def _slow(known: Knowledge) -> Reason:
    info, config = known.info, known.info.config
    pending = many(info.num_pending, "message")
    if config.replay_policy is ReplayPolicy.ORIGINAL:
        return Reason(
            "waiting",
            f"{pending} are left; it delivers them at the pace at which they were stored "
            "(replay_policy original).",
            "Use replay_policy instant for a consumer that should deliver immediately.",
            _command(known, "copy", f"{info.name}_instant", "--replay", "instant"),
        )
    if config.rate_limit_bps:
        return Reason(
            "waiting",
            f"{pending} are left; it may send {size(config.rate_limit_bps / BITS_PER_BYTE)} per "
            "second (rate_limit_bps).",
            "Raise rate_limit_bps if that is too little.",
            _command(known, "edit", "--bps", min(2 * config.rate_limit_bps, NUMBER_MAX)),
        )
    if config.backoff or info.num_redelivered:
        return Reason(
            "waiting",
            f"{pending} are left, and {many(info.num_redelivered, 'message')} are waiting to be "
            "delivered "
            f"again{_oldest(known)}.",
            "Check how its clients respond: a message that always fails blocks a slot."
            + _refused(info),
            _command(known, "info"),
        )
    return Reason(
        "waiting",
        f"{pending} are left, and nothing was delivered while it was watched.",
        "Check again in a few seconds; clients may fetch in larger batches.",
        _command(known, "info"),
    )


def _command(known: Knowledge, word: str, *more: str | int) -> str:
    return command("consumer", word, known.info.stream_name, known.info.name, *more)


def filter_subjects(info: ConsumerInfo) -> list[str]:
    """The subjects that a consumer filters; `>` if it has no filter."""
    config = info.config
    return [config.filter_subject] if config.filter_subject else config.filter_subjects or [">"]


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"
