"""The schemas that payloads were written with.

Owns which schema belongs to a payload: the newest one, or the one whose id is in front of it:

    0x00 | id of the schema, 4 bytes, big-endian | the payload itself

The module knows neither Avro nor Protobuf: a schema is a text here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.schema_registry import (
    REFERENCES_MAX,
    RegisteredSchema,
    SchemaRegistry,
)

FRAME_BYTES: Final = 5
# Turns what a registry has into the text of a schema.
SchemaText = Callable[[RegisteredSchema, SchemaRegistry], str]


@dataclass(frozen=True)
class WrittenSchemas:
    """The newest schema, and older ones by their ids.

    If there are ids or a registry, each payload begins with an id.
    """

    latest: str
    by_id: dict[int, str] = field(default_factory=dict)
    registry: SchemaRegistry | None = None
    text_of: SchemaText | None = None

    @property
    def is_framed(self) -> bool:
        """Whether payloads begin with an id."""
        return bool(self.by_id) or self.registry is not None

    def split(self, payload: bytes) -> tuple[str, bytes]:
        """The schema of a payload, and its bytes after the id; ValueError if it has none."""
        if not self.is_framed:
            return self.latest, payload
        if len(payload) < FRAME_BYTES or payload[0] != 0:
            raise ValueError("the payload does not begin with 0 and the id of a schema (4 bytes)")
        return self.of_id(int.from_bytes(payload[1:FRAME_BYTES])), payload[FRAME_BYTES:]

    def of_id(self, number: int) -> str:
        """The schema with an id; ValueError if there is none."""
        if number in self.by_id:
            return self.by_id[number]
        if self.registry is None or self.text_of is None:
            raise ValueError(f"there is no schema with the id {number}")
        return self.text_of(self.registry.by_id(number), self.registry)

    def named_by(self, payloads: pa.BinaryArray) -> Iterator[str]:
        """The schemas whose ids these payloads have, each once; unknown ids are left out."""
        if not self.is_framed:
            return
        heads = {
            payload[1:FRAME_BYTES]
            for payload in payloads.to_pylist()
            if payload is not None and len(payload) >= FRAME_BYTES and payload[0] == 0
        }
        for head in sorted(heads):
            try:
                yield self.of_id(int.from_bytes(head))
            except ValueError:
                continue


def avro_text(schema: RegisteredSchema, registry: SchemaRegistry) -> str:
    """An Avro schema of a registry; DecodingError if it is none."""
    if schema.schema_type != "AVRO":
        raise DecodingError(
            f"schema registry {registry.url}: a schema is {schema.schema_type}, not AVRO"
        )
    if schema.references:
        raise DecodingError(
            f"schema registry {registry.url}: an Avro schema refers to others"
            f" ({schema.references[0].subject}); write it as one"
        )
    return schema.schema


def all_references(
    schema: RegisteredSchema, registry: SchemaRegistry
) -> list[tuple[str, RegisteredSchema]]:
    """The imports of a schema, directly or not, each once, with its name, imported ones first."""
    found: dict[str, RegisteredSchema] = {}
    order: list[str] = []

    def visit(one: RegisteredSchema, depth: int) -> None:
        for reference in one.references:
            if reference.name in found:
                continue
            if len(found) >= REFERENCES_MAX or depth > REFERENCES_MAX:
                raise DecodingError(
                    f"schema registry {registry.url}: more than {REFERENCES_MAX} references"
                )
            found[reference.name] = registry.referenced(reference)
            visit(found[reference.name], depth + 1)
            order.append(reference.name)

    visit(schema, 0)
    return [(name, found[name]) for name in order]
