"""The rules for new versions of a schema.

Owns the meaning of the rules. Each format's module says whether payloads that were written with one
version can be read with another.

    backward    the new version reads payloads of the old one: update readers first
    forward     the old version reads payloads of the new one: update writers first
    full        both
    none        anything
"""

from __future__ import annotations

from tradewind.schemas.schema_documents import BACKWARD, FORWARD, FULL, NONE, SchemaVersion
from tradewind.schemas.schema_errors import SchemaError, require_library


def reading_problem(writer: SchemaVersion, reader: SchemaVersion) -> str:
    """Why payloads of one version cannot be read with another; empty if they can."""
    if writer.format != reader.format:
        return f"the format was {writer.format}, and is {reader.format} now"
    require_library(reader.format)
    if reader.format == "json":
        from tradewind.schemas.json_inclusion import inclusion_problem

        return inclusion_problem(writer.schema, reader.schema)
    if reader.format == "avro":
        from tradewind.schemas.avro_resolution import resolution_problem

        return resolution_problem(writer.schema, reader.schema)
    from tradewind.schemas.protobuf_resolution import protobuf_problem

    return protobuf_problem((writer.schema, writer.message), (reader.schema, reader.message))


def compatibility_problem(old: SchemaVersion, new: SchemaVersion, rule: str) -> str:
    """Why a new version breaks a rule; empty if it keeps it."""
    if rule == NONE:
        return ""
    if rule in (BACKWARD, FULL) and (problem := reading_problem(old, new)):
        return f"it cannot read payloads of version {old.version}: {problem}"
    if rule in (FORWARD, FULL) and (problem := reading_problem(new, old)):
        return f"version {old.version} cannot read its payloads: {problem}"
    return ""


def check_compatible(name: str, old: SchemaVersion, new: SchemaVersion, rule: str) -> None:
    """SchemaError if a new version breaks a rule."""
    if problem := compatibility_problem(old, new, rule):
        raise SchemaError(f"schema {name}: the new version is not {rule} compatible: {problem}")
