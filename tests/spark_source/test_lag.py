"""Lags from Spark's progress, and their page for Prometheus."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError
from tradewind.spark.contract.provider_contract import ReadState
from tradewind.spark.progress import stream_lag as lag_module
from tradewind.spark.progress.query_metrics import ProgressMetrics, serve_metrics
from tradewind.spark.progress.stream_lag import Reporter, StreamLag, query_lag
from tradewind.testing.fake_clock import FakeClock

NOW_NS = 1_700_000_000 * SECOND_NS


def progress(end: Any, latest: Any, **more: Any) -> dict[str, Any]:
    base = {"id": "q1", "runId": "r1", "name": "orders", "batchId": 4, "numInputRows": 10}
    source = {"startOffset": None, "endOffset": end, "latestOffset": latest}
    return {**base, "batchDuration": 1500, "sources": [source], **more}


END = {"A": {"created_ns": 5, "seq": 60, "parts": 1, "after": 50}}
LATEST = {
    "A": {
        "created_ns": 5,
        "seq": 100,
        "first_seq": 21,
        "messages": 40,
        "bytes": 4000,
        "waiting_ns": NOW_NS - 3 * SECOND_NS,
    }
}


@pytest.mark.parametrize("encode", [lambda value: value, json.dumps])
def test_a_lag_is_in_messages_seconds_bytes_and_gaps(encode: Any) -> None:
    found = query_lag(progress(encode(END), encode(LATEST)), NOW_NS)
    assert (found.query, found.batch, found.rows, found.batch_seconds) == ("orders", 4, 10, 1.5)
    assert found.lags == [StreamLag("A", 60, 100, 40, 3.0, 4000, 40)]


def test_who_has_read_everything_is_not_behind() -> None:
    (lag,) = query_lag(progress({"A": {"created_ns": 5, "seq": 100}}, LATEST), NOW_NS).lags
    assert (lag.messages, lag.seconds, lag.bytes) == (0, 0.0, 0)


def test_messages_that_are_gone_are_nothing_to_read() -> None:
    (lag,) = query_lag(progress({"A": {"created_ns": 5, "seq": 1}}, LATEST), NOW_NS).lags
    assert lag.messages == 80


def test_what_is_not_known_is_none() -> None:
    other = {"A": {"created_ns": 6, "seq": 100}}
    assert query_lag(progress(END, other), NOW_NS).lags == [StreamLag("A", 60)]
    assert query_lag(progress(END, None), NOW_NS).lags == [StreamLag("A", 60)]
    bare = {"A": {"created_ns": 5, "seq": 100}}
    assert query_lag(progress(END, bare), NOW_NS).lags == [StreamLag("A", 60, 100, 40)]


@pytest.mark.parametrize("offset", [None, 7, "0", "-", "{", {"topic": {"0": "x"}}, {"a": 1}, []])
def test_other_sources_have_no_lags(offset: Any) -> None:
    assert query_lag(progress(offset, offset), NOW_NS).lags == []
    assert query_lag({}, NOW_NS).lags == []


class Streams:
    """Counts who is asked when its first unread message came."""

    def __init__(self, count: int) -> None:
        self.states = [ReadState(f"S{n:02}", 5, 1, 10, 0, 9, 90) for n in range(count)]
        self.asked: list[tuple[str, int]] = []

    def bytes_behind(self, name: str, after_seq: int) -> int | None:
        return None

    def time_behind(self, name: str, after_seq: int) -> int | None:
        self.asked.append((name, after_seq))
        return 1000 + after_seq


def test_each_unread_message_is_asked_for_once() -> None:
    streams, reporter = Streams(2), Reporter()
    reached = {"S00": {"seq": 4}, "S01": {"seq": 10}}
    first = reporter.report(streams.states, reached, streams.time_behind, streams.bytes_behind)
    base = {"created_ns": 5, "seq": 10, "first_seq": 1, "messages": 9, "bytes": 90}
    assert first == {"S00": {**base, "waiting_ns": 1004}, "S01": base}
    assert (
        reporter.report(streams.states, reached, streams.time_behind, streams.bytes_behind) == first
    )
    assert streams.asked == [("S00", 4)]
    reached["S00"]["seq"] = 6
    again = reporter.report(streams.states, reached, streams.time_behind, streams.bytes_behind)
    assert again["S00"]["waiting_ns"] == 1006


def test_a_report_asks_for_few_streams_at_a_time() -> None:
    streams, reporter = Streams(40), Reporter()
    reached = {state.name: {"seq": 1} for state in streams.states}
    for _ in range(3):
        found = reporter.report(streams.states, reached, streams.time_behind, streams.bytes_behind)
    assert len(streams.asked) == len(set(streams.asked)) == 40
    assert all("waiting_ns" in one for one in found.values())
    assert lag_module.ASKED_MAX * 2 < 40 < lag_module.ASKED_MAX * 3


def test_a_report_does_not_fail() -> None:
    def fail(name: str, after_seq: int) -> int | None:
        raise TradewindError("no answer")

    states = [ReadState("A", 5, 1, 10)]
    found = Reporter().report(states, {"A": {"seq": 1}}, fail, fail)
    assert found == {"A": {"created_ns": 5, "seq": 10, "first_seq": 1}}


def event(document: dict[str, Any]) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(document)), runId="r1")


def test_the_page_has_what_the_last_progress_said() -> None:
    metrics = ProgressMetrics(FakeClock(NOW_NS))
    metrics.onQueryProgress(event(progress(END, LATEST, name='a"b')))
    metrics.onQueryProgress(event(progress(END, LATEST, name='a"b')))
    with serve_metrics(metrics) as address:
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(address + "x", timeout=30)
        caught.value.close()
    labels = '{query="a\\"b",stream="A"}'
    for name, value in {
        "lag_messages": 40,
        "lag_seconds": 3,
        "lag_bytes": 4000,
        "gaps": 40,
        "read_seq": 60,
        "last_seq": 100,
    }.items():
        assert f"tradewind_spark_{name}{labels} {value}" in lines
    assert 'tradewind_spark_rows_total{query="a\\"b"} 20' in lines
    assert 'tradewind_spark_batch_seconds{query="a\\"b"} 1.5' in lines
    metrics.onQueryTerminated(event({}))
    assert metrics.queries() == []
    assert b'stream="A"' not in metrics.text()


def test_a_page_names_a_bounded_number_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_module, "STREAMS_LABELLED_MAX", 3)
    metrics = ProgressMetrics(FakeClock(NOW_NS))
    names = [f"S{number}" for number in range(5)]
    end = {name: {"created_ns": 5, "seq": 1} for name in names}
    latest = {name: {"created_ns": 5, "seq": 11} for name in names}
    metrics.note(progress(end, latest))
    lines = metrics.text().decode().splitlines()
    found = [line for line in lines if line.startswith("tradewind_spark_lag_messages{")]
    assert len(found) == 4
    assert found[-1].endswith('{query="(other)",stream="(other)"} 20')
