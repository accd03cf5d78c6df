"""The table of the demo's orders.

Owns asking for it and running it beside the pipeline, in the same Spark. The module begins when the
first figures are there, so that nothing of the demo has to wait for it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.pipelines.demo.orders import STREAM
from tradewind.pipelines.table_runs.table_job import TableWork
from tradewind.pipelines.table_runs.table_runner import TableRunner
from tradewind.pipelines.tables.stream_tables import list_tables, put_table
from tradewind.pipelines.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
    from tradewind.pipelines.tables.table_status import TableStatus
    from tradewind.sync import JetStreamManager

FOLDER: Final = "tables"
EVERY: Final = "10s"


def ask_for_table(manager: JetStreamManager, folder: Path) -> None:
    """Have the orders kept as a table, unless they are already."""
    if any(table.stream == STREAM for table in list_tables(manager)):
        return
    to = str(folder.absolute() / FOLDER)
    has_iceberg = find_spec("pyiceberg") is not None and find_spec("sqlalchemy") is not None
    spec = TableSpec(to, "iceberg" if has_iceberg else "parquet", every=EVERY)
    put_table(manager, STREAM, spec)


class DemoTable:
    """The table while the demo runs."""

    def __init__(self, spark: SparkSession, address: PipelineAddress) -> None:
        self._runner = TableRunner(TableWork(spark, address), note=_say_nothing)
        self._is_begun = False

    def poll(self, *, may_begin: bool) -> list[TableStatus]:
        """Look at the table, or begin; how far it is."""
        self._is_begun = self._is_begun or may_begin
        if self._is_begun:
            self._runner.poll()
        return self._runner.statuses

    def close(self) -> list[TableStatus]:
        """Stop it; how far it came."""
        self._runner.close()
        return self._runner.statuses


def _say_nothing(_text: str) -> None:
    """Leave it to the status to report what happens."""
