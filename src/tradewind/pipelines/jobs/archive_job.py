"""`archive`: copies new messages of a stream to a Parquet lake.

Owns the layout (one folder per stream, partitioned by date, with the checkpoint beside the files)
and the verification: no message that the stream still has is missing in the lake, and none is there
twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.pipelines.errors import JobError
from tradewind.pipelines.flow.targets import missing_stream
from tradewind.pipelines.jobs.job_pipelines import Update, run_job
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.store.format.layout import name_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT: Final = "_archive"
BATCH_MESSAGES: Final = 2_000_000


@dataclass(frozen=True)
class ArchiveReport:
    """The rows in the lake now, and the rows that were added."""

    stream: str
    folder: str
    added: int
    rows: int
    first_seq: int
    last_seq: int
    missing: int
    duplicates: int


def archive(
    spark: SparkSession,
    address: PipelineAddress,
    stream: str,
    lake: Path,
    on_update: Update,
    should_stop: Event,
    *,
    by_subject: bool = False,
) -> ArchiveReport:
    """Add what is new, then count both sides; JobError if they do not agree."""
    if problem := name_problem(stream):
        raise JobError(f"stream name {stream!r} {problem}")
    last_seq = _last_seq(address, stream)
    folder = (lake / stream).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["date", "subject"] if by_subject else ["date"]
    values = {
        "pipeline": "archive",
        "checkpoint": CHECKPOINT,
        "trigger": "now",
        "sources": {"messages": {"stream": stream, "batch": BATCH_MESSAGES}},
        "steps": {"dated": {"sql": "select *, to_date(time) as date from messages"}},
        "sinks": {"lake": {"from": "dated", "parquet": ".", "partition_by": columns}},
    }
    status = run_job(spark, address, folder, values, on_update, should_stop)
    added = status.queries[0].rows
    # A run that was not interrupted has archived everything that was there when it began.
    until = last_seq if status.state == "done" else 0
    report = verify(spark, address, stream, folder, until, added)
    if report.missing or report.duplicates:
        raise JobError(
            f"stream {stream} and {folder} do not agree: {report.missing} messages are missing,"
            f" {report.duplicates} are duplicated"
        )
    return report


def verify(
    spark: SparkSession,
    address: PipelineAddress,
    stream: str,
    folder: Path,
    until: int,
    added: int = 0,
) -> ArchiveReport:
    """Compare a lake with what its stream has up to a sequence; 0: up to the last in the lake."""
    rows = distinct = first = last = missing = 0
    lake = None
    if any(folder.rglob("*.parquet")):
        lake = spark.read.parquet(str(folder)).select("seq")
        sums = lake.selectExpr(
            "count(*) as rows",
            "count(distinct seq) as distinct",
            "coalesce(min(seq), 0) as first",
            "coalesce(max(seq), 0) as last",
        ).first()
        assert sums is not None
        rows, distinct, first, last = sums
    until = until or last
    if until:
        options = address.spark_options() | {"stream": stream, "columns": "seq", "usedBy": "job"}
        asked = {**options, "endingSeq": str(until), "tiers": "false"}
        kept = spark.read.format("jetstream").options(**asked).load()
        missing = (kept.join(lake, "seq", "left_anti") if lake is not None else kept).count()
    return ArchiveReport(stream, str(folder), added, rows, first, last, missing, rows - distinct)


def _last_seq(address: PipelineAddress, stream: str) -> int:
    with address.connect() as connection:
        try:
            return connection.jetstream_manager().streams.info(stream).state.last_seq
        except StreamNotFoundError:
            raise JobError(missing_stream(address, [stream])) from None
