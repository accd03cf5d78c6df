"""Values of a bucket that expire, and changes that depend on the value before, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from helpers_client import SECONDS, connected, lent_jetstream

import tradewind.sync
from harness import ServerProcess
from tradewind.client.errors import (
    BadNumberError,
    KeyExistsError,
    KeyNotFoundError,
    OptionsError,
    WrongRevisionError,
)
from tradewind.client.jetstream import JetStream
from tradewind.client.kv.kv import KeyValue
from tradewind.client.kv.kv_types import Operation
from tradewind.errors import MessageTtlDisabledError, TradewindError


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


@pytest.fixture
async def bucket(js: JetStream) -> KeyValue:
    return await js.kv.create("keys", history=5, allow_ttl=True)


async def until_gone(bucket: KeyValue, key: str) -> list[bytes]:
    """Wait until a key has no value; the values that it had meanwhile."""
    seen: list[bytes] = []
    async with asyncio.timeout(SECONDS):
        while (entry := await bucket.get(key)) is not None:
            seen.append(entry.value)
            await asyncio.sleep(0.02)
    return seen


async def test_expired_value_brings_no_older_value_back(bucket: KeyValue) -> None:
    await bucket.put("session", b"old")
    await bucket.put("session", b"older still")
    await bucket.put("session", b"new", ttl=1)
    assert set(await until_gone(bucket, "session")) == {b"new"}
    assert [entry async for entry in bucket.history("session")] == []
    assert [key async for key in bucket.keys(">")] == []


@pytest.mark.parametrize("write", ["update", "create", "modify", "compare_and_set", "touch"])
async def test_every_write_with_a_ttl_ends_the_key(bucket: KeyValue, write: str) -> None:
    last = await bucket.put("k", b"old")
    if write == "update":
        await bucket.update("k", b"new", last, ttl=1)
    elif write == "create":
        await bucket.delete("k")
        await bucket.create("k", b"new", ttl=1)
    elif write == "modify":
        await bucket.modify("k", lambda old: b"new", ttl=1)
    elif write == "compare_and_set":
        assert await bucket.compare_and_set("k", b"old", b"new", ttl=1)
    else:
        await bucket.touch("k", 1)
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.ttl == 1
    values = set(await until_gone(bucket, "k"))
    assert values <= {b"old" if write == "touch" else b"new"}
    assert [entry async for entry in bucket.history("k")] == []


async def test_value_without_a_ttl_ends_the_expiry(bucket: KeyValue) -> None:
    await bucket.put("short", b"1", ttl=1)
    await bucket.put("k", b"1", ttl=1)
    await bucket.put("k", b"2")
    await until_gone(bucket, "short")
    entry = await bucket.get("k")
    assert entry is not None
    assert (entry.value, entry.ttl) == (b"2", None)


async def test_watchers_see_that_a_key_expired(js: JetStream) -> None:
    bucket = await js.kv.create("marked", history=3, marker_ttl=2)
    await bucket.put("k", b"old")
    async with bucket.watch(updates_only=True) as watcher, asyncio.timeout(SECONDS):
        # Not so short that it is gone before it was delivered.
        await bucket.put("k", b"1", ttl=2)
        put, expired = await anext(watcher), await anext(watcher)
    assert (put.operation, expired.operation) == (Operation.PUT, Operation.EXPIRED)
    assert expired.is_deleted
    assert await bucket.get("k") is None


async def test_touch_prolongs_the_life_of_a_value(bucket: KeyValue) -> None:
    await bucket.put("k", b"v", ttl=1)
    await bucket.put("other", b"v", ttl=1)
    revision = await bucket.touch("k", 3600)
    await until_gone(bucket, "other")
    entry = await bucket.get("k")
    assert entry is not None
    assert (entry.value, entry.revision, entry.ttl) == (b"v", revision, 3600)


async def test_touch_of_a_key_without_a_value_is_an_error(bucket: KeyValue) -> None:
    await bucket.put("deleted", b"v")
    await bucket.delete("deleted")
    for key in ("never", "deleted"):
        with pytest.raises(KeyNotFoundError, match=f"'{key}'.*has no value"):
            await bucket.touch(key, 5)


async def test_update_keeps_the_end_of_the_old_value(bucket: KeyValue) -> None:
    revision = await bucket.put("k", b"1", ttl=3600)
    await bucket.update("k", b"2", revision, ttl="keep")
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.ttl is not None
    assert 3500 < entry.ttl <= 3600
    forever = await bucket.put("forever", b"1")
    await bucket.update("forever", b"2", forever, ttl="keep")
    entry = await bucket.get("forever")
    assert entry is not None
    assert entry.ttl is None
    with pytest.raises(WrongRevisionError):
        await bucket.update("k", b"3", revision, ttl="keep")
    assert await bucket.update("new", b"1", 0, ttl="keep") > 0


async def test_keeping_never_prolongs_a_life(bucket: KeyValue) -> None:
    await bucket.put("k", b"0", ttl=2)
    async with asyncio.timeout(SECONDS):
        while await bucket.get("k") is not None:
            await bucket.modify("k", lambda old: None if old is None else old + b".")
            await asyncio.sleep(0.05)


async def test_reading_renews_an_expiring_value(js: JetStream, bucket: KeyValue) -> None:
    await bucket.put("read", b"v", ttl=2)
    await bucket.put("unread", b"v", ttl=2)
    first = (await js.manager.streams.info("KV_keys")).state.last_seq
    reads = 0
    async with asyncio.timeout(SECONDS):
        while await bucket.get("unread") is not None:
            assert await bucket.get("read", renew=2) is not None
            reads += 1
            await asyncio.sleep(0.01)
        for _ in range(100):  # it lives on, well after the other one has gone
            entry = await bucket.get("read", renew=2)
            assert entry is not None
            await asyncio.sleep(0.01)
    writes = (await js.manager.streams.info("KV_keys")).state.last_seq - first
    assert 1 <= writes <= reads
    # At most one write for each tenth of the time to live, whatever the number of reads.
    assert writes <= SECONDS / 0.2
    assert await bucket.update("read", b"w", entry.revision) > entry.revision


async def test_reading_does_not_let_a_permanent_value_expire(bucket: KeyValue) -> None:
    revision = await bucket.put("k", b"v")
    entry = await bucket.get("k", renew=1)
    assert entry is not None
    assert (entry.revision, entry.ttl) == (revision, None)
    assert await bucket.get("absent", renew=1) is None
    with pytest.raises(OptionsError, match="only one"):
        await bucket.get("k", revision=1, renew=1)


async def test_bucket_that_keeps_values_refuses_a_ttl(js: JetStream) -> None:
    bucket = await js.kv.create("plain")
    await bucket.put("k", b"v")
    calls = (
        lambda: bucket.put("k", b"w", ttl=5),
        lambda: bucket.touch("k", 5),
        lambda: bucket.purge("k", ttl=5),
        lambda: bucket.lock("l").acquire(),
    )
    for call in calls:
        with pytest.raises(MessageTtlDisabledError, match="allow_ttl"):
            await call()
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.value == b"v"
    await js.kv.update("plain", allow_ttl=True)
    await bucket.put("k", b"w", ttl=5)  # the same object, without opening the bucket again


@pytest.mark.parametrize("ttl", [0, 0.5, "10ms", -1, "soon", True])
async def test_ttl_that_is_no_ttl_is_named(bucket: KeyValue, ttl: float | str) -> None:
    with pytest.raises(OptionsError, match="ttl must"):
        await bucket.put("k", b"v", ttl=ttl)
    assert await bucket.get("k") is None


async def test_increments_of_many_clients_all_count(
    js_server: ServerProcess, bucket: KeyValue
) -> None:
    async def count() -> None:
        async with connected(js_server.url) as connection:
            mine = await connection.jetstream(timeout=SECONDS).kv.open("keys")
            for _ in range(10):
                await mine.increment("hits", 3)

    await asyncio.gather(*(count() for _ in range(5)))
    entry = await bucket.get("hits")
    assert entry is not None
    assert entry.value == b"150"


async def test_increment_keeps_or_sets_the_time_to_live(bucket: KeyValue) -> None:
    assert await bucket.increment("k", -4, ttl=3600) == -4
    assert await bucket.increment("k") == -3
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.ttl is not None
    assert entry.ttl <= 3600


@pytest.mark.parametrize("value", [b"", b"1.5", b" 1", b"1_0", b"0x1", b"\xff", b"9" * 5000])
async def test_increment_of_what_is_no_number_changes_nothing(
    bucket: KeyValue, value: bytes
) -> None:
    await bucket.put("k", value)
    with pytest.raises(BadNumberError, match="must hold a whole number"):
        await bucket.increment("k")
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.value == value


async def test_increment_ends_at_64_bits(bucket: KeyValue) -> None:
    assert await bucket.increment("k", (1 << 63) - 1) == (1 << 63) - 1
    with pytest.raises(BadNumberError, match="64 bits"):
        await bucket.increment("k")
    with pytest.raises(OptionsError, match="by must be a whole number"):
        await bucket.increment("k", 1.5)  # type: ignore[arg-type]


async def test_compare_and_set_changes_only_the_expected_value(bucket: KeyValue) -> None:
    assert not await bucket.compare_and_set("k", b"1", b"2")
    assert await bucket.compare_and_set("k", None, b"1")
    assert not await bucket.compare_and_set("k", None, b"2")
    assert not await bucket.compare_and_set("k", b"2", b"3")
    assert await bucket.compare_and_set("k", b"1", b"2")
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.value == b"2"


async def test_modify_is_called_again_if_another_client_was_faster(bucket: KeyValue) -> None:
    await bucket.put("k", b"a")
    calls: list[bytes | None] = []

    async def change(value: bytes | None) -> bytes | None:
        calls.append(value)
        if len(calls) == 1:
            await bucket.put("k", b"b")
        return (value or b"") + b"!"

    await bucket.modify("k", change)
    entry = await bucket.get("k")
    assert entry is not None
    assert (calls, entry.value) == ([b"a", b"b"], b"b!")


async def test_modify_leaves_a_key_alone_on_request(bucket: KeyValue) -> None:
    revision = await bucket.put("k", b"a")
    assert await bucket.modify("k", lambda value: None) is None
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.revision == revision

    def fail(value: bytes | None) -> bytes:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await bucket.modify("k", fail)


async def test_create_tells_what_is_there(bucket: KeyValue) -> None:
    revision = await bucket.put("k", b"a", ttl=60)
    with pytest.raises(KeyExistsError) as caught:
        await bucket.create("k", b"b", ttl=60)
    assert caught.value.revision == revision
    assert isinstance(caught.value, TradewindError)


def test_blocking_programs_have_the_same(js_server: ServerProcess, js: JetStream) -> None:
    with tradewind.sync.connect(js_server.url) as connection:
        bucket = connection.jetstream().kv.create("blocking", allow_ttl=True)
        bucket.put("k", b"1", ttl=3600)
        assert bucket.increment("k") == 2
        bucket.modify("k", lambda value: (value or b"") + b"0")
        entry = bucket.get("k", renew=3600)
        assert entry is not None
        assert entry.value == b"20"
        assert entry.ttl is not None
        assert 3500 < entry.ttl <= 3600
        with bucket.lock("l", owner="me") as lock:
            assert lock.is_held
            assert lock.token > 0
        assert not lock.is_held
        assert bucket.get("l") is None
