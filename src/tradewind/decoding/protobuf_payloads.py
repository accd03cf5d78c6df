"""Protobuf payloads: each is one message of a type that a descriptor set describes.

Owns which Protobuf types are which columns. A schema is a text here: JSON with the descriptors of
files, and the name of the message. Parsing itself is that of the library of Protobuf.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa

from tradewind.decoding.column_growth import COLUMNS_MAX, joined_schema
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.extras import require
from tradewind.decoding.payload_kinds import DEPTH_MAX
from tradewind.decoding.row_decoding import ReadRow, RowPlan, one_line
from tradewind.decoding.schema_registry import RegisteredSchema, SchemaRegistry
from tradewind.decoding.written_schemas import WrittenSchemas, all_references

# The fields of a message that its type does not have, by number.
UNKNOWN_KEY: Final = "_unknown"
INDEXES_MAX: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_FREE: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_TIMESTAMP: Final = "google.protobuf.Timestamp"

Convert = Callable[[Any], Any]


class ProtobufSchema(msgspec.Struct, frozen=True):
    """A schema as it is stored in texts: files in the order of their imports, and a message.

    Without a name, the message is chosen by the indexes in front of each payload.
    """

    files: list[bytes]
    message: str = ""


@dataclass(frozen=True)
class ProtobufReader:
    """Reads Protobuf messages that were written with some schemas."""

    schemas: WrittenSchemas

    def read(self, payload: bytes, plan: RowPlan) -> ReadRow:  # noqa: ARG002
        """One message."""
        text, body = self.schemas.split(payload)
        message = ""
        if self.schemas.is_framed:
            indexes, body = message_indexes(body)
            message = opened_files(text).name_at(indexes)
        return ReadRow(opened_files(text).message(message).read(body))

    def schema(self, payloads: pa.BinaryArray) -> pa.Schema | None:
        """The fields of the newest schema, and those of all that payloads name."""
        fields = opened_files(self.schemas.latest).message("").fields
        for text in self.schemas.named_by(payloads):
            fields = joined_schema(fields, opened_files(text).message("").fields)
        return fields


def message_indexes(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """The path to a payload's message in its schema file, and the bytes after that path.

    The path leads from the messages of the file to one nested within others: a count and the
    indexes, each as a zigzag number of variable length. The count 0 stands for the first message.
    ValueError if the path is truncated.
    """
    count, position = _zigzag(body, 0)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueError(f"the payload has {count} message indexes; from 0 to {INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(body, position)
        indexes.append(index)
    return tuple(indexes) or (0,), body[position:]


def _zigzag(body: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(body):
            break
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise ValueError("the payload does not have the indexes of its message")


def protobuf_text(schema: RegisteredSchema, registry: SchemaRegistry) -> str:
    """A Protobuf schema of a registry, with all that it imports."""
    if schema.schema_type != "PROTOBUF":
        raise DecodingError(
            f"schema registry {registry.url}: a schema is {schema.schema_type}, not PROTOBUF"
        )
    files = []
    for name, one in [*all_references(schema, registry), ("", schema)]:
        files.append(_with_name(one.schema, name, registry))
    return msgspec.json.encode(ProtobufSchema(files)).decode()


def _with_name(text: str, name: str, registry: SchemaRegistry) -> bytes:
    """The descriptor of a file, under the name by which others import it."""
    require("google.protobuf", "protobuf")
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise DecodingError(
            f"schema registry {registry.url}: it does not return Protobuf as a descriptor"
            " (format=serialized)"
        ) from None
    if name or not file.name:
        file.name = name or "payload.proto"
    serialized: bytes = file.SerializeToString()
    return serialized


def descriptor_set_text(content: bytes, message: str, where: str) -> str:
    """The schema of a message in a descriptor set, as `protoc --descriptor_set_out` writes it."""
    require("google.protobuf", "protobuf")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError as error:
        raise DecodingError(f"{where}: not a descriptor set: {one_line(error)}") from None
    if not files:
        raise DecodingError(f"{where}: a descriptor set without files")
    names = [
        f"{file.package}.{one.name}".lstrip(".") for file in files for one in file.message_type
    ]
    if not message and len(names) == 1:
        message = names[0]
    if not message:
        raise DecodingError(
            f"{where}: which message? write {where}#NAME with one of {', '.join(names[:20])}"
        )
    schema = ProtobufSchema([file.SerializeToString() for file in files], message)
    text = msgspec.json.encode(schema).decode()
    opened_files(text).message("")
    return text


@lru_cache(maxsize=256)
def opened_files(text: str) -> OpenedFiles:
    """The files of a schema, ready to parse messages."""
    return OpenedFiles(msgspec.json.decode(text, type=ProtobufSchema))


class OpenedFiles:
    """Files in a pool of their own, so that two versions of a type do not meet."""

    def __init__(self, schema: ProtobufSchema) -> None:
        require("google.protobuf", "protobuf")
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import Default, DescriptorPool

        self._default = schema.message
        self._pool = DescriptorPool()
        self._opened: dict[str, OpenedMessage] = {}
        known: set[str] = set()
        files = [FileDescriptorProto.FromString(content) for content in schema.files]
        self._file = files[-1]
        for file in files:
            for name in file.dependency:
                if name not in known and name.startswith("google/protobuf/"):
                    self._add_known(name, Default(), known)
            if file.name in known:
                continue
            known.add(file.name)
            try:
                self._pool.Add(file)
            except TypeError as error:
                raise DecodingError(f"Protobuf file {file.name}: {one_line(error)}") from None

    def _add_known(self, name: str, default: Any, known: set[str]) -> None:
        """A file of Protobuf itself, which descriptor sets often leave out."""
        import importlib

        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        try:
            importlib.import_module(module)
            found = default.FindFileByName(name)
        except (ImportError, KeyError):
            return  # the error of the file that needs it names it
        known.add(name)
        copy = FileDescriptorProto()
        found.CopyToProto(copy)
        for one in copy.dependency:
            if one not in known:
                self._add_known(one, default, known)
        self._pool.Add(copy)

    def name_at(self, indexes: tuple[int, ...]) -> str:
        """The name of the message at a path of indexes in the last file."""
        messages, names = self._file.message_type, []
        for index in indexes:
            if not 0 <= index < len(messages):
                raise ValueError(f"the schema has no message with the indexes {list(indexes)}")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return ".".join(filter(None, (self._file.package, *names)))

    def message(self, name: str) -> OpenedMessage:
        """A message by its name; without one, that of the schema, or the first of the file."""
        if not name:
            name = self._default
        if not name:
            if not self._file.message_type:
                raise DecodingError(f"Protobuf file {self._file.name} has no message")
            name = self.name_at((0,))
        if name not in self._opened:
            try:
                descriptor = self._pool.FindMessageTypeByName(name)
            except KeyError:
                raise DecodingError(
                    f"the Protobuf schema has no message {name}; write #package.Message"
                ) from None
            self._opened[name] = OpenedMessage(descriptor)
        return self._opened[name]


class OpenedMessage:
    """One type of messages: its columns, and how its values are read."""

    def __init__(self, descriptor: Any) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._parse = GetMessageClass(descriptor).FromString
        types = _ProtobufTypes()
        column, self._convert = types.message(descriptor, DEPTH_MAX)
        self.fields = pa.schema(list(column))

    def read(self, body: bytes) -> dict[str, Any]:
        """The fields of a message; ValueError if the bytes are none."""
        from google.protobuf.message import DecodeError

        try:
            message = self._parse(body)
            fields: dict[str, Any] = self._convert(message)
        except DecodeError as error:
            raise ValueError(one_line(error)) from None
        except RecursionError:
            raise
        except Exception as error:  # free-form messages raise whatever their values lead to
            raise ValueError(f"a field cannot be read: {one_line(error)}") from None
        return fields


class _ProtobufTypes:
    """Walks through a type once: the Arrow type of each part, and a function for its values."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._count = 0

    def message(self, descriptor: Any, depth: int) -> tuple[pa.DataType, Convert]:
        """A message as a struct."""
        from google.protobuf.unknown_fields import UnknownFieldSet

        self._open.append(descriptor.full_name)
        fields, parts = [], []
        for field in descriptor.fields:
            self._count += 1
            if self._count > COLUMNS_MAX:
                raise DecodingError(f"the Protobuf type has more than {COLUMNS_MAX} fields")
            column, convert = self._field(field, depth)
            fields.append(pa.field(field.name, column))
            parts.append((field.name, field.has_presence, convert))
        self._open.pop()

        def read(message: Any) -> dict[str, Any]:
            found = {
                name: convert(getattr(message, name))
                for name, has_presence, convert in parts
                if not has_presence or message.HasField(name)
            }
            unknown = UnknownFieldSet(message)
            if len(unknown):
                found[UNKNOWN_KEY] = _unknown(unknown)
            return found

        return (pa.struct(fields), read) if fields or depth == DEPTH_MAX else (pa.string(), read)

    def _field(self, field: Any, depth: int) -> tuple[pa.DataType, Convert]:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            return self._map(inner, depth)
        column, convert = self._single(field, depth)
        if field.is_repeated:
            kind = pa.list_(pa.field("element", column))
            return kind, lambda values: [convert(value) for value in values]
        return column, convert

    def _map(self, entry: Any, depth: int) -> tuple[pa.DataType, Convert]:
        column, convert = self._single(entry.fields_by_name["value"], depth)

        def read(values: Any) -> dict[str, Any]:
            return {str(key): convert(values[key]) for key in values}

        return pa.map_(pa.string(), column), read

    def _single(self, field: Any, depth: int) -> tuple[pa.DataType, Convert]:
        """A value that is not repeated."""
        descriptor = field.message_type
        if descriptor is None:
            if field.enum_type is not None:
                names = {one.number: one.name for one in field.enum_type.values}
                # A number without a name is kept as the number.
                return pa.string(), lambda number: names.get(number, number)
            return _scalars()[field.type], _same
        name = descriptor.full_name
        if name == _TIMESTAMP:
            return pa.timestamp("us", tz="UTC"), _moment
        if name in _WRAPPERS:
            column, convert = self._single(descriptor.fields_by_name["value"], depth)
            return column, lambda message: convert(message.value)
        if name in _FREE:
            from google.protobuf.json_format import MessageToDict

            return pa.string(), MessageToDict
        if name in self._open or depth <= 0:
            # No column can hold itself: the JSON of the message.
            from google.protobuf.json_format import MessageToDict

            return pa.string(), lambda one: MessageToDict(one, preserving_proto_field_name=True)
        return self.message(descriptor, depth - 1)


@lru_cache(maxsize=1)
def _scalars() -> dict[int, pa.DataType]:
    from google.protobuf.descriptor import FieldDescriptor as Field

    return {
        Field.TYPE_DOUBLE: pa.float64(),
        Field.TYPE_FLOAT: pa.float32(),
        Field.TYPE_BOOL: pa.bool_(),
        Field.TYPE_STRING: pa.string(),
        Field.TYPE_BYTES: pa.binary(),
        **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32), pa.int32()),
        **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), pa.int64()),
        **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), pa.int64()),
        # Up to 2**64 - 1, which is more than a bigint holds.
        **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), pa.decimal128(20, 0)),
    }


def _same(value: Any) -> Any:
    return value


def _moment(message: Any) -> Any:
    """A timestamp; as a text if it has more digits than a column, as it is if it is none."""
    seconds, nanos = message.seconds, message.nanos
    if not 0 <= nanos < 1_000_000_000:
        return {"seconds": seconds, "nanos": nanos}
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        return {"seconds": seconds, "nanos": nanos}
    if nanos % 1000 == 0:
        return moment
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}.{nanos:09d}+00:00"


def _unknown(fields: Any) -> dict[str, list[Any]]:
    """Fields without a name, by their numbers; those of groups as such an object."""
    found: dict[str, list[Any]] = {}
    for one in fields:
        data = one.data
        if not isinstance(data, int | bytes):
            data = _unknown(data)
        found.setdefault(str(one.field_number), []).append(data)
    return found
