"""The decoder that a table asks for.

Owns what of a table's keys a decoder is opened with, and asking the server for schemas that are in
a bucket. Anyone who may change a stream names the decoder, so a function of Python is called only
if the environment of this process allows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tradewind.client.errors import BucketNotFoundError
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.decoder_registry import open_decoder
from tradewind.decoding.installed_decoders import GROUP
from tradewind.decoding.schema_sources import SchemaContext, is_reference
from tradewind.decoding.user_decoders import is_place
from tradewind.pipelines.tables.table_spec import TableSpec, reserved_columns

if TYPE_CHECKING:
    from tradewind.decoding.decoder_contract import Decoder
    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress


# Functions that streams may name as decoders: module:function, separated by commas.
ALLOWED: Final = "TRADEWIND_DECODERS"


def table_decoder(stream: str, spec: TableSpec, address: PipelineAddress) -> Decoder | None:
    """The decoder of a table's payloads; None if they stay as they are.

    A schema that is elsewhere is read now; DecodingError says what is wrong with it.
    """
    if spec.is_raw:
        return None
    _check_allowed(spec.payload)
    context = SchemaContext(stream=stream)
    if is_reference(spec.schema):
        context = SchemaContext(
            stream=stream,
            subjects=_subjects(stream, address) if _is_by_subject(spec) else (),
            read_bucket=lambda name: _entries(name, address),
        )
    reserved = reserved_columns(stream, spec)
    return open_decoder(spec.payload, spec.schema, reserved=reserved, context=context)


def _check_allowed(payload: str) -> None:
    """Raise DecodingError if the payload is a function that is not allowed here."""
    allowed = [place.strip() for place in os.environ.get(ALLOWED, "").split(",")]
    if is_place(payload) and payload not in allowed:
        raise DecodingError(
            f"payload {payload}: a function that a stream names must be allowed where the table is"
            f" written or read: set {ALLOWED}={payload} in the environment there, or install it as"
            f" an entry point in the group {GROUP}"
        )


def is_settled(spec: TableSpec) -> bool:
    """Whether a decoder stays right once it is open: its schema is nowhere else."""
    return spec.is_raw or not is_reference(spec.schema)


def _is_by_subject(spec: TableSpec) -> bool:
    return isinstance(spec.schema, str) and spec.schema.startswith("bucket:")


def _subjects(stream: str, address: PipelineAddress) -> tuple[str, ...]:
    with address.connect() as connection:
        return tuple(connection.jetstream_manager().streams.info(stream).config.subjects)


def _entries(name: str, address: PipelineAddress) -> Mapping[str, bytes]:
    """All schemas of a bucket, by key."""
    with address.connect() as connection:
        try:
            bucket = connection.jetstream().kv.open(name)
        except BucketNotFoundError:
            raise DecodingError(f"schema bucket:{name}: the bucket does not exist") from None
        found = {}
        for key in bucket.keys():  # noqa: SIM118 - a method of buckets
            entry = bucket.get(key)
            if entry is not None:
                found[key] = entry.value
        return found
