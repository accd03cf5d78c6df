"""Keeps the tables of streams in good order while they are written.

Owns when a table gets a round of maintenance, and which one: one table at a time, in a thread
beside the queries. What a round does, and why it disturbs nobody, is up to `maintenance`; it can be
killed at any moment, so the thread ends with its process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tradewind.pipelines.maintenance import MaintenancePolicy, MaintenanceReport, maintain
from tradewind.pipelines.parquet_lakes import ParquetLake
from tradewind.pipelines.spark_errors import short_reason
from tradewind.pipelines.tables.table_spec import TableSpec, table_folder
from tradewind.pipelines.tables.table_writing import found_lake

if TYPE_CHECKING:
    from tradewind.pipelines.tables.table_job import TableJob

logger = logging.getLogger(__name__)
UPKEEP_SECONDS: Final = 600.0
POLICY: Final = MaintenancePolicy(seconds_max=60.0)


def maintain_table(
    stream: str, spec: TableSpec, policy: MaintenancePolicy = POLICY
) -> MaintenanceReport | None:
    """Do one round of maintenance; None if the table is not there yet."""
    if spec.format == "parquet":
        folder = ParquetLake(table_folder(spec))
        return maintain(folder, policy) if folder.is_there else None
    lake = found_lake(stream, spec)
    return maintain(lake, policy) if lake is not None else None


class TableUpkeep:
    """The rounds of one runner; `poll` is called again and again, and never raises."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def poll(self, jobs: Mapping[str, TableJob]) -> None:
        """Begin the round of a table that is due, unless another one is being maintained."""
        now = self._clock()
        self._due = {name: self._due.get(name, now + UPKEEP_SECONDS) for name in jobs}
        if self._thread is not None and self._thread.is_alive():
            return
        due = [name for name in jobs if now >= self._due[name] and jobs[name].is_running]
        if not due:
            return
        name = min(due, key=self._due.__getitem__)
        self._due[name] = now + UPKEEP_SECONDS
        self._thread = threading.Thread(
            target=_round, args=(jobs[name],), name=f"upkeep of {name}", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the round that is under way."""
        if self._thread is not None:
            self._thread.join(seconds)


def _round(job: TableJob) -> None:
    try:
        report = maintain_table(job.stream, job.spec)
    except Exception as error:  # of the libraries of lakes; the next round tries again
        job.status.upkeep_error = short_reason(error)
        logger.warning("table of %s: maintenance: %s", job.stream, job.status.upkeep_error)
        return
    if report is not None:
        job.status.upkeep_error = ""
        job.status.maintained_ns = time.time_ns()
        job.status.files_joined += report.files_joined
        job.status.snapshots_expired += report.snapshots_expired
