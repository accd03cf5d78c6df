"""Payloads against schemas of each format, and schemas that would cost too much."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgspec
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorSet as DescriptorSet
from google.protobuf.message_factory import GetMessageClass

from sweeps import sweep
from tradewind.schemas.json_cost import COST_MAX, JsonCost
from tradewind.schemas.json_tree import SUBSCHEMAS_MAX, JsonTree
from tradewind.schemas.payload_checks import PayloadCheck, open_check
from tradewind.schemas.payload_values import decode_value, encode_value
from tradewind.schemas.protobuf_check import message_descriptor
from tradewind.schemas.schema_documents import SchemaVersion
from tradewind.schemas.schema_errors import SchemaError

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"qty": {"type": "integer", "minimum": 1}}},
        },
    },
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


def version(schema: Any, format_name: str = "json", message: str = "") -> SchemaVersion:
    return SchemaVersion(
        subject="orders.*", format=format_name, version=1, schema=schema, message=message
    )


def check_of(schema: Any, format_name: str = "json", message: str = "") -> PayloadCheck:
    return open_check(version(schema, format_name, message))


@sweep(
    ("payload", "problem"),
    [
        (b'{"id":1}', ""),
        (b'{"id":1,"items":[{"qty":2}],"more":null}', ""),
        (b'{"id":"x"}', '/id: "x" is not of type "integer"'),
        (
            b'{"id":1,"items":[{"qty":1},{"qty":0}]}',
            "/items/1/qty: 0 is less than the minimum of 1",
        ),
        (b"{}", '/: "id" is a required property'),
        (b"", "an empty payload is not JSON"),
        (b"{", "not JSON: Input data was truncated"),
        (b"\xff", "not JSON: JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_a_json_payload_is_told_the_path_of_its_fault(payload: bytes, problem: str) -> None:
    assert check_of(ORDER).problem(payload) == problem


@sweep(
    "payload",
    [b"[" * 5000, b"[" * 1500 + b"]" * 1500, b'{"id":1e999}', b'{"id":' + b"9" * 5000 + b"}"],
)
def test_hostile_json_is_refused_in_one_line(payload: bytes) -> None:
    check = check_of({"items": {"$ref": "#"}, "properties": {"id": {"type": "integer"}}})
    found = check.problem(payload)
    assert found
    assert "\n" not in found
    assert len(found) < 400


@sweep(
    ("schema", "problem"),
    [
        (5, "a JSON Schema is an object, true or false"),
        ({"type": "foo"}, "not a JSON Schema: #/type"),
        ({"$ref": "#"}, "refers to itself for one and the same value"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#"}}}, "refers to itself"),
        ({"$ref": "http://127.0.0.1/x"}, "must begin with #"),
        ({"$ref": "other.json"}, "must begin with #"),
        ({"$ref": "#/$defs/none"}, "the schema has no such part"),
        ({"properties": {"a": {"$id": "http://x/y"}}}, "#/properties/a: .id is allowed at the top"),
        ({"$schema": "http://127.0.0.1/mine"}, "must be one of http://json-schema.org/draft-06"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties is not supported"),
        ({"$dynamicRef": "#a"}, "dynamicRef is not supported"),
        ({"pattern": "(a{1000}){1000}"}, 'is not a "regex"'),
        ({"pattern": "(?=a)b"}, 'is not a "regex"'),
        ({"properties": {str(n): {} for n in range(SUBSCHEMAS_MAX)}}, "more than 1000 parts"),
        ({"enum": list(range(COST_MAX))}, "too intricate"),
        ({"enum": [{"a": n} for n in range(1000)]}, "too intricate"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_the_reason(schema: Any, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        check_of(schema)


def doubling(keyword: str) -> dict[str, Any]:
    """A schema of which a value of n levels takes 2 ** n checks."""
    again = {"items": {"$ref": "#/$defs/twice"}}
    return {"$defs": {"twice": {keyword: [again, dict(again)]}}, "$ref": "#/$defs/twice"}


def laughs(levels: int) -> dict[str, Any]:
    """A schema without recursion, with 2 ** n checks for one value."""
    parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**parts, f"a{levels}": {"type": "string"}}, "$ref": "#/$defs/a0"}


def overlapping() -> dict[str, Any]:
    """A schema that checks each property by its name and by a pattern, again and again."""
    return {
        "properties": {"a": {"$ref": "#"}},
        "patternProperties": {"^a": {"$ref": "#"}},
    }


@sweep("schema", [doubling("anyOf"), doubling("allOf"), laughs(40), overlapping()])
def test_a_schema_whose_cost_grows_with_the_depth_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="too intricate"):
        check_of(schema)


@sweep(
    "schema",
    [
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        {"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}},
        {
            "$defs": {
                "sum": {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}},
                "product": {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}},
            },
            "properties": {"add": {"$ref": "#/$defs/sum"}, "mul": {"$ref": "#/$defs/product"}},
        },
    ],
)
def test_trees_and_expressions_are_no_bombs(schema: Any) -> None:
    assert JsonCost(JsonTree(schema)).most() < 20
    assert check_of(schema).problem(b'{"left":{"right":[]}}') == ""


def test_the_largest_payload_shrinks_with_the_cost_of_the_schema() -> None:
    cheap, dear = check_of(ORDER), check_of({"items": {"enum": list(range(3000))}})
    assert dear.payload_max < cheap.payload_max
    problem = dear.problem(b"[" + b"0," * dear.payload_max + b"0]")
    assert problem.endswith(f"bytes are more than the {dear.payload_max} that can be checked")


@sweep("pattern", ["(a+)+$", "(a|a)*b", "(.*a){12}x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_regular_expressions_take_linear_time(pattern: str) -> None:
    """A backtracking engine would not come back from any of them."""
    check = check_of({"pattern": pattern})
    payload = b'"' + b"a" * (check.payload_max - 3) + b'!"'
    assert check.problem(payload).startswith("/: ")


# ---------------------------------------------------------------- Avro


def avro_payload(record: Any, schema: Any = AVRO) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(schema), record)
    return target.getvalue()


def test_an_avro_record_obeys_its_schema_to_the_last_byte() -> None:
    check = check_of(AVRO, "avro")
    payload = avro_payload({"id": 7, "note": "apples"})
    assert check.problem(payload) == ""
    assert check.problem(payload + b"x") == "1 bytes follow the record"
    for size in range(len(payload)):
        assert check.problem(payload[:size])


@sweep(
    ("schema", "problem"),
    [
        ("{", "not an Avro schema"),
        ({"type": "string"}, "must be a record"),
        (
            {"type": "record", "name": "a", "fields": [{"name": "x", "type": ["null", "a"]}]},
            "holds itself",
        ),
        (
            {
                "type": "record",
                "name": "a",
                "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}],
            },
            "items that take no bytes",
        ),
    ],
)
def test_an_avro_schema_that_payloads_could_abuse_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        check_of(schema, "avro")


def test_an_avro_schema_of_empty_records_within_each_other_is_no_bomb() -> None:
    fields: list[Any] = []
    inner: Any = {"type": "record", "name": "r0", "fields": []}
    for level in range(1, 30):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"r{level - 1}"}]
        inner = {"type": "record", "name": f"r{level}", "fields": fields}
    with pytest.raises(SchemaError, match="more than 2000 parts"):
        check_of(inner, "avro")


def test_values_are_written_and_read_again_in_each_format() -> None:
    document = version(AVRO, "avro")
    payload = encode_value(document, {"id": 7, "note": None})
    assert decode_value(document, payload) == {"id": 7, "note": None}
    with pytest.raises(SchemaError, match="does not fit the avro schema"):
        encode_value(document, {"id": "x"})
    with pytest.raises(SchemaError, match="cannot be read as avro"):
        decode_value(document, b"")
    with pytest.raises(SchemaError, match="1 bytes follow the record"):
        decode_value(document, payload + b"x")
    proto = version(descriptors(), "protobuf", "shop.Order")
    payload = encode_value(proto, {"id": 7, "lines": [{"sku": "a"}]})
    assert decode_value(proto, payload) == {"id": 7, "lines": [{"sku": "a"}]}
    assert decode_value(version(ORDER), encode_value(version(ORDER), {"id": 1})) == {"id": 1}


# ---------------------------------------------------------------- Protobuf


def descriptors(*, requires: bool = False) -> str:
    """A descriptor set in base64, as `protoc --descriptor_set_out` writes it."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto2")
    line = file.message_type.add(name="Line")
    line.field.add(
        name="sku",
        number=1,
        type=FieldDescriptorProto.TYPE_STRING,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    order = file.message_type.add(name="Order")
    order.field.add(
        name="id",
        number=1,
        type=FieldDescriptorProto.TYPE_INT32,
        label=FieldDescriptorProto.LABEL_REQUIRED if requires else 1,
    )
    order.field.add(
        name="lines",
        number=2,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=".shop.Line",
        label=FieldDescriptorProto.LABEL_REPEATED,
    )
    content = DescriptorSet(file=[file]).SerializeToString()
    return base64.b64encode(content).decode()


def protobuf_payload(**fields: Any) -> bytes:
    kind: Any = GetMessageClass(message_descriptor(descriptors(), "shop.Order"))
    payload: bytes = kind(**fields).SerializeToString()
    return payload


@sweep(
    ("payload", "problem"),
    [
        (protobuf_payload(id=7, lines=[{"sku": "a"}]), ""),
        (b"", ""),
        (b"\x08\x07\x12\x02\x18\x05", "/lines/0/3: shop.Line has no field of this number"),
        (b"\x40\x05", "/8: shop.Order has no field of this number"),
        (b"\x08", "not a message of the Protobuf type"),
        (b"plain text", "not a message of the Protobuf type"),
    ],
)
def test_a_protobuf_message_has_only_fields_of_its_type(payload: bytes, problem: str) -> None:
    found = check_of(descriptors(), "protobuf", "shop.Order").problem(payload)
    assert found.startswith(problem) if problem else found == ""


def test_a_required_field_of_a_protobuf_message_is_named() -> None:
    check = check_of(descriptors(requires=True), "protobuf", "shop.Order")
    assert check.problem(b"") == "/id: is required"


def test_a_protobuf_message_nested_without_end_is_refused() -> None:
    file = FileDescriptorProto(name="n.proto", package="n", syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(
        name="inner", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".n.Node", label=1
    )
    content = base64.b64encode(DescriptorSet(file=[file]).SerializeToString()).decode()
    check = check_of(content, "protobuf", "n.Node")
    deep = b""
    for _ in range(5000):
        size, head = len(deep), b""
        while size > 127:
            head += bytes((size & 127 | 128,))
            size >>= 7
        deep = b"\x0a" + head + bytes((size,)) + deep
    assert check.problem(b"\x0a\x00") == ""
    assert check.problem(deep).startswith("not a message of the Protobuf type")


@sweep(
    ("schema", "message", "problem"),
    [
        ("no base64", "a.B", "must be a descriptor set in base64"),
        (base64.b64encode(b"\xff").decode(), "a.B", "must be a descriptor set in base64"),
        ("", "a.B", "has 0 files"),
        (descriptors(), "shop.None", "has no message 'shop.None'"),
        (descriptors(), "", "which message. one of shop.Line, shop.Order"),
        ({"a": 1}, "a.B", "must be a descriptor set in base64"),
    ],
)
def test_a_descriptor_set_that_cannot_be_used_is_refused(
    schema: Any, message: str, problem: str
) -> None:
    with pytest.raises(SchemaError, match=problem):
        check_of(schema, "protobuf", message)


def test_a_check_survives_its_document_as_it_is_stored() -> None:
    document = version(descriptors(), "protobuf", "shop.Order")
    again = msgspec.json.decode(msgspec.json.encode(document), type=SchemaVersion)
    assert again == document
    assert open_check(again).problem(protobuf_payload(id=1)) == ""
