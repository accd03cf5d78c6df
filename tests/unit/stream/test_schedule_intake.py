"""The quick way to take schedules, against the one that knows all forms."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tradewind.api.errors import ApiError
from tradewind.api.stream_types import StreamConfig
from tradewind.store.contract import MessageCopy
from tradewind.stream import header_fields
from tradewind.stream.publish_checks import with_rollup
from tradewind.stream.schedule_checks import check_schedule
from tradewind.stream.schedule_intake import read_schedule
from unit.stream.stream_kit import StreamKit, frame

NOW_NS = 1_700_000_000_123_456_789
SUBJECTS = ["s.>", "only.this", "a.*.b", "*"]
TARGETS = st.one_of(
    st.sampled_from(
        [
            "s.to",
            "s",
            "s.",
            ".s",
            "s..to",
            "s.*",
            "s.>",
            "s.to>",
            "only.this",
            "only.that",
            "a.x.b",
            "a.b",
            "a.x.y.b",
            "one",
            "two.parts",
            "s.from",
            "s.tä",
            "s.a b",
            "",
        ]
    ),
    st.text("sab.*>", max_size=6),
)
TIMES = st.one_of(
    st.sampled_from(
        [
            "@at 2040-01-01T00:00:00Z",
            "@at 2001-01-01T00:00:00.5Z",
            "@at 2040-01-01T00:00:00+01:00",
            "@every 1h",
            "@every 1h30m",
            "@every 0s",
            "@every 1s",
            "@every 500ms",
            "@every 1.5h",
            "@every",
            "@every ",
            "@every 5",
            "@every h",
            "@every -1h",
            "@every 9999999h",
            "@every 1m1",
            "@every 99999h99999h",
            "@daily",
            "0 0 3 * * *",
            "",
            "@at x",
            "@every 1h 1m",
            "nonsense",
        ]
    ),
    st.text("0123456789hms", max_size=8).map("@every {}".format),
)
OTHERS = st.sampled_from(
    [
        "Other: x",
        "Nats-Schedule-TTL: 5s",
        "Nats-Rollup: sub",
        "Nats-Schedule-Time-Zone: UTC",
        "Nats-Msg-Id: 1",
        "Nats-Schedule: @every 5s",
        "Nats-Schedule-Target: s.x",
        "nats-schedule: x",
        "Nats-Schedule-Source: s.y",
        "Nats-TTL: 1h",
        "Nats-Request-Info: {}",
        "",
        "no colon",
    ]
)


def carefully(header: bytes) -> tuple[bytes, int] | None:
    """The stored header and the time, None if the message is refused or no schedule."""
    config = StreamConfig(name="S", subjects=SUBJECTS, allow_msg_schedules=True)
    header = header_fields.clean(header)
    fields = header_fields.special_fields(header)
    try:
        timing = check_schedule(b"s.from", fields, config, NOW_NS)
    except ApiError:
        return None
    return timing and (with_rollup(header, fields), timing.next_ns(NOW_NS, NOW_NS))


def block(timing: str, target: str, others: list[str]) -> bytes:
    lines = [f"Nats-Schedule: {timing}", f"Nats-Schedule-Target: {target}", *others]
    return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()


@given(TIMES, TARGETS, st.lists(OTHERS, max_size=2))
@example("@every 1h", "s.to", [])
@example("@at 2040-01-01T00:00:00Z", "a.x.b", ["Other: x"])
def test_what_is_taken_quickly_is_what_would_be_stored(
    timing: str, target: str, others: list[str]
) -> None:
    header = block(timing, target, others)
    found = read_schedule(SUBJECTS, b"s.from", header, NOW_NS)
    assert found is None or found == carefully(header)


@given(st.binary(max_size=30), st.integers(0, 60))
def test_a_broken_header_is_left_to_the_careful_way(noise: bytes, place: int) -> None:
    whole = block("@every 1h", "s.to", ["Other: x"])
    header = whole[:place] + noise + whole[place:]
    found = read_schedule(SUBJECTS, b"s.from", header, NOW_NS)
    assert found is None or found == carefully(header)


def test_usual_schedules_are_taken_quickly() -> None:
    for timing in ("@at 2040-01-01T00:00:00Z", "@every 1h30m", "@every 5s"):
        for target in ("s.to", "only.this", "a.x.b", "one"):
            header = block(timing, target, ["Other: x"])
            found = read_schedule(SUBJECTS, b"s.from", header, NOW_NS)
            assert found is not None
            assert found == carefully(header)


def contents(**config: Any) -> tuple[list[MessageCopy], list[tuple[int, int]], int]:
    """The messages, the schedules and the replies of a stream that takes some of each kind."""
    kit = StreamKit()
    stream = kit.create(allow_msg_schedules=True, storage="file", **config)
    for number, timing in enumerate(["@every 1h", "@at 2040-01-01T00:00:00Z", "@daily"] * 3):
        header = f"Nats-Schedule: {timing}\r\nNats-Schedule-Target: s.to.{number}".encode()
        # Every second one replaces the one before it.
        kit.peer.send(frame(f"s.from.{number // 2}", b"x", header, reply="reply"))
    kit.peer.send(frame("s.from.0", b"ordinary", reply="reply"))
    kit.server.run_until_idle()
    messages = [
        stream.store.get(seq)
        for seq in range(1, stream.store.last_seq + 1)
        if stream.store.is_live(seq)
    ]
    return messages, sorted(stream.store.schedules.pending()), len(kit.peer.take())


def test_streams_hold_the_same_whichever_way_schedules_come(monkeypatch: Any) -> None:
    limits: list[dict[str, Any]] = [{}, {"max_msgs": 3, "discard": "new"}, {"max_msg_size": 60}]
    quickly = [contents(**config) for config in limits]
    monkeypatch.setattr("tradewind.stream.stream.ScheduleIntake", lambda _: None)
    assert quickly == [contents(**config) for config in limits]
    assert quickly[0][1]
