"""The nats-py client on both servers: streams, buckets and object stores that are copies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import nats
import nats.js.errors
import pytest
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    ExternalStream,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamConsumerSource,
    StreamSource,
    SubjectTransform,
)

from harness import ServerProcess

WAIT_SECONDS = 60


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(js_server.url, allow_reconnect=False, connect_timeout=WAIT_SECONDS)
    context = client.jetstream(timeout=20)
    yield context
    for info in await context.streams_info():
        await context.delete_stream(info.config.name)
    await client.close()


async def wait_until(condition: Callable[[], Awaitable[Any]]) -> Any:
    end = time.monotonic() + WAIT_SECONDS
    while not (found := await condition()):
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)
    return found


async def wait_for_messages(js: JetStreamContext, name: str, count: int) -> None:
    async def reached() -> bool:
        return (await js.stream_info(name)).state.messages == count

    await wait_until(reached)


async def test_mirror_is_read_by_every_kind_of_consumer(js: JetStreamContext, subject: str) -> None:
    origin, copy = f"O_{subject}", f"M_{subject}"
    await js.add_stream(name=origin, subjects=[f"{subject}.>"], storage=StorageType.MEMORY)
    for number in range(5):
        await js.publish(f"{subject}.{number % 2}", b"%d" % number, headers={"N": str(number)})
    info = await js.add_stream(
        name=copy, mirror=StreamSource(name=origin), storage=StorageType.MEMORY
    )
    assert info.config.mirror is not None
    assert info.config.mirror.name == origin
    await wait_for_messages(js, copy, 5)
    pulled = await js.pull_subscribe(f"{subject}.1", durable="pull", stream=copy)
    messages = await pulled.fetch(2, timeout=20)
    assert [message.data for message in messages] == [b"1", b"3"]
    assert [message.metadata.sequence.stream for message in messages] == [2, 4]
    for message in messages:
        await message.ack_sync(timeout=20)
    ordered = await js.subscribe(f"{subject}.>", stream=copy, ordered_consumer=True)
    assert [(await ordered.next_msg(20)).data for _ in range(5)] == [b"%d" % n for n in range(5)]
    await ordered.unsubscribe()
    raw = await js.get_last_msg(copy, f"{subject}.0")
    assert (raw.data, raw.seq, raw.headers) == (b"4", 5, {"N": "4"})
    state = (await js.stream_info(copy)).mirror
    assert state is not None
    assert (state.name, state.lag) == (origin, 0)
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.delete_consumer(copy, "nobody")


async def test_sources_with_filters_and_a_given_consumer(
    js: JetStreamContext, subject: str
) -> None:
    names = [f"{kind}_{subject}" for kind in ("L", "W", "ALL")]
    await js.add_stream(name=names[0], subjects=[f"{subject}.l.>"], storage=StorageType.MEMORY)
    await js.add_stream(
        name=names[1],
        subjects=[f"{subject}.w"],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.MEMORY,
    )
    deliver = f"deliver.{subject}"
    await js.add_consumer(
        names[1],
        ConsumerConfig(
            durable_name="given", ack_policy=AckPolicy.FLOW_CONTROL, deliver_subject=deliver
        ),
    )
    sources = [
        StreamSource(name=names[0], filter_subject=f"{subject}.l.a"),
        StreamSource(
            name=names[1], consumer=StreamConsumerSource(name="given", deliver_subject=deliver)
        ),
    ]
    await js.add_stream(name=names[2], sources=sources, storage=StorageType.MEMORY)
    for part in ("l.a", "l.b", "w"):
        await js.publish(f"{subject}.{part}", part.encode())
    await wait_for_messages(js, names[2], 2)
    await wait_for_messages(js, names[1], 0)
    found = {(await js.get_msg(names[2], seq)).data for seq in (1, 2)}
    assert found == {b"l.a", b"w"}
    info = await js.stream_info(names[2])
    assert {source.name for source in info.sources or []} == set(names[:2])


async def test_an_external_origin_that_is_not_there_is_taken(
    js: JetStreamContext, subject: str
) -> None:
    external = ExternalStream(api="$JS.nowhere.API", deliver=f"far.{subject}")
    name = f"X_{subject}"
    await js.add_stream(
        name=name,
        mirror=StreamSource(name="FAR", external=external),
        storage=StorageType.MEMORY,
    )
    config = (await js.stream_info(name)).config
    assert config.mirror is not None
    assert config.mirror.external == external


def bucket_stream(name: str, origin: str, *, is_mirror: bool) -> StreamConfig:
    """A bucket that is a copy: nats-py makes only those that are not."""
    transform = SubjectTransform(src=f"$KV.{origin}.>", dest=f"$KV.{name}.>")
    source = StreamSource(name=f"KV_{origin}", subject_transforms=[transform])
    return StreamConfig(
        name=f"KV_{name}",
        subjects=None if is_mirror else [f"$KV.{name}.>"],
        mirror=source if is_mirror else None,
        sources=None if is_mirror else [source],
        max_msgs_per_subject=5,
        allow_rollup_hdrs=True,
        allow_direct=True,
        discard=DiscardPolicy.NEW if not is_mirror else DiscardPolicy.OLD,
        storage=StorageType.MEMORY,
    )


@pytest.mark.parametrize("is_mirror", [True, False])
async def test_bucket_that_is_a_copy(
    js: JetStreamContext, subject: str, *, is_mirror: bool
) -> None:
    origin = await js.create_key_value(bucket=f"a{subject}", history=5, storage=StorageType.MEMORY)
    await origin.put("color", b"red")
    await origin.put("color", b"blue")
    await origin.put("shape", b"round")
    await origin.delete("shape")
    await js.add_stream(bucket_stream(f"b{subject}", f"a{subject}", is_mirror=is_mirror))
    await wait_for_messages(js, f"KV_b{subject}", 4)
    copy = await js.key_value(f"b{subject}")
    assert (await copy.get("color")).value == b"blue"
    assert [entry.value for entry in await copy.history("color")] == [b"red", b"blue"]
    assert await copy.keys() == ["color"]
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await copy.get("shape")
    watcher = await copy.watchall()
    entry = await watcher.updates(timeout=20)
    assert entry is not None
    assert (entry.key, entry.value) == ("color", b"blue")
    await watcher.stop()
    await origin.put("color", b"green")
    await wait_for_messages(js, f"KV_b{subject}", 5)
    assert (await copy.get("color")).value == b"green"
    if not is_mirror:
        await copy.put("own", b"1")
        assert (await copy.get("own")).value == b"1"


async def test_object_store_that_is_a_copy(js: JetStreamContext, subject: str) -> None:
    origin = await js.create_object_store(bucket=f"a{subject}")
    content = bytes(range(256)) * 2000
    await origin.put("picture", content)
    transform = SubjectTransform(src=f"$O.a{subject}.>", dest=f"$O.b{subject}.>")
    source = StreamSource(name=f"OBJ_a{subject}", subject_transforms=[transform])
    await js.add_stream(
        StreamConfig(
            name=f"OBJ_b{subject}",
            subjects=[f"$O.b{subject}.C.>", f"$O.b{subject}.M.>"],
            sources=[source],
            allow_rollup_hdrs=True,
            allow_direct=True,
            storage=StorageType.MEMORY,
        )
    )
    count = (await js.stream_info(f"OBJ_a{subject}")).state.messages
    await wait_for_messages(js, f"OBJ_b{subject}", count)
    copy = await js.object_store(f"b{subject}")
    info = await copy.get_info("picture")
    assert info.size == len(content)
    assert [entry.name for entry in await copy.list()] == ["picture"]
    assert (await copy.get("picture")).data == content
