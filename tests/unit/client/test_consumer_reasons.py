"""Why a consumer does not move: each reason, and which one comes first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.consumer_types import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    PriorityGroupState,
    PriorityPolicy,
    ReplayPolicy,
    SequenceInfo,
)
from tradewind.client.why.consumer_reasons import Knowledge, Oldest, explain
from tradewind.client.why.reasons import DESTRUCTIVE


def info(config: dict[str, Any] | None = None, **more: Any) -> ConsumerInfo:
    settings = {"ack_policy": AckPolicy.EXPLICIT, "max_ack_pending": 10, **(config or {})}
    return ConsumerInfo(stream_name="S", name="c", config=ConsumerConfig(**settings), **more)


PAUSED = info({"pause_until": "2030-01-01T00:00:00Z"}, paused=True, pause_remaining=90 * 10**9)
PINNED = info(
    {"priority_policy": PriorityPolicy.PINNED_CLIENT},
    num_pending=5,
    num_waiting=2,
    priority_groups=[PriorityGroupState(group="g", pinned_client_id="me")],
)


@pytest.mark.parametrize(
    ("known", "mood", "text", "advice"),
    [
        (Knowledge(PAUSED, 5.0), "stuck", "another 1 minute 30 seconds", "Resume"),
        (Knowledge(info(num_pending=20), 10.0), "good", "20 are left (about 2 seconds)", ""),
        (Knowledge(info(), 10.0), "good", "none are left", ""),
        (
            Knowledge(info({"deliver_subject": "d", "deliver_group": "q"}, num_pending=1)),
            "stuck",
            "Nobody subscribes to d",
            "queue group q",
        ),
        (
            Knowledge(info(num_ack_pending=10, num_redelivered=3), 0.0, 0.0, Oldest(7, 60)),
            "stuck",
            "7, stored 1 minute ago, delivered at most 1 time, and 3 of them were delivered more",
            "max_ack_pending",
        ),
        (
            Knowledge(
                info(num_ack_pending=1, num_pending=5, num_waiting=1),
                0.0,
                0.0,
                Oldest(7, 60, "ada", "token 2 of the subject"),
            ),
            "waiting",
            "The oldest of these is of key 'ada': sequence 7, stored 1 minute ago, delivered once.",
            "blocks its key until max_deliver",
        ),
        (
            Knowledge(
                info(num_ack_pending=10),
                dead_letter_problem="there is no stream D",
                dead_letter_stream="D",
            ),
            "stuck",
            "gave up on, because there is no stream D (10 messages not acknowledged)",
            "Make room in stream D",
        ),
        (
            Knowledge(
                info(num_ack_pending=1),
                dead_letter_problem="stream D is sealed",
                dead_letter_stream="D",
            ),
            "waiting",
            "because stream D is sealed (1 message not acknowledged)",
            "Make room in stream D",
        ),
        (
            Knowledge(info(num_ack_pending=10), 0.0, 0.0, Oldest(7, 60), clients=["a (h:1)", "b"]),
            "stuck",
            "allows, held by a (h:1), b; the oldest is sequence 7, stored 1 minute ago, delivered",
            "max_ack_pending",
        ),
        (
            Knowledge(
                info(
                    num_ack_pending=1,
                    num_redelivered=1,
                    delivered=SequenceInfo(consumer_seq=9, stream_seq=7),
                    ack_floor=SequenceInfo(consumer_seq=6, stream_seq=6),
                ),
                oldest=Oldest(7, 1),
            ),
            "waiting",
            "the oldest is sequence 7, stored 1 second ago, delivered 3 times, and 1 of them",
            "They are redelivered",
        ),
        (Knowledge(info(num_pending=1234)), "stuck", "1,234 messages are waiting, and no", "pulls"),
        (Knowledge(PINNED), "waiting", "pinned to client me", "Unpin"),
        (
            Knowledge(info(), filter_matches=False, stream_messages=9),
            "waiting",
            "filter",
            "Compare",
        ),
        (Knowledge(info(), filter_matches=False, stream_messages=0), "idle", "first message", ""),
        (
            Knowledge(info({"ack_wait": 30 * 10**9, "max_deliver": 4}, num_ack_pending=2)),
            "waiting",
            "2 messages not acknowledged yet",
            "after 30 seconds, at most 4 times",
        ),
        (
            Knowledge(info(delivered=SequenceInfo(consumer_seq=3))),
            "good",
            "All messages are delivered",
            "",
        ),
        (
            Knowledge(info({"replay_policy": ReplayPolicy.ORIGINAL}, num_pending=1, num_waiting=1)),
            "waiting",
            "at the pace",
            "instant",
        ),
        (
            Knowledge(info({"rate_limit_bps": 8192}, num_pending=1, num_waiting=1)),
            "waiting",
            "1.0 KiB per second",
            "rate_limit_bps",
        ),
        (
            Knowledge(info(num_pending=1, num_waiting=1, num_redelivered=2)),
            "waiting",
            "2 messages are waiting to be delivered again",
            "always fails",
        ),
        (
            Knowledge(info(num_pending=1, num_waiting=1)),
            "waiting",
            "nothing was delivered",
            "again",
        ),
    ],
)
def test_the_first_reason_that_holds_is_told(
    known: Knowledge, mood: str, text: str, advice: str
) -> None:
    reason = explain(known)
    assert reason.mood == mood
    assert text in reason.text
    assert advice in reason.advice


NUMBERS = st.sampled_from([0, 1, 9, 10, 11, 2**63 - 1])


@given(
    st.builds(
        Knowledge,
        st.builds(
            ConsumerInfo,
            paused=st.booleans(),
            num_pending=NUMBERS,
            num_ack_pending=NUMBERS,
            num_redelivered=NUMBERS,
            num_waiting=NUMBERS,
            push_bound=st.booleans(),
            pause_remaining=st.integers(-(2**63), 2**63 - 1),
            config=st.builds(
                ConsumerConfig,
                ack_policy=st.sampled_from(AckPolicy),
                max_ack_pending=st.sampled_from([-1, 0, 10, 2**63 - 1]),
                ack_wait=st.integers(-1, 2**63 - 1),
                deliver_subject=st.sampled_from(["", "d"]),
                pause_until=st.sampled_from([None, "", "soon", "0001-01-01T00:00:00Z"]),
                max_deliver=st.integers(-1, 5),
            ),
        ),
        st.none() | st.floats(0, 1e300),
        st.none(),
        st.none() | st.builds(Oldest, NUMBERS, st.floats(0, 1e18)),
        st.none() | st.booleans(),
        st.none() | NUMBERS,
    )
)
def test_every_state_has_one_sentence(known: Knowledge) -> None:
    reason = explain(known)
    assert reason.text.endswith(".")
    assert "\n" not in reason.text
    assert DESTRUCTIVE.isdisjoint(reason.command.split())
    assert not reason.command or reason.mood != "good"
    if reason.mood == "stuck":
        assert reason.advice
    if known.info.paused:
        assert "paused" in reason.text


def test_infos_of_newer_servers_are_read() -> None:
    data = b'{"name":"c","config":{"ack_policy":"none","new":1},"num_pending":3,"other":{}}'
    assert explain(Knowledge(msgspec.json.decode(data, type=ConsumerInfo))).mood == "stuck"


def test_where_refused_messages_wait_the_policy_is_named() -> None:
    known = Knowledge(info({"metadata": {"tradewind.nak.delay": "5s"}}, num_ack_pending=3))
    assert explain(known).advice.endswith(
        "Messages that clients reject (NAK) are delayed by its policy: 5s."
    )
    odd = Knowledge(info({"metadata": {"tradewind.nak.delay": "?"}}, num_ack_pending=3))
    assert "NAK" not in explain(odd).advice
