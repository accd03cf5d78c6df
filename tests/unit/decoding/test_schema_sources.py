"""Schemas in files, in buckets and in registries."""

from __future__ import annotations

import base64
import io
import json
import pickle
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorSet as DescriptorSet

from tradewind.decoding.decoder_contract import DecodedPayloads, Decoder, DecodingError
from tradewind.decoding.decoder_registry import open_decoder
from tradewind.decoding.protobuf_payloads import message_indexes
from tradewind.decoding.schema_registry import SchemaRegistry
from tradewind.decoding.schema_sources import SchemaContext

NOTHING = pa.schema([])
FIRST = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
SECOND = FIRST | {"fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}
THIRD = FIRST | {"fields": [{"name": "id", "type": "long"}, {"name": "new", "type": "double"}]}


def record(schema: Any, row: dict[str, Any], number: int | None = None) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(schema), row)
    head = b"" if number is None else struct.pack(">bi", 0, number)
    return head + target.getvalue()


def decoded(
    decoder: Decoder, *payloads: bytes | None, known: pa.Schema = NOTHING
) -> DecodedPayloads:
    array = pa.array(payloads, pa.binary())
    return decoder.decode(array, decoder.fields(array, known))


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "id: bigint\nat: timestamp\ntags: array<string>\n"),
        ("a.json", '{"id": "bigint", "at": "timestamp", "tags": "array<string>"}'),
        (
            "schema.json",
            json.dumps(
                {
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "type": "object",
                    "properties": {
                        "id": {"type": "integer"},
                        "at": {"type": ["string", "null"], "format": "date-time"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                    },
                }
            ),
        ),
    ],
)
def test_fields_of_json_come_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    decoder = open_decoder("json", f"file:{name}", context=SchemaContext(tmp_path))
    found = decoder.fields(pa.array([b'{"other":1}'], pa.binary()), NOTHING)
    assert found == pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("tags", pa.list_(pa.field("element", pa.string()))),
        ]
    )


def test_open_parts_of_a_json_schema_are_strings_with_json(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "any": {},
            "one": {"type": ["string", "integer"]},
            "number": {"type": ["integer", "number"]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "in": {"type": "object", "properties": {"x": {"type": "boolean"}}},
        },
    }
    (tmp_path / "s.json").write_text(json.dumps(schema))
    decoder = open_decoder("json", "file:s.json", context=SchemaContext(tmp_path))
    assert decoder.fields(pa.array([], pa.binary()), NOTHING) == pa.schema(
        [
            ("any", pa.string()),
            ("one", pa.string()),
            ("number", pa.float64()),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("in", pa.struct([pa.field("x", pa.bool_())])),
        ]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "must be a mapping"),
        ("id: number", "field id: character 1: 'number' is no type"),
        ("{", "not valid YAML or JSON"),
        ('{"type": "object", "properties": {}}', "with properties"),
    ],
)
def test_a_file_with_something_else_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DecodingError, match=reason):
        open_decoder("json", "file:a.yaml", context=SchemaContext(tmp_path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DecodingError, match=r"a\.yaml: cannot be read: No such file"):
        open_decoder("json", "file:a.yaml", context=SchemaContext(tmp_path))


# ---------------------------------------------------------------- buckets


def entry(subject: str, version: int, schema: Any, **more: Any) -> bytes:
    fields = {"subject": subject, "format": "avro", "version": version, "schema": schema}
    return json.dumps(fields | more).encode()


def in_bucket(**entries: bytes) -> SchemaContext:
    def read(name: str) -> dict[str, bytes]:
        assert name == "schemas"
        return entries

    return SchemaContext(subjects=("orders.>",), read_bucket=read)


def test_the_latest_version_of_a_bucket_is_used() -> None:
    context = in_bucket(
        a=entry("orders.*", 2, json.dumps(SECOND)),
        b=entry("orders.*", 1, FIRST),
        c=entry("other", 9, FIRST),
        d=entry("orders.*", 10, {"id": "int"}, format="json"),
    )
    found = decoded(
        open_decoder("avro", "bucket:schemas", context=context),
        record(SECOND, {"id": 1, "name": "a"}),
    )
    assert found.columns.to_pylist() == [{"id": 1, "name": "a"}]
    decoder = open_decoder("json", "bucket:schemas", context=context)
    assert decoded(decoder, b'{"id":1}').columns.to_pylist() == [{"id": 1}]


def test_versions_with_ids_are_told_apart_by_them() -> None:
    context = in_bucket(a=entry("orders.*", 2, SECOND, id=12), b=entry("orders.*", 1, FIRST, id=11))
    decoder = pickle.loads(pickle.dumps(open_decoder("avro", "bucket:schemas", context=context)))
    found = decoded(
        decoder,
        record(SECOND, {"id": 1, "name": "a"}, 12),
        record(FIRST, {"id": 2}, 11),
        record(FIRST, {"id": 3}, 13),
        record(FIRST, {"id": 3}),
    )
    assert found.columns.field("id").to_pylist() == [1, 2, None, None]
    assert found.reasons.to_pylist()[2:] == [
        "there is no schema with the id 13",
        "the payload does not begin with 0 and the id of a schema (4 bytes)",
    ]


def test_a_descriptor_set_in_a_bucket() -> None:
    content = base64.b64encode(DescriptorSet(file=[person("")]).SerializeToString()).decode()
    context = in_bucket(a=entry("orders.*", 1, content, format="protobuf", message="p.Person"))
    found = decoded(open_decoder("protobuf", "bucket:schemas", context=context), b"\x0a\x01x")
    assert found.columns.to_pylist() == [{"name": "x"}]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({}, "no avro schema for orders.>"),
        ({"a": b"{}"}, "key a: .*missing required field"),
        ({"a": entry("a..b", 1, FIRST)}, "'a..b' is no subject"),
        ({"a": entry("*.x", 1, FIRST), "b": entry("orders.y", 1, FIRST)}, "one stream has one"),
        ({"a": entry("orders.*", 1, FIRST), "b": entry("orders.*", 1, FIRST)}, "the same version"),
        ({"a": entry("orders.*", 1, "nope")}, "version 1: not an Avro schema"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_refused(entries: dict[str, bytes], reason: str) -> None:
    with pytest.raises(DecodingError, match=f"schema bucket:schemas: .*{reason}"):
        open_decoder("avro", "bucket:schemas", context=in_bucket(**entries))


def test_a_bucket_needs_somebody_who_reads_it() -> None:
    with pytest.raises(DecodingError, match="no connection"):
        open_decoder("avro", "bucket:schemas")


# ---------------------------------------------------------------- registries


class Registry:
    """A registry on this machine: its answers by path, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.status = 200
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.url = ""

    def put(self, path: str, schema: Any, **more: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.answers[path] = json.dumps({"schema": text} | more).encode()


@contextmanager
def running(registry: Registry) -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            registry.asked.append(path)
            registry.logins.append(self.headers["Authorization"])
            answer = registry.answers.get(path)
            self.send_response(404 if answer is None else registry.status)
            self.end_headers()
            self.wfile.write(answer or b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running(Registry()) as found:
        yield found


def test_avro_by_the_ids_of_a_registry(registry: Registry) -> None:
    registry.put("/subjects/ORDERS-value/versions/latest", SECOND)
    registry.put("/schemas/ids/1", FIRST)
    registry.put("/schemas/ids/2", SECOND)
    context = SchemaContext(stream="ORDERS")
    decoder = open_decoder("avro", f"registry:{registry.url}", context=context)
    payloads = (
        record(SECOND, {"id": 1, "name": "a"}, 2),
        record(FIRST, {"id": 2}, 1),
        record(FIRST, {"id": 3}, 99),
        None,
        b"short",
    )
    found = decoded(pickle.loads(pickle.dumps(decoder)), *payloads)
    assert found.columns.to_pylist()[:2] == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert found.reasons.to_pylist()[2].endswith("has no schema with id 99")
    decoded(decoder, *payloads)
    assert registry.asked.count("/schemas/ids/1") == 1
    assert registry.asked.count("/schemas/ids/99") == 1


def test_a_schema_that_was_registered_later_adds_columns(registry: Registry) -> None:
    registry.put("/subjects/s/versions/latest", FIRST)
    registry.put("/schemas/ids/3", THIRD)
    decoder = open_decoder("avro", f"registry:{registry.url}#s")
    payload = pa.array([record(THIRD, {"id": 1, "new": 0.5}, 3)], pa.binary())
    fields = decoder.fields(payload, NOTHING)
    assert fields.names == ["id", "new"]
    # Where the columns are those of before, what is new is rescued.
    assert decoder.decode(payload, fields).rescued.to_pylist() == [None]
    old = decoder.decode(payload, pa.schema([("id", pa.int64())]))
    assert old.rescued.to_pylist() == ['{"new":0.5}']


def person(dependency: str) -> FileDescriptorProto:
    file = FileDescriptorProto(name="default", package="p", syntax="proto3")
    message = file.message_type.add(name="Person")
    kinds = FieldDescriptorProto
    message.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    if dependency:
        file.dependency.append(dependency)
        message.field.add(
            name="home",
            number=2,
            type=kinds.TYPE_MESSAGE,
            label=kinds.LABEL_OPTIONAL,
            type_name=".p.Address",
        )
    return file


def test_protobuf_by_the_ids_of_a_registry(registry: Registry) -> None:
    address = FileDescriptorProto(name="default", package="p", syntax="proto3")
    kinds = FieldDescriptorProto
    address.message_type.add(name="Address").field.add(
        name="city", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
    )
    text = base64.b64encode(person("address.proto").SerializeToString()).decode()
    references = [{"name": "address.proto", "subject": "address", "version": 4}]
    more = {"schemaType": "PROTOBUF", "references": references}
    registry.put("/subjects/s/versions/latest", text, **more)
    registry.put("/schemas/ids/7", text, **more)
    other = base64.b64encode(address.SerializeToString()).decode()
    registry.put("/subjects/address/versions/4", other, schemaType="PROTOBUF")
    decoder = pickle.loads(pickle.dumps(open_decoder("protobuf", f"registry:{registry.url}#s")))
    head = struct.pack(">bi", 0, 7)
    found = decoded(
        decoder,
        head + b"\x00" + b"\x0a\x01x" + b"\x12\x03\x0a\x01y",
        head + b"\x04\x00\x00" + b"\x08\x05",
        head + b"\x02\x08",
        head,
    )
    assert found.columns.to_pylist()[0] == {"name": "x", "home": {"city": "y"}}
    assert found.rescued.to_pylist()[1] == '{"x":5}'
    assert found.reasons.to_pylist() == [
        None,
        None,
        "the schema has no message with the indexes [4]",
        "the payload does not have the indexes of its message",
    ]


def test_indexes_of_messages_are_bounded() -> None:
    assert message_indexes(b"\x00abc") == ((0,), b"abc")
    assert message_indexes(b"\x04\x02\x04abc") == ((1, 2), b"abc")
    for body in (b"\xff\xff\xff\xff\xff\xff", b"\xfe\x01", b"\x01", b"\x02"):
        with pytest.raises(ValueError, match="index"):
            message_indexes(body)


def test_a_registry_that_fails_is_no_reason_of_a_payload(registry: Registry) -> None:
    registry.put("/subjects/s/versions/latest", FIRST)
    registry.put("/schemas/ids/5", FIRST)
    decoder = open_decoder("avro", f"registry:{registry.url}#s")
    registry.status = 503
    with pytest.raises(DecodingError, match="answers 503, not 200"):
        decoded(decoder, record(FIRST, {"id": 1}, 5))
    registry.status = 200
    assert decoded(decoder, record(FIRST, {"id": 1}, 5)).columns.to_pylist() == [{"id": 1}]


def test_an_answer_that_is_none_or_too_long_is_refused(registry: Registry) -> None:
    registry.answers["/subjects/s/versions/latest"] = b"nope"
    with pytest.raises(DecodingError, match="JSON is malformed"):
        open_decoder("avro", f"registry:{registry.url}#s")
    registry.answers["/subjects/s/versions/latest"] = b" " * (4 << 20 | 1)
    with pytest.raises(DecodingError, match="more than 4194304 bytes"):
        open_decoder("avro", f"registry:{registry.url}#s")
    with pytest.raises(DecodingError, match="has no subject t"):
        open_decoder("avro", f"registry:{registry.url}#t")


def test_a_schema_of_another_format_is_refused(registry: Registry) -> None:
    registry.put("/subjects/s/versions/latest", "{}", schemaType="JSON")
    with pytest.raises(DecodingError, match="a schema is JSON, not AVRO"):
        open_decoder("avro", f"registry:{registry.url}#s")


def test_a_login_is_sent_and_never_shown(registry: Registry) -> None:
    registry.put("/subjects/s/versions/latest", FIRST)
    address = registry.url.replace("//", "//me:s%40cret@")
    decoder = open_decoder("avro", f"registry:{address}#s")
    assert registry.logins == ["Basic " + base64.b64encode(b"me:s@cret").decode()]
    with pytest.raises(DecodingError) as caught:
        open_decoder("avro", f"registry:{address}#t")
    for text in (repr(decoder), str(caught.value)):
        assert "cret" not in text
        assert "bWU6" not in text


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "http://host:port", "http://[x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(DecodingError, match="the address must be http"):
        SchemaRegistry.at(url)


def test_a_registry_that_is_not_there_is_named() -> None:
    with running(Registry()) as gone:
        url = gone.url
    with pytest.raises(DecodingError, match=f"schema registry {url} cannot be reached"):
        open_decoder("avro", f"registry:{url}#s")


def test_a_registry_is_for_formats_with_schemas_of_their_own() -> None:
    with pytest.raises(DecodingError, match="is for payload avro or protobuf"):
        open_decoder("json", "registry:http://127.0.0.1:1#s")
    with pytest.raises(DecodingError, match="which subject"):
        open_decoder("avro", "registry:http://127.0.0.1:1")
