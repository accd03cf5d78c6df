"""Entry points of payloads that become columns of tables, and of the schemas for them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from entries_wire import JSON_ATOMS
from entry_points import EntryPoint, Reader, register, text_reader

from tradewind.decoding.avro_payloads import AvroReader, opened_schema
from tradewind.decoding.decoder_contract import Decoder
from tradewind.decoding.decoder_registry import open_decoder
from tradewind.decoding.protobuf_payloads import message_indexes
from tradewind.decoding.row_decoding import ObjectDecoder
from tradewind.decoding.type_texts import columns_of
from tradewind.decoding.written_schemas import WrittenSchemas
from tradewind.errors import TradewindError

PAYLOAD_BYTES = 1 << 20
NOTHING = pa.schema([])
COLUMNS = pa.schema(
    [
        ("a", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("in", pa.struct([pa.field("a", pa.list_(pa.string()))])),
    ]
)


def payload_reader(decoder: Decoder) -> Reader:
    """Fields that are found in a payload, and the payload as those and as given columns."""

    def read(data: bytes) -> Any:
        payloads = pa.array([data], pa.binary())
        fields = decoder.fields(payloads, NOTHING)
        decoder.decode(payloads, COLUMNS)
        return decoder.decode(payloads, fields)

    return read


register(
    EntryPoint(
        "JSON payload of a table",
        (
            "decoding.json_payloads",
            "decoding.json_columns",
            "decoding.column_values",
            "decoding.payload_kinds",
        ),
        PAYLOAD_BYTES,
        payload_reader(open_decoder("json", reserved=("time",))),
        (*JSON_ATOMS, b',"k%d":1', b',"time":"x"', b',"a":"9"', b"\\\\", b'{"b":['),
        (b'{"a":1,"at":"2026-01-02T03:04:05Z","price":1.5,"raw":"AA==","in":{"a":["x"]}}',),
        (
            (b"", b""),
            (b'{"a":1', b"}"),
            (b'{"in":{"a":["x"', b"]}}"),
            (b'{"at":"', b'"}'),
            (b'{"price":"', b'"}'),
            (b'{"price":1', b"}"),
            (b'{"raw":"', b'"}'),
        ),
        seconds_max=20.0,
    )
)
register(
    EntryPoint(
        "MessagePack payload of a table",
        ("decoding.msgpack_payloads",),
        PAYLOAD_BYTES,
        payload_reader(open_decoder("msgpack")),
        (
            b"\x81\xa1a",
            b"\x91",
            b"\x01",
            b"\xa1a\x01",
            b"\xc4\x02xx",
            b"\xc7\x01\x05x",
            b"\xd9\x01x",
        ),
        (b"\x82\xa1a\x01\xa1b\x92\x01\xc0",),
        ((b"", b""), (b"\x82\xa1a\xdc\xff\xff", b""), (b"\xdf\x00\x00\xff\xff", b"")),
        seconds_max=20.0,
    )
)
register(
    EntryPoint(
        "CSV payload of a table",
        ("decoding.csv_payloads",),
        PAYLOAD_BYTES,
        payload_reader(open_decoder("csv")),
        (b"a,", b'"a",', b'"', b'""', b"1\n", b"\r\n", b"\xe2\x80\xa8"),
        (b'1,"a, b",3\r\n',),
        ((b"", b""), (b'"', b'"'), (b"1,", b"")),
        seconds_max=20.0,
        piecewise=True,
    )
)
RECORD = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": {"type": "array", "items": ["null", "long", "string"]}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "m", "type": {"type": "map", "values": "double"}},
    ],
}
register(
    EntryPoint(
        "Avro payload of a table",
        ("decoding.avro_payloads", "decoding.written_schemas"),
        PAYLOAD_BYTES,
        payload_reader(ObjectDecoder(AvroReader(WrittenSchemas(json.dumps(RECORD))))),
        (b"\x02\x02\x08", b"\x02\x00", b"\x02\x04\x02x", b"\xff", b"\x7f", b"\x00", b"\x01\x02"),
        (b"\x02\x02\x08\x00\x02\x05\x00",),
        ((b"", b""), (b"\x00\x80\x80\x80\x01", b""), (b"\x80\x80\x80\x80\x01", b"")),
        seconds_max=20.0,
    )
)
register(
    EntryPoint(
        "Avro schema",
        ("decoding.avro_payloads",),
        PAYLOAD_BYTES,
        lambda data: opened_schema.__wrapped__(data.decode("latin-1")),
        (
            b'{"type":"array","items":',
            b'{"name":"f%d","type":"int"},',
            b'{"name":"a","type":["null",',
            b'"null",',
            b"[",
            b'"R",',
        ),
        (json.dumps(RECORD).encode(),),
        (
            (b"", b""),
            (b'{"type":"record","name":"R","fields":[', b'{"name":"z","type":"int"}]}'),
            (b'{"type":"record","name":"R","fields":[{"name":"z","type":[', b'"int"]}]}'),
        ),
        refusals=(TradewindError,),
        seconds_max=20.0,
    )
)
register(
    EntryPoint(
        "indexes of a Protobuf message",
        ("decoding.protobuf_payloads",),
        PAYLOAD_BYTES,
        message_indexes,
        (b"\x00", b"\x02", b"\x80", b"\xff"),
        (b"\x04\x02\x00",),
        refusals=(ValueError,),
    )
)
register(
    EntryPoint(
        "names and types of columns",
        ("decoding.type_texts",),
        PAYLOAD_BYTES,
        text_reader(columns_of),
        (b"a int,", b"array<", b"struct<a:", b"map<string,", b"`", b"``", b"decimal(", b"k%d int,"),
        (b"id bigint, `a b` array<struct<x: decimal(10,2), y map<string,int>>>",),
        ((b"", b""), (b"a ", b""), (b"`", b"` int"), (b"a decimal(", b")")),
        refusals=(TradewindError,),
        seconds_max=5.0,
    )
)
