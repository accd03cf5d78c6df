"""One read of a source for several sinks.

Owns the shared query. The query reads a micro-batch once, keeps it while its sinks are written one
after the other, and gives each of them marks of its own. A batch that is repeated after a crash
therefore finds the sinks that have it, and writes only the others. Only tables that are made row by
row can share a read: the state of aggregates and joins belongs to a query of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tradewind.pipelines.checks.verifying import plan_nodes
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.definition.shared_marks import (
    check_acknowledged,
    check_kept,
    members_of,
    read_members,
    shared_name,
    write_members,
)
from tradewind.pipelines.flow.frames import Frames, build_steps
from tradewind.pipelines.flow.sinks import (
    BatchPrinter,
    batch_writer,
    letter_messages,
    letter_options,
    sink_messages,
    write_options,
)
from tradewind.pipelines.lake.lakes import SinkQuery
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.state.status import DEAD_SUFFIX
from tradewind.pipelines.state.verdicts import not_row_by_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PartWriter = Callable[[Frames, int], None]


@dataclass(frozen=True)
class SharedRead:
    """The sinks that one query of a source writes, and its dead letters if they are in `parts`."""

    source: str
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the query."""
        return shared_name(self.source)

    @property
    def has_letters(self) -> bool:
        """Whether the query also publishes what does not fit."""
        return f"{self.source}{DEAD_SUFFIX}" in self.parts


def plan_shared(pipeline: Pipeline, frames: Frames) -> list[SharedRead]:
    """The shared queries of a run, whose members are noted; an error names the line."""
    before = read_members(pipeline)
    reads = []
    for source, entry in pipeline.sources.items():
        if entry.share:
            able = [name for name in pipeline.sinks if _is_able(pipeline, frames, source, name)]
            able += [f"{source}{DEAD_SUFFIX}"] if source in frames.bad else []
            if parts := members_of(pipeline, source, able, before):
                reads.append(SharedRead(source, tuple(parts)))
    chosen = {read.name: list(read.parts) for read in reads}
    check_kept(pipeline, chosen, before)
    check_acknowledged(pipeline, {part for parts in chosen.values() for part in parts})
    for read in reads:
        if before.get(read.name) != list(read.parts):
            write_members(pipeline, read.source, read.parts)
    return reads


def _is_able(pipeline: Pipeline, frames: Frames, source: str, name: str) -> bool:
    """Whether the rows of a sink can be made from one micro-batch of a source."""
    sink = pipeline.sinks[name]
    origins = pipeline.origins[sink.input]
    if {one for one in origins if pipeline.sources[one].is_followed} != {source}:
        return False
    if sink.mode == "complete" or (sink.kind == "parquet" and "://" in sink.parquet):
        return False
    plan = frames.tables[sink.input]._jdf.queryExecution().analyzed()
    return not not_row_by_row(list(plan_nodes(plan)), plan.toString())


def shared_writer(
    pipeline: Pipeline,
    read: SharedRead,
    frames: Frames,
    address: PipelineAddress,
    show: BatchPrinter,
) -> DataStreamWriter:
    """A writer of all parts that only has to be started."""
    writers = {name: _part_writer(pipeline, read, name, address, show) for name in read.parts}
    steps = _needed_steps(pipeline, read)

    def write(batch: DataFrame, number: int) -> None:
        # As in a streaming query: a repeated batch is divided into the same partitions.
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        kept = batch.persist()
        try:
            made = _batch_frames(pipeline, read, frames, kept)
            build_steps(pipeline, kept.sparkSession, made, steps)
            for writer in writers.values():
                writer(made, number)
        finally:
            kept.unpersist()

    # A payload that does not fit has to be there, too, if it is published.
    rows = frames.raw[read.source] if read.has_letters else frames.tables[read.source]
    return rows.writeStream.foreachBatch(write).outputMode("append")


def _batch_frames(pipeline: Pipeline, read: SharedRead, frames: Frames, batch: DataFrame) -> Frames:
    """The tables of one micro-batch; those that are not followed are the same in all of them."""
    made = Frames()
    for name, source in pipeline.sources.items():
        if not source.is_followed:
            made.tables[name] = frames.tables[name]
    if read.has_letters:
        frames.decoders[read.source](batch, made)
    else:
        made.tables[read.source] = batch
    made.tables[read.source].createOrReplaceTempView(read.source)
    return made


def _needed_steps(pipeline: Pipeline, read: SharedRead) -> list[str]:
    """The steps that the sinks are made with, in their order."""
    waiting = [pipeline.sinks[name].input for name in read.parts if name in pipeline.sinks]
    needed: set[str] = set()
    while waiting:
        one = waiting.pop()
        if one not in needed:
            needed.add(one)
            waiting += pipeline.uses.get(one, ())
    return [name for name in pipeline.steps if name in needed]


def _part_writer(
    pipeline: Pipeline,
    read: SharedRead,
    name: str,
    address: PipelineAddress,
    show: BatchPrinter,
) -> PartWriter:
    query = SinkQuery(f"{pipeline.name}.{name}", pipeline.query_checkpoint(read.name), name)
    if name not in pipeline.sinks:
        options = letter_options(pipeline, read.source, address)

        def write_letters(frames: Frames, number: int) -> None:
            bad = frames.bad[read.source]
            publish(letter_messages(pipeline, read.source, bad), options, query, number)

        return write_letters
    sink = pipeline.sinks[name]
    if sink.kind in ("stream", "bucket"):
        told = write_options(pipeline, sink, address)

        def write_messages(frames: Frames, number: int) -> None:
            publish(sink_messages(frames.tables[sink.input], sink), told, query, number)

        return write_messages
    writer = batch_writer(pipeline, name, show, query)
    return lambda frames, number: writer(frames.tables[sink.input], number)


def publish(rows: DataFrame, options: dict[str, str], query: SinkQuery, number: int) -> None:
    """Publish the rows of a batch that comes again with the same rows in the same partitions."""
    rows.write.format("jetstream").mode("append").options(
        **options, txnAppId=query.query_id, txnVersion=str(number), txnSamePartitions="true"
    ).save()
