"""Data pipelines on Spark: pipeline files, ready-made jobs, and SQL on streams.

Owns the layer between a user's file or command and the source and sink of `tradewind.spark`. The
package uses no server internals: everything works with nats-server too.
"""

from __future__ import annotations

from tradewind.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
    from tradewind.pipelines.sql.query_session import QuerySession, SqlQuestion
    from tradewind.pipelines.table_runs.table_job import TableWork
    from tradewind.pipelines.table_runs.table_runner import TableRunner
    from tradewind.pipelines.tables.pinned_streams import StreamPlace, pin_stream
    from tradewind.pipelines.tables.stream_tables import put_table
    from tradewind.pipelines.tables.table_reading import read_stream
    from tradewind.pipelines.tables.table_spec import TableSpec

_LAZY = {
    "QuerySession": "tradewind.pipelines.sql.query_session",
    "PipelineAddress": "tradewind.pipelines.sessions.pipeline_connections",
    "SqlQuestion": "tradewind.pipelines.sql.query_session",
    "StreamPlace": "tradewind.pipelines.tables.pinned_streams",
    "TableRunner": "tradewind.pipelines.table_runs.table_runner",
    "TableSpec": "tradewind.pipelines.tables.table_spec",
    "TableWork": "tradewind.pipelines.table_runs.table_job",
    "pin_stream": "tradewind.pipelines.tables.pinned_streams",
    "put_table": "tradewind.pipelines.tables.stream_tables",
    "read_stream": "tradewind.pipelines.tables.table_reading",
}

__all__ = [
    "PipelineAddress",
    "QuerySession",
    "SqlQuestion",
    "StreamPlace",
    "TableRunner",
    "TableSpec",
    "TableWork",
    "pin_stream",
    "put_table",
    "read_stream",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
