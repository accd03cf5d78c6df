"""The nats-py client on both servers: key-value buckets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import nats
import nats.js.errors
import pytest
from nats.js import JetStreamContext
from nats.js.kv import KV_DEL, KV_PURGE, KeyValue

from harness import ServerProcess

WAIT_SECONDS = 20


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(js_server.url, allow_reconnect=False, connect_timeout=WAIT_SECONDS)
    yield client.jetstream(timeout=WAIT_SECONDS)
    await client.close()


@pytest.fixture
async def bucket(js: JetStreamContext, subject: str) -> AsyncIterator[KeyValue]:
    yield await js.create_key_value(bucket=subject, history=5)
    await js.delete_key_value(subject)


async def test_value_is_put_and_got(bucket: KeyValue) -> None:
    revision = await bucket.put("color", b"red")
    entry = await bucket.get("color")
    assert (entry.key, entry.value, entry.revision) == ("color", b"red", revision)


async def test_revisions_rise_and_each_can_be_got(bucket: KeyValue) -> None:
    first = await bucket.put("color", b"red")
    second = await bucket.put("color", b"blue")
    assert second > first
    assert (await bucket.get("color", revision=first)).value == b"red"
    assert (await bucket.get("color")).value == b"blue"


async def test_missing_key_is_not_found(bucket: KeyValue) -> None:
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await bucket.get("nothing")


async def test_create_refuses_a_key_that_is_there(bucket: KeyValue) -> None:
    await bucket.create("once", b"1")
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await bucket.create("once", b"2")
    await bucket.delete("once")
    await bucket.create("once", b"3")
    assert (await bucket.get("once")).value == b"3"


async def test_update_needs_the_last_revision(bucket: KeyValue) -> None:
    revision = await bucket.put("counter", b"1")
    revision = await bucket.update("counter", b"2", last=revision)
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await bucket.update("counter", b"3", last=revision - 1)
    assert (await bucket.get("counter")).value == b"2"


async def test_deleted_key_is_not_found_but_has_a_history(bucket: KeyValue) -> None:
    await bucket.put("gone", b"1")
    await bucket.delete("gone")
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await bucket.get("gone")
    history = await bucket.history("gone")
    assert [entry.operation for entry in history] == [None, KV_DEL]


async def test_purge_leaves_a_mark_only(bucket: KeyValue) -> None:
    for value in (b"1", b"2", b"3"):
        await bucket.put("gone", value)
    await bucket.purge("gone")
    history = await bucket.history("gone")
    assert [(entry.operation, entry.value) for entry in history] == [(KV_PURGE, b"")]


async def test_history_keeps_the_newest_values(bucket: KeyValue) -> None:
    for number in range(8):
        await bucket.put("many", b"%d" % number)
    history = await bucket.history("many")
    assert [entry.value for entry in history] == [b"3", b"4", b"5", b"6", b"7"]


async def test_keys_lists_what_is_not_deleted(bucket: KeyValue) -> None:
    for key in ("a", "b.c", "d"):
        await bucket.put(key, b"x")
    await bucket.delete("d")
    assert sorted(await bucket.keys()) == ["a", "b.c"]


async def test_keys_of_an_empty_bucket_are_an_error(bucket: KeyValue) -> None:
    with pytest.raises(nats.js.errors.NoKeysError):
        await bucket.keys()


async def test_watch_shows_what_is_there_then_what_changes(bucket: KeyValue) -> None:
    await bucket.put("a", b"1")
    watcher = await bucket.watchall()
    first = await watcher.updates(timeout=WAIT_SECONDS)
    assert first is not None
    assert (first.key, first.value) == ("a", b"1")
    assert await watcher.updates(timeout=WAIT_SECONDS) is None  # all that was there
    await bucket.put("b", b"2")
    second = await watcher.updates(timeout=WAIT_SECONDS)
    assert second is not None
    assert (second.key, second.value) == ("b", b"2")
    await bucket.delete("a")
    third = await watcher.updates(timeout=WAIT_SECONDS)
    assert third is not None
    assert (third.key, third.operation) == ("a", KV_DEL)
    await watcher.stop()


async def test_watch_of_a_pattern_sees_its_keys_only(bucket: KeyValue) -> None:
    watcher = await bucket.watch("orders.*")
    assert await watcher.updates(timeout=WAIT_SECONDS) is None
    await bucket.put("other", b"x")
    await bucket.put("orders.1", b"y")
    entry = await watcher.updates(timeout=WAIT_SECONDS)
    assert entry is not None
    assert entry.key == "orders.1"
    await watcher.stop()


async def test_purge_deletes_removes_the_marks(bucket: KeyValue) -> None:
    for key in ("a", "b"):
        await bucket.put(key, b"x")
    await bucket.delete("a")
    await bucket.purge_deletes(olderthan=-1)
    status = await bucket.status()
    assert status.values == 1


async def test_status_counts_values(bucket: KeyValue, subject: str) -> None:
    await bucket.put("a", b"x")
    await bucket.put("a", b"y")
    status = await bucket.status()
    assert (status.bucket, status.values, status.history) == (subject, 2, 5)


async def test_bucket_that_is_not_there_is_not_found(js: JetStreamContext) -> None:
    with pytest.raises(nats.js.errors.BucketNotFoundError):
        await js.key_value("no-such-bucket")


async def test_bucket_is_opened_by_another_name_for_the_same_data(
    js: JetStreamContext, bucket: KeyValue, subject: str
) -> None:
    await bucket.put("a", b"x")
    assert (await (await js.key_value(subject)).get("a")).value == b"x"
