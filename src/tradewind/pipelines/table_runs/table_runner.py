"""Keeps all tables of an account up to date, in one Spark session.

Owns which tables run: those that the metadata of streams asks for. The runner looks at the streams
every few seconds, so tables come, change and go while it runs. A table that fails is tried again
later and later, and no other one is stopped by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import TYPE_CHECKING, Final

from tradewind.client.errors import ClientError
from tradewind.pipelines.definition.loading import near
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.table_runs.table_job import TableJob, TableWork
from tradewind.pipelines.table_runs.table_rounds import TableRounds
from tradewind.pipelines.tables.stream_tables import StreamTable, list_tables
from tradewind.pipelines.tables.table_upkeep import UPKEEP_SECONDS, upkeep_round

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.tables.table_status import TableStatus
    from tradewind.sync import Connection

LOOK_SECONDS: Final = 3.0
POLL_SECONDS: Final = 0.25
TABLES_MAX: Final = 500
# Tiers are looked at after each commit, and this often for what has become too old meanwhile.
TIER_SECONDS: Final = 30.0
TIERS_AT_ONCE: Final = 2
# A comparison that is under way ends after the messages that it has read.
TIER_END_SECONDS: Final = 15.0


def _has_ended(spark: SparkSession) -> bool:
    """Whether Spark is gone: no other attempt would help then."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:  # nothing of Java answers any more
        return True


class TableRunner:
    """Runs the tables of an account, or some of them; `note` is called with what happens."""

    def __init__(
        self, work: TableWork, wanted: Sequence[str] = (), note: Callable[[str], None] = print
    ) -> None:
        self._work = work
        self._wanted = tuple(wanted)
        self._note = note
        self._connection: Connection | None = None
        self._jobs: dict[str, TableJob] = {}
        self._told: dict[str, str] = {}
        self._look_due = 0.0
        self._upkeep = TableRounds(upkeep_round, UPKEEP_SECONDS)
        self._tiers = TableRounds(
            TableJob.keep_tiers,
            TIER_SECONDS,
            at_once=TIERS_AT_ONCE,
            version=lambda job: job.batches,
        )

    @property
    def statuses(self) -> list[TableStatus]:
        """The status of each table that runs, by stream."""
        return [self._jobs[name].status for name in sorted(self._jobs)]

    def poll(self) -> bool:
        """Look at streams and tables once; whether any of them still runs, or may."""
        now = time.monotonic()
        if now >= self._look_due:
            self._look_due = now + LOOK_SECONDS
            self._look()
        for job in list(self._jobs.values()):
            job.poll()
            is_failed = job.status.state == "failed"
            self._tell(job.stream, job.status.error if is_failed else "")
            if is_failed and _has_ended(self._work.spark):
                raise PipelineError("Spark has ended, and no table can go on; run them again")
        self._upkeep.poll(self._jobs)
        self._tiers.poll({name: job for name, job in self._jobs.items() if job.spec.tiers})
        return not self._work.is_once or any(not job.is_over for job in self._jobs.values())

    def wait(
        self,
        should_stop: Event,
        on_update: Callable[[Sequence[TableStatus]], None] = lambda _statuses: None,
        seconds: float | None = None,
    ) -> None:
        """Run until asked to stop, until everything is done, or for this many seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while self.poll():
                on_update(self.statuses)
                if should_stop.wait(POLL_SECONDS):
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    break
        finally:
            self.close()
        on_update(self.statuses)

    def close(self) -> None:
        """Stop all tables."""
        for job in self._jobs.values():
            job.stop()
        self._tiers.wait(TIER_END_SECONDS)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---------------------------------------------------------------- which tables

    def _look(self) -> None:
        """Run the tables that the streams ask for; without an answer, the same ones continue."""
        if self._work.is_once and self._jobs:
            return
        try:
            if self._connection is None:
                self._connection = self._work.address.connect()
            found = list_tables(self._connection.jetstream_manager())
        except (ClientError, OSError) as error:
            if not self._jobs:
                raise
            self._tell("", f"the server does not answer: {error}")
            return
        self._tell("", "")
        self._take(self._chosen(found))

    def _chosen(self, found: Sequence[StreamTable]) -> list[StreamTable]:
        if len(found) > TABLES_MAX:
            raise PipelineError(
                f"more than {TABLES_MAX} tables; run some of them: table run STREAM"
            )
        if not self._wanted:
            return list(found)
        names = [table.stream for table in found]
        for name in self._wanted:
            if name not in names and not self._jobs:
                raise PipelineError(f"stream {name!r} has no table{near(name, names)}")
        return [table for table in found if table.stream in self._wanted]

    def _take(self, tables: Sequence[StreamTable]) -> None:
        specs = {table.stream: table.spec for table in tables if not table.problem}
        for stream, job in list(self._jobs.items()):
            if specs.get(stream) != job.spec:
                self._note(f"table of {stream}: stopping, it was changed or removed")
                job.stop()
                del self._jobs[stream]
        for table in tables:
            if table.problem or table.spec is None:
                self._tell(table.stream, table.problem)
            elif table.stream not in self._jobs:
                self._note(
                    f"table of {table.stream}: starting, {table.spec.format} in {table.spec.to}"
                )
                self._jobs[table.stream] = TableJob(table.stream, table.spec, self._work)

    def _tell(self, stream: str, problem: str) -> None:
        """Say a problem once."""
        if self._told.get(stream, "") != problem:
            self._told[stream] = problem
            if problem:
                self._note(f"table of {stream}: {problem}" if stream else problem)
