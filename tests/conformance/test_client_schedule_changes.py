"""StreamSchedules are listed, cancelled and moved by our client, on both servers."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator

import pytest
from helpers_client import SECONDS, lent_jetstream

import tradewind.sync
from harness import ServerProcess
from tradewind.client.errors import OptionsError, ScheduleNotFoundError, WrongRevisionError
from tradewind.client.jetstream import JetStream
from tradewind.client.stream_schedules import StoredSchedule
from tradewind.durations import SECOND_NS

FAR = datetime.datetime(2090, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


@pytest.fixture
async def stream(js: JetStream, subject: str) -> str:
    await js.manager.streams.add(
        name=subject, subjects=[f"{subject}.>"], allow_msg_schedules=True, allow_msg_ttl=True
    )
    return subject


async def subjects(js: JetStream, stream: str, *filters: str) -> list[str]:
    return [one.subject async for one in js.schedules.list(stream, *filters)]


async def test_schedules_are_listed_without_other_messages(js: JetStream, stream: str) -> None:
    assert await subjects(js, stream) == []
    await js.publish(f"{stream}.plain", b"no schedule")
    first = await js.publish(
        f"{stream}.a.1",
        b"one",
        schedule=FAR,
        schedule_target=f"{stream}.out",
        schedule_ttl=60,
    )
    await js.publish(
        f"{stream}.b.2",
        schedule="0 30 9 * * mon-fri",
        schedule_time_zone="Europe/Berlin",
        schedule_target=f"{stream}.out",
        schedule_source=f"{stream}.plain",
    )
    found = [one async for one in js.schedules.list(stream)]
    assert [one.subject for one in found] == [f"{stream}.a.1", f"{stream}.b.2"]
    assert (found[0].sequence, found[0].rule) == (first.seq, "@at 2090-01-02T03:04:05Z")
    assert (found[0].target, found[0].ttl, found[0].repeats) == (f"{stream}.out", "60", False)
    assert (found[1].time_zone, found[1].source) == ("Europe/Berlin", f"{stream}.plain")
    assert await js.schedules.get(stream, f"{stream}.a.1") == found[0]
    assert await subjects(js, stream, f"{stream}.b.*") == [f"{stream}.b.2"]
    everywhere = [one.subject async for one in js.schedules.list()]
    assert everywhere == [f"{stream}.a.1", f"{stream}.b.2"]
    with pytest.raises(OptionsError, match="filters need the name of a stream"):
        [one async for one in js.schedules.list("", "a.>")]


async def test_a_cancelled_schedule_is_gone_and_never_runs(js: JetStream, stream: str) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1.5)
    for name in ("a", "b"):
        target = f"{stream}.out.{name}"
        await js.publish(f"{stream}.{name}", b"x", schedule=soon, schedule_target=target)
    cancelled = await js.schedules.cancel(stream, f"{stream}.a")
    assert cancelled.target == f"{stream}.out.a"
    assert await subjects(js, stream) == [f"{stream}.b"]
    for _ in range(2):
        with pytest.raises(ScheduleNotFoundError, match=rf"no schedule under .*{stream}\.a"):
            await js.schedules.cancel(stream, f"{stream}.a")
    ordered = js.consumers.ordered(stream, filter_subjects=f"{stream}.out.>")
    async with await ordered.consume() as messages:
        message = await messages.next(SECONDS)
        assert message.subject == f"{stream}.out.b"
    assert (await js.manager.streams.info(stream)).state.messages == 1


async def test_a_moved_schedule_keeps_all_but_its_rule(js: JetStream, stream: str) -> None:
    await js.publish(
        f"{stream}.a",
        b"content",
        headers={"Trace": "7"},
        msg_id="once",
        schedule="0 30 9 * * mon-fri",
        schedule_time_zone="Europe/Berlin",
        schedule_target=f"{stream}.out",
    )
    await js.schedules.move(stream, f"{stream}.a", "0 0 10 * * *")
    moved = await js.schedules.get(stream, f"{stream}.a")
    assert (moved.rule, moved.time_zone) == ("0 0 10 * * *", "Europe/Berlin")
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
    sequence = await js.schedules.move(stream, f"{stream}.a", soon)
    moved = await js.schedules.get(stream, f"{stream}.a")
    assert (moved.sequence, moved.time_zone, moved.target) == (sequence, "", f"{stream}.out")
    async with await js.consumers.ordered(
        stream, filter_subjects=f"{stream}.out"
    ).consume() as messages:
        message = await messages.next(SECONDS)
        assert (message.data, message.headers["Trace"]) == (b"content", "7")
    with pytest.raises(ScheduleNotFoundError):
        await js.schedules.move(stream, f"{stream}.a", FAR)


async def test_a_schedule_that_another_client_has_changed_is_not_moved(
    js: JetStream, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await js.publish(f"{stream}.a", schedule=FAR, schedule_target=f"{stream}.out")
    publish = js.publish

    async def late(*given: object, **options: object) -> object:
        monkeypatch.undo()
        await publish(f"{stream}.a", schedule=FAR, schedule_target=f"{stream}.other")
        return await publish(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(js, "publish", late)
    with pytest.raises(WrongRevisionError, match="look at it again"):
        await js.schedules.move(stream, f"{stream}.a", "@every 1h")
    assert (await js.schedules.get(stream, f"{stream}.a")).target == f"{stream}.other"


async def test_the_last_message_of_a_subject_decides(js: JetStream, stream: str) -> None:
    await js.publish(f"{stream}.plain", b"x")
    with pytest.raises(ScheduleNotFoundError):
        await js.schedules.get(stream, f"{stream}.plain")
    with pytest.raises(ScheduleNotFoundError):
        await js.schedules.cancel(stream, f"{stream}.nothing")


def test_the_blocking_client_has_schedules_too(js_server: ServerProcess, subject: str) -> None:
    with tradewind.sync.connect(js_server.url) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name=subject, subjects=[subject], allow_msg_schedules=True)
        assert list(js.schedules.list(subject)) == []


@pytest.mark.parametrize(
    ("rule", "zone", "next_s"),
    [
        ("@at 1970-01-01T00:01:40Z", "", 100),
        ("@at 1970-01-01T01:00:00Z", "", 3600),
        ("@every 7s", "", 1002),
        ("@every 1000s", "", 1001),
        ("0 0 * * * *", "", 3600),
        ("0 0 3 * * *", "Europe/Berlin", 2 * 3600),
        ("what is this", "", None),
    ],
)
def test_the_next_time_is_that_of_the_rule(rule: str, zone: str, next_s: int | None) -> None:
    one = StoredSchedule("S", "s", 1, rule, "t", SECOND_NS, time_zone=zone)
    found = one.next_ns(1001 * SECOND_NS)
    assert found == (None if next_s is None else next_s * SECOND_NS)
