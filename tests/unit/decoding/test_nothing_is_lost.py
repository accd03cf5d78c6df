"""Whatever JSON a payload holds, it is found again in the columns and the rescued column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.decoding.column_growth import column_name, field_name
from tradewind.decoding.column_values import ABSENT
from tradewind.decoding.decoder_contract import DecodedPayloads
from tradewind.decoding.json_columns import JsonDecoder
from tradewind.decoding.json_payloads import JsonReader
from tradewind.decoding.msgpack_payloads import MsgpackReader
from tradewind.decoding.payload_kinds import Kind, absorb, kind_of, merge
from tradewind.decoding.row_decoding import ObjectDecoder

# Random cases take their time.
pytestmark = pytest.mark.slow
NOTHING = pa.schema([])
RESERVED = ("seq", "time")
NAMES = st.sampled_from(["a", "b", "A", "c d", "time", "Time", "payload_time", "", "\n", "é", '"'])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, 10**30]),
    st.sampled_from([0.5, 2.0, 1e300, -0.25, 1e16]),
    st.sampled_from(["", "x", "5", 'q"\\', "é\u2028", "2026-01-02T03:04:05Z"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
BATCHES = st.lists(OBJECTS, max_size=6)
TYPES = st.sampled_from(
    [
        *(pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.bool_(), pa.binary(), pa.date32()),
        *(pa.timestamp("us", tz="UTC"), pa.decimal128(10, 2), pa.list_(pa.int64())),
        *(pa.struct([pa.field("a", pa.int64())]), pa.map_(pa.string(), pa.float64())),
    ]
)
SCHEMAS = st.dictionaries(st.sampled_from(["a", "b", "payload_time", "x"]), TYPES, max_size=4)


def encoded(objects: Sequence[dict[str, Any]]) -> pa.BinaryArray:
    return pa.array([msgspec.json.encode(one) for one in objects], pa.binary())


def same(value: Any, other: Any) -> bool:
    """Whether a value of a column is that of the payload; fields that are null are as if absent."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, dict) and isinstance(other, dict):
        names = {name for each in (value, other) for name, one in each.items() if one is not None}
        return all(same(value.get(name), other.get(name)) for name in names)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, int | float) and isinstance(other, int | float):
        return value == other
    return type(value) is type(other) and bool(value == other)


def is_kept(value: Any, column: Any, left: Any) -> bool:
    """Whether a value of the payload is in the column, in what is left over, or in both."""
    if value is None or (left is not ABSENT and same(value, left)):
        return True
    if isinstance(value, dict) and isinstance(column, dict):
        rest = left if isinstance(left, dict) else {}
        return all(
            is_kept(one, column.get(name), rest.get(name, ABSENT)) for name, one in value.items()
        )
    return left is ABSENT and same(value, column)


def check_kept(objects: Sequence[dict[str, Any]], found: DecodedPayloads) -> None:
    rows = found.columns.to_pylist()
    for one, row, text in zip(objects, rows, found.rescued.to_pylist(), strict=True):
        left = json.loads(text) if text else {}
        by_field = {field_name(name, RESERVED): value for name, value in row.items()}
        for name, value in one.items():
            column = by_field.get(name) if column_name(name, RESERVED) in row else None
            assert is_kept(value, column, left.get(name, ABSENT)), (name, value, column, left)
        assert set(left) <= set(one), "nothing is made up"
        assert all(value is None or name in one for name, value in by_field.items())
    assert found.reasons.null_count == len(objects)


@given(BATCHES, BATCHES)
def test_every_value_is_in_a_column_or_rescued(
    before: list[dict[str, Any]], objects: list[dict[str, Any]]
) -> None:
    decoder = JsonDecoder(JsonReader(), RESERVED)
    known = decoder.fields(encoded(before), NOTHING)
    payloads = encoded(objects)
    fields = decoder.fields(payloads, known)
    assert fields.names[: len(known)] == known.names
    assert len({name.lower() for name in fields.names}) == len(fields)
    assert not {*RESERVED} & {name.lower() for name in fields.names}
    check_kept(objects, decoder.decode(payloads, fields))
    check_kept(objects, decoder.decode(payloads, known))


@given(SCHEMAS, BATCHES)
def test_the_strict_type_decides_as_the_values_do(
    types: dict[str, pa.DataType], objects: list[dict[str, Any]]
) -> None:
    columns = pa.schema(list(types.items()))
    payloads = encoded(objects)
    fast = JsonDecoder(JsonReader(), RESERVED).decode(payloads, columns)
    slow = ObjectDecoder(JsonReader(), RESERVED).decode(payloads, columns)
    assert fast.columns.equals(slow.columns)
    assert fast.rescued.to_pylist() == slow.rescued.to_pylist()
    assert fast.reasons.to_pylist() == slow.reasons.to_pylist()


@given(BATCHES, BATCHES)
def test_fields_are_the_same_with_and_without_the_strict_type(
    before: list[dict[str, Any]], objects: list[dict[str, Any]]
) -> None:
    fast, slow = JsonDecoder(JsonReader(), RESERVED), ObjectDecoder(JsonReader(), RESERVED)
    # More than are read before there is a strict type.
    payloads = encoded([*before * 50, *objects])
    assert fast.fields(payloads, NOTHING) == slow.fields(payloads, NOTHING)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), NAMES)
def test_a_repeated_field_rescues_the_payload(pairs: list[tuple[str, Any]], inside: str) -> None:
    body = ", ".join(f"{json.dumps(name)} : {json.dumps(value)}" for name, value in pairs)
    text = f"{{{json.dumps(inside)}: {{{body}}}}}"
    payloads = pa.array([text.encode()], pa.binary())
    decoder = JsonDecoder(JsonReader(), RESERVED)
    found = decoder.decode(payloads, decoder.fields(payloads, NOTHING))
    left = json.loads(found.rescued.to_pylist()[0] or "{}")
    is_repeated = len({name for name, _ in pairs}) < len(pairs)
    assert left.get("_payload") == (text if is_repeated else None)


@given(BATCHES)
def test_maps_of_msgpack_are_kept_too(objects: list[dict[str, Any]]) -> None:
    small = [
        {name: value for name, value in one.items() if not _is_beyond_64_bits(value)}
        for one in objects
    ]
    payloads = pa.array([msgspec.msgpack.encode(one) for one in small], pa.binary())
    decoder = ObjectDecoder(MsgpackReader(), RESERVED)
    check_kept(small, decoder.decode(payloads, decoder.fields(payloads, NOTHING)))


def _is_beyond_64_bits(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_beyond_64_bits, value.values()))
    if isinstance(value, list):
        return any(map(_is_beyond_64_bits, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64


@given(VALUES, VALUES, VALUES)
def test_merging_types_depends_on_no_order(first: Any, second: Any, third: Any) -> None:
    one, two, three = map(kind_of, (first, second, third))
    assert merge(one, two) == merge(two, one)
    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, one) == one
    found = []
    for values in permutations((first, second, third)):
        kind = Kind("null")
        for value in values:
            kind = absorb(kind, value)
        found.append(kind)
    assert all(kind == found[0] for kind in found)
    assert found[0] == merge(merge(one, two), three)


@given(st.binary(max_size=40))
def test_any_bytes_give_a_row_or_a_reason(payload: bytes) -> None:
    payloads = pa.array([payload], pa.binary())
    for decoder in (JsonDecoder(JsonReader()), ObjectDecoder(MsgpackReader())):
        found = decoder.decode(payloads, decoder.fields(payloads, NOTHING))
        assert len(found.columns) == len(found.rescued) == len(found.reasons) == 1
