"""Writes the batches of a stream to its table.

Owns what the driver does about each batch: the fields that are known of payloads, dead letters, and
the figures of the status. Rows, files and commits are those of every other lake (`lake_tables`,
`parquet_lakes`), and so is what makes a batch be written exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.batch_steps import RowStep
from tradewind.pipelines.lake.lake_tables import LakeTable, TableSink, table_writer
from tradewind.pipelines.lake.lakes import BatchWriter, SinkQuery
from tradewind.pipelines.lake.parquet_lakes import parquet_writer
from tradewind.pipelines.lake.upserts import Upsert
from tradewind.pipelines.sessions.arrow_jobs import map_in_arrow
from tradewind.pipelines.tables.table_columns import fields_of, joined_fields
from tradewind.pipelines.tables.table_rows import (
    LETTERS,
    DeadLetterJob,
    RowsNote,
    TableRowStep,
    notes_of,
)
from tradewind.pipelines.tables.table_spec import (
    TableSpec,
    table_folder,
    table_name,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tradewind.decoding.decoder_contract import Decoder
    from tradewind.pipelines.lake.delta_tables import DeltaLake
    from tradewind.pipelines.lake.iceberg_tables import IcebergLake
    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

# The rows of a bucket's table: one per key, by the changes of the bucket.
LATEST: Final = Upsert(("key",), "operation <> 'PUT'", "revision")
# The catalog of an Iceberg warehouse without another one.
CATALOG_FILE: Final = "catalog.db"
Counted = Callable[[Sequence[RowsNote]], None]


@dataclass(frozen=True)
class LetterBox:
    """Where messages go that cannot be decoded."""

    stream: str
    subject: str
    address: PipelineAddress


@dataclass(frozen=True)
class StreamBatchStep:
    """Decodes the messages of each batch, with the fields that the table has and those that come.

    `counted` is called with the notes, once for each batch that is committed in this process.
    `fresh` opens the decoder anew for each batch, if its schema is somewhere else and may have
    changed: a schema is there before the first message that needs it.
    """

    stream: str
    spec: TableSpec
    decoder: Decoder | None
    query: SinkQuery
    counted: Counted
    letters: LetterBox | None = None
    fresh: Callable[[], Decoder | None] | None = None

    def begin(self, columns: pa.Schema | None) -> TableRowStep:
        """See `BatchStep`."""
        decoder = self.decoder if self.fresh is None else self.fresh()
        known = pa.schema([])
        if columns is not None:
            known = fields_of(self.stream, self.spec, columns)
        if decoder is not None:
            # A schema that was given is known before any payload.
            given = decoder.fields(pa.array([], pa.binary()), known)
            known = joined_fields([given], known)
        # The columns of a new table are all found before it is made.
        is_learning = decoder is not None and not known.names
        return TableRowStep(self.stream, self.spec, decoder, known, is_learning)

    def again(self, step: RowStep, notes: Sequence[str]) -> TableRowStep | None:
        """See `BatchStep`."""
        assert isinstance(step, TableRowStep)
        return step.with_notes(notes_of(notes))

    def settle(self, batch: DataFrame, number: int, step: RowStep, notes: Sequence[str]) -> None:
        """Publish the dead letters of a batch, under its number, so that none is published twice.

        The changes of a bucket are all looked at, those included that a later one replaces.
        """
        assert isinstance(step, TableRowStep)
        has_bad = any(note.undecoded for note in notes_of(notes)) or self.spec.rows == "latest"
        if self.letters is None or step.decoder is None or not has_bad:
            return
        job = DeadLetterJob(step, self.letters.subject)
        options = self.letters.address.spark_options() | {"stream": self.letters.stream}
        if self.fresh is not None:
            # With another schema a repeated batch may have fewer letters; that must not stop it.
            options["failOnUnknown"] = "false"
        letters = map_in_arrow(batch, job, LETTERS)
        letters.write.format("jetstream").mode("append").options(
            **options, txnAppId=f"{self.query.query_id}-letters", txnVersion=str(number)
        ).save()

    def committed(self, notes: Sequence[str]) -> None:
        """See `BatchStep`."""
        self.counted(notes_of(notes))


def open_lake(stream: str, spec: TableSpec) -> DeltaLake | IcebergLake:
    """The table of a stream; PipelineError if its library is not installed, or if it is a folder
    of Parquet files, which is none.
    """
    from tradewind.pipelines.lake.delta_tables import DeltaLake
    from tradewind.pipelines.lake.iceberg_tables import IcebergLake

    folder = table_folder(spec)
    if spec.format == "iceberg":
        catalog = dict(spec.catalog)
        if catalog.get("type") == "sql":  # to others the word means something else
            catalog.setdefault("warehouse", folder if spec.is_remote else f"file://{folder}")
        return IcebergLake(Iceberg(table_name(stream, spec), folder, catalog), folder)
    if spec.format == "delta":
        return DeltaLake(folder)
    raise PipelineError(f"stream {stream}: a folder of Parquet files has no log")


def found_lake(stream: str, spec: TableSpec) -> DeltaLake | IcebergLake | None:
    """The table of a stream if it is there; a look does not make a catalog."""
    folder = table_folder(spec)
    is_plain = spec.format == "iceberg" and not spec.catalog
    if is_plain and not Path(folder, CATALOG_FILE).exists():
        return None
    lake = open_lake(stream, spec)
    return lake if lake.is_there else None


def stream_writer(step: StreamBatchStep) -> BatchWriter:
    """The function that writes the batches of a stream."""
    spec, query = step.spec, step.query
    if spec.format == "parquet":
        return parquet_writer(table_folder(spec), query, spec.partition, step)
    upsert = LATEST if spec.rows == "latest" else None
    lake: LakeTable = open_lake(step.stream, spec)
    return table_writer(lake, query, TableSink(spec.partition, upsert=upsert, step=step))


def letter_subject(letters: str, subjects: Sequence[str], stream: str) -> str:
    """The subject of dead letters: the first one of their stream, with names for its wildcards."""
    if not subjects:
        raise PipelineError(
            f"stream {letters} has no subjects, so no dead letters can be published to it"
        )
    words = [stream if word in ("*", ">") else word for word in subjects[0].split(".")]
    return ".".join(words)
