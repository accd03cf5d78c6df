"""The key `table` of streams and buckets in a file: the metadata that asks for a lake table.

Owns both directions. Metadata of a server that is not a valid table stays metadata in the file.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tradewind.api.stream_types import StreamConfig
from tradewind.cli.declared.declaration_fields import Keys, hints_of, mapping_at, read_members
from tradewind.documents import Document
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.tables.table_spec import (
    TABLE_KEY,
    TableSpec,
    for_stream,
    problem_with,
    table_of,
    with_table,
)

TABLE: Final = "table"


def with_declared_table(document: Document, keys: Keys, config: StreamConfig) -> StreamConfig:
    """A stream with the table at `keys`; its place may be relative to the file."""
    if TABLE not in mapping_at(document, keys):
        return config
    place = (*keys, TABLE)
    if TABLE_KEY in config.metadata:
        raise document.error(place, f"both `table` and the metadata {TABLE_KEY}; keep one of them")
    members = read_members(document, place, hints_of(TableSpec))
    if not members.get("to"):
        raise document.error(place, "table: `to` is missing: the folder or URL of the table")
    if "://" not in members["to"]:
        members["to"] = str(document.path.resolve().parent / members["to"])
    spec = for_stream(config.name, TableSpec(**members))
    key, problem = problem_with(config.name, spec)
    if problem:
        raise document.error((*place, key) if key in members else place, f"table: {key}: {problem}")
    return msgspec.structs.replace(config, metadata=with_table(config.metadata, spec))


def write_table(stream: str, written: dict[str, Any]) -> dict[str, Any]:
    """The entry of a stream in a file, with its table as a separate key."""
    metadata = written.get("metadata") or {}
    try:
        spec = table_of(stream, metadata)
    except PipelineError:
        return written
    if spec is None:
        return written
    others = with_table(metadata, None)
    result = {name: value for name, value in written.items() if name != "metadata"}
    if others:
        result["metadata"] = others
    plain = for_stream(stream, TableSpec(to=spec.to))
    members = {
        name: getattr(spec, name)
        for name in spec.__struct_fields__
        if name == "to" or getattr(spec, name) != getattr(plain, name)
    }
    return {**result, TABLE: members}
