"""Why is it not moving? The state of a consumer in one sentence, and what to do about it.

Owns the order of the reasons: the first that holds is the one that must be mended first. Pure: what
is known is given, nothing is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tradewind.api.consumer_types import (
    AckPolicy,
    ConsumerInfo,
    PriorityPolicy,
    ReplayPolicy,
)
from tradewind.dashboard.data.texts import count, many, size, span, span_ns, time_text

Mood = Literal["good", "idle", "waiting", "stuck"]
BITS_PER_BYTE: Final = 8
# Messages per second below which nobody would call it moving.
RATE_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class Oldest:
    """The first message that is not acknowledged."""

    sequence: int
    age: float


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known beside the info: how fast it moved lately, whether the filter matches."""

    info: ConsumerInfo
    delivered_rate: float | None = None
    acked_rate: float | None = None
    oldest: Oldest | None = None
    filter_matches: bool | None = None
    stream_messages: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence, how bad it is, and what to do."""

    mood: Mood
    text: str
    advice: str = ""


def explain(known: Knowledge) -> Reason:
    """The reason why a consumer delivers nothing, or that it does."""
    info = known.info
    for look in (_paused, _moving, _unbound, _full, _unasked, _pinned):
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
    )


def _moving(known: Knowledge) -> Reason | None:
    rate = known.delivered_rate
    if not rate or rate < RATE_MIN:
        return None
    info = known.info
    text = f"It is moving: about {_rate(rate)} messages per second are delivered"
    if not info.num_pending:
        return Reason("good", f"{text}, and nothing is left behind.")
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
    )


def _full(known: Knowledge) -> Reason | None:
    info = known.info
    most = info.config.max_ack_pending
    if info.config.ack_policy is AckPolicy.NONE or most <= 0 or info.num_ack_pending < most:
        return None
    return Reason(
        "stuck",
        f"{many(info.num_ack_pending, 'message')} are delivered and not acknowledged, which is all "
        f"that max_ack_pending ({count(most)}) allows{_oldest(known)}.",
        "Look why its clients do not acknowledge, add clients, or raise max_ack_pending.",
    )


def _oldest(known: Knowledge) -> str:
    info, oldest = known.info, known.oldest
    if oldest is None:
        return ""
    text = f"; the oldest is sequence {oldest.sequence}, stored {span(oldest.age)} ago"
    if info.num_redelivered:
        text += f", and {count(info.num_redelivered)} of them were delivered more than once"
    return text


def _unasked(known: Knowledge) -> Reason | None:
    info = known.info
    if info.config.deliver_subject or info.num_waiting or not info.num_pending:
        return None
    return Reason(
        "stuck",
        f"{many(info.num_pending, 'message')} are waiting, and no client asks for them.",
        "Start a client that pulls from this consumer, or look why it has stopped to ask.",
    )


def _pinned(known: Knowledge) -> Reason | None:
    info = known.info
    if info.config.priority_policy is not PriorityPolicy.PINNED_CLIENT or not info.num_pending:
        return None
    for group in info.priority_groups:
        if group.pinned_client_id:
            return Reason(
                "waiting",
                f"Group {group.group} is pinned to the client {group.pinned_client_id} since "
                f"{time_text(group.pinned_ts or '')}, and only that one is served.",
                "Unpin the group if that client does not work any more.",
            )
    return None


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
        )
    if not info.delivered.consumer_seq:
        return Reason("idle", "There is nothing to deliver yet; it waits for the first message.")
    return Reason("good", "It has delivered everything, and all is acknowledged.")


def _unacknowledged(known: Knowledge) -> Reason:
    info = known.info
    most = info.config.max_deliver
    again = (
        f"They come again after {span_ns(info.config.ack_wait)}"
        if info.config.ack_wait > 0
        else "They come again"
    )
    return Reason(
        "waiting",
        f"Everything is delivered, and {many(info.num_ack_pending, 'message')} not acknowledged "
        f"yet{_oldest(known)}.",
        f"{again}{f', at most {most} times' if most > 0 else ''}.",
    )


def _slow(known: Knowledge) -> Reason:
    info, config = known.info, known.info.config
    pending = many(info.num_pending, "message")
    if config.replay_policy is ReplayPolicy.ORIGINAL:
        return Reason(
            "waiting",
            f"{pending} are left; it delivers them in the rhythm in which they were stored "
            "(replay_policy original).",
            "Use replay_policy instant for a consumer that should deliver at once.",
        )
    if config.rate_limit_bps:
        return Reason(
            "waiting",
            f"{pending} are left; it may send {size(config.rate_limit_bps / BITS_PER_BYTE)} per "
            "second (rate_limit_bps).",
            "Raise rate_limit_bps if that is too little.",
        )
    if config.backoff or info.num_redelivered:
        return Reason(
            "waiting",
            f"{pending} are left, and {many(info.num_redelivered, 'message')} wait to be delivered "
            f"again{_oldest(known)}.",
            "Look what its clients answer: a message that always fails holds up a place.",
        )
    return Reason(
        "waiting",
        f"{pending} are left, and nothing was delivered since this page was opened.",
        "Look again in some seconds; clients may take what they asked for in larger steps.",
    )


def filter_subjects(info: ConsumerInfo) -> list[str]:
    """What a consumer wants; everything if it does not say."""
    config = info.config
    return [config.filter_subject] if config.filter_subject else config.filter_subjects or [">"]


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"
