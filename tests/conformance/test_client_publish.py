"""Our client publishes into streams: expectations, the window, batches, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest
from helpers_client import SECONDS, connected, eventually, jetstream

from harness import ServerProcess, StartServer
from tradewind.client.api_errors import (
    JetStreamApiError,
    MessageTtlDisabledError,
    StreamNotMatchError,
    StreamStoreFailedError,
    StreamWrongLastMsgIdError,
    StreamWrongLastSequenceError,
)
from tradewind.client.errors import (
    BadPayloadError,
    BadSubjectError,
    ConnectionClosedError,
    JetStreamUnavailableError,
    MaxPayloadError,
    OperationTimeoutError,
    OptionsError,
    PermissionsError,
    PublishError,
)
from tradewind.client.streams import publishing


async def test_expectations_that_do_not_hold_are_refused(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s.*"], storage="memory")
        await js.publish("s.a", b"1", msg_id="one")
        for options, kind in (
            ({"expect_stream": "T"}, StreamNotMatchError),
            ({"expect_last_sequence": 2}, StreamWrongLastSequenceError),
            ({"expect_last_subject_sequence": 0}, StreamWrongLastSequenceError),
            ({"expect_last_msg_id": "two"}, StreamWrongLastMsgIdError),
            ({"ttl": 5}, MessageTtlDisabledError),
        ):
            with pytest.raises(kind):
                await js.publish("s.a", b"2", **options)
        ack = await js.publish(
            "s.b",
            "text",
            headers={"Tag": "x"},
            expect_last_subject_sequence=1,
            expect_last_subject_filter="s.*",
        )
        assert ack.seq == 2
        stored = await js.manager.streams.get_message("S", seq=2)
        assert (stored.data, stored.headers["Tag"]) == (b"text", "x")
        with pytest.raises(OptionsError, match="no option 'expect_last'"):
            await js.publish("s.a", expect_last=1)  # type: ignore[call-arg]
        wrong: Any
        for wrong, text in (
            ({"ttl": -1}, "^ttl must not be negative, not -1; numbers are seconds$"),
            ({"ttl": "soon"}, "^ttl must be a duration"),
            ({"rollup": "subject"}, "^rollup must be one of sub, all, not 'subject'$"),
            ({"expect_sream": "S"}, "did you mean 'expect_stream'"),
        ):
            with pytest.raises(OptionsError, match=text):
                await js.publish("s.a", b"3", **wrong)
        with pytest.raises(OptionsError, match="a mapping"):
            await js.publish("s.a", headers=b"NATS/1.0\r\n\r\n", msg_id="x")


async def test_a_payload_that_is_none_is_named(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        wrong: Any
        for wrong in ({"apples": 2}, 5, None, ["a"], 1.5):
            text = f"^payload must be bytes or str, not {type(wrong).__name__}; pass json.dumps"
            with pytest.raises(BadPayloadError, match=text):
                await js.publish("s", wrong)
            with pytest.raises(BadPayloadError, match=text):
                await js.publish_async("s", wrong)
            with pytest.raises(BadPayloadError, match=text):
                await js.connection.publish("s", wrong)
            with pytest.raises(BadPayloadError, match=text):
                await js.connection.request("s", wrong)
            with pytest.raises(BadPayloadError, match=text):
                js.transaction().publish("s", wrong)
        for right in (b"1", "2", bytearray(b"3"), memoryview(b"4")):
            await js.publish("s", right)
        assert (await js.manager.streams.info("S")).state.messages == 4


async def test_a_message_may_have_a_time_to_live_and_roll_up(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        streams = js.manager.streams
        await streams.add(
            name="S", subjects=["s"], allow_msg_ttl=True, allow_rollup_hdrs=True, storage="memory"
        )
        await js.publish("s", b"1")
        for number, ttl in enumerate((3600, 90.5, timedelta(hours=1), "never", "90s", "2d"), 2):
            await js.publish("s", b"2", ttl=ttl)
            stored = await streams.get_message("S", seq=number)
            assert stored.headers["Nats-TTL"] == {
                3600: "3600",
                90.5: "90500000us",
                "never": "never",
                "90s": "90s",
                "2d": "172800000000us",
            }.get(ttl, "3600000000us")
        await js.publish("s", b"all", rollup="all")
        assert (await streams.info("S")).state.messages == 1


async def test_many_messages_wait_in_one_window(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as outer:
        js = outer.connection.jetstream(timeout=SECONDS, publish_window=50)
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        pending = []
        for number in range(500):
            pending.append(await js.publish_async("s", b"%d" % number))
            assert js.publish_async_pending <= 50
        await js.publish_async_completed()
        assert js.publish_async_pending == 0
        assert [(await item).seq for item in pending] == list(range(1, 501))
        assert all(item.is_done and item.error is None for item in pending)
        await asyncio.gather(*(js.publish("s") for _ in range(500)))
        assert (await js.manager.streams.info("S")).state.last_seq == 1000


async def test_one_await_tells_of_all_failures_that_nobody_looked_at(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(
            name="S", subjects=["s"], max_msgs=3, discard="new", storage="memory"
        )
        for _ in range(5):
            await js.publish_async("s")
        with pytest.raises(PublishError, match="2 messages were not stored") as caught:
            await js.publish_async_completed()
        assert caught.value.count == 2
        assert {type(error) for _, error in caught.value.failures} == {StreamStoreFailedError}
        await js.publish_async_completed()  # told once
        looked_at = await js.publish_async("s")
        with pytest.raises(StreamStoreFailedError):
            await looked_at
        with pytest.raises(StreamStoreFailedError):
            looked_at.ack()
        await js.publish_async_completed()


async def test_nobody_there_is_tried_again(
    js_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with jetstream(js_server) as js:
        with pytest.raises(JetStreamUnavailableError, match=r"no stream stores subject 'late\.x'"):
            await js.publish("late.x")
        monkeypatch.setattr(publishing, "ATTEMPTS", 1000)
        monkeypatch.setattr(publishing, "RETRY_WAIT", 0.02)
        waiting = asyncio.create_task(js.publish("late.x", b"1"))
        await eventually(lambda: js._window._retries, "the first refusal")
        await js.manager.streams.add(name="LATE", subjects=["late.*"], storage="memory")
        assert (await waiting).seq == 1


async def test_a_stream_that_never_answers_is_a_timeout(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s"], no_ack=True, storage="memory")
        with pytest.raises(OperationTimeoutError, match="publish to 's': no acknowledgement"):
            await js.publish("s", timeout=0.1)
        await js.publish_async("s", timeout=0.1)
        with pytest.raises(PublishError, match="no acknowledgement in time"):
            await js.publish_async_completed()


async def test_wrong_messages_are_refused_before_they_are_sent(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        with pytest.raises(BadSubjectError):
            await js.publish("a b")
        with pytest.raises(MaxPayloadError):
            await js.publish("a", bytes(js.connection.max_payload + 1))
        with pytest.raises(OptionsError, match="publish_window: at least 1"):
            js.connection.jetstream(publish_window=0)
        assert js.publish_async_pending == 0


async def test_a_subject_that_is_not_permitted_fails_at_once(
    start: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("permissions")
    server = start(
        f'jetstream {{ store_dir: "{folder}" }}\n'
        'authorization { users: [ { user: u, password: p, permissions: { publish: "ok.>" } } ] }'
    )
    async with connected(
        server.url, user="u", password="p", on_event=lambda _event: None
    ) as connection:
        with pytest.raises(PermissionsError):
            await connection.jetstream().publish("secret")


async def test_a_cancelled_publish_leaves_nothing_behind(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as outer:
        js = outer.connection.jetstream(timeout=SECONDS, publish_window=1)
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        tasks = [asyncio.create_task(js.publish("s", b"%d" % number)) for number in range(5)]
        await asyncio.sleep(0)
        for task in tasks[1:4]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [
            False,
            True,
            True,
            True,
            False,
        ]
        await eventually(lambda: js.publish_async_pending == 0, "the window to be empty")
        assert (await js.publish("s")).seq == 3


async def test_closing_fails_what_is_on_its_way(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s"], no_ack=True, storage="memory")
        pending = await js.publish_async("s")
        closed = asyncio.create_task(js.publish_async_completed())
        await asyncio.sleep(0)
        await js.manager.streams.delete("S")
        await js.connection.close()
        with pytest.raises(ConnectionClosedError):
            await pending
        with pytest.raises(PublishError):
            await closed


async def test_draining_waits_for_acknowledgements(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        async with connected(js_server.url) as other:
            pending = [await other.jetstream().publish_async("s") for _ in range(100)]
            await other.drain()
            assert [item.error for item in pending] == [None] * 100
        assert (await js.manager.streams.info("S")).state.messages == 100


async def grants(request: Awaitable[object]) -> bool:
    """Whether the server does not refuse it."""
    try:
        await request
    except JetStreamApiError:
        return False
    return True


async def test_a_batch_is_stored_as_a_whole(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        streams = js.manager.streams
        if not await grants(
            streams.add(name="S", subjects=["s.*"], allow_atomic=True, storage="memory")
        ):
            assert js_server.kind == "tradewind"
            return
        batch = js.batch()
        await batch.add("s.a", b"1")
        await batch.add("s.b", b"2", headers={"Tag": "x"})
        assert (await streams.info("S")).state.messages == 0
        ack = await batch.commit("s.c", b"3")
        assert (ack.seq, ack.count, ack.batch) == (3, 3, batch.id)
        assert (await streams.get_message("S", seq=2)).headers["Tag"] == "x"
        with pytest.raises(OptionsError, match="committed or rejected"):
            await batch.add("s.a")
        wrong = js.batch()
        await wrong.add("s.a", b"4")
        with pytest.raises(StreamWrongLastSequenceError):
            await wrong.commit("s.b", b"5", expect_last_subject_sequence=9)
        assert (await streams.info("S")).state.messages == 3


async def test_a_batch_needs_a_stream_that_allows_it(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        with pytest.raises(JetStreamUnavailableError, match="no stream stores subject 's'"):
            await js.batch().add("s")
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        with pytest.raises((JetStreamApiError, OptionsError), match="atomic"):
            await js.batch().add("s")
