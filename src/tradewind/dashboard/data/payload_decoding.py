"""Payloads in the formats of the project's decoders, as JSON.

Owns the choice of formats: those of this project, and decoders that installed packages register.
It never imports what a visitor names, and reads schemas only from buckets, with the login of the
visitor.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.client.errors import BucketNotFoundError
from tradewind.decoding.installed_decoders import installed_decoders
from tradewind.errors import TradewindError
from tradewind.extra_packages import missing_package
from tradewind.schemas.schema_documents import BUCKET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.client.jetstream import JetStream

# Formats that need a schema, which is in a bucket.
WITH_SCHEMA: Final = ("avro", "protobuf")
BUILT_IN: Final = ("msgpack", *WITH_SCHEMA, "csv")
SECONDS_MAX: Final = 5.0
SCHEMAS_MAX: Final = 1000
SCHEMA_BYTES_MAX: Final = 4 << 20


class NotDecodedError(TradewindError):
    """A payload that has another format, or a format that cannot be read here."""


@functools.cache
def formats() -> list[str]:
    """The formats that can be chosen; what is installed does not change while this runs."""
    return [*BUILT_IN, *sorted(set(installed_decoders()) - set(BUILT_IN))]


async def decode_payload_as(
    jetstream: JetStream, data: bytes, name: str, stream: str, subject: str, bucket: str
) -> str:
    """A payload as indented JSON. NotDecodedError says why there is none."""
    if name == "msgpack":
        return _msgpack(data)
    schemas = await _schemas(jetstream, bucket) if name in WITH_SCHEMA else {}
    bucket = bucket or BUCKET
    try:
        async with asyncio.timeout(SECONDS_MAX):
            return await asyncio.to_thread(_decoded, data, name, stream, subject, bucket, schemas)
    except TimeoutError:
        raise NotDecodedError(f"{name}: it took longer than {SECONDS_MAX:.0f} seconds") from None
    except ImportError as error:
        reason = missing_package(error) or f"a package is missing: {error}"
        raise NotDecodedError(f"{name}: {reason}") from None


def _msgpack(data: bytes) -> str:
    try:
        value = msgspec.msgpack.decode(data)
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise NotDecodedError(f"The payload is not MessagePack: {error}.") from None


async def _schemas(jetstream: JetStream, bucket: str) -> Mapping[str, bytes]:
    try:
        kv = await jetstream.kv.open(bucket or BUCKET)
    except BucketNotFoundError:
        if bucket:
            raise
        raise NotDecodedError("Name the bucket that holds the schema.") from None
    found: dict[str, bytes] = {}
    size = 0
    async for key in kv.keys():
        entry = await kv.get(key)
        if entry is not None:
            found[key] = entry.value
            size += len(entry.value)
        if len(found) > SCHEMAS_MAX or size > SCHEMA_BYTES_MAX:
            raise NotDecodedError(
                f"Bucket {bucket} is too large for schemas: more than {SCHEMAS_MAX} keys or "
                f"{SCHEMA_BYTES_MAX >> 20} MiB."
            )
    return found


def _decoded(
    data: bytes,
    name: str,
    stream: str,
    subject: str,
    bucket: str,
    schemas: Mapping[str, bytes],
) -> str:
    import pyarrow as pa

    from tradewind.decoding.decoder_registry import INFER, open_decoder
    from tradewind.decoding.schema_sources import SchemaContext

    if name not in formats():
        raise NotDecodedError(f"The format must be one of {', '.join(formats())}.")
    context = SchemaContext(stream=stream, subjects=(subject,), read_bucket=lambda _bucket: schemas)
    schema = f"bucket:{bucket}" if name in WITH_SCHEMA else INFER
    decoder = open_decoder(name, schema, context=context)
    payloads = pa.array([data], pa.binary())
    result = decoder.decode(payloads, decoder.fields(payloads, pa.schema([])))
    if (reason := result.reasons[0].as_py()) is not None:
        raise NotDecodedError(f"The payload cannot be decoded: {reason}.")
    value = result.columns[0].as_py()
    text = msgspec.json.encode(value, enc_hook=str)
    return msgspec.json.format(text, indent=2).decode()
