"""Whether a payload obeys a schema: one check for each format, made from a document.

Owns the choice by the format and the largest payload that may be checked, so that no check takes
longer than a turn of an event loop may. Each format's module says what is wrong with a payload.
"""

from __future__ import annotations

from typing import Final, Protocol

from tradewind.schemas.schema_documents import SchemaVersion
from tradewind.schemas.schema_errors import SchemaError, require_library

# The payload in bytes times the cost of its most expensive value: about 25 ms of a processor.
WORK_MAX: Final = 16_000_000
# The smallest values have two bytes, and take a tenth of a microsecond whatever the schema.
PAYLOAD_BYTES_MAX: Final = 262_144


class FormatCheck(Protocol):
    """The check of one format. `cost` bounds the units of work for each byte of a payload."""

    cost: int

    def problem(self, payload: bytes) -> str:
        """The fault of a payload with its place; empty if it obeys the schema."""


class PayloadCheck:
    """The check of payloads against one version of a schema."""

    def __init__(self, check: FormatCheck) -> None:
        self._check = check
        self.payload_max = max(min(PAYLOAD_BYTES_MAX, WORK_MAX // max(check.cost, 1)), 1)

    def problem(self, payload: bytes) -> str:
        """The fault of a payload with its place; empty if it obeys the schema."""
        if len(payload) > self.payload_max:
            return f"{len(payload)} bytes are more than the {self.payload_max} that can be checked"
        return self._check.problem(payload)


def open_check(document: SchemaVersion) -> PayloadCheck:
    """The check of a document's schema; SchemaError says why it cannot be used."""
    require_library(document.format)
    if document.format == "json":
        from tradewind.schemas.json_check import JsonCheck

        return PayloadCheck(JsonCheck(document.schema))
    if document.format == "avro":
        from tradewind.schemas.avro_check import AvroCheck

        return PayloadCheck(AvroCheck(document.schema))
    if document.format == "protobuf":
        from tradewind.schemas.protobuf_check import ProtobufCheck

        return PayloadCheck(ProtobufCheck(document.schema, document.message))
    raise SchemaError(f"format {document.format!r} is unknown")
