"""What checking payloads costs: for each message, and the dearest payload that is checked at all.

    .venv/bin/python -m benchmarks.schemas [--messages 20000]

Processor time, the best of three runs. The server is in this process, its streams are in memory,
and the time is that of all that a publish brings about.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fastavro import parse_schema, schemaless_writer

from tradewind.schemas.payload_checks import open_check
from tradewind.schemas.schema_documents import SchemaVersion
from tradewind.testing import FakeConnection, InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

ORDER = {
    "type": "object",
    "required": ["id", "customer"],
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string", "maxLength": 50},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sku", "qty"],
                "properties": {
                    "sku": {"type": "string"},
                    "qty": {"type": "integer", "minimum": 1},
                    "price": {"type": "number"},
                },
            },
        },
        "note": {"type": "string"},
    },
}
VALUE = {
    "id": 17,
    "customer": "Ada Lovelace",
    "items": [{"sku": "a-1", "qty": 2, "price": 9.5}, {"sku": "b-2", "qty": 1, "price": 3.25}],
    "note": "two apples",
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "qty", "type": "int"},
                        {"name": "price", "type": "double"},
                    ],
                },
            },
        },
        {"name": "note", "type": "string"},
    ],
}
Make = Callable[[int], bytes]


def document(schema: Any, format_name: str = "json") -> SchemaVersion:
    return SchemaVersion(subject="S.>", format=format_name, version=1, schema=schema)


def best(work: Callable[[], object]) -> float:
    """The seconds of the best of three runs."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def avro_payload() -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(AVRO), VALUE)
    return target.getvalue()


def per_payload(count: int) -> None:
    print("| payload | bytes | microseconds per check |\n|---|---|---|")
    rows = (("json", ORDER, json.dumps(VALUE).encode()), ("avro", AVRO, avro_payload()))
    for name, schema, payload in rows:
        check = open_check(document(schema, name))
        assert check.problem(payload) == ""

        def work(check: Any = check, payload: bytes = payload) -> None:
            for _ in range(count):
                check.problem(payload)

        print(f"| {name} | {len(payload)} | {best(work) / count * 1e6:.1f} |")


def per_publish(count: int) -> None:
    print("\n| stream | microseconds per publish |\n|---|---|")
    payload = json.dumps(VALUE).encode()
    operation = b"PUB S.a %d\r\n%s\r\n" % (len(payload), payload)
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("plain", {}),
        ("that takes the slow path (a subject transform)", {"transform": True}),
        ("`tradewind.schema: reject`", {"schema": True}),
    )
    for name, case in cases:
        server = InProcessServer(disk=SimulatedDisk())
        connection = server.connect()
        api(connection, "KV_TW_SCHEMAS", {"subjects": ["$KV.TW_SCHEMAS.>"]})
        body = json.dumps(
            {"subject": "S.>", "format": "json", "version": 1, "schema": ORDER}
        ).encode()
        connection.send(b"PUB $KV.TW_SCHEMAS.order.1 %d\r\n%s\r\n" % (len(body), body))
        config: dict[str, Any] = {"subjects": ["S.>"]}
        if case.get("schema"):
            config["metadata"] = {"tradewind.schema": "reject"}
        if case.get("transform"):
            config["subject_transform"] = {"src": "S.>", "dest": "S.>"}
        api(connection, "S", config)
        batch = operation * 100

        def work(connection: FakeConnection = connection, batch: bytes = batch) -> None:
            for _ in range(count // 100):
                connection.send(batch)

        print(f"| {name} | {best(work) / count * 1e6:.1f} |")


def api(connection: FakeConnection, stream: str, config: dict[str, Any]) -> None:
    body = json.dumps({"name": stream, "storage": "memory", **config}).encode()
    connection.send(
        b"PUB $JS.API.STREAM.CREATE.%s %d\r\n%s\r\n" % (stream.encode(), len(body), body)
    )


def array_of(item: bytes) -> Make:
    return lambda size: b"[" + (item + b",") * ((size - 2) // (len(item) + 1) - 1) + item + b"]"


def avro_count(count: int) -> bytes:
    found, rest = bytearray(), count << 1
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes((*found, rest))


def avro_list(item: bytes) -> Make:
    return lambda size: avro_count(size - 10) + item * (size - 10) + b"\x00"


def record_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def letters(size: int) -> bytes:
    chance = random.Random(1)
    return b'"' + bytes(chance.choice(b"ab") for _ in range(size - 2)) + b'"'


EMPTY = [{"name": f"e{n}", "type": "null"} for n in range(100)]
WIDE = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}, *EMPTY]}
DEAREST: tuple[tuple[str, Any, Make], ...] = (
    ("a list of numbers", {"items": {"type": "integer"}}, array_of(b"0")),
    ("lists within lists, by reference", {"items": {"$ref": "#"}}, array_of(b"[[],[[]]]")),
    ("unique objects", {"items": {"uniqueItems": True}}, array_of(b"[{},[],0]")),
    ("numbers of 300 digits", {"items": {"multipleOf": 0.01}}, array_of(b"9" * 300)),
    (
        "200 objects to choose from",
        {"items": {"enum": [{"a": n} for n in range(200)]}},
        array_of(b'{"a":199}'),
    ),
    ("a regular expression with many states", {"pattern": "(.*a.{20}b|x)$"}, letters),
    ("Avro: a list of numbers", record_of({"type": "array", "items": "int"}), avro_list(b"\x02")),
    ("Avro: a map of nothing", record_of({"type": "map", "values": "null"}), avro_list(b"\x00")),
    (
        "Avro: records of 100 empty fields",
        record_of({"type": "array", "items": WIDE}),
        avro_list(b"\x02"),
    ),
)


def dearest() -> None:
    print("\n| payload and schema | largest payload, bytes | milliseconds |\n|---|---|---|")
    for name, schema, make in DEAREST:
        check = open_check(document(schema, "avro" if name.startswith("Avro") else "json"))
        payload = make(check.payload_max)
        assert check.payload_max * 0.9 < len(payload) <= check.payload_max, len(payload)
        seconds = best(partial(check.problem, payload))
        print(f"| {name} | {check.payload_max:,} | {seconds * 1e3:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000)
    count = parser.parse_args().messages
    per_payload(count)
    per_publish(count)
    dearest()


if __name__ == "__main__":
    main()
