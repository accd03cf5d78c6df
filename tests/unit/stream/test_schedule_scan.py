"""The quick way to know schedules again, against the one that knows all forms."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from tradewind.api.timings import parse_timing
from tradewind.stream.schedule_scan import read_time
from unit.stream.stream_kit import StreamKit, close, frame

NUMBERS = st.tuples(
    st.integers(1965, 2270),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(0, 24),
    st.integers(0, 60),
    st.integers(0, 60),
)
ENDS = st.sampled_from(["Z", ".5Z", ".123456789Z", ".1234567890Z", ".Z", "", "z", "+01:00", " Z"])


def careful(text: bytes) -> int | None:
    try:
        return parse_timing(text, None, 0).at_ns
    except ValueError:
        return None


@given(NUMBERS, ENDS)
@example((2024, 2, 29, 23, 59, 59), ".999999999Z")
@example((2100, 2, 29, 0, 0, 0), "Z")
@example((2261, 12, 31, 23, 59, 59), "Z")
@example((1970, 1, 1, 0, 0, 0), "Z")
def test_time_that_is_read_quickly_is_the_right_one(numbers: tuple[int, ...], end: str) -> None:
    text = "@at {:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*numbers) + end
    found = read_time(text.encode())
    assert found is None or found == careful(text.encode())


@given(st.datetimes(datetime(1970, 1, 1), datetime(2261, 12, 31)))  # noqa: DTZ001
def test_usual_times_are_read_quickly(moment: datetime) -> None:
    text = f"@at {moment.isoformat()}Z".encode()
    assert read_time(text) == careful(text)
    assert read_time(text) is not None
    assert read_time(text) == int(moment.replace(tzinfo=UTC, microsecond=0).timestamp()) * 10**9 + (
        moment.microsecond * 1000
    )


@given(st.binary(max_size=40).map(lambda data: b"@at " + data))
def test_anything_else_is_left_to_the_careful_way(text: bytes) -> None:
    assert read_time(text) is None or read_time(text) == careful(text)


def schedule(kit: StreamKit, number: int, *fields: str) -> None:
    lines = (*fields, f"Nats-Schedule-Target: s.to.{number}")
    kit.peer.send(frame(f"s.from.{number}", b"x", "\r\n".join(lines).encode(), reply=""))


def test_start_knows_all_kinds_of_schedules_after_a_stop_and_after_a_kill() -> None:
    kit = StreamKit()
    stream = kit.create(allow_msg_schedules=True, storage="file")
    schedule(kit, 1, "Nats-Schedule: @at 2040-01-01T00:00:00Z")
    schedule(kit, 2, "Nats-Schedule: @at 2040-01-01T01:00:00+01:00")
    schedule(kit, 3, "Nats-Schedule: @every 1h")
    schedule(kit, 4, "Nats-Schedule: 0 0 3 * * *", "Nats-Schedule-Time-Zone: Europe/Lisbon")
    schedule(kit, 5, "Nats-Schedule: @at 2040-01-01T00:00:00Z")
    kit.peer.send(frame("s.from.5", b"an ordinary message ends it", reply=""))
    schedule(kit, 6, "Nats-Schedule: @at 2041-01-01T00:00:00Z")
    schedule(kit, 6, "Nats-Schedule: @at 2042-01-01T00:00:00Z")
    kit.server.run_until_idle()
    pending = sorted(stream.store.schedules.pending())
    assert len(pending) == 5
    stream.deactivate()
    kit.disk = kit.disk.crash_keeping_unsynced()
    killed = kit.reopen()
    assert sorted(killed.store.schedules.pending()) == pending
    close(killed)
    assert sorted(kit.reopen().store.schedules.pending()) == pending
