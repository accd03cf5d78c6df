"""Watchers, uploads and downloads of our client lose their server or their network.

A watch has no gap, an object is whole or not there. On both servers.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator

import pytest
from helpers_client import SECONDS, Events, Restartable, connected, eventually, jetstream

from chaos_proxy import ChaosProxy
from harness import ServerProcess, StartServer
from tradewind.client.errors import ClientError, UploadError
from tradewind.client.events import Disconnected
from tradewind.client.jetstream import JetStream
from tradewind.client.kv.kv import KeyValue
from tradewind.client.objects import object_upload, objects
from tradewind.client.objects.objects import ObjectStore

FAST = {"reconnect_wait": 0.02, "reconnect_wait_max": 0.2}
# A restart of a busy machine may take a while; nothing here should fail for that.
PATIENCE = 60.0
ENDINGS = pytest.mark.parametrize(
    "ending", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"]
)
NOISE = random.Random(2).randbytes(3_000_000)


@pytest.fixture
def restartable(start: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Restartable:
    return Restartable(start, tmp_path_factory.mktemp("jetstream"))


async def put_surely(bucket: KeyValue, key: str, value: bytes) -> None:
    """Put a value, again if the outcome is not known."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await bucket.put(key, value)
            except ClientError:
                await asyncio.sleep(0.05)
            else:
                return


async def count_chunks(js: JetStream, store: ObjectStore) -> int:
    info = await js.manager.streams.info(store.stream, subjects_filter=f"$O.{store.bucket}.C.>")
    return sum(info.state.subjects.values())


# ---------------------------------------------------------------------- watching


@ENDINGS
@pytest.mark.parametrize("read_before", [True, False], ids=["after some", "before any"])
async def test_watch_has_no_gap_over_a_restart(
    restartable: Restartable, ending: signal.Signals, *, read_before: bool
) -> None:
    count = 300
    url = restartable.server.url
    async with connected(url, **FAST) as connection, connected(url, **FAST) as other:
        bucket = await connection.jetstream(timeout=PATIENCE).kv.create("b")
        watcher = await bucket.watch(updates_only=True)
        writing = await other.jetstream(timeout=SECONDS).kv.open("b")
        seen: list[tuple[str, int]] = []

        async def follow() -> None:
            async for entry in watcher:
                seen.append((entry.key, entry.revision))
                if entry.key == f"k.{count - 1}":
                    return

        if read_before:
            for number in range(count // 2):
                await writing.put(f"k.{number}", b"")
        following = asyncio.create_task(follow())
        if read_before:
            await eventually(lambda: seen, "the first entries")
        await restartable.restart(ending)
        for number in range(count // 2 if read_before else 0, count):
            await put_surely(writing, f"k.{number}", b"")
        await asyncio.wait_for(following, PATIENCE)
        await watcher.stop()
        revisions = [revision for _, revision in seen]
        assert revisions == sorted(set(revisions))
        assert list(dict.fromkeys(key for key, _ in seen)) == [f"k.{n}" for n in range(count)]


async def test_initial_entries_are_complete_over_a_restart(restartable: Restartable) -> None:
    count = 1500
    async with connected(restartable.server.url, **FAST) as connection:
        bucket = await connection.jetstream(timeout=PATIENCE).kv.create("b")
        await asyncio.gather(*(bucket.put(f"k.{number}", b"1") for number in range(count)))
        async with await bucket.watch() as watcher:
            initial = watcher.initial()
            keys = [(await anext(initial)).key for _ in range(10)]
            await restartable.restart(signal.SIGKILL)
            async with asyncio.timeout(PATIENCE):
                keys += [entry.key async for entry in initial]
            assert sorted(set(keys)) == sorted(f"k.{number}" for number in range(count))
            assert watcher.is_current


async def test_initial_entries_end_if_the_rest_is_removed(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        bucket = await js.kv.create("b")
        await asyncio.gather(*(bucket.put(f"k.{number}", bytes(100)) for number in range(2000)))
        async with await bucket.watch() as watcher:
            initial = watcher.initial()
            await anext(initial)
            await js.manager.streams.purge(bucket.stream)
            async with asyncio.timeout(PATIENCE):
                count = 1 + len([entry async for entry in initial])
            assert count < 2000


async def test_watch_goes_on_after_cuts(js_server: ServerProcess) -> None:
    count = 200
    async with (
        jetstream(js_server) as js,
        ChaosProxy(js_server.port, piece_bytes=50) as proxy,
        connected(proxy.url, **FAST) as connection,
    ):
        bucket = await js.kv.create("b", history=64)
        view = await connection.jetstream().kv.open("b")
        async with await view.watch(history=True) as watcher:
            values = []
            for number in range(count):
                await bucket.put(f"k.{number % 7}", b"%d" % number)
                if number % 50 == 25:
                    proxy.cut()
                if number % 50 == 40:
                    async with asyncio.timeout(PATIENCE):
                        while len(values) <= number:
                            values.append((await anext(watcher)).value)
            async with asyncio.timeout(PATIENCE):
                while len(values) < count:
                    values.append((await anext(watcher)).value)
        assert values == [b"%d" % number for number in range(count)]


async def test_cancelled_watch_loses_nothing(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        bucket = await js.kv.create("b")
        async with await bucket.watch() as watcher:
            for number in range(20):
                waiting = asyncio.create_task(anext(watcher))
                await asyncio.sleep(0)
                if number % 2:
                    await bucket.put("k", b"%d" % number)
                    assert (await asyncio.wait_for(waiting, SECONDS)).value == b"%d" % number
                else:
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting


# ---------------------------------------------------------------------- objects


@ENDINGS
async def test_upload_goes_on_after_a_restart(
    restartable: Restartable, ending: signal.Signals
) -> None:
    events = Events()
    async with connected(restartable.server.url, on_event=events, **FAST) as connection:
        js = connection.jetstream(timeout=5.0)
        store = await js.objects.create("s")
        restarting: list[asyncio.Task[None]] = []

        async def source() -> AsyncIterator[bytes]:
            for start in range(0, len(NOISE), 50_000):
                if start == 1_500_000:
                    restarting.append(asyncio.create_task(restartable.restart(ending)))
                    while not events.of(Disconnected):  # the rest is sent while it is away
                        yield b""
                        await asyncio.sleep(0.001)
                yield NOISE[start : start + 50_000]

        info = await asyncio.wait_for(store.put("noise", source(), chunk_size=10_000), PATIENCE)
        await restarting[0]
        assert (info.size, info.chunks) == (3_000_000, 300)
        assert await count_chunks(js, store) == 300
        reader = await store.get("noise")
        assert reader is not None
        assert await reader.read() == NOISE


async def test_upload_goes_on_after_cuts(js_server: ServerProcess) -> None:
    async with (
        jetstream(js_server) as js,
        ChaosProxy(js_server.port) as proxy,
        connected(proxy.url, **FAST) as connection,
    ):
        await js.objects.create("s")
        store = await connection.jetstream(timeout=5.0).objects.open("s")
        cuts = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal cuts
            if done >= (cuts + 1) * 700_000:
                cuts += 1
                proxy.cut()

        await asyncio.wait_for(
            store.put("noise", NOISE, chunk_size=10_000, progress=progress), PATIENCE
        )
        assert cuts == 4
        assert await count_chunks(js, store) == 300
        reader = await store.get("noise")
        assert reader is not None
        assert await asyncio.wait_for(reader.read(), PATIENCE) == NOISE


async def test_upload_gives_up_if_the_server_does_not_come_back(
    restartable: Restartable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_upload, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(objects, "CLEANUP_SECONDS", 0.3)
    events = Events()
    url = restartable.server.url
    async with connected(url, timeout=0.2, on_event=events, **FAST) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        store = await js.objects.create("s")

        async def source() -> AsyncIterator[bytes]:
            yield NOISE[:100_000]
            restartable.server.signal(signal.SIGKILL)
            await events.wait(Disconnected)
            yield NOISE[100_000:]

        with pytest.raises(UploadError, match="did not come back"):
            await asyncio.wait_for(store.put("noise", source(), chunk_size=10_000), PATIENCE)
        await restartable.restart(signal.SIGKILL)
        await connection.wait_connected(PATIENCE)
        assert await store.info("noise") is None


async def test_download_goes_on_after_a_restart(restartable: Restartable) -> None:
    async with connected(restartable.server.url, **FAST) as connection:
        js = connection.jetstream(timeout=5.0)
        store = await js.objects.create("s")
        await store.put("noise", NOISE * 4, chunk_size=100_000)
        reader = await store.get("noise")
        assert reader is not None
        parts = [await anext(reader)]
        await restartable.restart(signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            parts += [chunk async for chunk in reader]
        assert b"".join(parts) == NOISE * 4


async def test_download_of_a_replaced_object_says_so(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        store = await js.objects.create("s")
        await store.put("noise", NOISE * 4, chunk_size=100_000)
        reader = await store.get("noise")
        assert reader is not None
        await anext(reader)
        await store.put("noise", b"other")
        with pytest.raises(ClientError, match="replaced"):
            await reader.read()
