"""Object stores of our client, on both servers and with nats-py on the other side."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import nats.js.errors
import pytest
from helpers_client import SECONDS, eventually, lent_jetstream

import tradewind.sync
from harness import ServerProcess
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import (
    BucketExistsError,
    BucketNotFoundError,
    DamagedObjectError,
    MaxPayloadError,
    ObjectExistsError,
    ObjectLinkError,
    ObjectNotFoundError,
    OptionsError,
)
from tradewind.client.jetstream import JetStream
from tradewind.client.objects.object_types import ObjectInfo
from tradewind.client.objects.objects import ObjectStore

NOISE = random.Random(1).randbytes(300_000)


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


@pytest.fixture
async def store(js: JetStream, subject: str) -> ObjectStore:
    return await js.objects.create(subject)


async def content(store: ObjectStore, name: str) -> bytes | None:
    reader = await store.get(name)
    return None if reader is None else await reader.read()


async def message_count(js: JetStream, store: ObjectStore) -> int:
    return (await js.manager.streams.info(store.stream)).state.messages


# ---------------------------------------------------------------------- the example of document 001


async def test_document_001_object_store(js: JetStream) -> None:
    store = await js.objects.create("testing", storage="file")
    assert await store.get("hello") is None

    watch = await store.watch()
    seen: list[tuple[str, bool]] = []

    async def follow() -> None:
        async for info in watch:
            seen.append((info.name, info.deleted))

    following = asyncio.create_task(follow())

    async def readable() -> AsyncIterator[bytes]:
        yield b"hello world"

    info = await store.put("hello", readable(), description="first entry", chunk_size=1)
    assert (info.size, info.chunks, info.deleted) == (11, 11, False)
    assert info.description == "first entry"

    reader = await store.get("hello")
    assert reader is not None
    assert [chunk async for chunk in reader] == [bytes([byte]) for byte in b"hello world"]

    assert [item.name async for item in store.list()] == ["hello"]
    status = await store.status()
    assert status.bucket == "testing"
    assert status.size > 11
    await eventually(lambda: seen == [("hello", False)], "the watch")
    await watch.stop()
    await asyncio.wait_for(following, SECONDS)

    final = await store.seal()
    assert (final.bucket, final.is_sealed) == ("testing", True)
    with pytest.raises(JetStreamApiError, match="sealed"):
        await store.put("more", b"")
    await store.destroy()
    with pytest.raises(BucketNotFoundError):
        await store.status()


# ---------------------------------------------------------------------- put and get


async def generator() -> AsyncIterator[bytes]:
    for start in range(0, len(NOISE), 7777):
        yield NOISE[start : start + 7777]


def blocking_generator() -> Iterator[bytes]:
    assert threading.current_thread() is not threading.main_thread()
    yield NOISE[:200_000]
    yield b""
    yield NOISE[200_000:]


class AsyncFile:
    """What libraries for asynchronous files give."""

    def __init__(self) -> None:
        self._file = io.BytesIO(NOISE)

    async def read(self, size: int) -> bytes:
        return self._file.read(size)


class NothingYet:
    """A file that does not block and has nothing to read at the moment."""

    def read(self, size: int) -> None:
        return None


@pytest.mark.parametrize(
    "kind", ["bytes", "memoryview", "path", "file", "asyncfile", "async", "iterator", "list"]
)
async def test_put_takes_every_kind_of_source(
    store: ObjectStore, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "noise"
    path.write_bytes(NOISE)
    with path.open("rb") as file:
        sources = {
            "bytes": NOISE,
            "memoryview": memoryview(NOISE),
            "path": path,
            "file": file,
            "asyncfile": AsyncFile(),
            "async": generator(),
            "iterator": blocking_generator(),
            "list": [NOISE[:1], b"", NOISE[1:]],
        }
        info = await store.put("noise", sources[kind])  # type: ignore[arg-type]
    assert (info.size, info.chunks) == (len(NOISE), 3)
    assert await content(store, "noise") == NOISE


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20])
async def test_sizes_around_a_chunk(store: ObjectStore, size: int) -> None:
    info = await store.put("object", NOISE[:size], chunk_size=10)
    assert info.chunks == (size + 9) // 10
    assert await content(store, "object") == NOISE[:size]


async def test_put_text_and_refuse_what_is_no_bytes(js: JetStream, store: ObjectStore) -> None:
    await store.put("text", "grün")
    assert await content(store, "text") == "grün".encode()
    count = await message_count(js, store)
    for source in (5, ["text"], [b"a", None, b"b"], io.StringIO("text"), NothingYet(), None):
        with pytest.raises(TypeError, match="made of bytes"):
            await store.put("wrong", source)  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match="chunk_size"):
        await store.put("wrong", b"", chunk_size=0)
    with pytest.raises(OptionsError, match="name"):
        await store.put("", b"")
    assert await message_count(js, store) == count


async def test_description_is_kept(store: ObjectStore) -> None:
    given = await store.put(
        "pear.png",
        b"png",
        description="a pear",
        headers={"Type": "image/png", "Tag": ["a", "b"]},
        metadata={"owner": "me"},
    )
    info = await store.info("pear.png")
    assert info is not None
    assert (info.description, info.metadata) == ("a pear", {"owner": "me"})
    assert info.headers == {"Type": ["image/png"], "Tag": ["a", "b"]}
    assert abs((info.modified - given.modified).total_seconds()) < 600
    assert (info.bucket, info.nuid, info.digest) == (given.bucket, given.nuid, given.digest)
    assert await store.info("other") is None


async def test_progress_is_told(store: ObjectStore, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    await store.put("a", NOISE, progress=lambda done, total: told.append((done, total)))
    assert told == [(131072, 300_000), (262144, 300_000), (300_000, 300_000)]
    told.clear()

    async def progress(done: int, total: int | None) -> None:
        told.append((done, total))

    await store.put("b", generator(), progress=progress)
    assert told == [(131072, None), (262144, None), (300_000, None)]
    told.clear()
    reader = await store.get("a")
    assert reader is not None
    await reader.save(tmp_path / "a", progress=progress)
    assert told[-1] == (300_000, 300_000)


async def test_files_are_put_and_saved(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(NOISE)
    info = await store.put_file(source)
    assert (info.name, info.size) == ("source.bin", len(NOISE))
    reader = await store.get("source.bin")
    assert reader is not None
    assert await reader.save(str(tmp_path / "copy.bin")) == reader.info
    assert (tmp_path / "copy.bin").read_bytes() == NOISE
    target = io.BytesIO()
    reader = await store.get("source.bin")
    assert reader is not None
    await reader.save(target)
    assert target.getvalue() == NOISE
    assert sorted(os.listdir(tmp_path)) == ["copy.bin", "source.bin"]
    with pytest.raises(FileNotFoundError):
        await store.put_file(tmp_path / "none")


async def test_replacing_an_object_removes_its_old_chunks(
    js: JetStream, store: ObjectStore
) -> None:
    await store.put("object", NOISE, chunk_size=1000)
    assert await message_count(js, store) == 301
    await store.put("object", b"small")
    assert await message_count(js, store) == 2
    assert await content(store, "object") == b"small"


async def test_of_many_who_replace_an_object_one_wins_and_no_chunks_are_left(
    js: JetStream, store: ObjectStore
) -> None:
    await asyncio.gather(*(store.put("object", b"%d" % number * 100) for number in range(8)))
    assert await message_count(js, store) == 2
    assert len(await content(store, "object") or b"") == 100


async def test_deleted_object_is_gone_but_known(js: JetStream, store: ObjectStore) -> None:
    await store.put("object", NOISE)
    await store.delete("object")
    assert await message_count(js, store) == 1
    assert await store.get("object") is None
    assert await store.info("object") is None
    gone = await store.info("object", deleted=True)
    assert gone is not None
    assert (gone.deleted, gone.size, gone.chunks, gone.digest) == (True, 0, 0, "")
    assert [info.name async for info in store.list()] == []
    assert [info.name async for info in store.list(deleted=True)] == ["object"]
    for name in ("object", "never"):
        with pytest.raises(ObjectNotFoundError, match=name):
            await store.delete(name)
    await store.put("object", b"again")
    assert await content(store, "object") == b"again"


# ---------------------------------------------------------------------- failures


async def test_failed_put_leaves_nothing(js: JetStream, store: ObjectStore) -> None:
    await store.put("object", b"old")

    async def broken() -> AsyncIterator[bytes]:
        yield NOISE
        raise ConnectionResetError("the camera")

    with pytest.raises(ConnectionResetError, match="camera"):
        await store.put("object", broken(), chunk_size=1000)
    assert await message_count(js, store) == 2
    assert await content(store, "object") == b"old"


async def test_cancelled_put_leaves_nothing(js: JetStream, store: ObjectStore) -> None:
    reached = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield NOISE
        reached.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(store.put("object", endless(), chunk_size=1000))
    await asyncio.wait_for(reached.wait(), SECONDS)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await message_count(js, store) == 0
    assert await store.info("object") is None


async def test_put_into_a_full_store_leaves_nothing(js: JetStream) -> None:
    store = await js.objects.create("full", max_bytes=200_000)
    await store.put("first", NOISE[:100_000])
    with pytest.raises(JetStreamApiError, match="maximum bytes"):
        await store.put("second", NOISE, chunk_size=10_000)
    assert [info.name async for info in store.list()] == ["first"]
    assert await message_count(js, store) == 2
    await store.put("third", NOISE[:50_000])


async def test_chunks_larger_than_the_server_takes_are_refused(
    js: JetStream, store: ObjectStore
) -> None:
    with pytest.raises(MaxPayloadError, match="max_payload"):
        await store.put("object", bytes(2 << 20), chunk_size=2 << 20)
    assert await message_count(js, store) == 0


async def test_missing_chunk_is_noticed(js: JetStream, store: ObjectStore) -> None:
    await store.put("object", NOISE, chunk_size=100_000)
    await js.manager.streams.delete_message(store.stream, 2)
    with pytest.raises(DamagedObjectError, match="2 of 3 chunks"):
        await content(store, "object")


async def test_changed_chunk_is_noticed(js: JetStream, store: ObjectStore, tmp_path: Path) -> None:
    info = await store.put("object", b"right")
    await js.manager.streams.purge(store.stream, filter=f"$O.{store.bucket}.C.>")
    await js.publish(f"$O.{store.bucket}.C.{info.nuid}", b"wrong")
    with pytest.raises(DamagedObjectError, match="SHA-256"):
        await content(store, "object")
    reader = await store.get("object")
    assert reader is not None
    with pytest.raises(DamagedObjectError):
        await reader.save(tmp_path / "object")
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------------- names and links


async def test_description_and_name_can_be_changed(js: JetStream, store: ObjectStore) -> None:
    await store.put("a", b"content", description="old", metadata={"k": "v"})
    changed = await store.update("a", description="new")
    assert (changed.description, changed.metadata) == ("new", {"k": "v"})
    renamed = await store.update("a", new_name="b", headers={"H": "1"}, metadata={})
    assert (renamed.name, renamed.description, renamed.metadata) == ("b", "new", {})
    assert [info.name async for info in store.list(deleted=True)] == ["b"]
    assert await content(store, "b") == b"content"
    await store.put("c", b"other")
    with pytest.raises(ObjectExistsError, match="'c'"):
        await store.update("b", new_name="c")
    with pytest.raises(ObjectNotFoundError):
        await store.update("a", description="gone")
    await store.delete("c")
    await store.update("b", new_name="c")
    assert await content(store, "c") == b"content"
    assert await message_count(js, store) == 2


async def test_names_may_hold_anything(store: ObjectStore) -> None:
    names = ["a.b", "with blank", "ümläut/*>", "x" * 300, "\n"]
    for name in names:
        await store.put(name, name)
    assert [info.name async for info in store.list()] == names
    assert [await content(store, name) for name in names] == [name.encode() for name in names]


async def test_links_lead_to_objects_and_stores(js: JetStream, store: ObjectStore) -> None:
    other = await js.objects.create("other")
    target = await other.put("target", b"content")
    near = await store.put("near", b"near")
    link = await store.link("link", target)
    assert link.link is not None
    assert (link.link.bucket, link.link.name) == ("other", "target")
    await store.link("near-link", near)
    whole = await store.link_bucket("whole", other)
    assert await content(store, "link") == b"content"
    assert await content(store, "near-link") == b"near"
    with pytest.raises(ObjectLinkError, match="store 'other'"):
        await store.get("whole")
    with pytest.raises(ObjectLinkError, match="itself"):
        await store.link("chain", link)
    with pytest.raises(ObjectExistsError, match="hide"):
        await store.link("near", target)
    await store.link_bucket("link", "other")  # a link may take the place of a link
    assert whole.options == (await store.info("link") or near).options
    await store.link("link", target)
    await other.delete("target")
    assert await content(store, "link") is None
    gone = await other.info("target", deleted=True)
    assert gone is not None
    with pytest.raises(ObjectLinkError, match="deleted"):
        await store.link("dead", gone)


# ---------------------------------------------------------------------- watching and stores


async def test_watch_gives_what_is_there_and_then_changes(store: ObjectStore) -> None:
    await store.put("a", b"1")
    await store.put("b", b"2")
    await store.delete("a")
    watchers = [
        await store.watch(),
        await store.watch(ignore_deletes=True),
        await store.watch(updates_only=True),
    ]

    def brief(infos: list[ObjectInfo]) -> list[tuple[str, bool]]:
        return [(info.name, info.deleted) for info in infos]

    assert [brief([info async for info in watcher.initial()]) for watcher in watchers] == [
        [("b", False), ("a", True)],
        [("b", False)],
        [],
    ]
    await store.put("c", b"3")
    await store.delete("b")
    await store.put("d", b"4")
    for watcher, names in zip(watchers, ("cbd", "cd", "cbd"), strict=True):
        async with asyncio.timeout(SECONDS):
            assert [(await anext(watcher)).name for _ in names] == list(names)
        await watcher.stop()


async def test_stores_are_made_opened_changed_listed_and_removed(js: JetStream) -> None:
    await js.objects.create("one", description="first", ttl=3600, compression=True)
    await js.objects.create("two", storage="memory", metadata={"owner": "me"})
    await js.kv.create("three")
    assert sorted([name async for name in js.objects.names()]) == ["one", "two"]
    one, two = sorted([status async for status in js.objects.list()], key=lambda s: s.bucket)
    assert (one.description, one.ttl, one.is_compressed, one.size) == ("first", 3600.0, True, 0)
    assert (two.storage, two.metadata["owner"], two.replicas) == ("memory", "me", 1)
    assert (two.is_sealed, two.is_compressed) == (False, False)
    await js.objects.update("two", description="second")
    store = await js.objects.create("two", description="second")
    assert (await store.status()).description == "second"
    with pytest.raises(BucketExistsError, match="description"):
        await js.objects.create("two", description="third")
    await js.objects.delete("two")
    for call in (
        js.objects.open("two"),
        js.objects.delete("two"),
        store.status(),
        store.get("a"),
        store.put("a", b""),
        store.put("a", b"content"),
        store.watch(),
        store.seal(),
        store.destroy(),
    ):
        with pytest.raises(BucketNotFoundError, match="two"):
            await call


# ---------------------------------------------------------------------- other clients


@pytest.fixture
async def peer(js_server: ServerProcess) -> AsyncIterator[nats.js.JetStreamContext]:
    client = await nats.connect(
        js_server.url, allow_reconnect=False, connect_timeout=round(SECONDS)
    )
    yield client.jetstream(timeout=SECONDS)
    await client.close()


async def test_nats_py_reads_what_we_write(
    store: ObjectStore, peer: nats.js.JetStreamContext
) -> None:
    await store.put("object", NOISE, description="noise")
    await store.link("link", await store.put("target", b"there"))
    theirs = await peer.object_store(store.bucket)
    result = await theirs.get("object")
    assert (result.data, result.info.description) == (NOISE, "noise")
    assert (await theirs.get("link")).data == b"there"
    await store.delete("object")
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await theirs.get("object")
    assert sorted(info.name for info in await theirs.list(ignore_deletes=True)) == [
        "link",
        "target",
    ]


async def test_we_read_what_nats_py_writes(js: JetStream, peer: nats.js.JetStreamContext) -> None:
    theirs = await peer.create_object_store("peer")
    store = await js.objects.create("peer")
    await theirs.put("object", NOISE)
    await theirs.put("other", b"")
    assert await content(store, "object") == NOISE
    assert await content(store, "other") == b""
    assert [info.name async for info in store.list()] == ["object", "other"]
    await theirs.delete("object")
    assert await store.get("object") is None
    await store.put("object", b"ours")
    assert (await theirs.get("object")).data == b"ours"


# ---------------------------------------------------------------------- without a loop


def test_stores_without_an_event_loop(js_server: ServerProcess, tmp_path: Path) -> None:
    with tradewind.sync.connect(js_server.url) as connection:
        js = connection.jetstream()
        store = js.objects.create("calm")
        told: list[int] = []
        info = store.put(
            "noise",
            (NOISE[start : start + 1000] for start in range(0, len(NOISE), 1000)),
            progress=lambda done, _: told.append(done),
        )
        assert info.digest is not None
        assert told[-1] == info.size == len(NOISE)
        reader = store.get("noise")
        assert reader is not None
        digest = hashlib.sha256()
        for chunk in reader:
            digest.update(chunk)
        assert digest.digest() == hashlib.sha256(NOISE).digest()
        reader = store.get("noise")
        assert reader is not None
        reader.save(tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == NOISE
        with store.watch() as watcher:
            assert [item.name for item in watcher.initial()] == ["noise"]
        assert [item.name for item in store.list()] == ["noise"]
        store.destroy()


# ---------------------------------------------------------------------- memory

MEMORY_PROGRAM = """
import resource, sys
import tradewind.sync

def megabytes(count):
    for number in range(count):
        yield bytes([number % 256]) * 1048576

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

with tradewind.sync.connect(sys.argv[1]) as connection:
    store = connection.jetstream().objects.create("large")
    store.put("small", megabytes(8))
    store.get("small").save(sys.argv[2])
    before = peak()
    store.put("large", megabytes(96))
    store.get("large").save(sys.argv[2])
    print(peak() - before)
    store.destroy()
"""


def test_large_objects_need_no_more_memory_than_small_ones(
    js_server: ServerProcess, tmp_path: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM, js_server.url, str(tmp_path / "copy")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 24  # MiB, of 96
    assert (tmp_path / "copy").stat().st_size == 96 << 20
