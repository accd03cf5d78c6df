"""Locks by key: one holder at a time, whatever happens to clients and keys, on both servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from helpers_client import SECONDS, connected, eventually, lent_jetstream

import tradewind.sync
from chaos_proxy import ChaosProxy
from harness import ServerProcess
from tradewind.client.errors import BadKeyError, LockLostError, LockTimeoutError, OptionsError
from tradewind.client.jetstream import JetStream
from tradewind.client.kv.kv import KeyValue


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


@pytest.fixture
async def bucket(js: JetStream) -> KeyValue:
    return await js.kv.create("locks", history=3, allow_ttl=True)


async def test_one_client_at_a_time_with_growing_tokens(
    js_server: ServerProcess, bucket: KeyValue
) -> None:
    inside: list[str] = []
    tokens: list[int] = []

    async def work(name: str) -> None:
        async with connected(js_server.url) as connection:
            mine = await connection.jetstream(timeout=SECONDS).kv.open("locks")
            for _ in range(5):
                async with mine.lock("report", ttl=60) as lock:
                    assert inside == []
                    inside.append(name)
                    tokens.append(lock.token)
                    await asyncio.sleep(random.uniform(0, 0.002))
                    assert inside == [name]
                    inside.remove(name)

    async with asyncio.timeout(SECONDS * 3):
        await asyncio.gather(*(work(str(number)) for number in range(4)))
    assert len(tokens) == 20
    assert tokens == sorted(set(tokens))


async def test_lock_of_another_holder_times_out_and_names_the_holder(bucket: KeyValue) -> None:
    async with bucket.lock("l", owner="the first"):
        with pytest.raises(LockTimeoutError, match=r"'l' of bucket 'locks' is held by 'the first "):
            await bucket.lock("l", timeout=0).acquire()
        with pytest.raises(LockTimeoutError):
            async with bucket.lock("l", timeout=0.05):
                raise AssertionError("two holders")
    async with bucket.lock("l", timeout=0) as lock:
        assert lock.is_held


async def test_lock_is_renewed_while_it_is_held(js: JetStream, bucket: KeyValue) -> None:
    async with bucket.lock("l", ttl=1) as lock, asyncio.timeout(SECONDS):
        await bucket.put("clock", b"", ttl=3)
        while await bucket.get("clock") is not None:
            assert lock.is_held
            assert await bucket.get("l") is not None
            await asyncio.sleep(0.02)
    assert not lock.is_held


async def test_lock_of_a_client_that_went_away_becomes_free(
    js_server: ServerProcess, bucket: KeyValue
) -> None:
    async with connected(js_server.url) as connection:
        theirs = await connection.jetstream().kv.open("locks")
        lost = theirs.lock("l", ttl=1)
        before = await lost.acquire()
        assert lost._renewing is not None
        lost._renewing.cancel()  # as if its process had been killed
        async with asyncio.timeout(SECONDS), bucket.lock("l") as lock:
            assert lock.token > before
            assert not lost.is_held


@pytest.mark.parametrize("deed", ["delete", "purge", "put"])
async def test_block_is_cancelled_if_its_lock_is_taken_away(bucket: KeyValue, deed: str) -> None:
    lock = bucket.lock("l", ttl=1)

    async def hold() -> None:
        async with lock:
            if deed == "delete":
                await bucket.delete("l")
            elif deed == "purge":
                await bucket.purge("l")
            else:
                await bucket.put("l", b"mine")
            await asyncio.sleep(SECONDS)

    with pytest.raises(LockLostError, match="removed, or taken"):
        await hold()
    assert not lock.is_held
    if deed == "put":  # the key of another holder is left alone
        entry = await bucket.get("l")
        assert entry is not None
        assert entry.value == b"mine"


async def test_lost_lock_does_not_hide_the_error_of_the_block(bucket: KeyValue) -> None:
    async def fail() -> None:
        async with bucket.lock("l"):
            await bucket.delete("l")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()


async def test_lock_taken_away_without_notice_is_an_error_at_the_end(bucket: KeyValue) -> None:
    with pytest.raises(LockLostError):
        async with bucket.lock("l", ttl=60):
            await bucket.put("l", b"mine")


async def test_cancelled_block_frees_its_lock(bucket: KeyValue) -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        async with bucket.lock("l"):
            entered.set()
            await asyncio.sleep(SECONDS)

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await bucket.get("l") is None


async def test_holder_cut_off_from_the_server_stops_before_the_next_one_begins(
    js_server: ServerProcess, bucket: KeyValue
) -> None:
    stopped = asyncio.Event()

    async def hold(mine: KeyValue, entered: asyncio.Event) -> None:
        async with mine.lock("l", ttl=1):
            entered.set()
            try:
                await asyncio.sleep(SECONDS)
            finally:
                stopped.set()

    async def lose(url: str, entered: asyncio.Event) -> None:
        async with connected(url) as connection:
            mine = await connection.jetstream(timeout=1).kv.open("locks")
            with pytest.raises(LockLostError, match="could not be renewed"):
                await hold(mine, entered)

    async with ChaosProxy(js_server.port) as proxy, asyncio.timeout(SECONDS):
        entered = asyncio.Event()
        holder = asyncio.create_task(lose(proxy.url, entered))
        await entered.wait()
        proxy.stall()
        async with bucket.lock("l"):
            # The holder measures from before its last write was sent; the server from its arrival.
            await eventually(stopped.is_set, "the end of the first holder", 0.5)
        proxy.resume()
        await holder


async def test_lock_object_can_be_used_again_and_not_twice_at_once(bucket: KeyValue) -> None:
    lock = bucket.lock("l")
    first = await lock.acquire()
    with pytest.raises(OptionsError, match="must be released"):
        await lock.acquire()
    await lock.release()
    second = await lock.acquire()
    assert second > first
    await lock.release()
    await lock.release()  # nothing is held any more


async def test_settings_of_a_lock_are_checked(bucket: KeyValue) -> None:
    for settings, text in (
        ({"ttl": 0.5}, "ttl must be at least 1 second"),
        ({"timeout": -1}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"owner": "x" * 201}, "owner must have at most 200"),
    ):
        with pytest.raises(OptionsError, match=text):
            bucket.lock("l", **settings)  # type: ignore[arg-type]
    with pytest.raises(BadKeyError):
        bucket.lock("l *")


def test_blocking_program_learns_of_the_loss_at_the_end(
    js_server: ServerProcess, bucket: KeyValue
) -> None:
    with tradewind.sync.connect(js_server.url) as connection:
        mine = connection.jetstream().kv.open("locks")

        def hold() -> None:
            with mine.lock("l", ttl=60) as lock:
                assert lock.is_held
                mine.put("l", b"other")

        with pytest.raises(LockLostError):
            hold()
