"""Payloads as values and back, by their schema: dicts, lists, texts and numbers.

Owns how each format is written from JSON-like values and shown as such. It never checks more than
the format itself demands; `payload_checks` does.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec

from tradewind.schemas.schema_documents import SchemaVersion
from tradewind.schemas.schema_errors import SchemaError, one_line, require_library


def encode_value(document: SchemaVersion, value: Any) -> bytes:
    """The payload of a value; SchemaError if the value does not fit the schema."""
    require_library(document.format)
    try:
        if document.format == "json":
            return msgspec.json.encode(value)
        if document.format == "avro":
            from fastavro import parse_schema, schemaless_writer

            target = io.BytesIO()
            schemaless_writer(target, parse_schema(_avro(document)), value, strict=True)
            return target.getvalue()
        from google.protobuf.json_format import ParseDict

        message: bytes = ParseDict(value, _protobuf(document)).SerializeToString()
        return message  # noqa: TRY300
    except SchemaError:
        raise
    except Exception as error:  # its writers raise whatever the value leads to
        raise SchemaError(
            f"the value does not fit the {document.format} schema: {one_line(error)}"
        ) from None


def decode_value(document: SchemaVersion, payload: bytes) -> Any:
    """The value of a payload, which obeys the schema; SchemaError if it cannot be read."""
    require_library(document.format)
    try:
        if document.format == "json":
            return msgspec.json.decode(payload)
        if document.format == "avro":
            return _avro_value(document, payload)
        from google.protobuf.json_format import MessageToDict

        message = _protobuf(document)
        message.ParseFromString(payload)
        return MessageToDict(message, preserving_proto_field_name=True)
    except SchemaError:
        raise
    except Exception as error:  # its readers raise whatever their bytes lead to
        raise SchemaError(
            f"the payload cannot be read as {document.format}: {one_line(error)}"
        ) from None


def _avro_value(document: SchemaVersion, payload: bytes) -> Any:
    from fastavro import schemaless_reader

    from tradewind.schemas.avro_check import AvroShape

    source = io.BytesIO(payload)
    value = schemaless_reader(source, AvroShape(document.schema).parsed, None)
    if source.tell() < len(payload):
        raise SchemaError(f"{len(payload) - source.tell()} bytes follow the record")
    return value


def _avro(document: SchemaVersion) -> Any:
    schema = document.schema
    return msgspec.json.decode(schema) if isinstance(schema, str) else schema


def _protobuf(document: SchemaVersion) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    from tradewind.schemas.protobuf_check import message_descriptor

    return GetMessageClass(message_descriptor(document.schema, document.message))()
