"""meta.inf and meta.sum of streams and consumers."""

from __future__ import annotations

import json

import pytest

from tradewind.api.times import format_time, parse_time
from tradewind.errors import CorruptRecord
from tradewind.store.format.meta import (
    ConsumerMeta,
    StreamMeta,
    check_meta_sum,
    decode_consumer_meta,
    decode_stream_meta,
    encode_consumer_meta,
    encode_stream_meta,
    meta_sum,
)

# Real files, whose hashes are 9435f0e93943d983 and 546d1e4d0b9fe09b.
EMPTY = (
    rb'{"Created":"2026-11-15T18:07:45.826310608Z","name":"EMPTY","subjects":["empty.\u003e"],'
    rb'"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,'
    rb'"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file",'
    rb'"num_replicas":1,"duplicate_window":120000000000,"compression":"none",'
    rb'"allow_direct":false,"mirror_direct":false,"sealed":false,"deny_delete":false,'
    rb'"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{},"allow_msg_ttl":false,'
    rb'"metadata":{"_nats.req.level":"0"}}'
)
CNONE = (
    b'{"Created":"2026-11-15T18:07:45.872094295Z","Name":"CNONE","durable_name":"CNONE",'
    b'"name":"CNONE","deliver_policy":"all","ack_policy":"none","max_deliver":-1,'
    b'"replay_policy":"instant","max_waiting":512,"num_replicas":0,'
    b'"metadata":{"_nats.req.level":"0"}}'
)
CREATED_NS = 1794766065826310608


def stream_bytes(config: dict[str, object]) -> bytes:
    return encode_stream_meta(StreamMeta(config))


def test_a_real_stream_is_read_and_written_to_the_byte() -> None:
    meta = decode_stream_meta(EMPTY)
    assert len(EMPTY) == 516
    assert meta.created_ns == CREATED_NS
    assert meta.config["subjects"] == ["empty.>"]
    assert "Created" not in meta.config
    assert meta.unknown_fields == ()
    assert encode_stream_meta(meta) == EMPTY


def test_a_real_consumer_is_read_and_written_to_the_byte() -> None:
    meta = decode_consumer_meta(CNONE)
    assert len(CNONE) == 253
    assert (meta.name, meta.config["name"]) == ("CNONE", "CNONE")
    assert "Name" not in meta.config
    assert encode_consumer_meta(meta) == CNONE


def test_sums_are_those_of_the_real_files() -> None:
    assert meta_sum(EMPTY, "EMPTY") == b"9435f0e93943d983"
    assert meta_sum(CNONE, "PLAIN/CNONE") == b"546d1e4d0b9fe09b"
    check_meta_sum(EMPTY, b"9435f0e93943d983", "EMPTY")


@pytest.mark.parametrize("stored", [b"", b"9435f0e93943d98", b"9435f0e93943d983\n", b"0" * 16])
def test_another_sum_is_refused(stored: bytes) -> None:
    with pytest.raises(CorruptRecord, match="its hash is 9435f0e93943d983, meta"):
        check_meta_sum(EMPTY, stored, "EMPTY", "S/meta.inf")


def test_the_sum_depends_on_the_folder_name() -> None:
    with pytest.raises(CorruptRecord):
        check_meta_sum(EMPTY, b"9435f0e93943d983", "OTHER")


def test_formatting_order_and_escapes_do_not_matter_to_reading() -> None:
    document = json.loads(EMPTY)
    pretty = json.dumps(dict(reversed(document.items())), indent=2).encode()
    assert decode_stream_meta(pretty) == decode_stream_meta(EMPTY)
    assert encode_stream_meta(decode_stream_meta(pretty)) == EMPTY


def test_the_least_a_stream_needs_is_its_name() -> None:
    meta = decode_stream_meta(b'{"name":"X","storage":"file"}')
    assert meta == StreamMeta({"name": "X", "storage": "file"})


def test_what_is_always_written_has_its_zero_value() -> None:
    assert stream_bytes({"name": "TPEvOT1J"}) == (
        b'{"name":"TPEvOT1J","retention":"limits","max_consumers":0,"max_msgs":0,"max_bytes":0,'
        b'"max_age":0,"max_msgs_per_subject":0,"discard":"old","storage":"file",'
        b'"num_replicas":0,"compression":"none","allow_direct":false,"mirror_direct":false,'
        b'"sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,'
        b'"consumer_limits":{},"allow_msg_ttl":false}'
    )
    assert encode_consumer_meta(ConsumerMeta("C", {})) == (
        b'{"Name":"C","deliver_policy":"all","ack_policy":"none","replay_policy":"instant",'
        b'"num_replicas":0}'
    )


def test_zero_values_of_optional_fields_are_left_out_but_not_empty_structs() -> None:
    zeros = {"description": "", "subjects": [], "no_ack": False, "first_seq": 0, "metadata": {}}
    absent = {"mirror": None, "placement": None}
    assert stream_bytes({"name": "X", **zeros, **absent}) == stream_bytes({"name": "X"})
    assert b'"placement":{}' in stream_bytes({"name": "X", "placement": {}})


def test_structs_have_their_fields_in_order_and_maps_their_keys() -> None:
    source = {
        "external": {"deliver": "d", "api": "a"},
        "subject_transforms": [{"dest": "y", "src": "x"}],
        "filter_subject": "f",
        "name": "S",
    }
    data = stream_bytes({"name": "X", "sources": [source], "metadata": {"b": "2", "a": "1"}})
    assert (
        b'"sources":[{"name":"S","filter_subject":"f","subject_transforms":'
        b'[{"src":"x","dest":"y"}],"external":{"api":"a","deliver":"d"}}]'
    ) in data
    assert data.endswith(b'"metadata":{"a":"1","b":"2"}}')


def test_strings_are_escaped_as_go_does() -> None:
    text = 'a"\\/<>&\b\f\n\r\t\x00\x1f\x7f\u2028\u2029é\U0001f300'
    data = stream_bytes({"name": "X", "description": text})
    assert (
        rb'"description":"a\"\\/\u003c\u003e\u0026\b\f\n\r\t\u0000\u001f' + b"\x7f"
        rb"\u2028\u2029" + "é\U0001f300".encode() + b'"'
    ) in data
    assert decode_stream_meta(data).config["description"] == text


def test_fractions_of_times_in_a_config_are_trimmed() -> None:
    for text, written in (
        ("2026-01-01T00:00:00.500Z", "2026-01-01T00:00:00.5Z"),
        ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:10Z", "2026-01-01T00:00:10Z"),
        ("2026-01-01T00:00:00.120+02:00", "2026-01-01T00:00:00.12+02:00"),
    ):
        data = encode_consumer_meta(ConsumerMeta("C", {"opt_start_time": text}))
        assert f'"opt_start_time":"{written}"'.encode() in data


def test_unknown_fields_are_reported_kept_and_written_last() -> None:
    document = json.loads(EMPTY)
    document["mirror"] = {"name": "M", "speed": 9, "external": {"api": "a", "deliver": "", "x": 1}}
    document["sources"] = [{"name": "A"}, {"name": "B", "weight": 1.5}]
    document["later"] = {"z": [1, None, True], "a": "<"}
    meta = decode_stream_meta(json.dumps(document).encode())
    assert meta.unknown_fields == ("mirror.speed", "mirror.external.x", "sources.weight", "later")
    data = encode_stream_meta(meta)
    assert data.endswith(rb',"later":{"a":"\u003c","z":[1,null,true]}}')
    again = decode_stream_meta(data)
    assert (again.config, again.created_ns) == (meta.config, CREATED_NS)
    assert set(again.unknown_fields) == set(meta.unknown_fields)


def test_metadata_may_have_any_names() -> None:
    assert decode_stream_meta(b'{"name":"X","metadata":{"any":"1"}}').unknown_fields == ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is not JSON"),
        (EMPTY[:-1], "it is not JSON"),
        (EMPTY + b"}", "it is not JSON"),
        (b'{"name":"\xff"}', "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b'{"x":' * 40 + b"1" + b"}" * 40, "it has more than 32 levels"),
        (b"{}", 'a stream has a "name"'),
        (b'{"name":7}', 'a stream has a "name"'),
        (b'{"name":"X","Created":7}', '"Created" is not a string'),
        (b'{"name":"X","Created":"yesterday"}', "'yesterday' is not a time"),
        (b'{"name":"X","Created":"2026-13-01T00:00:00Z"}', '"Created": month must be in'),
    ],
)
def test_what_is_no_stream_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        decode_stream_meta(data, "S/meta.inf")
    assert caught.value.path == "S/meta.inf"


def test_a_consumer_without_a_name_is_refused() -> None:
    with pytest.raises(CorruptRecord, match='a consumer has a "Name"'):
        decode_consumer_meta(b'{"name":"C"}')


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (CREATED_NS, "2026-11-15T18:07:45.826310608Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (-62135596800 * 1_000_000_000, "0001-01-01T00:00:00Z"),
    ],
)
def test_times_have_as_many_digits_as_they_need(time_ns: int, text: str) -> None:
    assert format_time(time_ns) == text
    assert parse_time(text) == time_ns


def test_times_with_an_offset_or_too_many_digits_are_read() -> None:
    assert parse_time("1970-01-01T02:00:00+02:00") == 0
    assert parse_time("1969-12-31T23:30:00.25-00:30") == 250_000_000
    assert parse_time("1970-01-01T00:00:00.1234567899Z") == 123_456_789


@pytest.mark.parametrize(
    "text",
    ["", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00.Z", "1970-02-30T00:00:00Z"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)
