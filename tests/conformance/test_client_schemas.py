"""Schemas of payloads in a bucket, and payloads that are checked before they leave, on both
servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from helpers_client import SECONDS, eventually, lent_jetstream

import tradewind.sync
from harness import ServerProcess
from tradewind.client.errors import (
    BucketNotFoundError,
    OptionsError,
    SchemaExistsError,
    SchemaNotFoundError,
    SchemaViolationError,
)
from tradewind.client.jetstream import JetStream
from tradewind.client.schema_bucket import SchemaFollower
from tradewind.schemas.schema_documents import BUCKET
from tradewind.schemas.schema_errors import SchemaError
from tradewind.schemas.schema_table import SchemaTable

ORDER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
NOTED = {**ORDER, "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


@pytest.fixture
async def checked(js: JetStream) -> AsyncIterator[JetStream]:
    """A stream for orders, whose payloads are checked."""
    await js.manager.streams.add(
        name="ORDERS", subjects=["orders.>"], allow_atomic=True, allow_batched=True
    )
    await js.schemas.add("order", ORDER, subject="orders.*")
    follower = await js.use_schemas()
    yield js
    await follower.stop()


def table_of(js: JetStream) -> SchemaTable:
    """The schemas that payloads are checked against."""
    follower = js.api.schemas
    assert isinstance(follower, SchemaFollower)
    return follower.table


async def test_versions_are_added_read_and_removed(js: JetStream) -> None:
    assert await js.schemas.list() == {}
    with pytest.raises(BucketNotFoundError, match="bucket TW_SCHEMAS does not exist"):
        await js.schemas.get("order")
    assert (await js.schemas.add("order", ORDER, subject="orders.*")).version == 1
    second = await js.schemas.evolve("order", NOTED, compatibility="full")
    assert (second.version, second.subject, second.compatibility) == (2, "orders.*", "full")
    assert await js.schemas.get("order") == second
    assert (await js.schemas.get("order", 1)).schema == ORDER
    with pytest.raises(SchemaNotFoundError, match="no version 3; it has 1, 2"):
        await js.schemas.get("order", 3)
    with pytest.raises(SchemaExistsError, match="'order' exists"):
        await js.schemas.add("order", ORDER, subject="orders.*")
    assert [*(await js.schemas.list())["order"]] == [await js.schemas.get("order", 1), second]
    assert await js.schemas.remove("order", 1) == 1
    assert await js.schemas.remove("order") == 1
    with pytest.raises(SchemaNotFoundError):
        await js.schemas.remove("order")
    assert (await js.schemas.add("order", NOTED, subject="orders.*")).version == 1


async def test_a_version_that_breaks_the_rule_is_not_stored(js: JetStream) -> None:
    await js.schemas.add("order", ORDER, subject="orders.*")
    with pytest.raises(SchemaError, match=r"not backward compatible: .* /note: is required now"):
        await js.schemas.evolve("order", {**NOTED, "required": ["id", "note"]})
    assert (await js.schemas.evolve("order", NOTED, dry_run=True)).version == 2
    assert len((await js.schemas.list())["order"]) == 1
    changed = await js.schemas.evolve("order", {"type": "string"}, compatibility="none")
    assert changed.version == 2


async def test_two_writers_never_make_the_same_version(js: JetStream) -> None:
    await js.schemas.add("order", ORDER, subject="orders.*")
    made = await asyncio.gather(
        *(js.schemas.evolve("order", NOTED, description=str(n)) for n in range(5)),
        return_exceptions=True,
    )
    stored = (await js.schemas.list())["order"]
    numbers = [each.version for each in made if not isinstance(each, BaseException)]
    assert sorted(numbers) == [each.version for each in stored[1:]]
    assert all(isinstance(e, SchemaExistsError) for e in made if isinstance(e, BaseException))


async def test_what_cannot_be_a_schema_is_refused_before_it_is_stored(js: JetStream) -> None:
    attempts: list[tuple[str, dict[str, Any], str]] = [
        ("a b", {}, "schema name 'a b'"),
        ("order", {"schema": {"type": "foo"}}, "not a JSON Schema: #/type"),
        ("order", {"format": "xml"}, "format must be one of json, avro, protobuf"),
        ("order", {"subject": "orders."}, "'orders.' is not a subject"),
        ("order", {"compatibility": "forwards"}, "compatibility must be one of"),
        ("order", {"schema": {"description": "x" * 200_000}}, "at most 131072"),
        ("order", {"schema": {1, 2}, "format": "avro"}, "not an Avro schema"),
        ("order", {"schema": object()}, "cannot be written as JSON"),
    ]
    for name, given, problem in attempts:
        arguments: dict[str, Any] = {"schema": ORDER, "subject": "orders.*"} | given
        with pytest.raises(SchemaError, match=problem):
            await js.schemas.add(name, **arguments)
    assert await js.schemas.list() == {}


async def test_a_wrong_payload_leaves_by_no_door(checked: JetStream) -> None:
    js, wrong = checked, b'{"id":"x"}'
    batch, fast = js.batch(), js.fast_batch()
    doors = [
        js.publish("orders.new", wrong),
        batch.add("orders.new", wrong),
        batch.commit("orders.new", wrong),
        fast.add("orders.new", wrong),
        fast.commit("orders.new", wrong),
    ]
    for door in doors:
        with pytest.raises(SchemaViolationError) as caught:
            await door
        assert caught.value.schema == "order.1"
        assert caught.value.problem == '/id: "x" is not of type "integer"'
    with pytest.raises(SchemaViolationError, match=r"'orders.new' does not obey schema order\.1"):
        js.publish_async("orders.new", wrong)
    with pytest.raises(SchemaViolationError):
        js.transaction().publish("orders.new", wrong)
    assert (await js.publish("orders.new", b'{"id":1}')).seq == 1
    assert (await js.publish("orders.of.none", wrong)).seq == 2
    with pytest.raises(OptionsError, match="payloads are checked already"):
        await js.use_schemas()


async def test_a_message_may_name_an_older_version(checked: JetStream) -> None:
    js = checked
    await js.schemas.evolve("order", {"type": "object", "required": []}, compatibility="none")
    await eventually(lambda: 2 in table_of(js).versions("order"), "the second version")
    await js.publish("orders.new", b"{}")
    with pytest.raises(SchemaViolationError, match='"id" is a required property'):
        await js.publish("orders.new", b"{}", headers={"Tradewind-Schema": "order.1"})
    with pytest.raises(SchemaViolationError, match="no version of order"):
        await js.publish("orders.new", b"{}", headers={"Tradewind-Schema": "bill.1"})


async def test_changes_of_the_bucket_are_followed(checked: JetStream) -> None:
    js = checked
    await (await js.kv.open(BUCKET)).put("order.1", b"no schema at all")
    await eventually(lambda: "order.1" in table_of(js).unreadable, "the broken schema")
    await js.publish("orders.new", b"?")
    await js.schemas.add("other", ORDER, subject="orders.new")
    await eventually(lambda: table_of(js).name_for("orders.new") == "other", "the other schema")
    with pytest.raises(SchemaViolationError):
        await js.publish("orders.new", b"?")
    await js.schemas.remove("other")
    await eventually(lambda: not table_of(js).names, "no schema")
    await js.publish("orders.new", b"?")


async def test_keys_of_a_bucket_with_a_schema_can_be_deleted(js: JetStream) -> None:
    bucket = await js.kv.create("prices")
    await js.schemas.add("price", {"type": "number"}, subject="$KV.prices.*")
    async with await js.use_schemas():
        await bucket.put("apple", b"1.20")
        with pytest.raises(SchemaViolationError):
            await bucket.put("apple", b"cheap")
        await bucket.delete("apple")
        await bucket.purge("apple")
        assert await bucket.get("apple") is None


async def test_values_are_encoded_and_decoded_by_their_schema(js: JetStream) -> None:
    avro = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    await js.schemas.add("reading", avro, subject="readings", format="avro")
    payload = await js.schemas.encode("reading", {"id": 7})
    assert payload == b"\x0e"
    assert await js.schemas.decode("reading", payload) == {"id": 7}
    with pytest.raises(SchemaError, match="does not fit the avro schema"):
        await js.schemas.encode("reading", {"id": "x"})
    with pytest.raises(SchemaViolationError):
        await js.schemas.check("reading", b"")


def test_a_blocking_program_checks_payloads_too(js_server: ServerProcess) -> None:
    with tradewind.sync.connect(js_server.url) as connection:
        js = connection.jetstream(timeout=SECONDS)
        js.manager.streams.add(name="SYNC", subjects=["sync.*"])
        js.schemas.add("sync", ORDER, subject="sync.*")
        with js.use_schemas():
            js.publish("sync.a", b'{"id":1}')
            with pytest.raises(SchemaViolationError):
                js.publish("sync.a", b"{}")
        js.publish("sync.a", b"{}")
        js.manager.streams.delete("SYNC")
        js.kv.delete(BUCKET)
