"""The lag of a query in each stream, and its metrics.

Owns the definition of lag, deriving it from the progress that Spark reports, and its names for
Prometheus. This source puts more than an offset into `latestOffset`, see `Reporter`, so all data is
in Spark's own reports and no server needs to be asked. The module never imports Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from tradewind.clock import SystemClock
from tradewind.errors import TradewindError
from tradewind.monitor.prometheus import Family, Sample
from tradewind.spark.contract.provider_contract import ReadState

# A page of metrics names this many streams; the others are added up.
STREAMS_LABELLED_MAX: Final = 1000
OTHER_STREAMS: Final = "(other)"
# A report asks at most this many streams since when their messages wait.
ASKED_MAX: Final = 16


class StreamLag(msgspec.Struct):
    """How far behind a query is in one stream; None where that is not known.

    `seconds` is the age of the first message that was not read yet. `messages` counts sequences,
    `bytes` takes the average size of the stream, or that of files, and `gaps` are sequences between
    the first and the last message of the stream that no longer have a message.
    """

    stream: str
    seq: int
    last_seq: int | None = None
    messages: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    gaps: int | None = None


class QueryLag(msgspec.Struct):
    """A query according to its last progress."""

    query: str
    batch: int
    rows: int
    batch_seconds: float
    lags: list[StreamLag]


class Reporter:
    """The report of the source on its streams; it asks for each unread message only once."""

    def __init__(self) -> None:
        # By stream that is not read to its end: the sequence read, and when the next message came.
        self._waiting: dict[str, tuple[int, int | None]] = {}

    def report(
        self,
        states: Iterable[ReadState],
        reached: Mapping[str, Mapping[str, int]],
        time_behind: Callable[[str, int], int | None],
        bytes_behind: Callable[[str, int], int | None],
    ) -> dict[str, dict[str, int]]:
        """The ends of streams; `reached` is where the batch ends that is planned."""
        before, self._waiting = self._waiting, {}
        asked = sized = 0
        found: dict[str, dict[str, int]] = {}
        for state in states:
            known = {
                "created_ns": state.created_ns,
                "seq": state.last_seq,
                "first_seq": state.first_seq,
                "messages": state.messages,
                "bytes": state.bytes,
            }
            seq = reached[state.name]["seq"] if state.name in reached else state.last_seq
            if seq < state.last_seq:
                waiting = before.get(state.name)
                if waiting is None or waiting[0] != seq:
                    waiting = None
                    if asked < ASKED_MAX:
                        asked += 1
                        # A query is not to fail because of its metrics.
                        with suppress(TradewindError, OSError):
                            waiting = (seq, time_behind(state.name, seq))
                if sized < ASKED_MAX:
                    sized += 1
                    with suppress(TradewindError, OSError):
                        known["waiting_bytes"] = bytes_behind(state.name, seq)
                if waiting is not None:
                    self._waiting[state.name] = waiting
                    known["waiting_ns"] = waiting[1]
            found[state.name] = {name: value for name, value in known.items() if value is not None}
        return found


def query_lag(progress: Mapping[str, Any], now_ns: int | None = None) -> QueryLag:
    """The lags of a progress of Spark, such as `query.lastProgress`; of other sources none."""
    if now_ns is None:
        now_ns = SystemClock().wall_ns()
    lags = [lag for source in progress.get("sources") or () for lag in _source_lags(source, now_ns)]
    return QueryLag(
        query=progress.get("name") or str(progress.get("id", "")),
        batch=int(progress.get("batchId", -1)),
        rows=int(progress.get("numInputRows") or 0),
        batch_seconds=(progress.get("batchDuration") or 0) / 1000,
        lags=lags,
    )


def _source_lags(source: Mapping[str, Any], now_ns: int) -> Iterator[StreamLag]:
    ends, latest = offset_of(source.get("endOffset")), offset_of(source.get("latestOffset"))
    for stream, end in sorted(ends.items()):
        last = latest.get(stream, {})
        lag = StreamLag(stream, end["seq"])
        if last.get("created_ns") == end.get("created_ns"):
            _fill(lag, last, now_ns)
        yield lag


def _fill(lag: StreamLag, last: Mapping[str, int], now_ns: int) -> None:
    lag.last_seq = last["seq"]
    read_seq = max(lag.seq, last.get("first_seq", 1) - 1)
    lag.messages = max(last["seq"] - read_seq, 0)
    if not lag.messages:
        lag.seconds, lag.bytes = 0.0, 0
    elif "waiting_ns" in last:
        lag.seconds = max((now_ns - last["waiting_ns"]) / 1e9, 0.0)
    if "messages" in last and "first_seq" in last:
        lag.gaps = max(last["seq"] - last["first_seq"] + 1 - last["messages"], 0)
        if "bytes" in last:
            lag.bytes = last["bytes"] * lag.messages // max(last["messages"], 1)
    if "waiting_bytes" in last and lag.messages:
        lag.bytes = last["waiting_bytes"]


def offset_of(value: Any) -> dict[str, dict[str, int]]:
    """An offset of this source from its text or decoded JSON; empty for another source's."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError):
            return {}
    try:
        decoded = msgspec.convert(value, dict[str, dict[str, int]])
    except msgspec.ValidationError:
        return {}
    return {name: point for name, point in decoded.items() if "seq" in point}


# -------------------------------------------------------------------------- metrics

_GAUGES: Final = (
    ("lag_messages", "messages", "Sequences that the query has not read yet"),
    ("lag_seconds", "seconds", "Age of the first message that the query has not read yet"),
    ("lag_bytes", "bytes", "Size of what the query has not read yet, about"),
    ("gaps", "gaps", "Sequences of the stream that no longer have a message"),
    ("read_seq", "seq", "Last sequence that the query has read"),
    ("last_seq", "last_seq", "Last sequence of the stream"),
)
_ADDED_UP: Final = ("messages", "bytes", "gaps")


def lag_families(queries: Sequence[QueryLag], rows_totals: Mapping[str, int]) -> Iterator[Family]:
    """The metrics of some queries; what is not known has no sample."""
    labelled = [
        ({"query": query.query, "stream": lag.stream}, lag)
        for query in queries
        for lag in query.lags
    ]
    others = labelled[STREAMS_LABELLED_MAX:]
    for name, field, text in _GAUGES:
        samples = [
            Sample(value, labels)
            for labels, lag in labelled[:STREAMS_LABELLED_MAX]
            if (value := getattr(lag, field)) is not None
        ]
        if others and field in _ADDED_UP:
            total = sum(getattr(lag, field) or 0 for _, lag in others)
            samples.append(Sample(total, {"query": OTHER_STREAMS, "stream": OTHER_STREAMS}))
        yield Family(f"tradewind_spark_{name}", "gauge", text, tuple(samples))
    yield Family(
        "tradewind_spark_rows_total",
        "counter",
        "Rows that the query has read since it is watched",
        _by_query((query, total) for query, total in rows_totals.items()),
    )
    yield Family(
        "tradewind_spark_batch",
        "gauge",
        "Number of the last micro-batch",
        _by_query((query.query, query.batch) for query in queries),
    )
    yield Family(
        "tradewind_spark_batch_seconds",
        "gauge",
        "How long the last micro-batch took",
        _by_query((query.query, query.batch_seconds) for query in queries),
    )


def _by_query(values: Iterable[tuple[str, float]]) -> tuple[Sample, ...]:
    return tuple(Sample(value, {"query": query}) for query, value in values)
