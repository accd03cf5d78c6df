"""The nats-py client on both servers: object stores."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import nats
import nats.js.errors
import pytest
from nats.js import JetStreamContext, api
from nats.js.object_store import ObjectStore

from harness import ServerProcess

WAIT_SECONDS = 20
CHUNK_BYTES = 128 * 1024


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(js_server.url, allow_reconnect=False, connect_timeout=WAIT_SECONDS)
    yield client.jetstream(timeout=WAIT_SECONDS)
    await client.close()


@pytest.fixture
async def store(js: JetStreamContext, subject: str) -> AsyncIterator[ObjectStore]:
    yield await js.create_object_store(subject)
    await js.delete_object_store(subject)


async def test_object_of_many_chunks_is_put_and_got(store: ObjectStore) -> None:
    content = bytes(range(256)) * (3 * CHUNK_BYTES // 256) + b"rest"
    info = await store.put("large", content)
    assert (info.size, info.chunks) == (len(content), 4)
    found = await store.get("large")
    assert found.data == content
    assert found.info.digest == info.digest


async def test_object_is_written_into_a_file(store: ObjectStore) -> None:
    await store.put("file", io.BytesIO(b"content"))
    target = io.BytesIO()
    await store.get("file", writeinto=target)
    assert target.getvalue() == b"content"


async def test_empty_object_has_no_chunks(store: ObjectStore) -> None:
    info = await store.put("empty", b"")
    assert (info.size, info.chunks) == (0, 0)
    assert (await store.get("empty")).data == b""


async def test_replaced_object_frees_its_old_chunks(
    store: ObjectStore, js: JetStreamContext, subject: str
) -> None:
    await store.put("it", b"x" * (2 * CHUNK_BYTES))
    await store.put("it", b"small")
    assert (await store.get("it")).data == b"small"
    assert (await js.stream_info(f"OBJ_{subject}")).state.messages == 2


async def test_deleted_object_is_not_found(store: ObjectStore) -> None:
    await store.put("gone", b"content")
    await store.delete("gone")
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await store.get("gone")
    assert (await store.get_info("gone", show_deleted=True)).deleted


async def test_missing_object_is_not_found(store: ObjectStore) -> None:
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await store.get("nothing")


async def test_list_names_all_objects(store: ObjectStore) -> None:
    for name in ("a", "b", "c"):
        await store.put(name, b"x")
    await store.delete("b")
    assert sorted(info.name for info in await store.list(ignore_deletes=True)) == ["a", "c"]


async def test_metadata_can_be_changed(store: ObjectStore) -> None:
    await store.put("it", b"x", meta=api.ObjectMeta(description="before"))
    await store.update_meta("it", api.ObjectMeta(name="it", description="after"))
    info = await store.get_info("it")
    assert info.description == "after"
    assert (await store.get("it")).data == b"x"


async def test_watch_sees_objects_come(store: ObjectStore) -> None:
    watcher = await store.watch(include_history=False)
    assert await watcher.updates(timeout=WAIT_SECONDS) is None
    await store.put("seen", b"x")
    info = await watcher.updates(timeout=WAIT_SECONDS)
    assert info is not None
    assert info.name == "seen"
    await watcher.stop()


async def test_sealed_store_takes_no_more_objects(store: ObjectStore) -> None:
    await store.put("kept", b"x")
    await store.seal()
    assert (await store.status()).sealed
    with pytest.raises(nats.js.errors.APIError):
        await store.put("late", b"x")
    assert (await store.get("kept")).data == b"x"
