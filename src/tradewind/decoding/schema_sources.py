"""Where schemas come from: files, buckets and registries.

Owns the texts `file:PATH`, `bucket:NAME` and `registry:URL`, and what is in such a file or bucket.
The module never connects to a NATS server: who asks brings a function that reads a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from tradewind.decoding.avro_payloads import opened_schema
from tradewind.decoding.column_growth import COLUMNS_MAX
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.payload_kinds import DEPTH_MAX
from tradewind.decoding.protobuf_payloads import descriptor_set_text, protobuf_text
from tradewind.decoding.row_decoding import one_line
from tradewind.decoding.schema_registry import SchemaRegistry
from tradewind.decoding.type_texts import columns_of
from tradewind.decoding.written_schemas import WrittenSchemas, avro_text
from tradewind.documents import Document
from tradewind.errors import JSON_ERRORS, TradewindError
from tradewind.subjects import collides_with_any, is_valid_subject

FILE_BYTES_MAX: Final = 4 << 20
ENTRIES_MAX: Final = 10_000
_JSON_TYPES: Final = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_JSON_FORMATS: Final = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}

# The entries of a bucket: each key with its current value.
ReadBucket = Callable[[str], Mapping[str, bytes]]


@dataclass(frozen=True)
class SchemaContext:
    """The context in which a schema is looked for.

    `folder` is where relative paths begin. `stream` and `subjects` are those of the messages: a
    registry has the subject `<stream>-value`, a bucket schemas by subjects. `read_bucket` is needed
    for `bucket:` only.
    """

    folder: Path = Path()
    stream: str = ""
    subjects: tuple[str, ...] = ()
    read_bucket: ReadBucket | None = None


class BucketSchema(msgspec.Struct):
    """One entry of a bucket of schemas. With an `id`, payloads begin with it."""

    subject: str
    format: str
    version: int
    schema: Any
    message: str = ""
    id: int | None = None


# The fields of a format without a schema of its own, or the schemas payloads were written with.
FoundSchema: TypeAlias = "pa.Schema | WrittenSchemas"


def find_schema(schema: str, payload: str, context: SchemaContext) -> FoundSchema:
    """The schema that `file:`, `bucket:` or `registry:` names; DecodingError if there is none."""
    kind, _, place = schema.partition(":")
    if kind == "file":
        return _from_file(place, payload, context)
    if kind == "bucket":
        return _from_bucket(place, payload, context)
    return _from_registry(place, payload, context)


def is_reference(schema: object) -> bool:
    """Whether a schema is somewhere else."""
    return isinstance(schema, str) and schema.startswith(("file:", "bucket:", "registry:"))


# ---------------------------------------------------------------- files


def _from_file(place: str, payload: str, context: SchemaContext) -> FoundSchema:
    name, _, message = place.partition("#")
    path = context.folder / name
    where = f"schema file:{name}"
    if payload == "avro":
        return WrittenSchemas(_checked_avro(_text(path, where), where))
    if payload == "protobuf":
        return WrittenSchemas(descriptor_set_text(_content(path, where), message, where))
    document = Document(path)
    try:
        document.read()
    except TradewindError as error:
        raise DecodingError(f"schema file:{error}") from None
    value = document.value
    if not isinstance(value, dict):
        raise DecodingError(f"{where}: it must be a mapping of names to types, or a JSON Schema")
    if value.get("type") == "record" and isinstance(value.get("fields"), list):
        return opened_schema(msgspec.json.encode(value).decode()).fields
    return _from_document(value, where)


def _from_document(value: Any, where: str) -> pa.Schema:
    """A mapping of names to types, or a JSON Schema."""
    if isinstance(value, str):
        return columns_of(value)
    if not isinstance(value, dict):
        raise DecodingError(f"{where}: it must be a mapping of names to types, or a JSON Schema")
    if "$schema" in value or (value.get("type") == "object" and "properties" in value):
        return json_schema_columns(value, where)
    try:
        return columns_of(value)
    except DecodingError as error:
        raise DecodingError(f"{where}: {error}") from None


def _content(path: Path, where: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise DecodingError(f"{where} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise DecodingError(f"{where}: more than {FILE_BYTES_MAX} bytes")
    return content


def _text(path: Path, where: str) -> str:
    try:
        return _content(path, where).decode()
    except UnicodeDecodeError as error:
        raise DecodingError(f"{where}: byte {error.start} is not UTF-8") from None


def _checked_avro(text: str, where: str) -> str:
    try:
        opened_schema(text)
    except DecodingError as error:
        raise DecodingError(f"{where}: {error}") from None
    return text


def json_schema_columns(value: dict[str, Any], where: str) -> pa.Schema:
    """The fields of a JSON Schema of an object. Types only: nothing is checked beside them."""
    counted = [0]
    kind = _json_type(value, where, DEPTH_MAX, counted)
    if not pa.types.is_struct(kind):
        raise DecodingError(f'{where}: the JSON Schema must be of "type": "object" with properties')
    return pa.schema(list(kind))


def _json_type(value: Any, where: str, depth: int, counted: list[int]) -> pa.DataType:
    """The type of a part of a JSON Schema; a string, which holds any JSON, where it is open."""
    counted[0] += 1
    if counted[0] > COLUMNS_MAX:
        raise DecodingError(f"{where}: more than {COLUMNS_MAX} fields")
    if not isinstance(value, dict) or depth < 0:
        return pa.string()
    kinds = value.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    names = [name for name in names if name != "null"]
    if sorted(map(str, names)) == ["integer", "number"]:
        names = ["number"]
    if len(names) != 1:
        return pa.string()
    if names[0] == "object" and isinstance(value.get("properties"), dict) and value["properties"]:
        return pa.struct(
            [
                pa.field(name, _json_type(one, where, depth - 1, counted))
                for name, one in value["properties"].items()
            ]
        )
    if names[0] == "object" and isinstance(value.get("additionalProperties"), dict):
        item = _json_type(value["additionalProperties"], where, depth - 1, counted)
        return pa.map_(pa.string(), item)
    if names[0] == "array" and isinstance(value.get("items"), dict):
        item = _json_type(value["items"], where, depth - 1, counted)
        return pa.list_(pa.field("element", item))
    if names[0] == "string":
        return _JSON_FORMATS.get(str(value.get("format")), pa.string())
    return _JSON_TYPES.get(str(names[0]), pa.string())


# ---------------------------------------------------------------- buckets


def _from_bucket(name: str, payload: str, context: SchemaContext) -> FoundSchema:
    where = f"schema bucket:{name}"
    if context.read_bucket is None:
        raise DecodingError(f"{where}: there is no connection to read it with")
    wanted = payload if payload in ("avro", "protobuf") else "json"
    found = _matching(context.read_bucket(name), wanted, where, context.subjects)
    if not found:
        subjects = ", ".join(context.subjects) or "any subject"
        raise DecodingError(f"{where}: no {wanted} schema for {subjects}")
    patterns = sorted({entry.subject for entry in found})
    if len(patterns) > 1:
        raise DecodingError(
            f"{where}: schemas for {' and '.join(patterns[:5])} match, and one stream has one;"
            " give each its own stream, or keep one of them"
        )
    versions = [entry.version for entry in found]
    if len(set(versions)) < len(versions):
        raise DecodingError(f"{where}: two schemas for {patterns[0]} have the same version")
    latest = max(found, key=lambda entry: entry.version)
    if wanted == "json":
        return _from_document(latest.schema, where)
    texts = {entry.version: _bucket_text(entry, wanted, where) for entry in found}
    ids = {entry.id: texts[entry.version] for entry in found if entry.id is not None}
    return WrittenSchemas(texts[latest.version], ids)


def _matching(
    entries: Mapping[str, bytes], wanted: str, where: str, subjects: Iterable[str]
) -> list[BucketSchema]:
    if len(entries) > ENTRIES_MAX:
        raise DecodingError(f"{where}: more than {ENTRIES_MAX} entries")
    subjects = tuple(subjects)
    found = []
    for key, value in sorted(entries.items()):
        try:
            entry = msgspec.json.decode(value, type=BucketSchema)
        except JSON_ERRORS as error:
            raise DecodingError(f"{where}: key {key}: {one_line(error)}") from None
        if not is_valid_subject(entry.subject):
            raise DecodingError(f"{where}: key {key}: {entry.subject!r} is no subject")
        matches = not subjects or collides_with_any(entry.subject, subjects)
        if entry.format == wanted and matches:
            found.append(entry)
    return found


def _bucket_text(entry: BucketSchema, wanted: str, where: str) -> str:
    where = f"{where}: {entry.subject} version {entry.version}"
    schema = entry.schema
    if wanted == "avro":
        text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
        return _checked_avro(text, where)
    try:
        content = msgspec.convert(schema, bytes)
    except msgspec.ValidationError:
        raise DecodingError(
            f"{where}: `schema` must be a descriptor set in base64 (protoc --descriptor_set_out)"
        ) from None
    return descriptor_set_text(content, entry.message, where)


# ---------------------------------------------------------------- registries


def _from_registry(place: str, payload: str, context: SchemaContext) -> FoundSchema:
    url, _, subject = place.partition("#")
    registry = SchemaRegistry.at(url)
    if payload not in ("avro", "protobuf"):
        raise DecodingError(f"schema registry:{registry.url} is for payload avro or protobuf")
    if not subject and not context.stream:
        raise DecodingError(f"schema registry:{registry.url}: which subject? write URL#SUBJECT")
    latest = registry.latest(subject or f"{context.stream}-value")
    text_of = avro_text if payload == "avro" else protobuf_text
    return WrittenSchemas(text_of(latest, registry), {}, registry, text_of)
