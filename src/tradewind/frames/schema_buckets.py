"""Schemas of payloads that are in a bucket, for frames.

Owns reading the bucket that `schema="bucket:NAME"` names, and which of its schemas count: those for
subjects of the streams that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.errors import BucketNotFoundError
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.decoder_registry import NO_CONTEXT
from tradewind.decoding.schema_sources import ENTRIES_MAX, SchemaContext

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream
    from tradewind.frames.frame_scan import FrameScan

PREFIX = "bucket:"


def scan_context(scan: FrameScan, schema: object) -> SchemaContext:
    """The context of a schema for the streams of a scan."""
    name = _bucket_of(schema)
    options = scan.options
    if not name:
        return NO_CONTEXT
    if not (options.servers or options.context):
        raise DecodingError(f"schema bucket:{name}: name the server that has it, with servers=")
    from tradewind.spark.connections.lent import CONNECTIONS
    from tradewind.spark.providers.network import ReadAddress

    with CONNECTIONS.lent(ReadAddress(options)) as lent:
        return lent.run(stream_context(lent.connection.jetstream(), scan.streams, schema))


async def stream_context(js: JetStream, streams: list[str], schema: object) -> SchemaContext:
    """The context of a schema for some streams; DecodingError if its bucket is not there."""
    name = _bucket_of(schema)
    if not name:
        return NO_CONTEXT
    try:
        bucket = await js.kv.open(name)
    except BucketNotFoundError:
        raise DecodingError(f"schema bucket:{name}: the bucket does not exist") from None
    entries: dict[str, bytes] = {}
    async with bucket.watch(ignore_deletes=True) as watcher:
        async for entry in watcher.initial():
            entries[entry.key] = bytes(entry.value)
            if len(entries) > ENTRIES_MAX:
                break  # too many, which the decoder says
    subjects: list[str] = []
    for stream in streams:
        try:
            subjects += (await js.manager.streams.info(stream)).config.subjects
        except StreamNotFoundError:
            continue

    def read_bucket(_name: str) -> Mapping[str, bytes]:
        return entries

    return SchemaContext(subjects=tuple(subjects), read_bucket=read_bucket)


def _bucket_of(schema: object) -> str:
    is_bucket = isinstance(schema, str) and schema.startswith(PREFIX)
    return schema.removeprefix(PREFIX) if is_bucket and isinstance(schema, str) else ""
