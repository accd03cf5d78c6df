"""`mirror`: copies a stream to another server, with its lag, and verifies that both agree.

Owns the verification: every message is hashed (SHA-256 over subject, headers and payload) and both
sides are compared as multisets of hashes. Headers that begin with `Nats-` belong to the servers and
are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.pipelines.errors import JobError
from tradewind.pipelines.jobs.job_pipelines import Update, reached_seq, run_job
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_MESSAGES: Final = 500_000
_HEADERS: Final = (
    "to_json(array_sort(map_entries(map_filter(coalesce(headers, map()),"
    " (name, values) -> lower(left(name, 5)) <> 'nats-'))))"
)
_HASH: Final = (
    f"sha2(concat(cast(subject as binary), x'00', cast({_HEADERS} as binary), x'00', data), 256)"
)


@dataclass(frozen=True)
class MirrorReport:
    """The messages copied, and what a comparison up to `last_seq` of the source found."""

    copied: int
    last_seq: int
    source_messages: int
    target_messages: int
    missing: int
    extra: int

    @property
    def is_same(self) -> bool:
        """Whether both have the same messages."""
        return not self.missing and not self.extra


def mirror(
    spark: SparkSession,
    source: PipelineAddress,
    stream: str,
    target: PipelineAddress,
    target_stream: str,
    folder: Path,
    on_update: Update,
    should_stop: Event,
    *,
    is_once: bool,
) -> MirrorReport:
    """Copy until asked to stop, or what is there; then compare. JobError if any is missing."""
    _ensure_target(source, stream, target, target_stream)
    values: dict[str, Any] = {
        "pipeline": "mirror",
        "checkpoint": ".",
        "trigger": "now" if is_once else "fast",
        "sources": {"messages": {"stream": stream, "batch": BATCH_MESSAGES, **_place(source)}},
        "sinks": {
            "copy": {
                "from": "messages",
                "stream": target_stream,
                "subject": "{subject}",
                "data": "data",
                "headers": "headers",
                "ordered": True,
                **_place(target),
            }
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    status = run_job(spark, source, folder.absolute(), values, on_update, should_stop)
    query = status.queries[0]
    last_seq = reached_seq(query, stream)
    report = compare(spark, source, stream, target, target_stream, last_seq, query.rows)
    if report.missing:
        raise JobError(
            f"{report.missing} messages of {stream} up to sequence {last_seq} are not in"
            f" {target_stream}"
        )
    return report


def compare(
    spark: SparkSession,
    source: PipelineAddress,
    stream: str,
    target: PipelineAddress,
    target_stream: str,
    last_seq: int,
    copied: int = 0,
) -> MirrorReport:
    """Compare two streams as bags of messages; the source up to a sequence."""
    if not last_seq:
        return MirrorReport(copied, 0, 0, 0, 0, 0)
    left = _hashes(spark, source, stream, last_seq).withColumnRenamed("count", "left")
    right = _hashes(spark, target, target_stream, 0).withColumnRenamed("count", "right")
    sums = (
        left.join(right, "hash", "full_outer")
        .selectExpr("coalesce(left, 0) as left", "coalesce(right, 0) as right")
        .selectExpr(
            "coalesce(sum(left), 0) as lefts",
            "coalesce(sum(right), 0) as rights",
            "coalesce(sum(greatest(left - right, 0)), 0) as missing",
            "coalesce(sum(greatest(right - left, 0)), 0) as extra",
        )
        .first()
    )
    assert sums is not None
    return MirrorReport(
        copied, last_seq, sums["lefts"], sums["rights"], sums["missing"], sums["extra"]
    )


def _hashes(spark: SparkSession, address: PipelineAddress, stream: str, last_seq: int) -> DataFrame:
    options = address.spark_options() | {"stream": stream, "columns": "subject,headers,data"}
    # A message removed between the two reads would look like a difference.
    options |= {"failOnDataLoss": "true", "usedBy": "job"}
    if last_seq:
        options["endingSeq"] = str(last_seq)
    frame = spark.read.format("jetstream").options(**options, tiers="false").load()
    return frame.selectExpr(f"{_HASH} as hash").groupBy("hash").count()


def _ensure_target(
    source: PipelineAddress, stream: str, target: PipelineAddress, target_stream: str
) -> None:
    with source.connect() as connection:
        config = connection.jetstream_manager().streams.info(stream).config
    with target.connect() as connection:
        streams = connection.jetstream_manager().streams
        try:
            streams.info(target_stream)
        except StreamNotFoundError:
            streams.add(name=target_stream, subjects=list(config.subjects or [stream]))


def _place(address: PipelineAddress) -> dict[str, str | bool]:
    named: dict[str, str | bool] = {"server": address.server, "context": address.context}
    named |= address.login.given()
    if "tls_handshake_first" in named:
        named["tls_handshake_first"] = True
    return {key: value for key, value in named.items() if value}
