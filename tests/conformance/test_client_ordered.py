"""Ordered consumers of our client: every message once and in order, on both servers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from helpers_client import SECONDS, eventually, fill, jetstream, no_consumers

from harness import ServerProcess
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.streams.consumer_events import ConsumerDeleted, ConsumerEvent, Recreated
from tradewind.client.streams.ordered import OrderedMessages


async def numbers(messages: OrderedMessages, count: int) -> list[int]:
    return [(await messages.next(SECONDS)).metadata.stream_sequence for _ in range(count)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"deliver_policy": "last"}, [4]),
        ({"start_sequence": 3}, [3, 4]),
        ({"start_time": datetime.now(UTC) - timedelta(hours=1)}, [1, 2, 3, 4]),
        ({"filter_subjects": ["S.2", "S.4"]}, [2, 4]),
        ({"filter_subjects": "S.3"}, [3]),
        ({"deliver_policy": "last_per_subject"}, [1, 2, 3, 4]),
    ],
)
async def test_it_starts_where_it_is_told_to(
    js_server: ServerProcess, options: dict[str, object], expected: list[int]
) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 4)
        ordered = js.consumers.ordered("S", **options)  # type: ignore[arg-type]
        async with await ordered.consume() as messages:
            assert messages.info.num_pending == len(expected)
            assert await numbers(messages, len(expected)) == expected
        await no_consumers(js, "S")


async def test_headers_only_leaves_the_payload_out(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        async with await js.consumers.ordered("S", headers_only=True).consume() as messages:
            message = await messages.next(SECONDS)
            assert (message.data, message.headers["Nats-Msg-Size"]) == (b"", "1")


async def test_a_gap_makes_a_new_consumer_behind_the_last_message(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 30)
        told: list[ConsumerEvent] = []
        ordered = js.consumers.ordered("S")
        async with await ordered.consume(10, on_status=told.append) as messages:
            assert await numbers(messages, 3) == [1, 2, 3]
            await eventually(lambda: messages.pending_messages >= 7, "the first messages")
            last = messages.last_sequence
            # As if the connection had dropped a message: the next one is not the expected.
            messages._inbox.expect_from_start()
            assert await numbers(messages, 27) == list(range(4, 31))
            (event,) = told
            assert event == Recreated("a message was missing", last)
            await fill(js, "S", 2, first=31)
            assert await numbers(messages, 2) == [31, 32]
        await no_consumers(js, "S")


async def test_a_deleted_consumer_is_replaced(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 5)
        told: list[ConsumerEvent] = []
        async with await js.consumers.ordered("S").consume(on_status=told.append) as messages:
            assert await numbers(messages, 5) == [1, 2, 3, 4, 5]
            await js.manager.consumers.delete("S", messages.info.name)
            await fill(js, "S", 2, first=6)
            assert await numbers(messages, 2) == [6, 7]
            assert [type(event) for event in told] == [ConsumerDeleted, Recreated]


async def test_silence_makes_a_new_consumer(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        told: list[ConsumerEvent] = []
        ordered = js.consumers.ordered("S")
        async with await ordered.consume(
            2, expires=2, idle_heartbeat=1, on_status=told.append
        ) as messages:
            assert await numbers(messages, 1) == [1]
            messages._pull_subject = js.connection.new_inbox()
            await js.connection.subscribe(messages._pull_subject)
            messages._inbox.returned(messages._inbox.wanted_messages, 0)
            messages._try_pull()
            await js.manager.consumers.delete("S", messages.info.name)
            await eventually(lambda: any(isinstance(e, Recreated) for e in told), "a new one")
            await fill(js, "S", 1, first=2)
            assert await numbers(messages, 1) == [2]


async def test_a_stream_that_is_gone_ends_it_with_an_error(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        with pytest.raises(StreamNotFoundError):
            await js.consumers.ordered("S").consume()
        await fill(js, "S", 1)
        async with await js.consumers.ordered("S").consume() as messages:
            assert await numbers(messages, 1) == [1]
            await js.manager.streams.delete("S")
            with pytest.raises(StreamNotFoundError):
                await messages.next(SECONDS)


async def test_next_goes_on_where_it_stopped(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 6)
        ordered = js.consumers.ordered("S")
        first = await ordered.next(SECONDS)
        assert first is not None
        assert first.data == b"1"
        await ordered.stop()
        assert [m.data async for m in ordered.fetch(2, expires=SECONDS)] == [b"2", b"3"]
        await ordered.stop()
        async with await ordered.consume() as messages:
            assert await numbers(messages, 3) == [4, 5, 6]
        assert await js.consumers.ordered("S", start_sequence=7).next(0.1) is None
