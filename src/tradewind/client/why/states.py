"""The state of a stream or consumer in one word: ok, attention or stopped.

Owns the judgement of an explanation by what happened lately, so that a client between two batches
is not reported as a fault. It works on given facts and never sends requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.client.why.consumer_reasons import Knowledge, explain
from tradewind.client.why.stream_reasons import StreamKnowledge, explain_stream
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.why.reasons import Mood, Reason

State = Literal["ok", "attention", "stopped"]
# The states in the order in which tables show them.
STATES: Final[tuple[State, ...]] = ("stopped", "attention", "ok")
# A consumer that delivered or acknowledged within this time is at work.
RECENT_NS: Final = 30 * SECOND_NS
_STATES: Final[dict[Mood, State]] = {"stuck": "stopped", "waiting": "attention"}


class StateReason(msgspec.Struct, frozen=True):
    """A state and, unless it is ok, the sentence and the advice that explain it."""

    state: State = "ok"
    text: str = ""
    advice: str = ""

    @property
    def rank(self) -> int:
        """The place of the state in a table that shows the worst ones first."""
        return STATES.index(self.state)


OK: Final = StateReason()


def stream_verdict(info: StreamInfo, now_ns: int, lag_before: int | None = None) -> StateReason:
    """The state of a stream. `lag_before` is how far its origins were ahead at the last look: a
    mirror that catches up needs no attention.
    """
    known = StreamKnowledge(info, now_ns, consumers_total=info.state.consumer_count)
    reason = explain_stream(known)
    if info.config.sealed:
        lost = info.state.lost
        if lost is None or not lost.msgs:
            return OK  # nothing is stored on purpose
        text = f"{len(lost.msgs)} messages can no longer be read: the stored data is damaged."
        return StateReason("stopped", text)
    lag = origin_lag(info)
    is_new = lag_before is None or not 0 < lag_before <= lag
    if reason.mood == "waiting" and lag and is_new:
        return OK
    return _verdict(reason)


def origin_lag(info: StreamInfo) -> int:
    """How many messages the mirror and the sources of a stream have not been copied yet."""
    return sum(each.lag for each in (*info.sources, info.mirror) if each is not None)


def consumer_verdict(
    info: ConsumerInfo, now_ns: int, rates: tuple[float | None, float | None] = (None, None)
) -> StateReason:
    """The state of a consumer; `rates` are those of deliveries and of acknowledgements."""
    reason = explain(Knowledge(info, *rates))
    if reason.mood in ("good", "idle"):
        return OK
    if info.paused:
        return _verdict(reason)
    quiet_ns = RECENT_NS
    if not info.num_pending:
        if not info.num_ack_pending:
            return OK  # nothing waits for it
        quiet_ns = max(RECENT_NS, info.config.ack_wait)
    return OK if now_ns - last_active_ns(info) < quiet_ns else _verdict(reason)


def last_active_ns(info: ConsumerInfo) -> int:
    """When a consumer last delivered or acknowledged, or else when it was created."""
    texts = (info.delivered.last_active, info.ack_floor.last_active, info.created)
    return max(_time_ns(text) for text in texts)


def _verdict(reason: Reason) -> StateReason:
    state = _STATES.get(reason.mood)
    return OK if state is None else StateReason(state, reason.text, reason.advice)


def _time_ns(text: str | None) -> int:
    if not text or text == ZERO_TIME:
        return 0
    try:
        return parse_time(text)
    except ValueError:
        return 0
