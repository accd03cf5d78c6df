"""JSON payloads as columns: fields, evolution, what is rescued, and what is refused."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa

from tradewind.decoding.decoder_contract import DecodedPayloads, Decoder
from tradewind.decoding.decoder_registry import open_decoder

NOTHING = pa.schema([])


def batch(*payloads: bytes | None) -> pa.BinaryArray:
    return pa.array(payloads, pa.binary())


def rescued(decoded: DecodedPayloads) -> list[Any]:
    return [text and json.loads(text) for text in decoded.rescued.to_pylist()]


def decoded(decoder: Decoder, known: pa.Schema, *payloads: bytes | None) -> DecodedPayloads:
    array = batch(*payloads)
    return decoder.decode(array, decoder.fields(array, known))


def test_objects_become_columns_in_the_order_of_their_fields() -> None:
    decoder = open_decoder("json")
    payloads = batch(b'{"id":1,"name":"a"}', b'{"name":"b","tags":["x"],"at":{"zip":5}}', None)
    fields = decoder.fields(payloads, NOTHING)
    assert fields.names == ["id", "name", "tags", "at"]
    assert fields.field("tags").type == pa.list_(pa.field("element", pa.string()))
    assert fields.field("at").type == pa.struct([pa.field("zip", pa.int64())])
    found = decoder.decode(payloads, fields)
    assert found.columns.to_pylist() == [
        {"id": 1, "name": "a", "tags": None, "at": None},
        {"id": None, "name": "b", "tags": ["x"], "at": {"zip": 5}},
        {"id": None, "name": None, "tags": None, "at": None},
    ]
    assert found.rescued.null_count == found.reasons.null_count == 3


def test_a_known_column_keeps_its_type_and_the_value_is_rescued() -> None:
    known = pa.schema([("id", pa.int64())])
    found = decoded(open_decoder("json"), known, b'{"id":"x"}', b'{"id":2.5}', b'{"id":3.0}')
    assert found.columns.type == pa.struct([pa.field("id", pa.int64())])
    assert found.columns.field("id").to_pylist() == [None, None, 3]
    assert rescued(found) == [{"id": "x"}, {"id": 2.5}, None]


def test_known_numbers_widen_where_the_table_can() -> None:
    decoder = open_decoder("json", widens=True)
    fields = decoder.fields(batch(b'{"id":2.5}'), pa.schema([("id", pa.int64())]))
    assert fields.field("id").type == pa.float64()


def test_a_new_field_of_conflicting_types_is_a_string_with_json() -> None:
    found = decoded(open_decoder("json"), NOTHING, b'{"a":1}', b'{"a":"1"}', b'{"a":[true]}')
    assert found.columns.field("a").to_pylist() == ["1", "1", "[true]"]
    assert rescued(found) == [{"a": 1}, None, {"a": [True]}]


def test_fields_that_clash_with_columns_of_the_table_get_a_prefix() -> None:
    decoder = open_decoder("json", reserved=("seq", "time"))
    found = decoded(decoder, NOTHING, b'{"time":1,"payload_time":2,"other":3}', b'{"Time":4}')
    assert found.columns.to_pylist() == [
        {"payload_time": 1, "other": 3},
        {"payload_time": None, "other": None},
    ]
    assert rescued(found) == [{"payload_time": 2}, {"Time": 4}]


def test_names_that_cannot_be_columns_are_rescued() -> None:
    long = "n" * 256
    row = {"id": 1, "Id": 2, "": 3, "a\nb": 4, long: 5, "x": {"": 6, "y": 7}}
    found = decoded(open_decoder("json"), NOTHING, json.dumps(row).encode())
    assert found.columns.to_pylist() == [{"id": 1, "x": {"y": 7}}]
    assert rescued(found) == [{"Id": 2, "": 3, "a\nb": 4, long: 5, "x": {"": 6}}]


def test_integers_beyond_64_bits_are_rescued_exactly() -> None:
    known = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    big = 1 << 80 | 1
    found = decoded(open_decoder("json"), known, b'{"id":%d,"x":%d}' % (big, big))
    assert found.columns.to_pylist() == [{"id": None, "x": None}]
    assert rescued(found) == [{"id": big, "x": big}]


def test_a_payload_with_a_field_twice_is_rescued_as_a_whole() -> None:
    payload = b'{"id":1,"id":2,"s":"\\""}'
    found = decoded(open_decoder("json"), NOTHING, payload, b'{"id":3,"s":"\\"\\"\\""}')
    assert found.columns.field("id").to_pylist() == [2, 3]
    assert rescued(found) == [{"_payload": payload.decode()}, None]


def test_what_is_no_object_has_a_reason() -> None:
    payloads = [b"", b"nope", b"[1]", b'"text"', b"5", b"null", b'{"a":"\xff"}', b'{"a":NaN}']
    found = decoded(open_decoder("json"), NOTHING, *payloads, b'{"a":1}', b"[" * 5000)
    assert found.columns.field("a").to_pylist() == [None] * 8 + [1, None]
    reasons = found.reasons.to_pylist()
    assert reasons[8] is None
    assert reasons[:3] == [
        "the payload is empty, not a JSON object",
        "JSON is malformed: invalid character (byte 4)",
        "the payload is a list, not a JSON object",
    ]
    assert all(reasons[:8])
    assert "deep" in reasons[9]
    assert found.rescued.null_count == 10


def test_with_given_fields_all_others_are_rescued() -> None:
    decoder = open_decoder("json", "id int, price decimal(10,2), at timestamp, on date, raw binary")
    array = batch(
        b'{"id":1,"price":12.50,"at":"2026-01-02T03:04:05.5+01:00","on":"2026-01-02","raw":"AAE="}',
        b'{"id":3000000000,"price":1.234,"at":5,"on":"never","raw":"?","new":1}',
    )
    assert decoder.fields(array, NOTHING).names == ["id", "price", "at", "on", "raw"]
    found = decoder.decode(array, decoder.fields(array, NOTHING))
    first, second = found.columns.to_pylist()
    assert [str(value) for value in first.values()] == [
        "1",
        "12.50",
        "2026-01-02 02:04:05.500000+00:00",
        "2026-01-02",
        "b'\\x00\\x01'",
    ]
    assert set(second.values()) == {None}
    assert rescued(found) == [
        None,
        {"id": 3000000000, "price": 1.234, "at": 5, "on": "never", "raw": "?", "new": 1},
    ]


def test_no_more_columns_are_added_than_a_table_can_have() -> None:
    row = {f"f{number}": number for number in range(2100)}
    found = decoded(open_decoder("json"), NOTHING, json.dumps(row).encode())
    assert found.columns.type.num_fields == 2000
    assert rescued(found) == [{f"f{number}": number for number in range(2000, 2100)}]


def test_a_decoder_can_be_pickled() -> None:
    for decoder in (open_decoder("json"), open_decoder("json", {"id": "bigint"})):
        copy = pickle.loads(pickle.dumps(decoder))
        found = decoded(copy, NOTHING, b'{"id":1}')
        assert found.columns.to_pylist() == [{"id": 1}]
