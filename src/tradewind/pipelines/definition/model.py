"""The typed model of a pipeline's file.

Owns the names of all keys and their defaults. The module never checks combinations of keys, which
is up to `loading`, and never reads a file or a stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, Literal

import msgspec

from tradewind.pipelines.definition.document import PipelineDocument
from tradewind.pipelines.definition.spark_settings import SparkSettings
from tradewind.pipelines.machine.places import Place, place_of
from tradewind.spark.connections.logins import LOGIN_FIELDS, JobLogin

INFER: Final = "infer"
# The query of the sinks that share the read of a source has its name and this.
SHARED_SUFFIX: Final = "_shared"
Texts = str | list[str]
BadRows = Literal["fail", "skip"]
ReadMode = Literal["auto", "blocks", "network", "backup"]
OutputMode = Literal["append", "update", "complete", "upsert"]


class DeadLetter(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where rows go that do not fit; `subject` may name columns, as in `dead.{subject}`."""

    stream: str
    subject: str
    create: list[str] = []


class Payload(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How the bytes of a message become columns; `table`: as the table of the stream has them."""

    format: Literal["json", "text", "table"] = "json"
    schema: str | dict[str, str] = INFER
    into: str = ""
    bad: BadRows = "fail"
    dead_letter: DeadLetter | None = None


class Watermark(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How late a row may be, by a column of times."""

    delay: str
    column: str = "time"


class PlacedEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An entry that may say where its server is and how to log in there; see
    `tradewind.spark.connections.logins`.
    """

    server: str = ""
    context: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    nkey_seed: str = ""
    nkey_file: str = ""
    credentials: str = ""
    user_jwt: str = ""
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_hostname: str = ""
    tls_handshake_first: bool = False
    jetstream_domain: str = ""

    @property
    def login(self) -> JobLogin:
        """How to log in, as it was given."""
        texts = {name: getattr(self, name) for name in LOGIN_FIELDS}
        return JobLogin(
            **texts | {"tls_handshake_first": "true" if self.tls_handshake_first else ""}
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"  # a value may be a password


class Source(PlacedEntry, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One table that steps can use; exactly one of the first five says where it is."""

    stream: Texts = ""
    bucket: str = ""
    parquet: str = ""
    json: str = ""
    csv: str = ""
    store: str = ""
    subjects: Texts = ""
    start: str = "earliest"
    start_seq: int = 0
    batch: int = 0
    batch_bytes: int = 0
    batch_min: int = 0
    batch_wait: str = ""
    read_mode: ReadMode = "auto"
    timeout: str = ""
    ack_consumer: str = ""
    share: bool = False
    data_loss: Literal["fail", "continue"] | None = None
    follow: bool | None = None
    schema: str | dict[str, str] = ""
    payload: Payload | None = None
    watermark: Watermark | None = None

    @property
    def kind(self) -> str:
        """The kind of the source: the name of the key that says where it is."""
        return next(name for name in SOURCE_KINDS if getattr(self, name))

    @property
    def is_followed(self) -> bool:
        """Whether new rows keep coming; streams are followed unless the file says otherwise."""
        return self.kind == "stream" if self.follow is None else self.follow

    @property
    def streams(self) -> list[str]:
        """The names or patterns of the streams."""
        return texts(self.stream)


class Step(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"inputs": "from"}):
    """One table made from others: by SQL, by a Python function, or by a window."""

    sql: str = ""
    python: str = ""
    window: str = ""
    inputs: Texts = ""
    slide: str = ""
    on: str = "time"
    by: Texts = ""
    keep: dict[str, str] = {}
    watermark: Watermark | None = None

    @property
    def kind(self) -> str:
        """How it is made."""
        return next(name for name in STEP_KINDS if getattr(self, name))


class Console(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Rows on the terminal, as a table, or as bars of one column by another."""

    rows: int = 20
    label: str = ""
    chart: str = ""


class Iceberg(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A table of a catalog; without `catalog` one of SQLite in the warehouse folder is used."""

    table: str
    warehouse: str
    catalog: dict[str, str] = {}


class Sink(
    PlacedEntry, forbid_unknown_fields=True, frozen=True, kw_only=True, rename={"input": "from"}
):
    """Where the rows of one table go; exactly one of stream ... console says what it is."""

    input: str
    stream: str = ""
    bucket: str = ""
    parquet: str = ""
    delta: str = ""
    iceberg: Iceberg | None = None
    console: Console | None = None
    subject: str = ""
    data: str = ""
    headers: str = ""
    ordered: bool = False
    id: str = ""
    fail_on_unknown: bool = True
    timeout: str = ""
    key: Texts = ""
    value: str = ""
    delete_when: str = ""
    order_by: str = ""
    create: bool | list[str] = False
    partition_by: Texts = ""
    mode: OutputMode = "append"

    @property
    def spark_mode(self) -> str:
        """The output mode of Spark: rows that replace others are those that changed."""
        return "update" if self.mode == "upsert" else self.mode

    @property
    def kind(self) -> str:
        """Where the rows go."""
        return next(name for name in SINK_KINDS if getattr(self, name))


SOURCE_KINDS: Final = ("stream", "bucket", "parquet", "json", "csv")
STEP_KINDS: Final = ("sql", "python", "window")
SINK_KINDS: Final = ("stream", "bucket", "parquet", "delta", "iceberg", "console")


class RestartPolicy(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How often a query that failed is started again; the pause doubles up to `max_delay`."""

    attempts: int
    delay: str = "10 seconds"
    max_delay: str = "5 minutes"


class ExpectedRows(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The rows that a table must have in a test."""

    rows: list[dict[str, Any]]
    ordered: bool = False


class PipelineCase(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One test of a pipeline: what its sources have, and what tables and sinks must have then."""

    given: dict[str, list[dict[str, Any]]] = {}
    expect: dict[str, list[dict[str, Any]] | ExpectedRows] = {}
    fails: str = ""


class Head(PlacedEntry, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Everything but the tables."""

    pipeline: str
    checkpoint: str
    trigger: str = "fast"
    description: str = ""
    spark: SparkSettings = SparkSettings()
    restart: RestartPolicy | None = None


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that is right as far as its file can tell.

    `trigger_seconds` is 0 for as fast as possible, and None for one run over what is there. `uses`
    has the tables that each step names, `origins` the sources that each table is made from.
    `writers` has, for some sinks, what makes the function that writes their batches, given the
    query, instead of what their keys say.
    """

    document: PipelineDocument
    head: Head
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    trigger_seconds: float | None
    uses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    origins: Mapping[str, frozenset[str]] = field(default_factory=dict)
    writers: Mapping[str, Callable[[Any], Callable[[Any, int], None]]] = field(default_factory=dict)
    cases: Mapping[str, PipelineCase] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.head.pipeline

    @property
    def folder(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.document.path.resolve().parent

    @property
    def checkpoint(self) -> Place:
        """Where it remembers how far it came."""
        settings = self.head.spark.session_settings()
        return place_of(self.folder, self.head.checkpoint, settings)

    @property
    def log_file(self) -> Path:
        """Where Spark's own log goes: into the checkpoint, if that is of this machine."""
        if isinstance(self.checkpoint, Path):
            return self.checkpoint / "spark.log"
        return Path(gettempdir(), f"tradewind-{os.getuid()}", self.name, "spark.log")

    def query_checkpoint(self, name: str) -> Place:
        """Where Spark remembers how far the query of a sink or dead letter came."""
        return self.checkpoint / "queries" / name

    def place(self, path: str) -> str:
        """A path of the file as Spark is given it: as it is if it names a file system."""
        return path if "://" in path else str(self.folder / path)


def texts(value: Texts) -> list[str]:
    """One text or several as a list."""
    if isinstance(value, str):
        return [value] if value else []
    return value


def target_text(sink: Sink) -> str:
    """Where the rows of a sink go, in words."""
    target = sink.iceberg.table if sink.iceberg else getattr(sink, sink.kind)
    return sink.kind if sink.console else f"{sink.kind} {target}"
