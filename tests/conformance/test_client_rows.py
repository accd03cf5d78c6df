"""Many messages with ids from one writer, as the sink of Spark publishes them, on both servers."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from helpers_client import Events, connected, eventually, jetstream

from chaos_proxy import ChaosProxy
from harness import ServerProcess
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import JetStreamUnavailableError, OperationTimeoutError
from tradewind.client.events import Reconnected
from tradewind.client.jetstream import JetStream
from tradewind.client.streams import row_window
from tradewind.spark.writes.outgoing import OutgoingRows

FAST = {"reconnect_wait": 0.02, "reconnect_wait_max": 0.2}
PATIENCE = 60.0


async def write(
    js: JetStream, payloads: list[bytes], *, subject: str = "s", seconds: float = PATIENCE
) -> None:
    """Send everything and wait for all outcomes."""
    window = js.rows
    rows = OutgoingRows(b"rows:", by_key=False)
    rows.load(pa.array([subject] * len(payloads)), pa.array(payloads, pa.binary()))
    row = 0
    while row < rows.count:
        if not window.has_room:
            await window.wait_for_room()
        row = rows.send(window.inbox, row, 4096, window.begin(seconds), None, None)
    await window.wait_idle()


async def stored(js: JetStream) -> list[bytes]:
    async with await js.consumers.ordered("S").consume() as messages:
        return [(await messages.next(PATIENCE)).data for _ in range(messages.info.num_pending)]


async def test_all_rows_are_stored_in_order_and_a_repetition_stores_none(
    js_server: ServerProcess,
) -> None:
    payloads = [b"%d" % number for number in range(3000)]
    async with jetstream(js_server) as wide:
        js = wide.connection.jetstream(publish_window=500)
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        for _ in range(2):
            await write(js, payloads)
            assert js.rows.take_failures() is None
            assert (js.rows.unacknowledged, js.rows.inbox.unacknowledged_bytes) == (0, 0)
        assert await stored(js) == payloads


async def test_a_row_that_the_stream_refuses_is_told_and_the_others_are_stored(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory", max_msg_size=200)
        await write(js, [b"a", b"x" * 300, b"b"])
        error = js.rows.take_failures()
        assert error is not None
        assert "1 messages were not stored; the first on 's'" in str(error)
        assert isinstance(error.failures[0][1], JetStreamApiError)
        assert await stored(js) == [b"a", b"b"]


async def test_rows_without_a_stream_are_tried_again_and_then_told(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        await write(js, [b"a", b"b"], subject="nobody.listens")
        error = js.rows.take_failures()
        assert error is not None
        assert error.count == 2
        assert isinstance(error.failures[0][1], JetStreamUnavailableError)
        assert js.rows.take_failures() is None


async def test_a_stream_that_comes_a_moment_later_gets_the_rows(
    js_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long that moment is.
    monkeypatch.setattr(row_window, "ATTEMPTS", 1000)
    async with jetstream(js_server) as js:
        writing = asyncio.create_task(write(js, [b"a", b"b"]))
        await eventually(lambda: js.rows._retries, "the first answer: nobody listens")
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        await writing
        assert js.rows.take_failures() is None
        assert sorted(await stored(js)) == [b"a", b"b"]


async def test_rows_that_nobody_answers_fail_at_their_deadline(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js, await js.connection.subscribe("mute"):
        await write(js, [b"a", b"b", b"c"], subject="mute", seconds=0.05)
        error = js.rows.take_failures()
        assert error is not None
        assert error.count == 3
        assert isinstance(error.failures[0][1], OperationTimeoutError)


@pytest.mark.parametrize("cuts", [1, 3])
async def test_rows_are_stored_once_over_a_network_that_is_cut(
    js_server: ServerProcess, cuts: int
) -> None:
    payloads = [b"%06d" % number for number in range(3000)]
    events = Events()
    async with (
        ChaosProxy(js_server.port) as proxy,
        connected(proxy.url, on_event=events, **FAST) as connection,
    ):
        js = connection.jetstream(publish_window=1000, timeout=PATIENCE)
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        writing = asyncio.create_task(write(js, payloads))
        # They are more than the window: at some time some of them wait, perhaps for a moment only.
        while not js.rows.unacknowledged:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        for number in range(1, cuts + 1):
            proxy.cut()
            await events.wait(Reconnected, number)
        await writing
        assert js.rows.take_failures() is None
        assert sorted(await stored(js)) == payloads
        await js.manager.streams.delete("S")


async def test_a_closed_connection_ends_the_wait(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js, await js.connection.subscribe("mute"):
        writing = asyncio.create_task(write(js, [b"a"], subject="mute"))
        await eventually(lambda: js.rows.unacknowledged, "a row on its way")
        await js.connection.close()
        await writing
        error = js.rows.take_failures()
        assert error is not None
        assert "closed" in str(error)
