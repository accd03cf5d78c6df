"""Prometheus metrics of running queries, from the progress that Spark reports.

Owns a listener that keeps the last progress of each query, and a small page for it. Spark 4.3 has
no metrics of its own for Python sources, but passes `latestOffset` on in every progress.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from tradewind.clock import SystemClock
from tradewind.monitor.prometheus import CONTENT_TYPE, render
from tradewind.spark.progress.stream_lag import QueryLag, lag_families, query_lag

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tradewind.clock import Clock

METRICS_PATH: Final = "/metrics"
# Who sends no request within this time is hung up on, so that others get their turn.
REQUEST_SECONDS: Final = 5.0


class ProgressMetrics(StreamingQueryListener):
    """Give it to `spark.streams.addListener`; queries that have ended are forgotten."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._latest: dict[str, QueryLag] = {}  # by the id of the run
        self._rows: dict[str, int] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        self.note(msgspec.json.decode(event.progress.json, type=dict[str, Any]))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Called when the query is idle; what was known still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The query has ended."""
        with self._lock:
            self._latest.pop(str(event.runId), None)
            self._rows.pop(str(event.runId), None)

    def note(self, progress: dict[str, Any]) -> None:
        """Take over a progress, such as `query.lastProgress`."""
        run = str(progress.get("runId", ""))
        lag = query_lag(progress, self._clock.wall_ns())
        with self._lock:
            self._latest[run] = lag
            self._rows[run] = self._rows.get(run, 0) + lag.rows

    def queries(self) -> list[QueryLag]:
        """The queries that run, by name."""
        with self._lock:
            return sorted(self._latest.values(), key=lambda one: one.query)

    def text(self) -> bytes:
        """The page for Prometheus."""
        with self._lock:
            rows = {lag.query: self._rows[run] for run, lag in self._latest.items()}
        return render(lag_families(self.queries(), rows))


@contextmanager
def serve_metrics(
    metrics: ProgressMetrics, port: int = 0, host: str = "127.0.0.1"
) -> Iterator[str]:
    """Serve the page while the block runs; yields its address. Port 0 takes a free one."""

    class Page(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            is_found = self.path.partition("?")[0] == METRICS_PATH
            body = metrics.text() if is_found else b"the metrics are at /metrics\n"
            self.send_response(200 if is_found else 404)
            self.send_header("Content-Type", CONTENT_TYPE if is_found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Requests are not worth a line."""

    with HTTPServer((host, port), Page) as server:
        thread = threading.Thread(target=server.serve_forever, name="spark-metrics", daemon=True)
        thread.start()
        try:
            yield f"http://{host}:{server.server_address[1]}{METRICS_PATH}"
        finally:
            server.shutdown()
            thread.join()
