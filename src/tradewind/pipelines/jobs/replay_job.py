"""`replay`: publishes messages of a lake to a stream again.

Owns the order (by sequence) and the rate: as fast as possible, with the Spark sink, or with the
original intervals, with the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from tradewind.pipelines.errors import JobError
from tradewind.pipelines.notation.column_templates import template_sql
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = ("seq", "subject", "time", "headers", "data")
SHOW_SECONDS: Final = 1.0
# Headers of the server's own, which a publisher must not set or which would change what happens.
_OWN_HEADERS: Final = "nats-"


@dataclass(frozen=True)
class ReplaySettings:
    """The rows to replay, the target and the speed; with a `name`, an instant replay runs once."""

    stream: str
    subject: str = "{subject}"
    where: str = ""
    is_paced: bool = False
    speed: float = 1.0
    name: str = ""


@dataclass(frozen=True)
class ReplayReport:
    """How many messages the lake had for it, and how many the stream took."""

    rows: int
    stored: int


def replay(
    spark: SparkSession,
    address: PipelineAddress,
    folder: Path,
    settings: ReplaySettings,
    on_progress: Callable[[int, int], None],
    should_stop: Event,
) -> ReplayReport:
    """Publish the rows; JobError if the lake cannot be read or the stream took fewer."""
    from pyspark.errors import PySparkException

    try:
        frame = spark.read.parquet(str(folder))
        absent = [name for name in COLUMNS if name not in frame.columns]
        if absent:
            raise JobError(f"{folder} is not an archive of a stream: no column {', '.join(absent)}")
        if settings.where:
            frame = frame.where(settings.where)
        rows = frame.count()
    except PySparkException as error:
        raise JobError(f"{folder}: {short_reason(error)}") from None
    before = _messages(address, settings.stream)
    if settings.is_paced:
        _paced(frame, address, settings, rows, on_progress, should_stop)
    else:
        _instant(frame, address, settings)
    return ReplayReport(rows, _messages(address, settings.stream) - before)


def _messages(address: PipelineAddress, stream: str) -> int:
    with address.connect() as connection:
        return connection.jetstream_manager().streams.info(stream).state.last_seq


def _instant(frame: DataFrame, address: PipelineAddress, settings: ReplaySettings) -> None:
    from pyspark.errors import PySparkException

    # One task publishes in order; several could not keep it.
    ordered = frame.orderBy("seq").coalesce(1)
    rows = ordered.selectExpr(f"{template_sql(settings.subject)} as subject", "data", "headers")
    options = address.spark_options() | {"stream": settings.stream}
    if settings.name:
        options |= {"txnAppId": settings.name, "txnVersion": "1"}
    try:
        rows.write.format("jetstream").mode("append").options(**options).save()
    except PySparkException as error:
        raise JobError(f"replay into {settings.stream}: {short_reason(error)}") from None


def _paced(
    frame: DataFrame,
    address: PipelineAddress,
    settings: ReplaySettings,
    rows: int,
    on_progress: Callable[[int, int], None],
    should_stop: Event,
) -> None:
    """Each message as long after the first one as it was, divided by the speed."""
    chosen = frame.orderBy("seq").selectExpr(
        f"{template_sql(settings.subject)} as subject", "time", "headers", "data"
    )
    begun = time.monotonic()
    shown = 0.0
    first = None
    with address.connect() as connection:
        js = connection.jetstream()
        for count, row in enumerate(chosen.toLocalIterator(prefetchPartitions=True), 1):
            first = first or row["time"]
            due = begun + (row["time"] - first).total_seconds() / settings.speed
            wait = due - time.monotonic()
            if wait > 0 and should_stop.wait(wait):
                break
            headers = [
                (name, value)
                for name, values in (row["headers"] or {}).items()
                if not name.lower().startswith(_OWN_HEADERS)
                for value in values
            ]
            js.publish_async(row["subject"], bytes(row["data"] or b""), headers=headers or None)
            if time.monotonic() - shown >= SHOW_SECONDS or count == rows:
                shown = time.monotonic()
                on_progress(count, rows)
        js.publish_async_completed()
