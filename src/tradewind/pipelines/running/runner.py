"""Runs a pipeline: one streaming query for each sink and each dead letter.

Owns the life cycle of the queries and their status. All relevant state is in Spark's checkpoint, so
a runner may be killed at any moment and the next one continues. Only one runner at a time may use a
checkpoint (`leases`).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from tradewind.api.names import KV_STREAM
from tradewind.pipelines.definition.model import Pipeline, Sink, Source, target_text
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.flow.frames import Frames, build_frames, source_options
from tradewind.pipelines.flow.sinks import (
    BatchPrinter,
    check_columns,
    dead_letter_writer,
    letter_of,
    prepare_targets,
    sink_writer,
)
from tradewind.pipelines.machine.places import Place, RemoteFolder
from tradewind.pipelines.running.lag import ServerLag, StoreLag, TargetSeq
from tradewind.pipelines.running.restart_policy import Restarts
from tradewind.pipelines.running.shared_reads import SharedRead, plan_shared, shared_writer
from tradewind.pipelines.running.slow_starts import SlowStart
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason
from tradewind.pipelines.state.announcing import announced
from tradewind.pipelines.state.leases import Lease, locked
from tradewind.pipelines.state.status import (
    DEAD_SUFFIX,
    RECENT_MAX,
    BatchStatus,
    PipelineStatus,
    QueryStatus,
    State,
    read_status,
    write_status,
)
from tradewind.spark.progress.stream_lag import offset_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS: Final = 0.5
LAG_SECONDS: Final = 2.0
RATE_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 5.0
BEGIN_SECONDS_MAX: Final = 60.0
# How often the status is written to another file system.
REMOTE_SECONDS: Final = 10.0


@dataclass
class _RunningQuery:
    """A query with what was seen of it."""

    start: Callable[[], StreamingQuery]
    query: StreamingQuery
    status: QueryStatus
    sources: list[str]
    target: TargetSeq | None = None
    # For a query that several sinks share: the name of each of them, and where it goes.
    members: dict[str, str] = field(default_factory=dict)
    seen: str = ""
    rows_before: int = 0
    recent: deque[tuple[float, int]] = field(default_factory=deque)
    offsets: list[dict[str, int]] = field(default_factory=list)
    slow_start: SlowStart = field(default_factory=SlowStart)

    def shown(self) -> list[QueryStatus]:
        """The statuses that are shown: one for each sink."""
        if not self.members:
            return [self.status]
        return [
            msgspec.structs.replace(self.status, name=name, target=target)
            for name, target in self.members.items()
        ]


class Runner:
    """One run of a pipeline. Use `running`, which also holds the lock."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        address: PipelineAddress,
        show: BatchPrinter,
        *,
        is_once: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self._spark = spark
        self._address = address
        self._show = show
        self._is_once = is_once or pipeline.trigger_seconds is None
        self._queries: list[_RunningQuery] = []
        self._lags: dict[str, ServerLag | StoreLag] = {}
        self._lag_due = 0.0
        self._restarts = Restarts(pipeline.head.restart)
        self.lease: Lease | None = None
        self._written = 0.0
        self._checkpoint = pipeline.checkpoint
        old = read_status(self._checkpoint)
        self._before = {query.name: query.rows_total for query in old.queries} if old else {}
        now = time.time_ns()
        self.status = PipelineStatus(
            pipeline=pipeline.name,
            file=str(pipeline.document.path.resolve()),
            state="starting",
            pid=os.getpid(),
            host=os.uname().nodename,
            master=spark.sparkContext.master,
            started_ns=now,
            updated_ns=now,
        )

    def start(self) -> None:
        """Start all queries; an error names the line."""
        self._write("starting")
        pipeline, address = self.pipeline, self._address
        prepare_targets(pipeline, address)
        frames = build_frames(pipeline, self._spark, address, may_freeze=True)
        self._lags = self._meters()
        for name, sink in pipeline.sinks.items():
            check_columns(pipeline, name, frames.tables[sink.input])
        reads = plan_shared(pipeline, frames)
        for read in reads:
            self._start_shared(read, frames)
        shared = {part for read in reads for part in read.parts}
        self._start_dead_letters(frames, shared)
        for name, sink in pipeline.sinks.items():
            if name in shared:
                continue
            writer = sink_writer(pipeline, name, frames.tables[sink.input], address, self._show)
            origins = sorted(pipeline.origins[sink.input])
            self._start(name, writer, target_text(sink), origins, ("sinks", name))
            self._queries[-1].target = self._target(sink, sink.stream, sink.bucket)
        self._write("running")

    def _start_shared(self, read: SharedRead, frames: Frames) -> None:
        pipeline = self.pipeline
        writer = shared_writer(pipeline, read, frames, self._address, self._show)
        before = self._before.get(read.parts[0], 0)
        self._before[read.name] = before
        self._start(read.name, writer, "", [read.source], ("sources", read.source))
        self._queries[-1].members = {
            part: target_text(pipeline.sinks[part])
            if part in pipeline.sinks
            else f"dead letters to {letter_of(pipeline, read.source).stream}"
            for part in read.parts
        }

    def _start_dead_letters(self, frames: Frames, shared: Collection[str]) -> None:
        pipeline = self.pipeline
        for source, frame in frames.bad.items():
            if f"{source}{DEAD_SUFFIX}" in shared:
                continue
            payload = pipeline.sources[source].payload
            assert payload is not None
            assert payload.dead_letter is not None
            writer = dead_letter_writer(pipeline, source, frame, self._address)
            shown = f"dead letters to {payload.dead_letter.stream}"
            keys = ("sources", source, "payload", "dead_letter")
            self._start(f"{source}{DEAD_SUFFIX}", writer, shown, [source], keys)
            letters = payload.dead_letter.stream
            self._queries[-1].target = self._target(pipeline.sources[source], letters, "")

    def _target(self, entry: Source | Sink, stream: str, bucket: str) -> TargetSeq | None:
        """How to know up to which sequence the stream of a sink was written."""
        if not stream and not bucket:
            return None
        where = PipelineAddress.first_of(entry, self.pipeline.head, self._address)
        return TargetSeq(where, stream or f"{KV_STREAM}{bucket}")

    def _start(
        self, name: str, writer: Any, target: str, sources: list[str], keys: tuple[str, ...]
    ) -> None:
        pipeline = self.pipeline
        writer = writer.option("checkpointLocation", str(pipeline.query_checkpoint(name)))
        writer = writer.queryName(f"{pipeline.name}.{name}")
        if self._is_once:
            writer = writer.trigger(availableNow=True)
        elif pipeline.trigger_seconds:
            writer = writer.trigger(processingTime=f"{pipeline.trigger_seconds} seconds")
        try:
            query = writer.start()
        except Exception as error:  # of Spark, and of Java below it
            self.stop("failed")
            raise pipeline.document.error(keys, f"{name}: {short_reason(error)}") from error
        before = self._before.get(name, 0)
        status = QueryStatus(name, target, rows_total=before)
        running = _RunningQuery(writer.start, query, status, sources, rows_before=before)
        self._queries.append(running)
        _await_begun(query)

    def _meters(self) -> dict[str, ServerLag | StoreLag]:
        found: dict[str, ServerLag | StoreLag] = {}
        for name, source in self.pipeline.sources.items():
            if source.kind not in ("stream", "bucket") or not source.is_followed:
                continue
            if source.store:
                options = source_options(self.pipeline, source, self._address)
                found[name] = StoreLag(options)
            else:
                found[name] = ServerLag(
                    PipelineAddress.first_of(source, self.pipeline.head, self._address)
                )
        return found

    # ---------------------------------------------------------------- while it runs

    def poll(self) -> bool:
        """Look at the queries; whether any of them still runs. PipelineError if one failed."""
        for running in self._queries:
            self._observe(running)
        now = time.monotonic()
        if now >= self._lag_due:
            self._measure()
            self._lag_due = time.monotonic() + LAG_SECONDS
        # In this order: one that fails in between is found by the next look, not taken for done.
        is_active = any(running.query.isActive for running in self._queries)
        for running in self._queries:
            if (error := running.query.exception()) is None:
                continue
            is_active = True
            if not running.slow_start.is_hopeless(error, running.status.batches):
                self._restart_if_due(running)
            elif not self._restarts.takes(running, error):
                reason = f"{short_reason(error)}{running.slow_start.summary()}"
                self._fail(f"{running.status.name}: {reason}")
        if self.lease is not None and self.lease.problem:
            self._fail(self.lease.problem)
        self._write("running")
        return is_active

    def _fail(self, text: str) -> NoReturn:
        self.status.error = text
        self.stop("failed")
        raise PipelineError(f"pipeline {self.pipeline.name}: {text}")

    def _restart_if_due(self, running: _RunningQuery) -> None:
        """Start a query again that was given too little time; until then, say so."""
        name = running.status.name
        if not running.slow_start.take():
            self.status.note = running.slow_start.note(name)
            return
        running.status.restarts += 1
        try:
            running.query = running.start()
        except Exception as error:  # of Spark, and of Java below it
            self._fail(f"{name}: {short_reason(error)}")
        _await_begun(running.query)
        self.status.note = ""

    @property
    def is_idle(self) -> bool:
        """Whether no query works on a batch right now."""
        return not any(running.query.status["isTriggerActive"] for running in self._queries)

    def _observe(self, running: _RunningQuery) -> None:
        status = running.status
        now = time.monotonic()
        for progress in running.query.recentProgress:
            if progress["timestamp"] <= running.seen:
                continue
            running.seen = progress["timestamp"]
            rows = progress["numInputRows"]
            status.batch_id = progress["batchId"]
            bad_rows = sum(
                row["rows"]
                for name, row in (progress.get("observedMetrics") or {}).items()
                if name.startswith("bad_")
            )
            status.bad_rows += bad_rows
            if rows:
                status.batches += 1
                status.rows += rows
                status.batch_ms = progress["durationMs"].get("triggerExecution", 0)
                running.recent.append((now, rows))
                newest = BatchStatus(
                    status.batch_id, _done_ms(progress), rows, status.batch_ms, bad_rows
                )
                status.recent = [*status.recent[1 - RECENT_MAX :], newest]
            status.rows_total = running.rows_before + status.rows
            status.state_rows = sum(
                operator["numRowsTotal"] for operator in progress["stateOperators"]
            )
            status.watermark = (progress.get("eventTime") or {}).get("watermark", "")
            running.offsets = [_offset(source) for source in progress["sources"]]
        _note_target(running)
        while running.recent and running.recent[0][0] < now - RATE_SECONDS:
            running.recent.popleft()
        status.rows_per_second = sum(rows for _, rows in running.recent) / RATE_SECONDS

    def _measure(self) -> None:
        """Ask for the lags. Offsets are distinguished by the names of their streams."""
        for running in self._queries:
            known: dict[str, int] = {}
            for offsets in running.offsets:
                known |= offsets
            running.status.lags = [
                lag
                for name in running.sources
                if name in self._lags
                for lag in self._lags[name].measure(self._of_source(name, known))
            ]
        problems = [running.slow_start.note(running.status.name) for running in self._queries]
        problems += self._restarts.notes()
        problems += [meter.problem for meter in self._lags.values()]
        self.status.note = next(filter(None, problems), "")

    def _of_source(self, name: str, known: dict[str, int]) -> dict[str, int]:
        from fnmatch import fnmatchcase

        source = self.pipeline.sources[name]
        wanted = [f"{KV_STREAM}{source.bucket}"] if source.bucket else source.streams
        return {
            stream: seq
            for stream, seq in known.items()
            if any(fnmatchcase(stream, one) for one in wanted)
        }

    def wait(
        self,
        should_stop: Event,
        on_update: Callable[[PipelineStatus], None],
        seconds: float | None = None,
    ) -> None:
        """Run until asked to stop, or everything is done, or this many seconds have passed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while is_active := self.poll():
            on_update(self.status)
            if should_stop.wait(POLL_SECONDS):
                break
            if deadline is not None and time.monotonic() >= deadline:
                break
        self.finish(is_active=is_active)
        on_update(self.status)

    def finish(self, *, is_active: bool) -> None:
        """Stop all queries that are still active; none may be, if all has been processed."""
        self.stop("stopped" if is_active or not self._is_once else "done")

    def stop(self, state: State) -> None:
        """Stop all queries, between two batches if they come to that soon."""
        deadline = time.monotonic() + (0 if state == "failed" else GRACE_SECONDS)
        for running in self._queries:
            while (
                running.query.isActive
                and running.query.status["isTriggerActive"]
                and time.monotonic() < deadline
            ):
                time.sleep(0.02)
            # An error while it stops does not matter: the next run does it again.
            with suppress(Exception):
                running.query.stop()
            self._observe(running)
        if state != "failed":
            self._measure()
        for meter in self._lags.values():
            meter.close()
        for running in self._queries:
            if running.target is not None:
                running.target.close()
        self._write(state)

    def _write(self, state: State) -> None:
        # Each write to an object store is a request that is paid for.
        is_paid = isinstance(self._checkpoint, RemoteFolder) and state == self.status.state
        if is_paid and time.monotonic() < self._written + REMOTE_SECONDS:
            return
        self._written = time.monotonic()
        self.status.state = state
        self.status.updated_ns = time.time_ns()
        self.status.queries = [one for running in self._queries for one in running.shown()]
        write_status(self._checkpoint, self.status)


@contextmanager
def running(runner: Runner, checkpoint: Place) -> Iterator[Runner]:
    """A runner whose queries are started, and stopped whatever happens."""
    with locked(checkpoint) as lease, announced(runner.pipeline):
        try:
            runner.lease = lease
            runner.start()
            yield runner
        except BaseException as error:
            if runner.status.state in ("starting", "running"):
                runner.status.error = str(error) if isinstance(error, PipelineError) else ""
                runner.stop("failed" if isinstance(error, Exception) else "stopped")
            raise
        finally:
            if runner.status.state in ("starting", "running"):
                runner.stop("stopped")


def _await_begun(query: StreamingQuery) -> None:
    """Wait until a query has started its Python process, so that they do not start all at once."""
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while (
        query.isActive
        and query.status["message"].startswith("Initializing")
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)


def _offset(source: Any) -> dict[str, int]:
    """The sequences of a source's end."""
    return {name: point["seq"] for name, point in offset_of(source["endOffset"]).items()}


def _done_ms(progress: Any) -> int:
    """When a batch was done: it began at the time of its progress."""
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    return int(began.timestamp() * 1000 + progress["durationMs"].get("triggerExecution", 0))


def _note_target(running: _RunningQuery) -> None:
    """Say of the newest batch up to where its target was written, once."""
    recent = running.status.recent
    if running.target is None or not recent or recent[-1].target_seq is not None:
        return
    seq = running.target.measure()
    if seq is not None:
        newest = msgspec.structs.replace(recent[-1], target_seq=seq)
        running.status.recent = [*recent[:-1], newest]
