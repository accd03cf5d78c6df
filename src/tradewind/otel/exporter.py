"""Send spans to a collector with OTLP over HTTP, as JSON, from a thread.

Owns the queue of spans for the thread, and the connection to the collector. `add` never waits: if
the queue is full, or the collector is slow, unreachable or refuses them, spans are dropped and
counted, without any other effect.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tradewind._version import __version__
from tradewind.errors import TradewindError
from tradewind.otel.spans import Attribute, Span, attribute_list

QUEUE_MAX: Final = 8192
BATCH_MAX: Final = 512
INTERVAL_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 10.0
STOP_SECONDS: Final = 2.0
_ANSWER_BYTES_MAX: Final = 65536
_OK: Final = range(200, 300)


class ExporterStatistics(msgspec.Struct):
    """The numbers of spans by outcome. `dropped` found no room in the queue, `failed` no willing
    collector.
    """

    exported: int = 0
    dropped: int = 0
    failed: int = 0


class SpanExporter:
    """The exporter for one collector. `endpoint` is a URL whose path defaults to /v1/traces.

    >>> exporter = SpanExporter("http://127.0.0.1:4318", service_name="shop")

    `on_trouble(text)` is called, in the thread, when the collector begins to fail.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        service_name: str = "tradewind",
        resource: Mapping[str, Attribute] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        check_endpoint(endpoint)
        parts = urlsplit(endpoint)
        self.endpoint = endpoint
        self.statistics = ExporterStatistics()
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/") or "/v1/traces"
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._timeout = timeout_seconds
        self._on_trouble = on_trouble
        self._in_trouble = False
        about: dict[str, Attribute] = {"service.name": service_name, **(resource or {})}
        self._resource = {"attributes": attribute_list(about)}
        self._queue: deque[Span] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        """Queue a span that has ended; never waits, never fails."""
        if len(self._queue) >= QUEUE_MAX or self._stopping:
            self.statistics.dropped += 1
            return
        self._queue.append(span)
        if len(self._queue) == BATCH_MAX:
            self._wake.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Send the queued spans, for at most so long; the rest is then dropped."""
        self._stopping = True
        self._wake.set()
        self._thread.join(seconds)
        self.statistics.dropped += len(self._queue)
        self._queue.clear()

    # ---------------------------------------------------------------- in the thread

    def _run(self) -> None:
        while True:
            self._wake.wait(INTERVAL_SECONDS)
            self._wake.clear()
            is_last = self._stopping
            while self._queue:
                self._send_batch()
            if is_last:
                return

    def _send_batch(self) -> None:
        batch: list[Span] = []
        while self._queue and len(batch) < BATCH_MAX:
            batch.append(self._queue.popleft())
        try:
            problem = self._post(self._document(batch))
        except (OSError, http.client.HTTPException) as error:
            problem = str(error) or type(error).__name__
        if not problem:
            self.statistics.exported += len(batch)
            self._in_trouble = False
            return
        self.statistics.failed += len(batch)
        if not self._in_trouble and self._on_trouble is not None:
            self._on_trouble(f"Spans cannot be sent to {self.endpoint}: {problem}")
        self._in_trouble = True

    def _document(self, batch: list[Span]) -> bytes:
        scope = {"name": "tradewind", "version": __version__}
        spans = [span.document() for span in batch]
        inner = {"resource": self._resource, "scopeSpans": [{"scope": scope, "spans": spans}]}
        return msgspec.json.encode({"resourceSpans": [inner]})

    def _post(self, body: bytes) -> str:
        """Send a batch to the collector; returns the problem, or an empty text."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        until = time.monotonic() + self._timeout
        try:
            connection.request("POST", self._path, body, self._headers)
            answer = connection.getresponse()
            # A timeout is for each read: a collector that trickles must not hold the thread.
            while answer.read(_ANSWER_BYTES_MAX) and time.monotonic() < until:
                pass
        finally:
            connection.close()
        return "" if answer.status in _OK else f"status {answer.status} {answer.reason}"


def check_endpoint(endpoint: str) -> None:
    """TradewindError if spans cannot be sent to the endpoint."""
    try:
        parts = urlsplit(endpoint)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise TradewindError(
            f"endpoint must be a URL such as http://127.0.0.1:4318, not {endpoint!r}"
        )
