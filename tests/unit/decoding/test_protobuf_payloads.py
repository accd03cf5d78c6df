"""Protobuf payloads as columns, with types from a descriptor set."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorSet as DescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tradewind.decoding.decoder_contract import DecodedPayloads, Decoder, DecodingError
from tradewind.decoding.decoder_registry import open_decoder
from tradewind.decoding.schema_sources import SchemaContext

NOTHING = pa.schema([])
KINDS = FieldDescriptorProto
WELL_KNOWN = (timestamp_pb2, struct_pb2, wrappers_pb2)


def add(message: Any, number: int, name: str, kind: int, **more: Any) -> None:
    message.field.add(
        **{"name": name, "number": number, "type": kind, "label": KINDS.LABEL_OPTIONAL} | more
    )


def shop() -> FileDescriptorProto:
    """The file of a message with a field of each kind."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in WELL_KNOWN)
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, 1, "key", KINDS.TYPE_INT32)
    add(entry, 2, "value", KINDS.TYPE_STRING)
    order.oneof_decl.add(name="pay")
    order.oneof_decl.add(name="_note")
    inner = {"type_name": ".shop.Order"}
    add(order, 1, "id", KINDS.TYPE_INT64)
    add(order, 2, "tags", KINDS.TYPE_STRING, label=KINDS.LABEL_REPEATED)
    add(order, 3, "state", KINDS.TYPE_ENUM, type_name=".shop.State")
    add(order, 4, "at", KINDS.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    add(
        order,
        5,
        "counts",
        KINDS.TYPE_MESSAGE,
        label=KINDS.LABEL_REPEATED,
        type_name=".shop.Order.CountsEntry",
    )
    add(order, 6, "card", KINDS.TYPE_STRING, oneof_index=0)
    add(order, 7, "cash", KINDS.TYPE_DOUBLE, oneof_index=0)
    add(order, 8, "note", KINDS.TYPE_STRING, oneof_index=1, proto3_optional=True)
    add(order, 9, "big", KINDS.TYPE_UINT64)
    add(order, 10, "parent", KINDS.TYPE_MESSAGE, **inner)
    add(order, 11, "weight", KINDS.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue")
    add(order, 12, "free", KINDS.TYPE_MESSAGE, type_name=".google.protobuf.Struct")
    add(order, 13, "raw", KINDS.TYPE_BYTES)
    add(order, 14, "lines", KINDS.TYPE_MESSAGE, label=3, type_name=".shop.Line")
    line = file.message_type.add(name="Line")
    add(line, 1, "sku", KINDS.TYPE_STRING)
    return file


def message_class(name: str) -> Any:
    pool = DescriptorPool()
    for module in WELL_KNOWN:
        copy = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(copy)
        pool.Add(copy)
    pool.Add(shop())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def opened(folder: Path, message: str = "#shop.Order") -> Decoder:
    content = DescriptorSet(file=[shop()]).SerializeToString()
    (folder / "shop.desc").write_bytes(content)
    return open_decoder("protobuf", f"file:shop.desc{message}", context=SchemaContext(folder))


def decoded(decoder: Decoder, *payloads: bytes | None) -> DecodedPayloads:
    array = pa.array(payloads, pa.binary())
    return decoder.decode(array, decoder.fields(array, NOTHING))


def test_messages_become_columns(tmp_path: Path) -> None:
    order = message_class("shop.Order")(id=5, tags=["a"], state=1, cash=2.5, big=2**64 - 1)
    order.at.FromJsonString("2026-01-02T03:04:05.678901Z")
    order.counts[7] = "seven"
    order.weight.value = 0.5
    order.raw = b"\xff"
    order.lines.add(sku="x")
    decoder = pickle.loads(pickle.dumps(opened(tmp_path)))
    found = decoded(decoder, order.SerializeToString(), b"", None)
    first, second, third = found.columns.to_pylist()
    assert first == {
        "id": 5,
        "tags": ["a"],
        "state": "PAID",
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "counts": [("7", "seven")],
        "card": None,
        "cash": 2.5,
        "note": None,
        "big": Decimal(2**64 - 1),
        "parent": None,
        "weight": 0.5,
        "free": None,
        "raw": b"\xff",
        "lines": [{"sku": "x"}],
    }
    assert (second["id"], second["state"], second["tags"], second["at"]) == (0, "NEW", [], None)
    assert set(third.values()) == {None}
    assert found.rescued.null_count == found.reasons.null_count == 3


def test_what_has_no_column_is_rescued(tmp_path: Path) -> None:
    order = message_class("shop.Order")(state=9)
    order.parent.id = 4
    order.free["a"] = [1, None]
    order.at.nanos = 1
    payload = order.SerializeToString() + b"\xa0\x06\x05\xaa\x06\x01x"
    found = decoded(opened(tmp_path), payload)
    assert json.loads(found.rescued.to_pylist()[0]) == {
        "state": 9,
        "parent": {"id": "4"},
        "free": {"a": [1, None]},
        "at": "1970-01-01T00:00:00.000000001+00:00",
        "_unknown": {"100": [5], "101": ["eA=="]},
    }
    row = found.columns.to_pylist()[0]
    assert (row["state"], row["parent"], row["at"]) == (
        "9",
        '{"id":"4"}',
        datetime(1970, 1, 1, tzinfo=UTC),
    )


def test_what_is_no_message_has_a_reason(tmp_path: Path) -> None:
    deep = b""
    for _ in range(200):
        size = len(deep)
        head = bytes([size & 127 | 128, size >> 7]) if size > 127 else bytes([size])
        deep = b"\x52" + head + deep
    found = decoded(opened(tmp_path), b"\xff", b"\x0a\xff\xff\xff\xff\x0f", deep)
    assert found.reasons.null_count == 0
    assert "MaxDepth" in found.reasons.to_pylist()[2]


def test_the_message_must_be_named_and_be_there(tmp_path: Path) -> None:
    with pytest.raises(DecodingError, match=r"which message\? .* one of shop.Order, shop.Line"):
        opened(tmp_path, "")
    with pytest.raises(DecodingError, match=r"no message shop\.Other"):
        opened(tmp_path, "#shop.Other")


def test_a_file_that_is_no_descriptor_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.desc").write_bytes(b"\xff\xff")
    with pytest.raises(DecodingError, match=r"schema file:x\.desc: not a descriptor set"):
        open_decoder("protobuf", "file:x.desc#a.B", context=SchemaContext(tmp_path))
    with pytest.raises(DecodingError, match="cannot be read: No such file"):
        open_decoder("protobuf", "file:y.desc#a.B", context=SchemaContext(tmp_path))
