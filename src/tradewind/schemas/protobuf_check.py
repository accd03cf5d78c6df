"""Protobuf payloads against the message type of a descriptor set.

Owns what counts as wrong: bytes that do not parse, required fields that are missing, and fields
that the type does not have, since nearly any bytes would be a message of unknown fields. Parsing is
that of the library of Protobuf, which is linear and limits the depth itself.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tradewind.schemas.schema_errors import SchemaError, one_line, require_library

FILES_MAX: Final = 200
# Parsing, measuring twice and dropping what is unknown.
BYTE_COST: Final = 64


class ProtobufCheck:
    """The check against one message type."""

    def __init__(self, schema: Any, message: str) -> None:
        require_library("protobuf")
        from google.protobuf.message_factory import GetMessageClass

        self.cost = BYTE_COST
        self._type = GetMessageClass(message_descriptor(schema, message))

    def problem(self, payload: bytes) -> str:
        """The fault of a payload; empty if it is a message of the type."""
        message: Any = self._type()
        try:
            message.ParseFromString(payload)
        except Exception as error:  # DecodeError, and what texts that are not UTF-8 lead to
            return f"not a message of the Protobuf type: {one_line(error)}"
        if not message.IsInitialized():
            return f"/{message.FindInitializationErrors()[0].replace('.', '/')}: is required"
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            message.ParseFromString(payload)
            return unknown_field(message)
        return ""


def unknown_field(message: Any) -> str:
    """The first field of a message that its type does not have, with its place."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    waiting = [("", message)]
    while waiting:
        path, one = waiting.pop()
        for field in UnknownFieldSet(one):
            name = one.DESCRIPTOR.full_name
            return f"{path}/{field.field_number}: {name} has no field of this number"
        for field, value in one.ListFields():
            if field.message_type is None:
                continue
            inner = f"{path}/{field.name}"
            if field.message_type.GetOptions().map_entry:
                if field.message_type.fields_by_name["value"].message_type is not None:
                    waiting += [(f"{inner}/{key}", each) for key, each in value.items()]
            elif field.is_repeated:
                waiting += [(f"{inner}/{number}", each) for number, each in enumerate(value)]
            else:
                waiting.append((inner, value))
    return "/: fields that the type does not have"


def message_descriptor(schema: Any, message: str) -> Any:
    """The type of payloads in a descriptor set in base64; SchemaError if there is none."""
    require_library("protobuf")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    try:
        content = msgspec.convert(schema, bytes)
        files = list(FileDescriptorSet.FromString(content).file)
    except (msgspec.ValidationError, DecodeError) as error:
        raise SchemaError(
            "`schema` must be a descriptor set in base64 (protoc --include_imports"
            f" --descriptor_set_out): {one_line(error)}"
        ) from None
    if not 0 < len(files) <= FILES_MAX:
        raise SchemaError(f"the descriptor set has {len(files)} files; from 1 to {FILES_MAX}")
    pool: Any = DescriptorPool()
    _add_known(pool, {name for file in files for name in file.dependency})
    known: set[str] = set()
    try:
        for file in files:
            if file.name not in known and not _has_file(pool, file.name):
                pool.Add(file)
            known.add(file.name)
        names = [_full_name(file, one) for file in files for one in file.message_type]
        if not message:
            if len(names) != 1:
                raise SchemaError(f"which message? one of {', '.join(names[:20])}")
            message = names[0]
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise SchemaError(f"the descriptor set has no message {message[:200]!r}") from None
    except TypeError as error:
        raise SchemaError(f"not a descriptor set: {one_line(error)}") from None


def _full_name(file: Any, one: Any) -> str:
    return f"{file.package}.{one.name}".lstrip(".")


def _has_file(pool: Any, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _add_known(pool: Any, names: set[str]) -> None:
    """Add files of Protobuf itself, which descriptor sets often leave out."""
    import importlib

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    for name in sorted(names):
        if not name.startswith("google/protobuf/") or _has_file(pool, name):
            continue
        module = name.removesuffix(".proto").rpartition("/")[2]
        if not module.isidentifier():
            continue
        try:
            found = importlib.import_module(f"google.protobuf.{module}_pb2")
        except ImportError:
            continue
        file = FileDescriptorProto()
        found.DESCRIPTOR.CopyToProto(file)
        _add_known(pool, set(file.dependency))
        pool.Add(file)
