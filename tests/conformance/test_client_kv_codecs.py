"""Buckets behind codecs: all operations see the program's keys and values, on both servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from helpers_client import lent_jetstream

import tradewind.sync
from harness import ServerProcess
from tradewind import Base64Keys, Base64Values, PathKeys
from tradewind.client.errors import (
    BadKeyError,
    CodecError,
    KeyExistsError,
    OptionsError,
    WrongRevisionError,
)
from tradewind.client.jetstream import JetStream
from tradewind.client.kv.coded import CodedKeyValue
from tradewind.client.kv.kv import KeyValue


class Reversed:
    """A codec of keys without patterns."""

    def encode_key(self, key: str) -> str:
        return key[::-1]

    def decode_key(self, stored: str) -> str:
        return stored[::-1]


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


@pytest.fixture
async def plain(js: JetStream, subject: str) -> KeyValue:
    return await js.kv.create(subject, history=5, allow_ttl=True)


@pytest.fixture
def coded(plain: KeyValue) -> CodedKeyValue:
    return plain.with_codecs(keys=Base64Keys(), values=Base64Values())


async def test_every_operation_sees_its_own_keys_and_values(
    plain: KeyValue, coded: CodedKeyValue
) -> None:
    first = await coded.put("Acme Inc.contact", "anna@example.com")
    stored = await plain.get("QWNtZSBJbmM.Y29udGFjdA")
    assert stored is not None
    assert stored.value == b"YW5uYUBleGFtcGxlLmNvbQ"
    entry = await coded.get("Acme Inc.contact")
    assert entry is not None
    assert (entry.key, entry.value, entry.revision) == (
        "Acme Inc.contact",
        b"anna@example.com",
        first,
    )
    with pytest.raises(KeyExistsError, match=r"key 'Acme Inc\.contact'"):
        await coded.create("Acme Inc.contact", b"x")
    with pytest.raises(WrongRevisionError, match=r"key 'Acme Inc\.contact'"):
        await coded.update("Acme Inc.contact", b"x", first + 7)
    await coded.update("Acme Inc.contact", b"berta", first)
    assert await coded.compare_and_set("Acme Inc.contact", b"berta", b"carla")
    await coded.modify("Acme Inc.contact", lambda old: (old or b"") + b"!")
    assert await coded.increment("visits today", 3) == 3
    assert await coded.increment("visits today", 4) == 7
    assert [key async for key in coded.keys(">")] == ["Acme Inc.contact", "visits today"]
    assert [key async for key in coded.keys("Acme Inc.*")] == ["Acme Inc.contact"]
    values = [entry.value async for entry in coded.history("Acme Inc.contact")]
    assert values == [b"anna@example.com", b"berta", b"carla", b"carla!"]
    async with coded.lock("night job", ttl=2) as lock:
        assert lock.token > 0
        assert "night job" in [key async for key in coded.keys(">")]
    await coded.delete("visits today")
    assert await coded.get("visits today") is None
    await coded.purge("Acme Inc.contact")
    assert await coded.purge_deletes(older_than=0) >= 2
    assert (await plain.status()).values == 0


async def test_a_watch_shows_changes_and_markers_of_its_own_keys(coded: CodedKeyValue) -> None:
    await coded.put("a b", b"1")
    async with coded.watch("a b") as watcher:
        assert [(one.key, one.value) async for one in watcher.initial()] == [("a b", b"1")]
        await coded.put("c d", b"no")
        await coded.put("a b", b"2", ttl=60)
        await coded.delete("a b")
        found = [await anext(watcher) for _ in range(2)]
    assert [(one.key, str(one.operation), one.value, one.ttl) for one in found] == [
        ("a b", "PUT", b"2", 60),
        ("a b", "DEL", b"", None),
    ]


async def test_codecs_of_a_chain_are_undone_in_reverse(plain: KeyValue) -> None:
    chain = plain.with_codecs(keys=[PathKeys(), Base64Keys()])
    await chain.put("/config/timeout", b"30")
    assert [key async for key in plain.keys(">")] == [
        Base64Keys().encode_key("_root_.config.timeout")
    ]
    assert [key async for key in chain.keys("/config/*")] == ["/config/timeout"]
    entry = await chain.get("/config/timeout")
    assert entry is not None
    assert (entry.key, entry.value) == ("/config/timeout", b"30")


async def test_what_others_stored_without_the_codec_is_an_error_that_names_it(
    plain: KeyValue, coded: CodedKeyValue
) -> None:
    await plain.put("not=coded", b"x")
    with pytest.raises(CodecError, match=r"key 'not=coded' .* was not stored by Base64Keys"):
        [key async for key in coded.keys(">")]
    await plain.put(Base64Keys().encode_key("k"), b"no base64!")
    with pytest.raises(CodecError, match=r"revision \d+ of key 'k' .* by Base64Values"):
        await coded.get("k")


async def test_a_codec_without_patterns_selects_all_keys_only(plain: KeyValue) -> None:
    coded = plain.with_codecs(keys=Reversed())
    await coded.put("abc", b"1")
    assert [key async for key in coded.keys(">")] == ["abc"]
    with pytest.raises(OptionsError, match="Reversed has no encode_filter"):
        [key async for key in coded.keys("abc")]
    with pytest.raises(BadKeyError):
        await coded.put("a b", b"1")


def test_the_blocking_client_has_codecs_too(js_server: ServerProcess, subject: str) -> None:
    with tradewind.sync.connect(js_server.url) as connection:
        bucket = connection.jetstream().kv.create(subject).with_codecs(keys=PathKeys())
        bucket.put("/a/b", b"1")
        assert list(bucket.keys()) == ["/a/b"]
        entry = bucket.get("/a/b")
        assert entry is not None
        assert entry.value == b"1"
