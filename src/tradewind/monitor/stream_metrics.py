"""The metrics of single streams and consumers on /metrics, among them the lag in seconds.

Owns names, labels and a bounded number of series: the first streams and consumers have their own,
in the order in which they were created, so that the choice does not change between scrapes; the
others are combined into one. So are the consumers of a stream without a durable name, because
their names never come back. It reads the engine, changes nothing, and goes in steps: everything
may change between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import msgspec

from tradewind.consumer.consumer_lag import ConsumerLag
from tradewind.durations import SECOND_NS
from tradewind.monitor.prometheus import Kind, escape_label, heading
from tradewind.monitor.stepping import Stepped

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream

OTHER: Final = "(other)"
EPHEMERAL: Final = "(ephemeral)"
# Text is put together from so many lines per step.
LINES_PER_STEP: Final = 500
Combine = Callable[[float, float], float]


class AssetMetric(msgspec.Struct, frozen=True):
    """One figure of each stream or consumer, and how those of several are combined."""

    name: str
    help: str
    kind: Kind = "gauge"
    combine: Combine = float.__add__


def _largest(one: float, other: float) -> float:
    return max(one, other)


def _smallest(one: float, other: float) -> float:
    return min(one, other)


STREAM_METRICS: Final = (
    AssetMetric("stream_messages", "Messages in the stream."),
    AssetMetric("stream_bytes", "Bytes of these messages."),
    AssetMetric("stream_consumers", "Consumers of the stream."),
    AssetMetric("stream_subjects", "Subjects of these messages."),
    AssetMetric(
        "stream_stored_total", "Last sequence: its rate is that of storing.", kind="counter"
    ),
    AssetMetric("stream_first_age_seconds", "Age of the oldest message.", combine=_largest),
    AssetMetric("stream_last_age_seconds", "Age of the newest message.", combine=_smallest),
)
CONSUMER_METRICS: Final = (
    AssetMetric("consumer_pending_messages", "Messages that were not delivered yet."),
    AssetMetric("consumer_ack_pending_messages", "Delivered messages without acknowledgement."),
    AssetMetric("consumer_redelivered_messages", "Messages that were delivered again."),
    AssetMetric("consumer_waiting_pulls", "Pull requests that wait for messages."),
    AssetMetric("consumer_delivered_total", "Deliveries, repeated ones too.", kind="counter"),
    AssetMetric(
        "consumer_lag_seconds",
        "Age of the oldest message that the consumer is not done with; 0: it is done with all.",
        combine=_largest,
    ),
    AssetMetric(
        "consumer_unacknowledged_age_seconds",
        "Age of the oldest delivered message without acknowledgement.",
        combine=_largest,
    ),
    AssetMetric(
        "consumer_undelivered_age_seconds",
        "Age of the next message to deliver.",
        combine=_largest,
    ),
    AssetMetric(
        "consumer_idle_seconds",
        "Time since the last delivery or acknowledgement.",
        combine=_smallest,
    ),
)


class MetricRows:
    """The lines of a table of metrics: a row for each asset, up to a limit, and combined rows."""

    def __init__(self, metrics: Sequence[AssetMetric], limit: int) -> None:
        self._metrics = metrics
        self._room = limit
        self._lines: list[list[str]] = [[] for _ in metrics]
        self._combined: dict[str, list[float]] = {}

    def add(self, labels: str, others: str, values: Sequence[float]) -> None:
        """Add an asset; if there is no room for it, to those that have the labels `others`."""
        if self._room > 0:
            self._room -= 1
            self._write(labels, values)
        else:
            self.combine(others, values)

    def combine(self, labels: str, values: Sequence[float]) -> None:
        """Add an asset to those that share a row."""
        there = self._combined.get(labels)
        if there is None:
            self._combined[labels] = list(map(float, values))
            return
        for index, (metric, value) in enumerate(zip(self._metrics, values, strict=True)):
            there[index] = metric.combine(there[index], float(value))

    def finish(self, others: str) -> Stepped[list[bytes]]:
        """The text, in pieces; combined rows for which there is no room are combined again."""
        rows, self._combined = self._combined, {}
        for labels, values in rows.items():
            if labels == others:
                self.combine(others, values)
            else:
                self.add(labels, others, values)
            yield
        for labels, values in self._combined.items():
            self._write(labels, values)
        pieces: list[bytes] = []
        for metric, lines in zip(self._metrics, self._lines, strict=True):
            text = heading(f"tradewind_{metric.name}", metric.kind, metric.help)
            pieces.append(_encoded(text))
            for start in range(0, len(lines), LINES_PER_STEP):
                pieces.append(_encoded(lines[start : start + LINES_PER_STEP]))
                yield
        return pieces

    def _write(self, labels: str, values: Sequence[float]) -> None:
        for metric, lines, value in zip(self._metrics, self._lines, values, strict=True):
            lines.append(f"tradewind_{metric.name}{{{labels}}} {_number(value)}")


class StreamMetrics:
    """Builds the metrics of the streams and consumers of an engine."""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._lags: WeakKeyDictionary[ServerConsumer, ConsumerLag] = WeakKeyDictionary()

    def build(self, limit: int) -> Stepped[list[bytes]]:
        """The text, in pieces, with series for up to `limit` streams and as many consumers."""
        streams, consumers = MetricRows(STREAM_METRICS, limit), MetricRows(CONSUMER_METRICS, limit)
        self._engine.set_time()
        now_ns = self._engine.broker.now_ns()
        other = f'account="{OTHER}",stream="{OTHER}"'
        for hosted in list(self._engine.hosted_streams()):
            yield
            if hosted.tenant.streams.get(hosted.name) is not hosted:
                continue  # removed in the meantime
            labels = _labels(account=hosted.tenant.name, stream=hosted.name)
            streams.add(labels, other, _stream_values(hosted, now_ns))
            for consumer in list(hosted.consumers.values()):
                yield
                if hosted.consumers.get(consumer.name) is not consumer:
                    continue
                values = self._consumer_values(consumer, now_ns)
                if consumer.config.durable_name:
                    name = f'{labels},consumer="{escape_label(consumer.name)}"'
                    consumers.add(name, f'{other},consumer="{OTHER}"', values)
                else:
                    consumers.combine(f'{labels},consumer="{EPHEMERAL}"', values)
        pieces = yield from streams.finish(other)
        pieces += yield from consumers.finish(f'{other},consumer="{OTHER}"')
        return pieces

    def _consumer_values(self, consumer: ServerConsumer, now_ns: int) -> tuple[float, ...]:
        lag = self._lags.get(consumer)
        if lag is None:
            lag = self._lags[consumer] = ConsumerLag()
        lag.look(consumer, now_ns)
        delivery, acks = consumer.delivery, consumer.acks
        active_ns = max(delivery.last_delivered_ns, delivery.last_acked_ns, consumer.created_ns)
        consumer.sweep_requests()
        return (
            consumer.cursor.pending() + acks.parked_count,
            acks.awaited_count,
            0 if consumer.config.max_deliver == 1 else len(acks.redelivered),
            consumer.pulls.count if consumer.pulls is not None else 0,
            acks.delivered_consumer,
            lag.lag_ns / SECOND_NS,
            lag.unacknowledged_ns / SECOND_NS,
            lag.undelivered_ns / SECOND_NS,
            _age(active_ns, now_ns),
        )


def _stream_values(hosted: HostedStream, now_ns: int) -> tuple[float, ...]:
    store = hosted.stream.store
    has_messages = store.msgs > 0
    return (
        store.msgs,
        store.bytes,
        len(hosted.consumers),
        store.index.live_count,
        store.last_seq,
        _age(store.first_timestamp(), now_ns) if has_messages else 0,
        _age(store.last_timestamp, now_ns) if has_messages else 0,
    )


def _labels(**values: str) -> str:
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in values.items())


def _age(time_ns: int, now_ns: int) -> float:
    return max(now_ns - time_ns, 0) / SECOND_NS


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"


def _encoded(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")
