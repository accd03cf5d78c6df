"""The table of a stream, as a user asks for it.

Owns the keys, their defaults and their form in the metadata of the stream, where any NATS server
keeps them and any tool passes them through:

    tradewind.table             {"to": "/lake/orders", "format": "iceberg", ...}

A stream has at most one table. Owns as well which columns are not of the payload, and where the
state of the runner is. The module never reads a lake and never asks a server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from tradewind.api.names import KV_STREAM, OBJECT_STREAM
from tradewind.decoding.decoder_contract import RESCUED_COLUMN
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.intervals import parse_interval_ms
from tradewind.pipelines.tables.tier_limits import parse_tier_limits

TABLE_KEY: Final = "tradewind.table"
EVERY: Final = "1m"
INFER: Final = "infer"
RAW: Final = "raw"
# Columns of every table, before those of the payload. A bucket has `key` and `operation` as well.
MESSAGE_COLUMNS: Final = ("seq", "subject", "time", "headers")
BUCKET_COLUMNS: Final = ("seq", "key", "operation", "time")
DATA_COLUMN: Final = "data"
# Made from the time of a message, for partitions only.
DAY, HOUR = "day", "hour"
# Everything that is ours, and no part of the table, is in this folder of its place.
STATE_FOLDER: Final = "_tradewind"
COLUMN_CHARACTERS_MAX: Final = 200
# Characters that some reader of Parquet, Delta or Iceberg takes for something else in a name.
_COLUMN_NAME: Final = re.compile(r"[^\x00-\x1f.,;{}()=`\"'\\\x7f ]+")
_TABLE_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_PARTITIONS_MAX: Final = 8

TableFormat = Literal["iceberg", "delta", "parquet"]
TableRows = Literal["messages", "latest", "changes"]


class TableSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """The place of a table, its format and its content.

    `to` is the folder of the table, or the warehouse of an Iceberg catalog: an absolute path or a
    URL. `table` is the name in the catalog. `payload` names a decoder. `schema` is `infer` (new
    fields become columns), `raw` (no decoding: the column `data`), or a schema that was given:
    `file:PATH`, `bucket:NAME`, `registry:URL` or names and types. `partition` has names of columns,
    and `day` or `hour` of the time. `rows` is `messages` for a stream; `latest` (one row per key)
    or `changes` for a bucket. `keeps_data` stores the payload beside its columns. With `tiers`,
    limits of the stream may remove what the table has, and reads take it from there; `tier_limits`
    are limits that apply only to messages that were verified in the table. `data_loss` says what to
    do about messages that were removed before the table had them.
    """

    to: str
    format: TableFormat = "iceberg"
    table: str = ""
    catalog: dict[str, str] = {}
    payload: str = "json"
    schema: str | dict[str, str] = INFER
    partition: list[str] = []
    every: str = EVERY
    rows: TableRows = "messages"
    keeps_data: bool = False
    tiers: bool = False
    tier_limits: dict[str, str | int] = {}
    dead_letters: str = ""
    data_loss: Literal["fail", "continue"] = "fail"

    @property
    def has_data(self) -> bool:
        """Whether the table has the payloads as they were: then it can stand for the messages."""
        return self.is_raw or self.keeps_data or self.tiers

    @property
    def is_raw(self) -> bool:
        """Whether nothing is decoded."""
        return RAW in (self.schema, self.payload)

    @property
    def keeps_undecoded(self) -> bool:
        """Whether a message that cannot be decoded is a row all the same.

        A message is no row only if it is a dead letter, and if nothing would be wrong without it: a
        table with payloads stands for its stream, and one row per key must not be an old one.
        """
        return not self.dead_letters or self.has_data or self.rows == "latest"

    @property
    def is_remote(self) -> bool:
        """Whether the table is in another file system."""
        return "://" in self.to and not self.to.startswith("file://")


def is_bucket(stream: str) -> bool:
    """Whether a stream is that of a key-value bucket."""
    return stream.startswith(KV_STREAM)


def first_columns(stream: str) -> tuple[str, ...]:
    """The columns before those of the payload."""
    return BUCKET_COLUMNS if is_bucket(stream) else MESSAGE_COLUMNS


def reserved_columns(stream: str, spec: TableSpec) -> frozenset[str]:
    """Names that no column of a payload has, in lower case: a field of such a name is called
    `payload_<name>` in the table.
    """
    parts = {name for name in spec.partition if name in (DAY, HOUR)}
    return frozenset({*first_columns(stream), DATA_COLUMN, RESCUED_COLUMN, *parts})


def is_column_name(name: str) -> bool:
    """Whether every reader of these tables can have a column of this name."""
    return len(name) <= COLUMN_CHARACTERS_MAX and _COLUMN_NAME.fullmatch(name) is not None


def table_of(stream: str, metadata: Mapping[str, str] | None) -> TableSpec | None:
    """The table that the metadata of a stream asks for; PipelineError if it cannot be read."""
    text = (metadata or {}).get(TABLE_KEY)
    if not text:
        return None
    try:
        spec = msgspec.json.decode(text, type=TableSpec)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise PipelineError(
            f"stream {stream}: metadata {TABLE_KEY}: {error}; `tradewind table add` writes it"
        ) from None
    return for_stream(stream, spec)


def for_stream(stream: str, spec: TableSpec) -> TableSpec:
    """The table with what depends on the stream: that of a bucket has one row per key."""
    if is_bucket(stream) and spec.rows == "messages":
        return msgspec.structs.replace(spec, rows="latest")
    return spec


def with_table(metadata: Mapping[str, str] | None, spec: TableSpec | None) -> dict[str, str]:
    """Metadata with another table, or with none."""
    others = {key: value for key, value in (metadata or {}).items() if key != TABLE_KEY}
    return others if spec is None else others | {TABLE_KEY: msgspec.json.encode(spec).decode()}


def table_name(stream: str, spec: TableSpec) -> str:
    """The name of an Iceberg table in its catalog: the chosen one, or that of the stream."""
    return spec.table or f"tradewind.{re.sub(r'[^a-z0-9_]', '_', stream.lower())}"


def table_folder(spec: TableSpec) -> str:
    """The place of a table as a path, or as a URL of another file system."""
    return (
        spec.to.removeprefix("file://").rstrip("/") if not spec.is_remote else spec.to.rstrip("/")
    )


def state_folder(stream: str, spec: TableSpec) -> str:
    """Where the runner keeps its checkpoint, lock and status; Hadoop calls S3 by another name."""
    folder = f"{table_folder(spec)}/{STATE_FOLDER}/{stream}"
    return re.sub(r"^s3n?://", "s3a://", folder)


def problem_with(stream: str, spec: TableSpec) -> tuple[str, str]:
    """The key of what is wrong with a table and what would be right; two empty texts if nothing."""
    for find in (_problem_of_place, _problem_of_rows, _problem_of_tiers, _problem_of_partition):
        if found := find(stream, spec):
            return found
    try:
        parse_interval_ms(spec.every)
    except ValueError as error:
        return "every", str(error)
    if spec.dead_letters == stream:
        return "dead_letters", "messages that cannot be decoded need a stream of their own"
    if isinstance(spec.schema, dict) and not spec.schema:
        return "schema", f"no names and types; `{INFER}` finds them"
    if spec.schema == RAW and spec.dead_letters:
        return (
            "dead_letters",
            "nothing is decoded with the schema raw, so there are no dead letters",
        )
    return "", ""


def _problem_of_place(_stream: str, spec: TableSpec) -> tuple[str, str] | None:
    if not spec.is_remote and not table_folder(spec):
        return "to", "name a folder"
    if not spec.is_remote and not table_folder(spec).startswith("/"):
        return "to", f"{spec.to!r} is not an absolute path or a URL"
    if spec.is_remote and urlsplit(spec.to).password is not None:
        return "to", "no password in an address: set it in the environment of the runner"
    if spec.is_remote and spec.format == "parquet":
        return "format", "parquet is for folders of this machine; use iceberg or delta"
    if spec.is_remote and spec.format == "iceberg" and not spec.catalog:
        return "catalog", "the catalog of SQLite is for folders of this machine; name another one"
    for key in ("table", "catalog"):
        if getattr(spec, key) and spec.format != "iceberg":
            return key, f"{key} is for the format iceberg"
    if spec.table and not _TABLE_NAME.fullmatch(spec.table):
        return "table", f"{spec.table!r} is not NAMESPACE.NAME of letters, digits and _"
    return None


def _problem_of_rows(stream: str, spec: TableSpec) -> tuple[str, str] | None:
    if stream.startswith(OBJECT_STREAM):
        return "to", "the chunks of an object store are no table"
    spec = for_stream(stream, spec)
    if not is_bucket(stream) and spec.rows != "messages":
        return "rows", f"{spec.rows} is for buckets; the table of a stream has its messages"
    if spec.rows == "latest" and spec.format == "parquet":
        return "rows", "a folder of Parquet files only grows; use iceberg or delta, or rows changes"
    if spec.tiers and spec.rows == "latest":
        return "tiers", "one row per key cannot stand for all messages; use rows changes"
    return None


def _problem_of_tiers(_stream: str, spec: TableSpec) -> tuple[str, str] | None:
    if spec.tier_limits and not spec.tiers:
        return "tier_limits", "limits of a tier need tiers"
    try:
        parse_tier_limits(spec.tier_limits)
    except ValueError as error:
        return "tier_limits", str(error)
    return None


def _problem_of_partition(stream: str, spec: TableSpec) -> tuple[str, str] | None:
    if len(spec.partition) > _PARTITIONS_MAX:
        return "partition", f"more than {_PARTITIONS_MAX} columns"
    if len(set(spec.partition)) != len(spec.partition):
        return "partition", "a column is named twice"
    for name in spec.partition:
        if name in ("headers", DATA_COLUMN, RESCUED_COLUMN) or not _COLUMN_NAME.fullmatch(name):
            return "partition", f"{name!r} cannot be a partition: day, hour, subject or a field"
        if is_bucket(stream) and name == "subject":
            return "partition", "a bucket has no subject; key is a column"
    return None
