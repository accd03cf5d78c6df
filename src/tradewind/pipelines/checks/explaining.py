"""Describes a pipeline in words: the flow of data, and how Spark will execute it.

Owns the text of `tradewind pipeline explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tradewind.pipelines.definition.model import Pipeline, Sink, Source, Step, target_text, texts

if TYPE_CHECKING:
    from tradewind.pipelines.flow.frames import Frames


def explain_lines(pipeline: Pipeline, frames: Frames | None = None) -> Iterator[str]:
    """One line for each fact; with frames also the columns of each table."""
    yield f"Pipeline {pipeline.name}: {pipeline.head.description or pipeline.document.path.name}"
    yield f"  runs {_pace(pipeline)}, records its progress in {pipeline.head.checkpoint}"
    yield from (f"  Spark: {setting}" for setting in pipeline.head.spark.lines())
    yield ""
    yield "Sources"
    for name, source in pipeline.sources.items():
        yield f"  {name}: {_source_text(source)}"
        yield from _columns(frames, name)
    if pipeline.steps:
        yield ""
        yield "Steps"
    for name, step in pipeline.steps.items():
        yield f"  {name}: {_step_text(step, sorted(pipeline.uses[name]))}"
        yield from _columns(frames, name)
    yield ""
    yield "Sinks"
    for name, sink in pipeline.sinks.items():
        origins = ", ".join(sorted(pipeline.origins[sink.input]))
        yield f"  {name}: {_sink_text(sink)}; from {sink.input} (of {origins})"


def plan_lines(pipeline: Pipeline, frames: Frames) -> Iterator[str]:
    """Spark's own plan of each sink's table."""
    for name, sink in pipeline.sinks.items():
        yield ""
        yield f"Plan of {name}"
        plan = frames.tables[sink.input]._jdf.queryExecution().analyzed().toString()
        yield from (f"  {line}" for line in plan.rstrip().splitlines())


def _pace(pipeline: Pipeline) -> str:
    seconds = pipeline.trigger_seconds
    if seconds is None:
        return "once over what is stored"
    return f"every {seconds:g} s" if seconds else "without a pause"


def _source_text(source: Source) -> str:
    where = ", ".join(source.streams) or getattr(source, source.kind)
    parts = [f"{source.kind} {where}", "followed" if source.is_followed else "read as it is"]
    if subjects := texts(source.subjects):
        parts.append(f"subjects {', '.join(subjects)}")
    if source.start_seq:
        parts.append(f"from sequence {source.start_seq}")
    elif source.start != "earliest":
        parts.append(f"from {source.start}")
    if source.batch:
        parts.append(f"at most {source.batch} at once")
    if source.share:
        parts.append("read once for the sinks that can share it")
    payload = source.payload
    if payload is not None:
        bad = (
            f"to stream {payload.dead_letter.stream}"
            if payload.dead_letter
            else {"fail": "stop it", "skip": "are skipped"}[payload.bad]
        )
        parts.append(f"payload {payload.format}, bad rows {bad}")
    if source.watermark is not None:
        parts.append(f"late after {source.watermark.delay} by {source.watermark.column}")
    return "; ".join(parts)


def _step_text(step: Step, uses: list[str]) -> str:
    made = {
        "sql": "SQL",
        "python": f"Python {step.python}",
        "window": f"windows of {step.window} by {', '.join(['time', *texts(step.by)])}",
    }[step.kind]
    return f"{made} over {', '.join(uses) or 'no table'}"


def _sink_text(sink: Sink) -> str:
    extra = {
        "stream": f" as {sink.subject}",
        "bucket": f" as {sink.key}",
    }.get(sink.kind, "")
    if sink.mode == "upsert":
        deleted = f", deleted when {sink.delete_when}" if sink.delete_when else ""
        extra += f" with the key {', '.join(texts(sink.key))}{deleted}"
    if columns := texts(sink.partition_by):
        extra += f" by {', '.join(columns)}"
    return f"{sink.mode} to {target_text(sink)}{extra}"


def _columns(frames: Frames | None, name: str) -> Iterator[str]:
    if frames is not None:
        fields = frames.tables[name].schema.fields
        shown = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
        yield f"    {shown}"
