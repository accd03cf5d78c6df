"""The documents in the bucket of schemas: one key for each version of each schema.

Owns the name of the bucket, the names of keys, the fields of a document and their limits. The
field `schema` is for the module of its format. Decoders read the same documents
(`bucket:TW_SCHEMAS`).

    key      order.2
    value    {"subject":"orders.*","format":"json","version":2,"schema":{...}}
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tradewind.api.names import KV_STREAM, KV_SUBJECTS
from tradewind.errors import JSON_ERRORS
from tradewind.schemas.schema_errors import SchemaError, one_line
from tradewind.subjects import is_valid_subject

BUCKET: Final = "TW_SCHEMAS"
STREAM: Final = f"{KV_STREAM}{BUCKET}"
KEY_PREFIX: Final = f"{KV_SUBJECTS}{BUCKET}."
# Names the schema and the version that a payload was written with: `order.2`.
HEADER: Final = "Tradewind-Schema"
FORMATS: Final = ("json", "avro", "protobuf")
BACKWARD, FORWARD, FULL, NONE = COMPATIBILITIES = ("backward", "forward", "full", "none")
NAME_CHARACTERS_MAX: Final = 64
SUBJECT_CHARACTERS_MAX: Final = 256
# A document as it is stored.
DOCUMENT_BYTES_MAX: Final = 131_072
# Versions of all schemas that are read from a bucket.
VERSIONS_MAX: Final = 10_000
# The documents that are kept in memory.
BUCKET_BYTES_MAX: Final = 67_108_864
VERSION_NUMBER_MAX: Final = 999_999
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,5}")


class SchemaVersion(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One version of a schema. `message` is the type of payloads in a Protobuf descriptor set.

    `compatibility` is what the next version must keep.
    """

    subject: str
    format: str
    version: int
    schema: Any
    message: str = ""
    compatibility: str = BACKWARD
    description: str = ""
    # Ids in front of payloads, as a registry of Confluent's kind has them, are not for this bucket.
    id: int | None = None


class SchemaHead(msgspec.Struct, frozen=True):
    """A document whose schema is not read yet."""

    subject: str
    format: str
    version: int
    schema: msgspec.Raw
    message: str = ""
    compatibility: str = BACKWARD
    id: int | None = None


def check_name(name: str) -> None:
    """SchemaError unless a schema may have this name."""
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"schema name {name[:NAME_CHARACTERS_MAX]!r}: 1 to {NAME_CHARACTERS_MAX} letters,"
            " digits, '_' and '-', the first a letter or digit"
        )


def key_of(name: str, version: int) -> str:
    """The key of a version."""
    return f"{name}.{version}"


def split_key(key: str) -> tuple[str, int] | None:
    """The name and number of a version by its key; None if it is none."""
    name, _, version = key.rpartition(".")
    if _NAME.fullmatch(name) is None or _VERSION.fullmatch(version) is None:
        return None
    return name, int(version)


def read_head(key: str, value: bytes) -> tuple[str, SchemaHead]:
    """The name and the version that an entry of the bucket holds; SchemaError if it is none.

    The schema itself is not looked at.
    """
    named = split_key(key)
    if named is None:
        raise SchemaError(f"key {key[:80]!r} of bucket {BUCKET}: must be NAME.VERSION")
    if len(value) > DOCUMENT_BYTES_MAX:
        raise SchemaError(f"schema {key}: {len(value)} bytes; at most {DOCUMENT_BYTES_MAX}")
    try:
        document = _HEADS.decode(value)
    except JSON_ERRORS as error:
        raise SchemaError(f"schema {key}: {one_line(error)}") from None
    name, number = named
    if document.version != number:
        raise SchemaError(f"schema {key}: version is {document.version}, not {number} as the key")
    check_document(key, document)
    return name, document


def read_document(value: bytes) -> SchemaVersion:
    """An entry whose head was read before; SchemaError if its schema is no JSON."""
    try:
        return _DOCUMENTS.decode(value)
    except JSON_ERRORS as error:
        raise SchemaError(one_line(error)) from None


def check_document(label: str, document: SchemaVersion | SchemaHead) -> None:
    """SchemaError unless the fields beside `schema` are valid."""
    if not is_valid_subject(document.subject) or len(document.subject) > SUBJECT_CHARACTERS_MAX:
        raise SchemaError(f"schema {label}: {document.subject[:80]!r} is not a subject or pattern")
    if document.format not in FORMATS:
        names = ", ".join(FORMATS)
        raise SchemaError(f"schema {label}: format must be one of {names}, not {document.format!r}")
    if document.compatibility not in COMPATIBILITIES:
        names = ", ".join(COMPATIBILITIES)
        raise SchemaError(
            f"schema {label}: compatibility must be one of {names}, not {document.compatibility!r}"
        )
    if document.id is not None:
        raise SchemaError(f"schema {label}: id is not allowed in bucket {BUCKET}")
    if document.message and document.format != "protobuf":
        raise SchemaError(f"schema {label}: message is for protobuf, not {document.format}")


def document_bytes(label: str, document: SchemaVersion) -> bytes:
    """A document as it is stored; SchemaError if it is too large."""
    value = msgspec.json.encode(document)
    if len(value) > DOCUMENT_BYTES_MAX:
        raise SchemaError(f"schema {label}: {len(value)} bytes; at most {DOCUMENT_BYTES_MAX}")
    return value


_HEADS: Final = msgspec.json.Decoder(SchemaHead)
_DOCUMENTS: Final = msgspec.json.Decoder(SchemaVersion)
