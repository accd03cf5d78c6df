"""How many payloads a decoder turns into columns in one second of a processor.

    .venv/bin/python -m benchmarks.decoders [--rows 200000]

Each row is the best of three runs; the process has one thread.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from fastavro import parse_schema, schemaless_writer

from tradewind.decoding.decoder_contract import Decoder
from tradewind.decoding.decoder_registry import open_decoder
from tradewind.decoding.schema_sources import SchemaContext

NOTHING = pa.schema([])
RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "region", "type": "string"},
        {"name": "active", "type": "boolean"},
        {"name": "note", "type": "string"},
        {"name": "count", "type": "long"},
    ],
}


def orders(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "name": f"customer-{number}",
            "amount": number * 0.25,
            "region": "eu-west",
            "active": True,
            "note": "some text of some length",
            "count": number % 7,
        }
        for number in range(count)
    ]


def avro(rows: Iterable[dict[str, Any]]) -> list[bytes]:
    schema, payloads = parse_schema(RECORD), []
    for row in rows:
        target = io.BytesIO()
        schemaless_writer(target, schema, row)
        payloads.append(target.getvalue())
    return payloads


def avro_decoder() -> Decoder:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "order.avsc").write_text(json.dumps(RECORD))
        return open_decoder("avro", "file:order.avsc", context=SchemaContext(Path(folder)))


def measure(name: str, decoder: Decoder, payloads: list[bytes]) -> None:
    array = pa.array(payloads, pa.binary())
    fields = decoder.fields(array.slice(0, 1000), NOTHING)
    finding, decoding = [], []
    for _ in range(3):
        start = time.process_time()
        decoder.fields(array, fields)
        between = time.process_time()
        decoder.decode(array, fields)
        finding.append(between - start)
        decoding.append(time.process_time() - between)
    size = sum(map(len, payloads)) // len(payloads)
    found, decoded = (round(len(payloads) / min(each)) for each in (finding, decoding))
    print(f"{name:28} {size:4} bytes  fields {found:>9,}/s  decode {decoded:>9,}/s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    rows = orders(parser.parse_args().rows)
    encode, decoder = msgspec.json.encode, open_decoder("json")
    for row in rows:  # about 128 bytes
        row["note"] = "some text of some length, as notes have"[: 24 + row["id"] % 12]
    measure("json", decoder, [encode(row) for row in rows])
    measure("json with blanks", decoder, [json.dumps(row).encode() for row in rows])
    nulls = [row | {"note": None} if row["id"] % 2 else row for row in rows]
    measure("json, nulls in half", decoder, [encode(row) for row in nulls])
    measure("json, nested", decoder, [encode(row | {"in": {"a": 1, "b": "x"}}) for row in rows])
    odd = [row | {"note": 5} if row["id"] % 10 == 9 else row for row in rows]
    measure("json, a tenth does not fit", decoder, [encode(row) for row in odd])
    measure("msgpack", open_decoder("msgpack"), [msgspec.msgpack.encode(row) for row in rows])
    lines = [",".join(map(str, row.values())).encode() for row in rows]
    measure("csv", open_decoder("csv"), lines)
    measure("avro", avro_decoder(), avro(rows))
    measure("text", open_decoder("text"), lines)


if __name__ == "__main__":
    main()
