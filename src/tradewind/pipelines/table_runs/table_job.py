"""One table while it is kept up to date: a streaming query with its own checkpoint.

Owns the pipeline that a table is (a stream, a sink and nothing between), starting it, trying again
when it fails, and its status. Reading, writing, the lock and the lag are those of every pipeline
(`runner`). The module never stops another table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.api.names import KV_STREAM
from tradewind.client.errors import ClientError
from tradewind.documents import Place as DocumentPlace
from tradewind.errors import TradewindError
from tradewind.pipelines.definition.document import PipelineDocument
from tradewind.pipelines.definition.model import Head, Iceberg, Pipeline, Sink, Source
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import RemoteFolder, names_in
from tradewind.pipelines.notation.intervals import parse_interval_ms
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason
from tradewind.pipelines.state.figure_types import LakeFigures
from tradewind.pipelines.state.leases import locked
from tradewind.pipelines.tables.pinned_streams import StreamPlace
from tradewind.pipelines.tables.table_decoders import is_settled, table_decoder
from tradewind.pipelines.tables.table_rows import RowsNote, letters_name
from tradewind.pipelines.tables.table_spec import (
    TableSpec,
    is_bucket,
    state_folder,
    table_folder,
    table_name,
)
from tradewind.pipelines.tables.table_status import (
    QUERY,
    TableFigureReader,
    TableState,
    TableStatus,
    check_identity,
    keep_identity,
    read_table_status,
    state_place,
    write_table_status,
)
from tradewind.pipelines.tables.table_writing import (
    LATEST,
    LetterBox,
    StreamBatchStep,
    found_lake,
    letter_subject,
    stream_writer,
)
from tradewind.pipelines.tables.tier_keeping import TierKeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.lake.lakes import BatchWriter, SinkQuery

SOURCE: Final = "messages"
# The limits of one batch: what is decoded at once, and the keys that the driver collects.
BATCH_MESSAGES: Final = 500_000
BATCH_KEYS: Final = 100_000
FIGURES_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 1.0
REMOTE_STATUS_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 300.0


@dataclass(frozen=True)
class TableWork:
    """The part that all tables of one runner share; `store` is a folder of block files to read."""

    spark: SparkSession
    address: PipelineAddress
    store: str = ""
    is_once: bool = False
    batch_messages: int = 0


class TableJob:
    """A table of a stream. `poll` is called again and again, and never raises for the table."""

    def __init__(self, stream: str, spec: TableSpec, work: TableWork) -> None:
        self.stream = stream
        self.spec = spec
        self._work = work
        self._place = state_place(stream, spec)
        self._opened: ExitStack | None = None
        self._runner: Runner | None = None
        self._figures = TableFigureReader(stream, spec)
        self._figures_due = self._status_due = self._retry_due = 0.0
        self._batches = -1
        self.tier = TierKeeper(stream, spec, StreamPlace(work.address)) if spec.tiers else None
        self._has_lock = self._is_resumed = self._is_catching_up = False
        now = time.time_ns()
        self.status = TableStatus(
            stream=stream,
            to=table_folder(spec),
            format=spec.format,
            state="starting",
            pid=os.getpid(),
            host=os.uname().nodename,
            updated_ns=now,
            started_ns=now,
        )

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end: done, or failed in a run that tries only once."""
        is_failed = self.status.state == "failed" and self._work.is_once
        return is_failed or self.status.state in ("done", "stopped")

    @property
    def is_running(self) -> bool:
        """Whether its query runs."""
        return self.status.state == "running"

    @property
    def batches(self) -> int:
        """How many batches its query has committed when it was last looked at."""
        return self._batches

    def keep_tiers(self) -> None:
        """Verify the table of a stream in two tiers, and apply the limits of the tier."""
        if self.tier is not None:
            self.tier.round()

    def poll(self) -> None:
        """Start it, look at it, or wait for the time to try again."""
        if self.is_over or (self._runner is None and time.monotonic() < self._retry_due):
            return
        try:
            if self._runner is None:
                self._start()
            assert self._runner is not None
            is_active = self._runner.poll()
            self._observe(self._runner)
            if not is_active and self._is_catching_up:
                self._close()
                self._is_catching_up = False
            elif not is_active:
                self._end("done")
            elif self._should_catch_up(self._runner):
                self._runner.stop("stopped")
                self._close()
                self._is_catching_up = True
        except (TradewindError, ClientError, OSError) as error:
            self._fail(str(error))
        except Exception as error:  # of Spark, and of the libraries of lakes
            self._fail(f"{type(error).__name__}: {short_reason(error)}")

    def stop(self) -> None:
        """Stop it between two batches, if it comes to that soon."""
        if self.tier is not None:
            self.tier.should_stop.set()
        if not self.is_over:
            self._end("stopped")

    # ---------------------------------------------------------------- its life

    def _should_catch_up(self, runner: Runner) -> bool:
        """Whether so much waits that batches should follow each other without a pause."""
        behind = self.status.behind_messages
        if self._work.is_once or self._is_catching_up or behind is None:
            return False
        return behind > self._batch_messages and runner.is_idle

    @property
    def _batch_messages(self) -> int:
        return self._work.batch_messages or _batch_messages(self.spec)

    def _start(self) -> None:
        pipeline = self._pipeline()
        is_once = self._work.is_once or self._is_catching_up
        runner = Runner(
            pipeline, self._work.spark, self._work.address, _no_console, is_once=is_once
        )
        self._opened = ExitStack()
        try:
            # Only the runner that has the lock writes the status.
            self._opened.enter_context(running(runner, pipeline.checkpoint))
        except BaseException:
            self._opened.close()
            self._opened = None
            raise
        self._has_lock = True
        self._runner = runner
        self.status.state = "running"
        self.status.retry_ns = 0
        self._batches = -1
        self._write()

    def _resume_counts(self) -> None:
        """Go on counting where the runner before has ended."""
        if self._is_resumed:
            return
        self._is_resumed = True
        with suppress(PipelineError):
            old = read_table_status(self._place)
            if old is not None:
                for name in ("rows_written", "rescued", "dead_letters", "undecoded"):
                    setattr(self.status, name, getattr(old, name))

    def _observe(self, runner: Runner) -> None:
        query = runner.status.queries[0]
        lags = [lag for lag in query.lags if lag.messages is not None]
        self.status.behind_messages = lags[0].messages if lags else None
        self.status.behind_seconds = lags[0].seconds if lags else None
        self.status.error = runner.status.note
        self._observe_tier()
        now = time.monotonic()
        if query.batches != self._batches and now >= self._figures_due:
            self._batches = query.batches
            self._figures_due = now + FIGURES_SECONDS
            self.status.figures = self._read_figures()
            if query.batches:
                self.status.failures = 0
        if now >= self._status_due:
            self._write()

    def _read_figures(self) -> LakeFigures:
        try:
            return self._figures.read()
        except Exception:  # the libraries of lakes have errors of their own; figures are not vital
            return self.status.figures

    def _end(self, state: TableState) -> None:
        if self._runner is not None:
            with suppress(Exception):  # the next run does again what was not done
                self._runner.stop("done" if state == "done" else "stopped")
            self._observe_end(self._runner)
        self.status.state = state
        self.status.figures = self._read_figures()
        if state == "done":
            self.keep_tiers()
        if self._observe_tier() and state == "done":
            self.status.state = "failed"
        self._write()
        self._close()

    def _observe_tier(self) -> bool:
        """Show how far the table is verified; whether that found something wrong."""
        if self.tier is None:
            return False
        self.status.tier = self.tier.status
        if error := self.tier.status.error:
            self.status.error = f"verification: {error}"
        return bool(error)

    def _observe_end(self, runner: Runner) -> None:
        lags = [lag for query in runner.status.queries for lag in query.lags]
        if lags:
            self.status.behind_messages = lags[0].messages
            self.status.behind_seconds = lags[0].seconds

    def _fail(self, error: str) -> None:
        """Note what is wrong and when it is tried again: later and later, while nothing helps."""
        self.status.failures += 1
        pause = min(RETRY_SECONDS * 2 ** (self.status.failures - 1), RETRY_SECONDS_MAX)
        self._retry_due = time.monotonic() + pause
        self.status.state = "failed"
        self.status.error = " ".join(error.split())
        self.status.retry_ns = 0 if self._work.is_once else time.time_ns() + int(pause * 1e9)
        with suppress(TradewindError, OSError):
            self._write_failure()
        self._close()

    def _write_failure(self) -> None:
        """Let others read why it failed, unless another runner has the table."""
        if self._has_lock:
            self._write()
            return
        with locked(self._place):
            self._has_lock = True
            self._resume_counts()
            self._write()
            self._has_lock = False

    def _close(self) -> None:
        opened, self._opened, self._runner = self._opened, None, None
        self._has_lock = False
        if opened is not None:
            with suppress(Exception):  # the error that ended the runner was reported before
                opened.close()

    def _write(self) -> None:
        if not self._has_lock:
            return
        is_paid = isinstance(self._place, RemoteFolder)
        self._status_due = time.monotonic() + (REMOTE_STATUS_SECONDS if is_paid else STATUS_SECONDS)
        self.status.updated_ns = time.time_ns()
        write_table_status(self._place, self.status)

    def _count(self, notes: Sequence[RowsNote]) -> None:
        """Add up what was seen in a batch that is committed."""
        undecoded = sum(note.undecoded for note in notes)
        self.status.rows_written += sum(note.rows for note in notes)
        self.status.rescued += sum(note.rescued for note in notes)
        if self.spec.dead_letters:
            self.status.dead_letters += undecoded
        if self.spec.keeps_undecoded:
            self.status.undecoded += undecoded

    # ---------------------------------------------------------------- the pipeline

    def _pipeline(self) -> Pipeline:
        """The pipeline that the table is."""
        self._check_begun()
        reopen = partial(table_decoder, self.stream, self.spec, self._work.address)
        decoder = reopen()
        fresh = None if is_settled(self.spec) else reopen
        letters = self._letter_box()

        def writer(query: SinkQuery) -> BatchWriter:
            # From here on the lock is held, and no batch is on its way yet.
            self._resume_counts()
            keep_identity(self._place, self.stream, self.spec)
            step = StreamBatchStep(
                self.stream, self.spec, decoder, query, self._count, letters, fresh
            )
            return stream_writer(step)

        every = None if self._work.is_once else parse_interval_ms(self.spec.every) / 1000
        return table_pipeline(self.stream, self.spec, self._work, every, writer)

    def _letter_box(self) -> LetterBox | None:
        letters = self.spec.dead_letters
        if not letters:
            return None
        with self._work.address.connect() as connection:
            config = connection.jetstream_manager().streams.info(letters).config
        subject = letter_subject(letters, config.subjects, self.stream)
        return LetterBox(letters, subject, self._work.address)

    def _check_begun(self) -> None:
        """PipelineError if the table has rows, and nothing says up to where they go.

        A new checkpoint would write all that the stream has once more.
        """
        check_identity(self._place, self.stream, self.spec)
        if names_in(self._place / "queries" / QUERY / "offsets"):
            return
        if self.spec.format == "parquet":
            folder = Path(table_folder(self.spec))
            has_rows = any(folder.rglob("part-*.parquet"))
        else:
            lake = found_lake(self.stream, self.spec)
            has_rows = lake is not None and bool(lake.files())
        if has_rows:
            raise PipelineError(
                f"{table_folder(self.spec)} has rows already, and {self._place} does not say up to"
                " where: choose another place, or drop the table with `tradewind table rm"
                f" {self.stream} --drop`"
            )


def _batch_messages(spec: TableSpec) -> int:
    """How many messages a batch has at most."""
    return BATCH_KEYS if spec.rows == "latest" else BATCH_MESSAGES


def table_pipeline(
    stream: str, spec: TableSpec, work: TableWork, every: float | None, writer: object
) -> Pipeline:
    """A pipeline from a stream or bucket to its table."""
    folder = table_folder(spec)
    place = state_folder(stream, spec)
    upsert = spec.rows == "latest"
    batch = work.batch_messages or _batch_messages(spec)
    of_source = partial(
        Source, follow=True, batch=batch, data_loss=spec.data_loss, store=work.store
    )
    source = (
        of_source(bucket=stream.removeprefix(KV_STREAM))
        if is_bucket(stream)
        else of_source(stream=stream)
    )
    how = partial(
        Sink,
        input=SOURCE,
        mode="upsert" if upsert else "append",
        key=list(LATEST.key) if upsert else "",
        order_by=LATEST.order_by if upsert else "",
        delete_when=LATEST.delete_when if upsert else "",
    )
    if spec.format == "iceberg":
        sink = how(iceberg=Iceberg(table_name(stream, spec), folder, spec.catalog))
    else:
        sink = how(delta=folder) if spec.format == "delta" else how(parquet=folder)
    document = PipelineDocument(Path("/", letters_name(stream)))
    document.places[()] = DocumentPlace(1, 1, 1)
    return Pipeline(
        document,
        Head(pipeline=letters_name(stream), checkpoint=place),
        {SOURCE: source},
        {},
        {QUERY: sink},
        every,
        origins={SOURCE: frozenset({SOURCE})},
        writers={QUERY: writer},  # type: ignore[dict-item]
    )


def _no_console(*_arguments: object) -> None:
    raise AssertionError("no table has a console sink")
