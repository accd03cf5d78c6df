"""What a new version may change: proofs against values that are generated from schemas."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorSet as DescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import sweep
from thoroughness import some
from tradewind.schemas.avro_resolution import resolution_problem
from tradewind.schemas.compatibility import check_compatible, compatibility_problem
from tradewind.schemas.json_inclusion import inclusion_problem
from tradewind.schemas.protobuf_resolution import protobuf_problem
from tradewind.schemas.schema_documents import SchemaVersion
from tradewind.schemas.schema_errors import SchemaError

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def an_object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


@sweep(
    ("writer", "reader"),
    [
        (an_object(a=STRING), an_object(a=STRING, b=INTEGER)),
        (an_object(a=STRING, b=INTEGER), an_object(a=STRING)),
        (an_object(["a"], a=STRING), an_object(a=STRING)),
        ({"type": "integer"}, {"type": "number"}),
        ({"type": "integer", "minimum": 5}, {"type": "number", "exclusiveMinimum": 4}),
        ({"enum": [1, 2]}, {"enum": [1, 2, 3]}),
        ({"const": "a"}, {"type": "string", "maxLength": 1}),
        ({"type": "string", "maxLength": 5}, {"type": ["string", "null"], "maxLength": 9}),
        ({"anyOf": [STRING, INTEGER]}, {"type": ["string", "integer"]}),
        (
            {"type": ["string", "integer"]},
            {"anyOf": [{"type": ["string", "integer"]}, {"type": "null"}]},
        ),
        ({"allOf": [STRING, {"maxLength": 3}]}, {"type": "string", "maxLength": 3}),
        ({"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER, {"type": "null"}]}),
        ({"type": "array", "items": INTEGER}, {"type": "array", "items": {"type": "number"}}),
        ({"type": "integer", "multipleOf": 10}, {"multipleOf": 5}),
        ({"type": "boolean"}, {"enum": [True, False]}),
        (False, {"type": "string"}),
        (
            {
                "$defs": {"t": an_object(["v"], v=STRING, next={"$ref": "#/$defs/t"})},
                "$ref": "#/$defs/t",
            },
            {"$defs": {"u": an_object(v=STRING, next={"$ref": "#/$defs/u"})}, "$ref": "#/$defs/u"},
        ),
        (
            {"type": "object", "additionalProperties": False, "properties": {"a": STRING}},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"a": STRING, "b": STRING},
            },
        ),
        ({"type": "string", "pattern": "^a"}, {"pattern": "^a"}),
    ],
)
def test_a_reader_that_allows_more_is_proven(writer: Any, reader: Any) -> None:
    assert inclusion_problem(writer, reader) == ""


@sweep(
    ("writer", "reader", "problem"),
    [
        (an_object(a=STRING), an_object(["a"], a=STRING), "/a: is required now"),
        (an_object(a=STRING), an_object(a=INTEGER), "/a: type string is not allowed any more"),
        ({"type": "number"}, {"type": "integer"}, "/: type number is not allowed any more"),
        ({"enum": [1, 9]}, {"maximum": 5}, "/: 9 is not allowed any more"),
        (STRING, {"maxLength": 3}, "/: more than 3 characters"),
        (STRING, {"pattern": "^a"}, "/: pattern was added or changed"),
        ({"type": "integer"}, {"minimum": 0}, "/: minimum 0 was not required before"),
        ({"minimum": 3}, {"exclusiveMinimum": 3}, "/: exclusiveMinimum 3"),
        ({}, an_object(a=STRING), "/: type number is not allowed"),
        ({"type": "object"}, {"properties": {"a": STRING}}, "/a: type number is not"),
        (
            an_object(a=STRING, b=STRING),
            {**an_object(a=STRING), "additionalProperties": False},
            "/b: no value is allowed here any more",
        ),
        (
            {**an_object(a=STRING), "additionalProperties": True},
            an_object(a=STRING, b=STRING),
            "/b: type number is not allowed",
        ),
        ({"anyOf": [STRING, INTEGER]}, STRING, "/: type integer is not allowed"),
        (
            {"anyOf": [{"properties": {"x": STRING}}, {"properties": {"x": INTEGER}}]},
            {"properties": {"x": INTEGER}},
            "/x: type",
        ),
        ({"type": "array", "items": STRING}, {"uniqueItems": True}, "/: uniqueItems was added"),
        (
            {"type": "array", "items": STRING},
            {"type": "array", "prefixItems": [INTEGER]},
            "/0: type string is not allowed",
        ),
        (STRING, False, "/: no value is allowed here any more"),
        (STRING, {"not": {"const": "a"}}, "/: not was added or changed"),
        (
            {"patternProperties": {"^x_": STRING}},
            {"patternProperties": {"^x_": INTEGER}},
            "/^x_: type string is not allowed",
        ),
    ],
)
def test_a_reader_that_allows_less_is_named_by_its_place(
    writer: Any, reader: Any, problem: str
) -> None:
    assert inclusion_problem(writer, reader).startswith(problem)


# ---------------------------------------------------------------- against values

NAMES = ("a", "b", "c")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
SCALARS = (None, True, False, -3, 0, 1, 2, 5, 0.5, 2.0, "", "a", "ab", "abc")


class Maker:
    """Random schemas and values; a class of its own since Hypothesis takes too long for these."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def value(self, depth: int = 3) -> Any:
        kind = self.chance.randrange(5 if depth else 3)
        if kind < 3:
            return self.chance.choice(SCALARS)
        if kind == 3:
            return [self.value(depth - 1) for _ in range(self.chance.randrange(3))]
        names = self.chance.sample(NAMES, self.chance.randrange(4))
        return {name: self.value(depth - 1) for name in names}

    def value_of(self, schema: Any, depth: int = 3) -> Any:
        """A value that is likely to obey a schema."""
        chance = self.chance
        parts = parts_of(schema)
        part = chance.choice(parts) if parts else {}
        if "enum" in part and chance.random() < 0.8:
            return chance.choice(part["enum"])
        names = [name for one in parts for name in one.get("properties", ())]
        names += [name for one in parts for name in one.get("required", ())]
        if depth and names and chance.random() < 0.8:
            inner = {
                name: [o["properties"][name] for o in parts if name in o.get("properties", ())]
                for name in names
            }
            return {
                name: self.value_of(chance.choice(found or [True]), depth - 1)
                for name, found in inner.items()
                if chance.random() < 0.8
            }
        if depth and "items" in part and chance.random() < 0.8:
            return [self.value_of(part["items"], depth - 1) for _ in range(chance.randrange(3))]
        return self.value(depth)

    def schema(self, depth: int = 2) -> Any:
        if self.chance.random() < 0.15:
            return self.chance.random() < 0.7
        names = self.chance.sample(KEYWORDS, self.chance.randrange(1, 4))
        return {name: self.keyword(name, depth) for name in names}

    def keyword(self, name: str, depth: int) -> Any:
        chance = self.chance
        inner = (lambda: self.schema(depth - 1)) if depth else (lambda: chance.random() < 0.7)
        if name == "type":
            return chance.sample(TYPES, chance.randrange(1, 4))
        if name == "enum":
            return chance.sample(SCALARS, chance.randrange(1, 4))
        if name in ("minimum", "exclusiveMaximum", "exclusiveMinimum", "maximum"):
            return chance.randrange(-2, 5)
        if name in ("maxLength", "minLength", "maxItems", "maxProperties", "minProperties"):
            return chance.randrange(4)
        if name in ("properties", "patternProperties"):
            keys = NAMES if name == "properties" else ("^a", "[bc]")
            return {key: inner() for key in chance.sample(keys, chance.randrange(1, len(keys)))}
        if name in ("anyOf", "allOf", "oneOf", "prefixItems"):
            return [inner() for _ in range(chance.randrange(1, 3))]
        made: dict[str, Callable[[], Any]] = {
            "multipleOf": lambda: chance.randrange(1, 4),
            "pattern": lambda: chance.choice(["^a", "b$"]),
            "uniqueItems": lambda: chance.random() < 0.5,
            "required": lambda: chance.sample(NAMES, chance.randrange(1, 3)),
        }
        return made.get(name, inner)()

    def pair(self) -> tuple[Any, Any]:
        """A schema and one like it: alike schemas are those that a proof has to get right."""
        writer = self.schema()
        if self.chance.random() < 0.2:
            return writer, self.schema()
        reader = json.loads(json.dumps(writer))
        for part in all_parts(reader):
            if part and self.chance.random() < 0.4:
                del part[self.chance.choice(sorted(part))]
            if self.chance.random() < 0.25:
                name = self.chance.choice(KEYWORDS)
                part[name] = self.keyword(name, 1)
        return writer, reader


KEYWORDS = (
    *("type", "enum", "minimum", "exclusiveMaximum", "multipleOf", "maxLength", "minLength"),
    *("pattern", "items", "prefixItems", "maxItems", "uniqueItems", "properties", "properties"),
    *("additionalProperties", "patternProperties", "required", "maxProperties", "minProperties"),
    *("anyOf", "allOf", "oneOf", "not", "type", "properties", "exclusiveMinimum", "maximum"),
)


def all_parts(schema: Any) -> list[dict[str, Any]]:
    """All parts of a schema, those for values inside too."""
    found = [schema] if isinstance(schema, dict) else []
    for part in found:
        for name, value in part.items():
            if name in ("properties", "patternProperties"):
                found += [one for one in value.values() if isinstance(one, dict)]
            elif name in ("anyOf", "allOf", "oneOf", "prefixItems"):
                found += [one for one in value if isinstance(one, dict)]
            elif name in ("items", "not", "additionalProperties") and isinstance(value, dict):
                found.append(value)
    return found


def parts_of(schema: Any) -> list[dict[str, Any]]:
    """All parts that apply to the same value."""
    if isinstance(schema, bool):
        return []
    inner = [*schema.get("anyOf", ()), *schema.get("allOf", ()), *schema.get("oneOf", ())]
    inner += [schema["not"]] if "not" in schema else []
    return [schema, *(part for one in inner for part in parts_of(one))]


def is_named(schemas: list[Any], value: Any) -> bool:
    """Whether a value has only properties that its schemas name or allow by a rule.

    This repeats the promise of the documentation, without the way that the proof takes.
    """
    import re

    parts = [part for schema in schemas for part in parts_of(schema)]
    if isinstance(value, list):
        return all(
            is_named(
                [
                    part["prefixItems"][place]
                    if place < len(part.get("prefixItems", ()))
                    else part.get("items", True)
                    for part in parts
                ],
                one,
            )
            for place, one in enumerate(value)
        )
    if not isinstance(value, dict):
        return True
    named = {name for p in parts for name in (*p.get("properties", ()), *p.get("required", ()))}
    patterns = [text for p in parts for text in p.get("patternProperties", ())]
    is_silent = not named and not patterns
    is_open = is_silent and all(p.get("additionalProperties") is not False for p in parts)
    is_open = is_open or any(p.get("additionalProperties", False) is not False for p in parts)
    for name, one in value.items():
        if not (is_open or name in named or any(re.search(text, name) for text in patterns)):
            return False
        inner = []
        for part in parts:
            own = [part["properties"][name]] if name in part.get("properties", ()) else []
            own += [s for t, s in part.get("patternProperties", {}).items() if re.search(t, name)]
            inner += (
                own or [part["additionalProperties"]]
                if own or "additionalProperties" in part
                else []
            )
        if not is_named(inner, one):
            return False
    return True


def test_what_is_proven_holds_for_every_value() -> None:
    proven = tried = 0
    for seed in range(some(2500, 100_000)):
        maker = Maker(seed)
        writer, reader = maker.pair()
        if inclusion_problem(writer, reader):
            continue
        proven += writer is not False and reader is not True
        writes = jsonschema_rs.Draft202012Validator(writer)
        reads = jsonschema_rs.Draft202012Validator(reader)
        for _ in range(12):
            value = maker.value_of(writer)
            if writes.is_valid(value) and is_named([writer], value):
                tried += 1
                assert reads.is_valid(value), (seed, writer, reader, value)
    assert proven > 300  # otherwise the test says little
    assert tried > 1000


def test_a_schema_reads_its_own_payloads() -> None:
    """Apart from patterns of names that may overlap, and lists of values beside other rules."""
    for seed in range(some(400, 10_000)):
        schema = Maker(seed).schema()
        text = json.dumps(schema)
        if "enum" not in text and "patternProperties" not in text:
            assert inclusion_problem(schema, json.loads(text)) == "", (seed, schema)


def test_schemas_that_cannot_be_compared_in_time_are_refused() -> None:
    def union(number: int) -> dict[str, Any]:
        return {"anyOf": [{"minLength": n, "title": str(number)} for n in range(9)]}

    short = {"anyOf": [{"type": "string", "maxLength": n} for n in range(3)]}
    wide = {"allOf": [*map(union, range(9)), short]}
    with pytest.raises(SchemaError, match="too intricate to be compared"):
        inclusion_problem(wide, {"type": "string", "maxLength": 5})


# ---------------------------------------------------------------- Avro

AVRO_SCALARS = st.sampled_from(
    ["null", "boolean", "int", "long", "float", "double", "string", "bytes"]
)
AVRO_VALUES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 7,
    "float": 0.5,
    "double": 0.5,
    "string": "s",
    "bytes": b"b",
}
AVRO_SCALARS = st.sampled_from(sorted(AVRO_VALUES))


@st.composite
def avro_types(draw: st.DrawFn) -> tuple[Any, Any]:
    """A type with a value of it."""
    kind = draw(st.sampled_from(["scalar", "scalar", "array", "map", "union"]))
    name = draw(AVRO_SCALARS)
    value = AVRO_VALUES[name]
    if kind == "array" and name != "null":
        return {"type": "array", "items": name}, [value]
    if kind == "map":
        return {"type": "map", "values": name}, {"k": value}
    if kind == "union":
        other = draw(AVRO_SCALARS.filter(lambda one: one != name))
        return [name, other], value
    return name, value


@st.composite
def avro_records(draw: st.DrawFn) -> tuple[Any, Any]:
    fields, record = [], {}
    for name in draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True)):
        kind, value = draw(avro_types())
        field = {"name": name, "type": kind}
        if kind in ("int", "long") and draw(st.booleans()):
            field["default"] = 0
        fields.append(field)
        record[name] = value
    return {"type": "record", "name": "R", "fields": fields}, record


@settings(max_examples=some(300, 10_000), deadline=None)
@given(avro_records(), avro_records())
def test_avro_records_are_read_exactly_where_it_is_promised(writer: Any, reader: Any) -> None:
    """The oracle is fastavro, which reads a record with both schemas; a union is written with one
    of its types, so it may succeed where another type would not.
    """
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(writer[0]), writer[1])
    target.seek(0)
    problem = resolution_problem(writer[0], reader[0])
    has_union = any(isinstance(field["type"], list) for field in writer[0]["fields"])
    found = None
    try:
        schemaless_reader(target, parse_schema(writer[0]), parse_schema(reader[0]))
    except Exception as error:
        found = error
    assert problem or found is None, found
    assert found is not None or has_union or not problem, problem


@sweep(
    ("writer", "reader", "problem"),
    [
        ({"symbols": ["A", "B"]}, {"symbols": ["A", "B", "C"]}, ""),
        ({"symbols": ["A", "B"]}, {"symbols": ["A"]}, "/e: symbol B is gone"),
        ({"symbols": ["A", "B"]}, {"symbols": ["A"], "default": "A"}, ""),
        ({"symbols": ["A"]}, {"symbols": ["A"], "name": "F"}, "/e: E is called F now"),
        ({"symbols": ["A"]}, {"symbols": ["A"], "name": "F", "aliases": ["E"]}, ""),
    ],
)
def test_avro_enums_need_all_symbols_or_a_default(writer: Any, reader: Any, problem: str) -> None:
    made = [
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "e", "type": {"type": "enum", "name": "E", **one}}],
        }
        for one in (writer, reader)
    ]
    assert resolution_problem(*made).startswith(problem)
    assert bool(resolution_problem(*made)) == bool(problem)


# ---------------------------------------------------------------- Protobuf

KINDS = FieldDescriptorProto


def protobuf(*fields: tuple[str, int, Any], **more: Any) -> tuple[str, str]:
    import base64

    file = FileDescriptorProto(name="a.proto", package="a", syntax="proto2")
    message = file.message_type.add(name="M")
    for name, number, kind in fields:
        label = KINDS.LABEL_REQUIRED if name == more.get("required") else KINDS.LABEL_OPTIONAL
        label = KINDS.LABEL_REPEATED if name == more.get("repeated") else label
        message.field.add(name=name, number=number, type=kind, label=label)
    content = DescriptorSet(file=[file]).SerializeToString()
    return base64.b64encode(content).decode(), "a.M"


INT32, INT64, TEXT = KINDS.TYPE_INT32, KINDS.TYPE_INT64, KINDS.TYPE_STRING


@sweep(
    ("writer", "reader", "problem"),
    [
        (protobuf(("a", 1, INT32)), protobuf(("renamed", 1, INT64)), ""),
        (protobuf(("a", 1, INT32)), protobuf(("b", 2, TEXT)), ""),
        (protobuf(("a", 1, TEXT)), protobuf(("a", 1, KINDS.TYPE_BYTES)), ""),
        (protobuf(("a", 1, INT64)), protobuf(("a", 1, INT32)), "/a: field 1 was int64"),
        (protobuf(("a", 1, INT32)), protobuf(("b", 1, TEXT)), "/b: field 1 was int32, and is str"),
        (protobuf(), protobuf(("a", 1, INT32), required="a"), "/a: is required now"),
        (
            protobuf(("a", 1, INT32)),
            protobuf(("a", 1, INT32), repeated="a"),
            "/a: field 1 is repeated in one version only",
        ),
    ],
)
def test_protobuf_fields_keep_their_numbers_and_types(
    writer: Any, reader: Any, problem: str
) -> None:
    found = protobuf_problem(writer, reader)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


# ---------------------------------------------------------------- rules


def versions(old: Any, new: Any) -> tuple[SchemaVersion, SchemaVersion]:
    made = [
        SchemaVersion(subject="x", format="json", version=number, schema=schema)
        for number, schema in ((1, old), (2, new))
    ]
    return made[0], made[1]


@sweep(
    ("old", "new", "kept"),
    [
        (STRING, {"type": ["string", "null"]}, {"backward", "none"}),
        ({"type": ["string", "null"]}, STRING, {"forward", "none"}),
        (
            an_object(a=STRING),
            an_object(a=STRING, b=INTEGER),
            {"backward", "forward", "full", "none"},
        ),
        (STRING, INTEGER, {"none"}),
    ],
)
def test_a_rule_says_which_version_reads_which(old: Any, new: Any, kept: set[str]) -> None:
    pair = versions(old, new)
    rules = ("backward", "forward", "full", "none")
    assert {rule for rule in rules if not compatibility_problem(*pair, rule)} == kept


def test_an_error_names_the_schema_the_rule_and_the_place() -> None:
    with pytest.raises(SchemaError) as caught:
        check_compatible("order", *versions(an_object(a=STRING), an_object(a=INTEGER)), "full")
    assert str(caught.value) == (
        "schema order: the new version is not full compatible: it cannot read payloads of version"
        " 1: /a: type string is not allowed any more"
    )


def test_another_format_is_only_possible_without_a_rule() -> None:
    old, _ = versions(STRING, STRING)
    avro = SchemaVersion(subject="x", format="avro", version=2, schema={})
    assert compatibility_problem(old, avro, "backward").endswith("and is avro now")
    assert compatibility_problem(old, avro, "none") == ""
