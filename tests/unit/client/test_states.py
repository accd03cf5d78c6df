"""The state of streams and consumers in one word, judged by what happened lately."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo, SequenceInfo
from tradewind.api.stream_types import (
    DiscardPolicy,
    LostStreamData,
    StreamConfig,
    StreamInfo,
    StreamSource,
    StreamSourceInfo,
    StreamState,
)
from tradewind.api.times import format_time
from tradewind.client.why.states import RECENT_NS, consumer_verdict, stream_verdict
from tradewind.durations import SECOND_NS

NOW_NS = 1_800_000_000 * SECOND_NS
LONG_AGO = format_time(NOW_NS - 3600 * SECOND_NS)
JUST_NOW = format_time(NOW_NS - RECENT_NS // 2)


def consumer(active: str = LONG_AGO, **more: Any) -> ConsumerInfo:
    config = more.pop("config", {})
    return ConsumerInfo(
        stream_name="S",
        name="c",
        created=LONG_AGO,
        config=ConsumerConfig(durable_name="c", **config),
        delivered=SequenceInfo(consumer_seq=5, stream_seq=5, last_active=active),
        **more,
    )


def stream(state: dict[str, Any], **config: Any) -> StreamInfo:
    config.setdefault("subjects", ["s"])
    more = {key: config.pop(key) for key in ("mirror_info",) if key in config}
    return StreamInfo(
        config=StreamConfig(name="S", **config),
        state=StreamState(**state),
        mirror=more.get("mirror_info"),
    )


def test_a_consumer_that_nobody_asks_is_stopped_once_it_was_quiet_for_long() -> None:
    assert consumer_verdict(consumer(num_pending=9), NOW_NS).state == "stopped"
    # A client between two batches asks for nothing.
    assert consumer_verdict(consumer(JUST_NOW, num_pending=9), NOW_NS).state == "ok"


def test_a_paused_consumer_is_stopped_even_if_it_was_paused_a_moment_ago() -> None:
    verdict = consumer_verdict(consumer(JUST_NOW, paused=True, num_pending=1), NOW_NS)
    assert verdict.state == "stopped"
    assert "paused" in verdict.text


def test_a_consumer_with_nothing_to_do_is_ok_even_without_a_client() -> None:
    push = {"config": {"deliver_subject": "d"}}
    assert consumer_verdict(consumer(**push), NOW_NS).state == "ok"
    assert consumer_verdict(consumer(num_pending=1, **push), NOW_NS).state == "stopped"


@pytest.mark.parametrize(("seconds", "state"), [(100, "ok"), (300, "attention")])
def test_messages_at_work_need_attention_after_their_ack_wait(seconds: int, state: str) -> None:
    active = format_time(NOW_NS - seconds * SECOND_NS)
    info = consumer(active, num_ack_pending=1, config={"ack_wait": 200 * SECOND_NS})
    assert consumer_verdict(info, NOW_NS).state == state


def test_a_consumer_that_moves_is_ok_however_far_behind_it_is() -> None:
    info = consumer(num_pending=10**12)
    assert consumer_verdict(info, NOW_NS, (0.5, 0.5)).state == "ok"


def test_a_stream_that_refuses_publishes_is_stopped_and_one_that_discards_old_is_ok() -> None:
    full = {"messages": 10, "bytes": 100}
    refuses = stream(full, max_msgs=10, discard=DiscardPolicy.NEW)
    assert stream_verdict(refuses, NOW_NS).state == "stopped"
    assert stream_verdict(stream(full, max_msgs=10), NOW_NS).state == "ok"


def test_a_sealed_stream_is_ok_unless_it_is_damaged() -> None:
    assert stream_verdict(stream({"messages": 3}, sealed=True), NOW_NS).state == "ok"
    lost = {"messages": 3, "lost": LostStreamData(msgs=[2])}
    assert stream_verdict(stream(lost, sealed=True), NOW_NS).state == "stopped"


def test_a_mirror_needs_attention_only_if_it_does_not_catch_up() -> None:
    def mirror(lag: int, active: int = SECOND_NS) -> StreamInfo:
        origin = StreamSourceInfo(name="O", lag=lag, active=active)
        source = StreamSource(name="O")
        return stream({"messages": 1}, subjects=[], mirror=source, mirror_info=origin)

    assert stream_verdict(mirror(50), NOW_NS).state == "ok"
    assert stream_verdict(mirror(50), NOW_NS, lag_before=80).state == "ok"
    assert stream_verdict(mirror(50), NOW_NS, lag_before=0).state == "ok"
    assert stream_verdict(mirror(50), NOW_NS, lag_before=50).state == "attention"
    assert stream_verdict(mirror(0, active=-1), NOW_NS).state == "stopped"
