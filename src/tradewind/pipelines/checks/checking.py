"""Checks a pipeline as far as possible without running it.

Owns the order of the checks: the file (`loading`), the server's streams and buckets, then Spark's
analysis of every table and sink. A server that does not answer is reported as a note, not as an
error: the file may be meant for another environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.client.errors import ClientError
from tradewind.errors import TradewindError
from tradewind.pipelines.definition.loading import near
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.flow.frames import Frames, build_frames
from tradewind.pipelines.flow.sinks import check_columns, letter_columns
from tradewind.pipelines.flow.targets import missing_bucket, missing_stream
from tradewind.pipelines.lake.lakes import check_libraries
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason
from tradewind.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_server(pipeline: Pipeline, address: PipelineAddress) -> list[str]:
    """The streams and buckets that are read and written exist; returns notes on what is unknown."""
    notes: list[str] = []
    for section in ("sources", "sinks"):
        for name in pipeline.sources if section == "sources" else pipeline.sinks:
            try:
                _check_target(pipeline, section, name, address)
            except OptionError as error:
                text = str(error).removeprefix("option ")
                raise pipeline.document.error((section, name), text) from None
            except (ClientError, OSError) as error:
                line = pipeline.document.place((section, name)).key_line
                notes.append(f"line {line}: {name} is not checked: {error}")
    return notes


def _check_target(pipeline: Pipeline, section: str, name: str, address: PipelineAddress) -> None:
    entry = pipeline.sources[name] if section == "sources" else pipeline.sinks[name]
    if entry.kind not in ("stream", "bucket"):
        return
    where = PipelineAddress.first_of(entry, pipeline.head, address)
    problem = ""
    if section == "sources":
        source = pipeline.sources[name]
        if source.store:
            folder = Path(pipeline.place(source.store))
            problem = "" if folder.is_dir() else f"there is no folder {folder}"
        elif source.bucket:
            problem = missing_bucket(where, source.bucket)
        else:
            problem = missing_stream(where, source.streams)
    elif not pipeline.sinks[name].create:
        sink = pipeline.sinks[name]
        problem = (
            missing_bucket(where, sink.bucket)
            if sink.bucket
            else missing_stream(where, [sink.stream])
        )
    if problem:
        raise pipeline.document.error((section, name, entry.kind), problem)


def check_libraries_of(pipeline: Pipeline) -> None:
    """Check that the libraries of the sinks are installed."""
    for name, sink in pipeline.sinks.items():
        try:
            check_libraries(sink.kind)
        except TradewindError as error:
            raise pipeline.document.error(("sinks", name, sink.kind), str(error)) from None


def check_tables(pipeline: Pipeline, spark: SparkSession, address: PipelineAddress) -> Frames:
    """Spark understands every table and can write each sink; nothing is started."""
    frames = build_frames(pipeline, spark, address, may_freeze=False)
    for name, frame in frames.bad.items():
        payload = pipeline.sources[name].payload
        assert payload is not None
        assert payload.dead_letter is not None
        for column in letter_columns(payload.dead_letter):
            if column not in frame.columns:
                keys = ("sources", name, "payload", "dead_letter", "subject")
                text = f"column {column!r} does not exist{near(column, frame.columns)}"
                raise pipeline.document.error(keys, text)
    for name, sink in pipeline.sinks.items():
        frame = frames.tables[sink.input]
        check_columns(pipeline, name, frame)
        if not frame.isStreaming:
            text = f"{sink.input} has no source that is followed: its rows would never arrive"
            raise pipeline.document.error(("sinks", name, "from"), text)
        _check_mode(pipeline, name, frame, spark)
    return frames


def _check_mode(pipeline: Pipeline, name: str, frame: DataFrame, spark: SparkSession) -> None:
    """The mode of a sink suits its table: what Spark checks when a query starts."""
    java = spark._jvm
    assert java is not None
    mode = pipeline.sinks[name].spark_mode
    output = getattr(java.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    from pyspark.errors import PySparkException

    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output)
    except PySparkException as error:
        text = f"{name}: mode {mode} does not suit {pipeline.sinks[name].input}: "
        keys = ("sinks", name, "mode")
        raise pipeline.document.error(keys, text + short_reason(error)) from None
