"""Key-value buckets of our client, on both servers and with nats-py on the other side."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import nats.js.errors
import pytest
from helpers_client import SECONDS, connected, eventually, lent_jetstream, no_consumers
from nats.js.kv import KV_DEL, KV_PURGE

import tradewind.sync
from harness import ServerProcess, StartServer
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import (
    BadKeyError,
    BucketExistsError,
    BucketNotFoundError,
    KeyExistsError,
    OptionsError,
    WrongRevisionError,
)
from tradewind.client.jetstream import JetStream
from tradewind.client.kv.entries import Entry
from tradewind.client.kv.kv import KeyValue
from tradewind.client.kv.kv_types import Operation
from tradewind.client.kv.watch import WINDOW_BYTES, Watcher


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


@pytest.fixture
async def bucket(js: JetStream, subject: str) -> KeyValue:
    return await js.kv.create(subject, history=5)


def brief(entries: list[Entry]) -> list[tuple[str, str, bytes]]:
    return [(entry.key, str(entry.operation), entry.value) for entry in entries]


async def take(watcher: Watcher[Entry], count: int) -> list[Entry]:
    async with asyncio.timeout(SECONDS):
        return [await anext(watcher) for _ in range(count)]


# ---------------------------------------------------------------------- the example of document 001


async def test_document_001_kv(js: JetStream) -> None:
    bucket = await js.kv.create("testing", history=5)
    await bucket.create("hello.world", "hi")

    watch = await bucket.watch()
    seen: list[tuple[str, str, bytes]] = []

    async def follow() -> None:
        async for entry in watch:
            seen.append((entry.key, entry.operation, entry.value))

    following = asyncio.create_task(follow())

    await bucket.put("hello.world", "world")
    entry = await bucket.get("hello.world")
    assert entry is not None
    assert (entry.bucket, entry.key, entry.value) == ("testing", "hello.world", b"world")
    assert (entry.revision, entry.operation) == (2, "PUT")
    assert abs(entry.created - datetime.datetime.now(datetime.UTC)).total_seconds() < 600

    assert [key async for key in bucket.keys(">")] == ["hello.world"]
    assert brief([item async for item in bucket.history("hello.world")]) == [
        ("hello.world", "PUT", b"hi"),
        ("hello.world", "PUT", b"world"),
    ]

    await bucket.delete("hello.world")
    # The purge removes what nobody has seen yet.
    await eventually(lambda: len(seen) == 3, "three changes")
    await bucket.purge("hello.world")
    await eventually(lambda: len(seen) == 4, "four changes")
    await watch.stop()
    await asyncio.wait_for(following, SECONDS)
    assert [operation for _, operation, _ in seen] == ["PUT", "PUT", "DEL", "PURGE"]

    await bucket.destroy()
    assert [name async for name in js.kv.names()] == []


# ---------------------------------------------------------------------- keys


async def test_value_is_put_and_got(bucket: KeyValue) -> None:
    for value in (b"red", "blue", bytearray(b"green"), b""):
        revision = await bucket.put("color", value)
        entry = await bucket.get("color")
        assert entry is not None
        wanted = value.encode() if isinstance(value, str) else bytes(value)
        assert (entry.key, entry.value, entry.revision) == ("color", wanted, revision)
        assert (entry.delta, entry.size, entry.is_deleted) == (0, len(wanted), False)


async def test_many_large_values_at_once_wait_for_each_other(js: JetStream) -> None:
    bucket = await js.kv.create("large", storage="memory", history=1)
    value = bytes(1_000_000)
    await asyncio.gather(*(bucket.put(f"k.{number % 4}", value) for number in range(100)))
    assert (await bucket.status()).values == 4


async def test_each_revision_can_be_got(bucket: KeyValue) -> None:
    first = await bucket.put("color", b"red")
    second = await bucket.put("color", b"blue")
    other = await bucket.put("shape", b"round")
    for revision, value in ((first, b"red"), (second, b"blue")):
        entry = await bucket.get("color", revision=revision)
        assert entry is not None
        assert (entry.value, entry.revision) == (value, revision)
    assert await bucket.get("color", revision=other) is None
    assert await bucket.get("color", revision=other + 1) is None


async def test_missing_and_deleted_keys_have_no_value(bucket: KeyValue) -> None:
    assert await bucket.get("nothing") is None
    await bucket.put("color", b"red")
    await bucket.delete("color")
    assert await bucket.get("color") is None
    assert await bucket.get("color", revision=2) is None
    await bucket.purge("color")
    assert await bucket.get("color") is None
    assert await bucket.get("color", revision=1) is None


async def test_create_refuses_a_key_that_has_a_value(bucket: KeyValue) -> None:
    revision = await bucket.create("once", b"1")
    with pytest.raises(KeyExistsError, match="revision 1") as caught:
        await bucket.create("once", b"2")
    assert caught.value.revision == revision
    await bucket.delete("once")
    await bucket.create("once", b"3")
    await bucket.purge("once")
    assert await bucket.create("once", b"4") == 5


async def test_update_needs_the_last_revision(bucket: KeyValue) -> None:
    first = await bucket.update("counter", b"0", 0)
    second = await bucket.update("counter", b"1", first)
    with pytest.raises(WrongRevisionError, match=f"is {second}, not {first}") as caught:
        await bucket.update("counter", b"2", first)
    assert caught.value.revision == second
    entry = await bucket.get("counter")
    assert entry is not None
    assert entry.value == b"1"


async def test_delete_and_purge_can_need_the_last_revision(bucket: KeyValue) -> None:
    first = await bucket.put("a", b"1")
    second = await bucket.put("a", b"2")
    for remove in (bucket.delete, bucket.purge):
        with pytest.raises(WrongRevisionError):
            await remove("a", revision=first)
    await bucket.delete("a", revision=second)
    await bucket.purge("a", revision=second + 1)
    assert brief([entry async for entry in bucket.history("a")]) == [("a", "PURGE", b"")]


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "a*", ">", "ä", "a\r\n", "a:b"])
async def test_what_is_no_key_is_refused(bucket: KeyValue, key: str) -> None:
    for call in (
        bucket.put(key, b""),
        bucket.create(key, b""),
        bucket.update(key, b"", 1),
        bucket.get(key),
        bucket.delete(key),
        bucket.purge(key),
    ):
        with pytest.raises(BadKeyError, match="letters"):
            await call


async def test_keys_may_be_patterns(bucket: KeyValue) -> None:
    for key in ("fruit.pear", "fruit.plum", "fruit.red.apple", "nut.pea", "a/b=c_d-e"):
        await bucket.put(key, b"1")
    await bucket.delete("fruit.plum")
    assert [key async for key in bucket.keys("fruit.*")] == ["fruit.pear"]
    assert [key async for key in bucket.keys("fruit.>")] == ["fruit.pear", "fruit.red.apple"]
    assert [key async for key in bucket.keys("nut.*", "fruit.*.*")] == [
        "fruit.red.apple",
        "nut.pea",
    ]
    assert [key async for key in bucket.keys("none.*")] == []
    assert len([key async for key in bucket.keys(">")]) == 4
    with pytest.raises(BadKeyError):
        await anext(bucket.keys("a..b"))


async def test_history_is_bounded_and_has_deltas(bucket: KeyValue) -> None:
    for number in range(8):
        await bucket.put("n", str(number))
    entries = [entry async for entry in bucket.history("n")]
    assert [(int(entry.value), entry.delta) for entry in entries] == [
        (3, 4),
        (4, 3),
        (5, 2),
        (6, 1),
        (7, 0),
    ]


async def test_purge_deletes_removes_old_markers_only(bucket: KeyValue) -> None:
    for key in ("a", "b", "c"):
        await bucket.put(key, b"1")
        await bucket.put(key, b"2")
    await bucket.delete("a")
    await bucket.purge("b")
    assert await bucket.purge_deletes() == 0
    assert brief([entry async for entry in bucket.history()]) == [
        ("c", "PUT", b"1"),
        ("c", "PUT", b"2"),
        ("a", "DEL", b""),
        ("b", "PURGE", b""),
    ]
    assert await bucket.purge_deletes(older_than=0) == 2
    assert [entry.key async for entry in bucket.history()] == ["c", "c"]
    assert await bucket.purge_deletes(older_than=datetime.timedelta(0)) == 0


# ---------------------------------------------------------------------- watching


async def test_watch_gives_what_is_there_and_then_changes(bucket: KeyValue) -> None:
    await bucket.put("a", b"1")
    await bucket.put("b", b"2")
    await bucket.put("a", b"3")
    async with await bucket.watch() as watcher:
        assert not watcher.is_current
        there = [entry async for entry in watcher.initial()]
        assert brief(there) == [("b", "PUT", b"2"), ("a", "PUT", b"3")]
        assert watcher.is_current
        assert [entry async for entry in watcher.initial()] == []
        await bucket.put("c", b"4")
        await bucket.delete("a")
        await bucket.purge("b")
        assert brief(await take(watcher, 3)) == [
            ("c", "PUT", b"4"),
            ("a", "DEL", b""),
            ("b", "PURGE", b""),
        ]


async def test_watch_of_an_empty_bucket_is_current_at_once(bucket: KeyValue) -> None:
    async with await bucket.watch() as watcher:
        assert watcher.is_current
        assert [entry async for entry in watcher.initial()] == []
        await bucket.put("a", b"1")
        assert brief(await take(watcher, 1)) == [("a", "PUT", b"1")]


async def test_watch_options(bucket: KeyValue) -> None:
    for number in range(3):
        await bucket.put("a", str(number))
    await bucket.delete("b")
    watchers = {
        "history": await bucket.watch(history=True),
        "updates": await bucket.watch(updates_only=True),
        "no deletes": await bucket.watch(ignore_deletes=True),
        "meta": await bucket.watch(meta_only=True),
        "from": await bucket.watch(from_revision=3),
        "pattern": await bucket.watch("c.*", "d"),
    }
    there = {
        name: brief([entry async for entry in watcher.initial()])
        for name, watcher in watchers.items()
    }
    assert there == {
        "history": [(k, o, v) for k, o, v in (("a", "PUT", b"0"), ("a", "PUT", b"1"),
                                              ("a", "PUT", b"2"), ("b", "DEL", b""))],
        "updates": [],
        "no deletes": [("a", "PUT", b"2")],
        "meta": [("a", "PUT", b""), ("b", "DEL", b"")],
        "from": [("a", "PUT", b"2"), ("b", "DEL", b"")],
        "pattern": [],
    }  # fmt: skip
    for key in ("c", "c.1", "d"):
        await bucket.put(key, b"12345")
    await bucket.delete("d")
    for name, count in (("history", 4), ("updates", 4), ("no deletes", 3), ("from", 4)):
        assert [entry.key for entry in await take(watchers[name], count)][:3] == ["c", "c.1", "d"]
    assert [(e.key, e.value, e.size) for e in await take(watchers["meta"], 4)] == [
        ("c", b"", 5),
        ("c.1", b"", 5),
        ("d", b"", 5),
        ("d", b"", 0),
    ]
    assert brief(await take(watchers["pattern"], 3)) == [
        ("c.1", "PUT", b"12345"),
        ("d", "PUT", b"12345"),
        ("d", "DEL", b""),
    ]
    for watcher in watchers.values():
        await watcher.stop()
        assert [entry async for entry in watcher] == []
    with pytest.raises(OptionsError, match="only one"):
        await bucket.watch(history=True, from_revision=2)


async def test_slow_watcher_reads_ahead_by_bytes(js: JetStream) -> None:
    bucket = await js.kv.create("large", storage="memory")
    await asyncio.gather(*(bucket.put(f"k.{number}", bytes(500_000)) for number in range(40)))
    async with await bucket.watch() as watcher:
        first = await take(watcher, 1)
        await js.connection.flush()
        assert watcher._messages.pending_bytes <= WINDOW_BYTES
        assert len(first + await take(watcher, 39)) == 40


async def test_watch_ends_with_an_error_when_the_bucket_is_removed(bucket: KeyValue) -> None:
    await bucket.put("a", b"1")
    async with await bucket.watch() as watcher:
        await take(watcher, 1)  # so its consumer is at work
        await bucket.destroy()
        with pytest.raises(JetStreamApiError):
            await take(watcher, 1)


async def test_watchers_leave_no_consumers_behind(js: JetStream, bucket: KeyValue) -> None:
    await bucket.put("a", b"1")
    async with await bucket.watch() as watcher:
        await take(watcher, 1)
        assert len(await js.manager.consumers.names(bucket.stream).all()) == 1
    async for _ in bucket.keys(">"):
        break
    await no_consumers(js, bucket.stream)


async def test_many_keys_are_read_in_order(js: JetStream, bucket: KeyValue) -> None:
    await asyncio.gather(*(bucket.put(f"key.{n}", b"%d" % n) for n in range(3000)))
    async with await bucket.watch() as watcher:
        revisions = [entry.revision async for entry in watcher.initial()]
    assert revisions == list(range(1, 3001))


# ---------------------------------------------------------------------- buckets


async def test_buckets_are_made_opened_changed_listed_and_removed(js: JetStream) -> None:
    assert (await js.kv.create("one", description="first", ttl=3600, max_bytes=1 << 20)).bucket
    await js.kv.create("two", storage="memory", max_value_size=5, metadata={"owner": "me"})
    await js.objects.create("three")
    assert sorted([name async for name in js.kv.names()]) == ["one", "two"]
    one, two = sorted([status async for status in js.kv.list()], key=lambda s: s.bucket)
    assert (one.bucket, one.description, one.ttl, one.history) == ("one", "first", 3600.0, 1)
    assert (one.storage, one.values, one.bytes, one.marker_ttl) == ("file", 0, 0, 0.0)
    assert (one.is_compressed, one.is_mirror, one.replicas) == (False, False, 1)
    assert (two.storage, two.metadata["owner"]) == ("memory", "me")
    bucket = await js.kv.open("two")
    with pytest.raises(JetStreamApiError, match="size"):
        await bucket.put("a", b"123456")
    await js.kv.update("two", max_value_size=-1, history=3)
    await bucket.put("a", b"123456")
    status = await bucket.status()
    assert (status.history, status.values, status.description) == (3, 1, "")
    assert status.metadata["owner"] == "me"
    await js.kv.delete("two")
    for call in (
        js.kv.open("two"),
        js.kv.delete("two"),
        js.kv.update("two"),
        bucket.status(),
        bucket.get("a"),
        bucket.put("a", b""),
        bucket.watch(),
        bucket.destroy(),
    ):
        with pytest.raises(BucketNotFoundError, match="two"):
            await call


async def test_create_takes_an_existing_bucket_with_the_same_settings(js: JetStream) -> None:
    first = await js.kv.create("same", history=5, ttl=60, metadata={"a": "b"})
    await first.put("a", b"1")
    again = await js.kv.create("same", history=5)
    assert await again.get("a") == await first.get("a")
    with pytest.raises(BucketExistsError, match="another history"):
        await js.kv.create("same", history=6)
    with pytest.raises(BucketExistsError, match="another ttl"):
        await js.kv.create("same", ttl=61)


async def test_wrong_settings_are_named(js: JetStream) -> None:
    for name in ("", "a.b", "a b", "a*"):
        with pytest.raises(OptionsError, match="bucket"):
            await js.kv.create(name)
        with pytest.raises(OptionsError, match="bucket"):
            await js.kv.open(name)
    for settings, text in (
        ({"history": 0}, "history"),
        ({"history": 65}, "history"),
        ({"histroy": 5}, "did you mean 'history'"),
        ({"storage": "tape"}, "storage"),
        ({"storage": "files"}, "^storage must be one of file, memory; did you mean 'file'"),
        ({"marker_ttl": 0.5}, "marker_ttl"),
        ({"ttl": -5}, "^ttl must not be negative, not -5; numbers are seconds$"),
        ({"ttl": "long"}, "^ttl must be a duration"),
        ({"replicas": "three"}, "^replicas must be a whole number, not 'three'$"),
        ({"history": "5"}, "^history must be a whole number"),
        ({"compression": "s2"}, "^compression must be True or False, not 's2'$"),
        ({"mirror": 5}, "^mirror must be the name of a bucket"),
    ):
        with pytest.raises(OptionsError, match=text):
            await js.kv.create("wrong", **settings)


async def test_keys_expire_after_their_own_time(js: JetStream) -> None:
    bucket = await js.kv.create("ttl", allow_ttl=True)
    assert await bucket.create("short", b"1", ttl=1) == 1
    assert await bucket.create("long", b"2", ttl=datetime.timedelta(hours=1)) == 2
    async with asyncio.timeout(SECONDS):
        while await bucket.get("short") is not None:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)
    assert await bucket.get("long") is not None
    await bucket.purge("long", ttl=3600)
    plain = await js.kv.create("plain")
    with pytest.raises(JetStreamApiError, match="TTL"):
        await plain.create("a", b"1", ttl=5)


async def test_expired_keys_leave_markers(js: JetStream) -> None:
    bucket = await js.kv.create("ttl", marker_ttl=60)
    assert (await bucket.status()).marker_ttl == 60
    async with await bucket.watch() as watcher:
        # Not so short that it is gone before it was delivered.
        await bucket.create("session", b"1", ttl=3)
        put, expired = await take(watcher, 2)
    assert (put.operation, expired.operation) == (Operation.PUT, Operation.EXPIRED)
    assert await bucket.get("session") is None
    assert await bucket.create("session", b"2") == 3


async def until_value(bucket: KeyValue, key: str, value: bytes) -> None:
    """Wait until a copy has caught up."""
    for _ in range(int(SECONDS * 20)):
        entry = await bucket.get(key)
        if entry is not None and entry.value == value:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{bucket} has not got {key}")


async def test_copies_of_buckets(js: JetStream) -> None:
    origin = await js.kv.create("origin")
    await origin.put("a", b"1")
    mirror = await js.kv.create("mirror", mirror="origin")
    union = await js.kv.create("union", sources=["origin"])
    await until_value(mirror, "a", b"1")
    await until_value(union, "a", b"1")
    # What is written to a mirror goes to the origin, and comes from there.
    await mirror.put("b", b"2")
    # The mirror may answer for the origin, also before it has a copy.
    await until_value(mirror, "b", b"2")
    entry = await origin.get("b")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"2", 2)
    assert [key async for key in mirror.keys(">")] == ["a", "b"]
    assert (await mirror.status()).is_mirror
    await union.put("own", b"3")
    await until_value(union, "b", b"2")
    assert sorted([key async for key in union.keys(">")]) == ["a", "b", "own"]
    assert await origin.get("own") is None
    again = await js.kv.open("mirror")
    assert await again.get("a") == await mirror.get("a")


async def test_bucket_without_direct_gets_is_read_from_its_leader(js: JetStream) -> None:
    await js.kv.create("slow")
    await js.manager.streams.update("KV_slow", allow_direct=False)
    bucket = await js.kv.open("slow")
    await bucket.put("a", b"1")
    await bucket.put("b", b"2")
    for key, revision, value in (("a", None, b"1"), ("b", 2, b"2")):
        entry = await bucket.get(key, revision=revision)
        assert entry is not None
        assert (entry.key, entry.value) == (key, value)
    assert await bucket.get("a", revision=2) is None
    assert await bucket.get("c") is None
    await bucket.delete("a")
    assert await bucket.get("a") is None
    await bucket.create("a", b"3")


async def test_buckets_and_stores_of_a_domain(start: StartServer, tmp_path: Path) -> None:
    server = start(f'jetstream {{ store_dir: "{tmp_path}", domain: hub }}')
    async with connected(server.url) as connection:
        js = connection.jetstream(domain="hub")
        bucket = await js.kv.create("b")
        async with await bucket.watch() as watcher:
            assert await bucket.put("a", b"1") == 1
            assert brief(await take(watcher, 1)) == [("a", "PUT", b"1")]
        await bucket.delete("a", revision=1)
        assert await bucket.create("a", b"2") == 3
        assert await bucket.get("a") == await (await connection.jetstream().kv.open("b")).get("a")
        store = await js.objects.create("s")
        await store.put("object", b"content", chunk_size=3)
        reader = await store.get("object")
        assert reader is not None
        assert await reader.read() == b"content"
        await store.delete("object")


# ---------------------------------------------------------------------- other clients


@pytest.fixture
async def peer(js_server: ServerProcess) -> AsyncIterator[nats.js.JetStreamContext]:
    client = await nats.connect(
        js_server.url, allow_reconnect=False, connect_timeout=round(SECONDS)
    )
    yield client.jetstream(timeout=SECONDS)
    await client.close()


async def test_nats_py_reads_what_we_write(
    bucket: KeyValue, peer: nats.js.JetStreamContext
) -> None:
    theirs = await peer.key_value(bucket.bucket)
    assert (await theirs.status()).history == 5
    await bucket.put("a", b"1")
    await bucket.create("b", b"2")
    assert [(await theirs.get(key)).value for key in ("a", "b")] == [b"1", b"2"]
    assert sorted(await theirs.keys()) == ["a", "b"]
    await bucket.delete("a")
    await bucket.purge("b")
    for key, operation in (("a", KV_DEL), ("b", KV_PURGE)):
        with pytest.raises(nats.js.errors.KeyNotFoundError):
            await theirs.get(key)
        assert (await theirs.history(key))[-1].operation == operation
    assert len(await theirs.history("a")) == 2
    assert len(await theirs.history("b")) == 1


async def test_we_read_what_nats_py_writes(js: JetStream, peer: nats.js.JetStreamContext) -> None:
    theirs = await peer.create_key_value(bucket="peer", history=3)
    bucket = await js.kv.create("peer", history=3)
    async with await bucket.watch() as watcher:
        # One by one: a purge removes what nobody has seen yet.
        await theirs.put("a", b"1")
        assert brief(await take(watcher, 1)) == [("a", "PUT", b"1")]
        await theirs.create("b", b"2")
        assert brief(await take(watcher, 1)) == [("b", "PUT", b"2")]
        await theirs.delete("a")
        await theirs.purge("b")
        assert brief(await take(watcher, 2)) == [("a", "DEL", b""), ("b", "PURGE", b"")]
    assert await bucket.get("a") is None
    await bucket.create("a", b"3")
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await theirs.create("a", b"4")


# ---------------------------------------------------------------------- without a loop


@pytest.fixture
def blocking(js_server: ServerProcess) -> Iterator[tradewind.sync.Connection]:
    with tradewind.sync.connect(js_server.url) as connection:
        yield connection
        for name in connection.jetstream().manager.streams.names():
            connection.jetstream().manager.streams.delete(name)


def test_buckets_without_an_event_loop(blocking: tradewind.sync.Connection) -> None:
    bucket = blocking.jetstream().kv.create("calm", history=3)
    for number in range(3):
        bucket.put(f"key.{number}", str(number))
    entry = bucket.get("key.1")
    assert entry is not None
    assert (entry.key, entry.value) == ("key.1", b"1")
    assert sorted(bucket.keys("key.*")) == ["key.0", "key.1", "key.2"]
    with bucket.watch() as watcher:
        assert [item.value for item in watcher.initial()] == [b"0", b"1", b"2"]
        bucket.put("key.3", "3")
        assert next(watcher).value == b"3"
    assert [item.bucket for item in blocking.jetstream().kv.list()] == ["calm"]
    bucket.destroy()
