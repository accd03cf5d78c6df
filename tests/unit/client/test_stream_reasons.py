"""Why a stream does not store or does not give up messages: each reason, and which comes first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ConsumerInfo
from tradewind.api.responses import AccountInfo, JetStreamAccountLimits
from tradewind.api.stream_types import (
    ClusterInfo,
    DiscardPolicy,
    ErrorDetail,
    LostStreamData,
    PeerInfo,
    RetentionPolicy,
    StreamConfig,
    StreamInfo,
    StreamSource,
    StreamSourceInfo,
    StreamState,
)
from tradewind.client.why.reasons import DESTRUCTIVE, command
from tradewind.client.why.stream_reasons import StreamKnowledge, explain_stream

NOW_NS = 1_800_000_000 * 10**9
HOUR_NS = 3600 * 10**9


def known(
    config: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    **knowledge: Any,
) -> StreamKnowledge:
    settings = {"name": "S", "subjects": ["s.>"], "duplicate_window": 0, **(config or {})}
    info = StreamInfo(
        config=StreamConfig(**settings), state=StreamState(**(state or {})), **(more or {})
    )
    return StreamKnowledge(info, NOW_NS, **knowledge)


def consumer(**more: Any) -> ConsumerInfo:
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, **more.pop("config", {}))
    return ConsumerInfo(stream_name="S", name="slow one", config=config, **more)


NEW = {"discard": DiscardPolicy.NEW}
MIRROR = {"subjects": [], "mirror": StreamSource(name="M")}
SOURCED = {"sources": [StreamSource(name="M")]}
QUEUE = {"retention": RetentionPolicy.WORK_QUEUE}
INTEREST = {"retention": RetentionPolicy.INTEREST}
FULL = AccountInfo(storage=100, limits=JetStreamAccountLimits(max_storage=100))


def origin(**more: Any) -> StreamSourceInfo:
    return StreamSourceInfo(name="M", **more)


@pytest.mark.parametrize(
    ("asked", "mood", "text", "does"),
    [
        (known({"sealed": True, "name": "a b"}), "stuck", "sealed", "stream copy 'a b' 'a b_2'"),
        (
            known(subject="x.1", stored_by=["OTHER"]),
            "stuck",
            "x.1 is not among its subjects (s.>); messages to it are stored in OTHER.",
            "stream edit S --subjects 's.>' --subjects x.1",
        ),
        (known(subject="x.1", stored_by=[]), "stuck", "'no responders'", "--subjects x.1"),
        (known(subject="s.1", stored_by=["S"]), "idle", "first message", ""),
        (
            known(MIRROR, subject="x.1"),
            "stuck",
            "It is a mirror of Mand stores only what that stream stores.",
            "stream why M --subject x.1",
        ),
        (
            known(
                more={
                    "cluster": ClusterInfo(
                        name="c", replicas=[PeerInfo(name="n2", offline=True), PeerInfo(name="n1")]
                    )
                }
            ),
            "stuck",
            "no leader (n2 cannot be reached)",
            "server list",
        ),
        (
            known({**NEW, "max_msgs": 10}, {"messages": 10}),
            "stuck",
            "10 messages of 10 (max_msgs) and refuses new ones",
            "stream edit S --max-msgs 20",
        ),
        (
            known({**NEW, "max_bytes": 1000}, {"messages": 9, "bytes": 950}),
            "stuck",
            "950 B of 1000 B (max_bytes), a message takes 105 B",
            "stream edit S --max-bytes 2000",
        ),
        (
            known({**NEW, "max_bytes": 1000}, {"messages": 9, "bytes": 800}),
            "good",
            "new ones are refused at max_bytes (800 B of 1000 B are used)",
            "",
        ),
        (
            known(
                {**NEW, "max_msgs_per_subject": 3, "discard_new_per_subject": True},
                {"messages": 3},
                subject="s.1",
                subject_messages=3,
            ),
            "stuck",
            "s.1 has 3 messages of 3 (max_msgs_per_subject)",
            "stream edit S --max-msgs-per-subject",
        ),
        (known(account=FULL), "stuck", "uses 100 B on disk of the 100 B", "stream report"),
        (known({"storage": "memory"}, account=FULL), "idle", "first message", ""),
        (
            known(MIRROR, more={"mirror": origin(error=ErrorDetail(description="not there"))}),
            "stuck",
            "It is a mirror of M, and the server says: not there.",
            "stream info M",
        ),
        (known(MIRROR), "stuck", "a mirror of M, which has never been reached", "info M"),
        (
            known(MIRROR, more={"mirror": origin(active=120 * 10**9)}),
            "stuck",
            "was last reached 2 minutes ago",
            "info M",
        ),
        (
            known(SOURCED, more={"sources": [origin(active=10**9, lag=7)]}),
            "waiting",
            "Its source M: 7 messages have not been copied yet.",
            "",
        ),
        (known(SOURCED, more={"sources": [origin(active=-1)]}), "stuck", "Its source M has", "M"),
        (known(SOURCED, more={"sources": [origin(active=10**9)]}), "idle", "first message", ""),
        (known({"subjects": []}), "stuck", "It has no subjects", "stream edit S --subjects"),
        (known(INTEREST), "stuck", "dropped as soon as it arrives", "consumer add S NAME --pull"),
        (
            known(state={"messages": 1, "lost": LostStreamData(msgs=[7, 8])}),
            "stuck",
            "2 messages can no longer be read: the stored data is damaged (first sequence 7)",
            "stream restore FOLDER",
        ),
        (
            known(
                QUEUE,
                {"messages": 5},
                consumers=[consumer(num_pending=5), consumer()],
                consumers_total=2,
            ),
            "waiting",
            "consumer slow one holds 5 of them: 5 messages are waiting, and no client is",
            "consumer why S 'slow one'",
        ),
        (
            known(
                {**QUEUE, "subjects": ["s.>", "t.>"]},
                {"messages": 5},
                consumers=[consumer(config={"filter_subject": "s.>"})],
                consumers_total=1,
            ),
            "waiting",
            "no consumer matches t.>",
            "consumer add",
        ),
        (known(QUEUE, {"messages": 5}), "waiting", "no consumer has them", "consumer add"),
        (known(QUEUE, {"messages": 5}, consumers_total=1), "good", "It stores what arrives.", ""),
        (
            known({"deny_purge": True}, {"messages": 5}),
            "good",
            "no limit removes anything",
            "",
        ),
        (known(state={"messages": 5}), "good", "no limit removes", ""),
        (
            known(
                {"max_age": HOUR_NS},
                {"messages": 5, "first_ts": "2027-01-15T07:30:00Z"},
                stored_rate=12.0,
            ),
            "good",
            "about 12 messages per second; each is removed after 1 hour, the oldest in 30 minutes",
            "",
        ),
        (
            known({"max_msgs": 5}, {"messages": 5}),
            "good",
            "the oldest are removed at max_msgs (it is full)",
            "",
        ),
    ],
)
def test_the_first_reason_that_holds_is_told(
    asked: StreamKnowledge, mood: str, text: str, does: str
) -> None:
    reason = explain_stream(asked)
    assert (reason.mood, text in reason.text) == (mood, True), reason
    assert does in reason.command
    assert bool(does) == bool(reason.command)


def test_what_may_surprise_is_told_beside_a_stream_that_is_well() -> None:
    config = {
        "deny_delete": True,
        "deny_purge": True,
        "max_msg_size": 1024,
        "duplicate_window": 120 * 10**9,
    }
    advice = explain_stream(known(config, {"messages": 1})).advice
    assert "Nobody can remove messages by hand (deny_purge, deny_delete)." in advice
    assert "Messages above 1.0 KiB are refused (max_msg_size)." in advice
    assert "within the last 2 minutes counts as a duplicate" in advice


def test_names_in_commands_are_taken_by_a_shell_as_they_are() -> None:
    assert (
        command("stream", "why", "$(rm -rf x); '") == "tradewind stream why '$(rm -rf x); '\"'\"''"
    )


NUMBERS = st.sampled_from([-1, 0, 1, 9, 10, 11, 2**63 - 1])


@given(
    st.builds(
        StreamKnowledge,
        st.builds(
            StreamInfo,
            config=st.builds(
                StreamConfig,
                subjects=st.sampled_from([[], ["s.>"], ["s.>", "t"]]),
                retention=st.sampled_from(RetentionPolicy),
                discard=st.sampled_from(DiscardPolicy),
                max_msgs=NUMBERS,
                max_bytes=NUMBERS,
                max_age=NUMBERS,
                max_msgs_per_subject=NUMBERS,
                max_msg_size=st.sampled_from([-1, 0, 2**31 - 1]),
                duplicate_window=NUMBERS,
                sealed=st.booleans(),
                discard_new_per_subject=st.booleans(),
                deny_purge=st.booleans(),
                mirror=st.none() | st.just(StreamSource(name="M")),
            ),
            state=st.builds(
                StreamState,
                messages=st.sampled_from([0, 1, 2**64 - 1]),
                bytes=st.sampled_from([0, 1, 2**64 - 1]),
                first_ts=st.sampled_from(["", "soon", "0001-01-01T00:00:00Z"]),
                lost=st.none() | st.builds(LostStreamData, msgs=st.sampled_from([None, [], [1]])),
            ),
            mirror=st.none() | st.builds(StreamSourceInfo, lag=st.sampled_from([0, 2**64 - 1])),
        ),
        st.just(NOW_NS),
        subject=st.sampled_from(["", "s.1", "other"]),
        stored_by=st.none() | st.just([]),
        subject_messages=st.none() | st.integers(0, 20),
        consumers_total=st.integers(0, 2),
        stored_rate=st.none() | st.floats(0, 1e300),
    )
)
def test_there_is_always_one_whole_sentence(asked: StreamKnowledge) -> None:
    reason = explain_stream(asked)
    assert reason.text[0].isupper() or reason.text[0].islower() or reason.text[0].isdigit()
    assert reason.text.endswith(".")
    assert "\n" not in reason.text + reason.advice + reason.command
    assert reason.mood in ("good", "idle", "waiting", "stuck")
    assert DESTRUCTIVE.isdisjoint(reason.command.split())
    assert not reason.command or reason.mood in ("waiting", "stuck")
