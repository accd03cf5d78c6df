"""Keeps the tables of streams in good order while they are written.

Owns the round of maintenance that a running table gets now and then (`table_rounds`), one table at
a time. `maintenance` sees to it that a round disturbs no reader or writer, and can be killed at any
moment.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from tradewind.pipelines.lake.maintenance import MaintenancePolicy, MaintenanceReport, maintain
from tradewind.pipelines.lake.parquet_lakes import ParquetLake
from tradewind.pipelines.sessions.spark_errors import short_reason
from tradewind.pipelines.tables.table_spec import TableSpec, table_folder
from tradewind.pipelines.tables.table_writing import found_lake

if TYPE_CHECKING:
    from tradewind.pipelines.table_runs.table_job import TableJob

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


def upkeep_round(job: TableJob) -> None:
    """Maintain the table of a job, and note in its status how that went."""
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
