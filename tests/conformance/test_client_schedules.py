"""Messages that are published later, with our client."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator

import pytest
from helpers_client import lent_jetstream

from harness import ServerProcess
from tradewind.client.api_errors import MessageSchedulesPatternInvalidError
from tradewind.client.errors import OptionsError
from tradewind.client.jetstream import JetStream, schedule_text

SECONDS = 30


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


async def test_message_is_published_later(js: JetStream) -> None:
    await js.manager.streams.add(
        name="PLANS", subjects=["plans.>"], allow_msg_schedules=True, allow_msg_ttl=True
    )
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.5)
    await js.publish("plans.content", b"from elsewhere")
    await js.publish(
        "plans.1",
        schedule=soon,
        schedule_target="plans.out.1",
        schedule_source="plans.content",
        schedule_ttl=60,
        schedule_rollup="sub",
    )
    await js.publish(
        "plans.2",
        b"again",
        schedule=datetime.timedelta(seconds=1),
        schedule_target="plans.out.2",
    )
    await js.publish(
        "plans.3",
        schedule="@daily",
        schedule_time_zone="Europe/Berlin",
        schedule_target="plans.out.3",
    )
    seen: dict[str, list[bytes]] = {"plans.out.1": [], "plans.out.2": []}
    ordered = js.consumers.ordered("PLANS", filter_subjects="plans.out.>")
    async with asyncio.timeout(SECONDS), await ordered.consume() as done:
        async for message in done:
            seen[message.subject].append(message.data)
            if all(seen.values()) and len(seen["plans.out.2"]) >= 2:
                break
    assert seen["plans.out.1"] == [b"from elsewhere"]
    assert set(seen["plans.out.2"]) == {b"again"}


async def test_pattern_that_cannot_be_has_an_error_of_its_own(js: JetStream) -> None:
    await js.manager.streams.add(name="NONE", subjects=["none.>"], allow_msg_schedules=True)
    with pytest.raises(MessageSchedulesPatternInvalidError):
        await js.publish("none.1", schedule="@sometimes", schedule_target="none.2")


def test_time_without_zone_is_refused() -> None:
    with pytest.raises(OptionsError, match="time zone"):
        schedule_text(datetime.datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
    berlin = datetime.timezone(datetime.timedelta(hours=1))
    assert schedule_text(datetime.datetime(2030, 1, 1, tzinfo=berlin)) == "@at 2029-12-31T23:00:00Z"
    assert schedule_text(datetime.timedelta(minutes=1.5)) == "@every 90000000us"
