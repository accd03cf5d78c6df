"""`minMsgsPerTrigger` and `maxTriggerDelay`: micro-batches that wait for more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from tradewind.durations import SECOND_NS
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.reads.holding import BatchHold
from tradewind.spark.reads.streaming import StreamReader
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.meta import StreamMeta
from tradewind.testing.fake_clock import FakeClock

MINUTE_NS = 60 * SECOND_NS


class Place:
    """A stream in files, and queries that look at it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self._place = StoreRoot(OsDisk(str(root)), str(root))
        folder = self._place.stream("$G", "ORDERS")
        folder.create(StreamMeta({"name": "ORDERS", "subjects": [">"], "storage": "file"}, 1))
        self.store: FileStore
        _, self.store, _ = folder.open(1, block_bytes_max=200)

    def add(self, count: int) -> None:
        for _ in range(count):
            self.store.table.store(b"orders", b"", b"x", self.clock.wall_ns())
        self.store.commit()

    def query(self, offset: Any = None, **options: str) -> Query:
        given = {"storeDir": str(self.root), "stream": "*", "minMsgsPerTrigger": "5", **options}
        return Query(StreamReader(parse_options(given), ("seq",), self.clock), offset)

    def close(self) -> None:
        self.store.close()
        self._place.close()


class Query:
    """A query; `look` says how many messages a batch would take now, and takes them."""

    def __init__(self, reader: StreamReader, offset: Any) -> None:
        self.reader = reader
        self.offset = reader.initialOffset() if offset is None else offset

    def look(self, limit: ReadLimit | None = None) -> int:
        start = self.offset
        self.offset = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        return int(self.offset["ORDERS"]["seq"] - start["ORDERS"]["seq"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def test_a_batch_waits_until_there_are_enough_messages(place: Place) -> None:
    query = place.query()
    assert query.look() == 0
    place.add(4)
    start = query.offset
    assert query.look() == 0
    assert query.offset is start
    place.add(1)
    assert query.look() == 5
    place.add(1)
    assert query.look() == 0


def test_no_message_waits_for_longer_than_the_delay(place: Place) -> None:
    query = place.query(maxTriggerDelay="90s")
    query.look()
    place.clock.advance_ns(10 * MINUTE_NS)  # a stream that is quiet uses up no patience
    place.add(1)
    assert query.look() == 0
    place.clock.advance_ns(90 * SECOND_NS - 1)
    place.add(1)
    assert query.look() == 0
    place.clock.advance_ns(1)
    assert query.look() == 2
    place.add(1)
    assert query.look() == 0
    place.clock.advance_ns(90 * SECOND_NS)
    assert query.look() == 1


def test_the_delay_is_fifteen_minutes_unless_it_is_said(place: Place) -> None:
    query = place.query()
    query.look()
    place.add(1)
    assert query.look() == 0
    place.clock.advance_ns(15 * MINUTE_NS - 1)
    assert query.look() == 0
    place.clock.advance_ns(1)
    assert query.look() == 1


def test_what_was_there_when_a_run_began_does_not_wait(place: Place) -> None:
    place.add(3)
    query = place.query()
    assert query.look() == 3
    place.add(2)
    assert query.look() == 0
    assert place.query(query.offset).look() == 2


def test_a_run_over_what_is_there_does_not_wait(place: Place) -> None:
    query = place.query(maxMsgsPerTrigger="7")
    assert query.look() == 0
    place.add(9)
    query.reader.prepareForTriggerAvailableNow()
    assert [query.look(), query.look(), query.look()] == [7, 2, 0]


def test_a_limit_of_spark_goes_before(place: Place) -> None:
    query = place.query()
    query.look()
    place.add(2)
    assert query.look(ReadAllAvailable()) == 2


def test_least_and_most_go_together(place: Place) -> None:
    query = place.query(maxMsgsPerTrigger="6")
    query.look()
    place.add(10)
    assert query.look() == 6
    assert query.look() == 0
    place.add(1)
    assert query.look() == 5


def test_a_loss_is_told_once_and_at_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    query = place.query(failOnDataLoss="false")
    query.look()
    place.add(20)
    assert query.look() == 20
    place.add(3)
    place.store.table.compact(23)
    place.store.commit()
    place.store.commit()
    assert query.look() == 3
    assert query.look() == 0
    assert [record.message for record in caplog.records] == [
        "stream ORDERS: sequences 21 to 22 were removed before they were read"
    ]


def test_streams_wait_together(place: Place) -> None:
    query = place.query()
    query.look()
    folder = place._place.stream("$G", "OTHERS")
    folder.create(StreamMeta({"name": "OTHERS", "subjects": [">"], "storage": "file"}, 1))
    _, store, _ = folder.open(1)
    for _ in range(3):
        store.table.store(b"others", b"", b"x", 1)
    store.commit()
    place.add(1)
    assert query.look() == 0
    assert "OTHERS" not in query.offset
    place.add(1)
    assert query.look() == 2
    assert query.offset["OTHERS"]["seq"] == 3
    store.close()


def test_what_is_held_back_is_reported_as_waiting(place: Place) -> None:
    query = place.query()
    query.look()
    place.clock.advance_ns(7 * SECOND_NS)
    first_ns = place.clock.wall_ns()
    place.add(2)
    place.clock.advance_ns(SECOND_NS)
    place.add(1)
    assert query.look() == 0
    (report,) = (query.reader.reportLatestOffset() or {}).values()
    assert report["seq"] == 3
    assert report["waiting_ns"] == first_ns
    place.store.table.remove(2)
    place.store.table.remove(3)
    place.add(2)
    assert query.look() == 5
    (report,) = (query.reader.reportLatestOffset() or {}).values()
    assert "waiting_ns" not in report


def test_spark_is_told_of_the_limit(place: Place) -> None:
    assert place.query().reader.getDefaultReadLimit() == ReadMinRows(5)
    most = place.query(maxMsgsPerTrigger="9").reader.getDefaultReadLimit()
    assert most == ReadMaxRows(9)
    assert place.query(maxBytesPerTrigger="9").reader.getDefaultReadLimit() == ReadMaxBytes(9)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"minMsgsPerTrigger": "0"}, "minMsgsPerTrigger: '0' is not a whole number from 1 to"),
        ({"minMsgsPerTrigger": str(1 << 64)}, "minMsgsPerTrigger: '1844"),
        (
            {"minMsgsPerTrigger": "9", "maxMsgsPerTrigger": "8"},
            "minMsgsPerTrigger: 9 is more than maxMsgsPerTrigger allows, 8",
        ),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay: it requires minMsgsPerTrigger"),
        (
            {"minMsgsPerTrigger": "9", "maxTriggerDelay": "0s"},
            "maxTriggerDelay: '0s' is not a dura",
        ),
        ({"minMsgsPerTrigger": "9", "maxTriggerDelay": "-1s"}, "maxTriggerDelay: '-1s' is no"),
        (
            {"minMsgsPerTrigger": "9", "maxTriggerDelay": "15"},
            "maxTriggerDelay: '15' is not a dura",
        ),
        ({"minMsgsPerTrigger": "9", "maxTriggerDelay": "9" * 30 + "h"}, "maxTriggerDelay: '999"),
        (
            {"maxOffsetsPerTrigger": "9"},
            "maxOffsetsPerTrigger: unknown option; use maxMsgsPerTrigger",
        ),
        ({"kafka.bootstrap.servers": "x"}, "kafka.bootstrap.servers: .*; use servers"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=f"^option {reason}"):
        parse_options({"stream": "ORDERS", "servers": "nats://localhost", **given})


@given(
    looks=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=40),
    least=st.integers(1, 8),
    delay=st.integers(1, 60),
)
def test_holding_is_that_of_a_naive_model(
    looks: list[tuple[int, int]], least: int, delay: int
) -> None:
    """Each look comes some seconds later, and some messages have arrived before it."""
    clock = FakeClock()
    holding = BatchHold(least, delay * SECOND_NS, clock)
    now = 0
    seen_at: list[int] = []
    for index, (seconds, arrived) in enumerate(looks):
        clock.advance_ns(seconds * SECOND_NS)
        now += seconds
        seen_at += [now] * arrived
        is_due = index == 0 or not seen_at or len(seen_at) >= least or now - min(seen_at) >= delay
        assert holding.holds(len(seen_at)) is not is_due
        if is_due:
            seen_at.clear()
