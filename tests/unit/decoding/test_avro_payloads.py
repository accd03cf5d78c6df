"""Avro payloads as columns, and the schemas and payloads that are refused."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from tradewind.decoding.decoder_contract import DecodedPayloads, Decoder, DecodingError
from tradewind.decoding.decoder_registry import open_decoder
from tradewind.decoding.schema_sources import SchemaContext

NOTHING = pa.schema([])
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": "State"},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "any", "type": ["null", "string", "long"]},
        {
            "name": "buyer",
            "type": {
                "type": "record",
                "name": "Buyer",
                "fields": [{"name": "name", "type": "string"}],
            },
        },
        {"name": "seller", "type": ["null", "Buyer"]},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
ROW = {
    "id": 5,
    "note": None,
    "price": Decimal("12.50"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "seen": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "state": "PAID",
    "before": "NEW",
    "code": b"xy",
    "tags": ["a", "b"],
    "counts": {"k": 1},
    "any": 7,
    "buyer": {"name": "Ann"},
    "seller": {"name": "Bob"},
    "key": "c0ffee00-0000-4000-8000-000000000000",
}


def written(schema: Any, row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(schema), row)
    return target.getvalue()


def opened(folder: Path, schema: Any) -> Decoder:
    (folder / "order.avsc").write_text(json.dumps(schema))
    return open_decoder("avro", "file:order.avsc", context=SchemaContext(folder))


def decoded(decoder: Decoder, *payloads: bytes | None) -> DecodedPayloads:
    array = pa.array(payloads, pa.binary())
    return decoder.decode(array, decoder.fields(array, NOTHING))


def test_records_become_columns(tmp_path: Path) -> None:
    decoder = pickle.loads(pickle.dumps(opened(tmp_path, ORDER)))
    found = decoded(decoder, written(ORDER, ROW), None)
    first, second = found.columns.to_pylist()
    assert first == ROW | {"any": "7", "counts": [("k", 1)]}
    assert set(second.values()) == {None}
    assert found.columns.type.field("price").type == pa.decimal128(10, 2)
    assert found.columns.type.field("at").type == pa.timestamp("us", tz="UTC")
    # A value of one of several types is readable as text, and rescued with its type.
    assert found.rescued.to_pylist() == ['{"any":7}', None]
    assert found.reasons.null_count == 2


def test_what_is_no_record_has_a_reason(tmp_path: Path) -> None:
    payload = written(ORDER, ROW)
    found = decoded(opened(tmp_path, ORDER), b"", payload[:-1], payload + b"x", b"\xff" * 100)
    first, second, third, fourth = found.reasons.to_pylist()
    assert first == "the record does not end within its 0 bytes"
    assert second == f"the record does not end within its {len(payload) - 1} bytes"
    assert third == "1 bytes follow the record"
    assert fourth
    assert found.columns.field("id").null_count == 4


def test_a_decimal_of_a_million_bytes_is_refused_at_once(tmp_path: Path) -> None:
    field = {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}}
    schema = {"type": "record", "name": "R", "fields": [field]}
    plain = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "bytes"}]}
    found = decoded(opened(tmp_path, schema), written(plain, {"a": b"\x7f" * 1_000_000}))
    assert "a decimal of 1000000 bytes; at most 64" in found.reasons.to_pylist()[0]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            "R hol",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
            },
            "take no bytes",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {
                        "name": "a",
                        "type": {
                            "type": "array",
                            "items": {"type": "record", "name": "E", "fields": []},
                        },
                    }
                ],
            },
            "take no bytes",
        ),
        ({"type": "long"}, "must be a record"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "X"}]}, "not an Avro"),
        (5, "not an Avro schema"),
    ],
)
def test_schemas_that_cannot_be_used_are_refused(tmp_path: Path, schema: Any, reason: str) -> None:
    with pytest.raises(DecodingError, match=f"schema file:order.avsc: .*{reason}"):
        opened(tmp_path, schema)


def test_a_schema_that_grows_exponentially_is_refused(tmp_path: Path) -> None:
    kinds: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 15):
        fields = [{"name": "a", "type": kinds}, {"name": "b", "type": f"R{level - 1}"}]
        kinds = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(DecodingError, match="more than 2000 fields"):
        opened(tmp_path, kinds)


def test_avro_needs_a_schema() -> None:
    for schema in ("infer", "a bigint"):
        with pytest.raises(DecodingError, match="payload avro needs a schema: file:PATH"):
            open_decoder("avro", schema)


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.decoding.extras.find_spec", lambda name: None)
    schema = {"type": "record", "name": "Other", "fields": [{"name": "a", "type": "int"}]}
    with pytest.raises(DecodingError, match=r"fastavro: .*pip install .*\[avro\]'"):
        opened(tmp_path, schema)
