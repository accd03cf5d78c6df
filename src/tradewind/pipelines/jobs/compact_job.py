"""`compact`: writes the latest message of each subject as a Parquet snapshot or to a stream.

Owns the selection of rows, and replacing the previous snapshot: the new one is written beside it
first, so that there is always a complete one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.pipelines.errors import JobError
from tradewind.pipelines.flow.targets import missing_stream
from tradewind.pipelines.notation.column_templates import parse_template, template_sql
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.api.stream_types import StreamState


@dataclass(frozen=True)
class CompactJobReport:
    """How many messages there were, and on how many subjects."""

    messages: int
    subjects: int
    last_seq: int
    target: str


def compact_to_folder(
    spark: SparkSession, address: PipelineAddress, stream: str, folder: Path
) -> CompactJobReport:
    """Replace a Parquet snapshot by one of the stream as it is now."""
    state = _state(address, stream)
    messages, last_seq = state.messages, state.last_seq
    target = folder.absolute()
    fresh = target.with_name(f"{target.name}.new")
    old = target.with_name(f"{target.name}.old")
    if old.exists() and not target.exists():
        old.rename(target)  # a run before was cut off between the two renames
    _latest(spark, address, stream, last_seq).orderBy("subject").coalesce(1).write.mode(
        "overwrite"
    ).parquet(str(fresh))
    subjects = spark.read.parquet(str(fresh)).count()
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return CompactJobReport(messages, subjects, last_seq, str(folder))


def compact_to_stream(
    spark: SparkSession, address: PipelineAddress, stream: str, target: str, subject: str
) -> CompactJobReport:
    """Publish the latest messages into a stream that keeps one for each subject."""
    from pyspark.errors import PySparkException

    state = _state(address, stream)
    last_seq = state.last_seq
    _ensure_compact(address, target, subject)
    rows = (
        _latest(spark, address, stream, last_seq)
        .orderBy("seq")
        .coalesce(1)
        .selectExpr(f"{template_sql(subject)} as subject", "data", "headers")
    )
    # The same messages are published once. If the target has lost some since, all come again: it
    # keeps one of each subject anyway.
    named = {"txnAppId": f"compact.{stream}.{target}.{state.messages}", "txnVersion": str(last_seq)}
    for options in (named, {}):
        try:
            rows.write.format("jetstream").mode("append").options(
                **address.spark_options(), stream=target, **options
            ).save()
        except PySparkException as error:
            raise JobError(f"compact into {target}: {short_reason(error)}") from None
        subjects = _state(address, target).num_subjects
        if subjects >= state.num_subjects:
            return CompactJobReport(state.messages, subjects, last_seq, target)
    raise JobError(
        f"stream {target} has {subjects} of the {state.num_subjects} subjects of {stream}: its"
        " limits may have removed the others"
    )


def _state(address: PipelineAddress, stream: str) -> StreamState:
    with address.connect() as connection:
        try:
            return connection.jetstream_manager().streams.info(stream).state
        except StreamNotFoundError:
            raise JobError(missing_stream(address, [stream])) from None


def _latest(spark: SparkSession, address: PipelineAddress, stream: str, last_seq: int) -> DataFrame:
    options = address.spark_options() | {"stream": stream, "endingSeq": str(max(last_seq, 1))}
    options |= {"failOnDataLoss": "true", "usedBy": "job", "tiers": "false"}
    frame = spark.read.format("jetstream").options(**options).load()
    latest = frame.groupBy("subject").agg({"seq": "max"}).withColumnRenamed("max(seq)", "seq")
    # Only sequences and subjects are shuffled; a payload is read when it is known to be kept.
    return frame.join(latest.select("seq"), "seq", "left_semi")


def _ensure_compact(address: PipelineAddress, target: str, subject: str) -> None:
    pattern = "".join(part if kind == "text" else ">" for kind, part in parse_template(subject))
    if not pattern.endswith(">") or ">" in pattern[:-1]:
        raise JobError(f"subject {subject!r}: a text, then {{subject}}, as in latest.{{subject}}")
    with address.connect() as connection:
        streams = connection.jetstream_manager().streams
        try:
            config = streams.info(target).config
        except StreamNotFoundError:
            streams.add(name=target, subjects=[pattern], max_msgs_per_subject=1)
            return
    if config.max_msgs_per_subject != 1:
        raise JobError(
            f"stream {target} keeps {config.max_msgs_per_subject} messages of a subject, not 1"
        )
