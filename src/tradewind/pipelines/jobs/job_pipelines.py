"""Jobs that are pipelines, described by a mapping instead of a file.

Owns running such a mapping to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from tradewind.documents import Place
from tradewind.pipelines.definition.document import PipelineDocument
from tradewind.pipelines.definition.loading import pipeline_of
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.definition.model import Sink
    from tradewind.pipelines.state.status import PipelineStatus, QueryStatus

Update = Callable[["PipelineStatus"], None]


def run_job(
    spark: SparkSession,
    address: PipelineAddress,
    folder: Path,
    values: Mapping[str, Any],
    on_update: Update,
    should_stop: Event,
) -> PipelineStatus:
    """Run a pipeline whose paths are relative to `folder`, until it is done or asked to stop."""
    name = values["pipeline"]
    document = PipelineDocument(folder / name)
    document.value = dict(values)
    document.places[()] = Place(1, 1, 1)
    pipeline = pipeline_of(document)
    runner = Runner(pipeline, spark, address, _no_console)
    with running(runner, pipeline.checkpoint):
        runner.wait(should_stop, on_update)
    return runner.status


def reached_seq(query: QueryStatus, stream: str, before: int = 0) -> int:
    """Up to which sequence a query has read a stream."""
    return max([before, *(lag.seq for lag in query.lags if lag.stream == stream)])


def _no_console(name: str, sink: Sink, batch: Any, number: int) -> None:
    raise AssertionError(f"no job has a console sink: {name}, {sink}, {batch}, {number}")
