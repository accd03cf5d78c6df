"""JetStream as a Spark data source and sink: batch and streaming reads and writes.

Owns what runs inside Spark's Python processes, in the driver and on the executors. The server never
imports it; Spark and Arrow come with the extra `spark`, and only the modules that need
them import them.
"""

from __future__ import annotations

from tradewind.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tradewind.spark.processes.spark_session import get_session
    from tradewind.spark.progress.batch_log import read_batches
    from tradewind.spark.progress.query_metrics import ProgressMetrics, serve_metrics
    from tradewind.spark.progress.stream_lag import query_lag

_LAZY = {
    "ProgressMetrics": "tradewind.spark.progress.query_metrics",
    "get_session": "tradewind.spark.processes.spark_session",
    "query_lag": "tradewind.spark.progress.stream_lag",
    "read_batches": "tradewind.spark.progress.batch_log",
    "serve_metrics": "tradewind.spark.progress.query_metrics",
}

__all__ = [
    "ProgressMetrics",
    "get_session",
    "query_lag",
    "read_batches",
    "serve_metrics",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
