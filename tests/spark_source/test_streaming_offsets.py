"""What a streaming source plans and reads while its streams change, on both servers.

No Spark is needed for this: the reader is called as Spark calls it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import tradewind.sync
from follower_kit import Follower, publish
from harness import ServerProcess
from jetstream_servers import add_empty_stream, jetstream_on_both
from tradewind.client.streams.api_requests import ApiRequests
from tradewind.spark.errors import DataLossError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.providers import network
from tradewind.spark.reads.reading import BatchReader

Following = Callable[..., Follower]


server = jetstream_on_both()


@pytest.fixture
def connection(server: str) -> Iterator[Any]:
    """Each test begins without streams."""
    with tradewind.sync.connect(server) as connected:
        streams = connected.jetstream_manager().streams
        for name in list(streams.names()):
            streams.delete(name)
        yield connected


@pytest.fixture
def following() -> Iterator[Following]:
    """Makes queries, and ends them."""
    with ExitStack() as opened:
        yield lambda columns, **options: opened.enter_context(Follower(columns, **options))


def test_changes_that_others_replace_are_no_loss(
    server: str, connection: Any, following: Following
) -> None:
    bucket = connection.jetstream().kv.create("PRICES", history=1)
    for key in ("a", "b", "c"):
        bucket.put(key, b"1")
    follower = following(("key", "value"), servers=server, bucket="PRICES")
    assert len(follower.read(*follower.plan())) == 3
    for number in range(20):
        bucket.put(("a", "b", "c")[number % 3], b"%d" % number)
    start, end = follower.plan()
    for key in ("a", "b"):
        bucket.put(key, b"last")
    assert [row["key"] for row in follower.read(start, end)] == ["c"]
    found = {row["key"]: row["value"] for row in follower.read(*follower.plan())}
    assert found == {"a": b"last", "b": b"last"}


def test_every_key_is_in_a_batch_though_some_change(server: str, connection: Any) -> None:
    bucket = connection.jetstream().kv.create("RATES", history=1)
    for number in range(50):
        bucket.put(f"key{number}", b"1")
    reader = BatchReader(parse_options({"servers": server, "bucket": "RATES"}), ("key", "value"))
    partitions = reader.partitions()
    for number in range(0, 50, 2):
        bucket.put(f"key{number}", b"2")
    rows = [
        row
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    assert len(rows) == 50
    assert {row["key"]: row["value"] for row in rows} == {
        f"key{number}": b"1" if number % 2 else b"2" for number in range(50)
    }


@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_changelog_is_followed_though_messages_are_replaced(
    server: str, connection: Any, following: Following, retention: str
) -> None:
    """It is no bucket, but it keeps only the last messages of a subject too."""
    manager = connection.jetstream_manager()
    add_empty_stream(
        manager.streams,
        name="PRICES",
        subjects=["prices.>"],
        retention=retention,
        allow_direct=True,
        max_msgs_per_subject=1,
    )
    if retention == "interest":
        manager.consumers.add("PRICES", durable_name="keeper", ack_policy="explicit")
    follower = following(("seq", "subject"), servers=server, stream="PRICES")
    for number in range(30):
        publish(connection, f"prices.{number % 3}", 1)
    start, end = follower.plan()
    publish(connection, "prices.0", 1)
    publish(connection, "prices.1", 1)
    assert [row["subject"] for row in follower.read(start, end)] == ["prices.2"]
    for number in range(30):
        publish(connection, f"prices.{number % 3}", 1)
    rows = follower.read(*follower.plan())
    assert [(row["seq"], row["subject"]) for row in rows] == [
        (60 + number, f"prices.{number}") for number in range(3)
    ]
    # A restart finds the stream to begin behind what it has read.
    again = following(("seq", "subject"), servers=server, stream="PRICES")
    again.offset = start
    assert len(again.read(*again.plan())) == 3


def test_the_server_is_asked_once_for_a_batch(
    server: str, connection: Any, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_empty_stream(connection.jetstream_manager().streams, name="ORDERS", subjects=["orders.>"])
    follower = following(("seq",), servers=server, stream="ORDERS")
    asked: list[str] = []
    pauses: list[float] = []
    call_raw, sleep = ApiRequests.call_raw, network.time.sleep

    async def counted(self: ApiRequests, endpoint: str, *words: str, **more: Any) -> Any:
        asked.append(endpoint)
        return await call_raw(self, endpoint, *words, **more)

    own_thread = threading.current_thread()

    def counted_sleep(seconds: float) -> None:
        if threading.current_thread() is own_thread:
            pauses.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(ApiRequests, "call_raw", counted)
    monkeypatch.setattr(network.time, "sleep", counted_sleep)
    for number in range(3):
        publish(connection, "orders.x", 5)
        asked.clear()
        pauses.clear()
        start, end = follower.plan()
        partitions = follower.reader.partitions(start, end)
        assert asked == ["stream_info"]
        assert len(pauses) == 1
        rows = [
            seq
            for partition in partitions
            for batch in follower.reader.read(partition)
            for seq in batch[0].to_pylist()
        ]
        assert rows == list(range(5 * number + 1, 5 * number + 6))


def test_what_is_removed_before_spark_asks_for_the_parts_is_lost(
    server: str, connection: Any, following: Following
) -> None:
    streams = connection.jetstream_manager().streams
    add_empty_stream(streams, name="ORDERS", subjects=["orders.>"])
    publish(connection, "orders.x", 10)
    follower = following(("seq",), servers=server, stream="ORDERS")
    start, end = follower.plan()
    streams.delete_message("ORDERS", 5)
    with pytest.raises(DataLossError, match="1 messages among the sequences 5 to 5 were removed"):
        follower.read(start, end)
    # Another run does not know that it was there.
    again = following(("seq",), servers=server, stream="ORDERS")
    assert [row["seq"] for row in again.read(start, end)] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"startingSeq": "1000"}])
def test_a_stream_that_appears_later_is_read_from_its_begin(
    server: str, connection: Any, following: Following, options: dict[str, str]
) -> None:
    streams = connection.jetstream_manager().streams
    add_empty_stream(streams, name="ORDERS_1", subjects=["one.>"])
    publish(connection, "one.x", 5)
    if "startingSeq" in options:
        streams.purge("ORDERS_1", seq=1000)
    follower = following(("stream", "seq"), servers=server, stream="ORDERS_*", **options)
    add_empty_stream(streams, name="ORDERS_2", subjects=["two.>"])
    publish(connection, "two.x", 7)
    publish(connection, "one.x", 1)
    start, end = follower.plan()
    found = follower.read(start, end)
    assert [row["seq"] for row in found if row["stream"] == "ORDERS_2"] == list(range(1, 8))
    assert len([row for row in found if row["stream"] == "ORDERS_1"]) == 1
    # What it began with is part of the plan: limits that are faster are noticed.
    streams.purge("ORDERS_2", seq=4)
    with pytest.raises(DataLossError, match="sequences 1 to 3 were removed before they were read"):
        follower.read(start, end)
    publish(connection, "two.x", 1)
    assert [row["seq"] for row in follower.read(*follower.plan())] == [8]


def test_a_limit_counts_the_messages_that_are_wanted(
    server: str, connection: Any, following: Following
) -> None:
    add_empty_stream(connection.jetstream_manager().streams, name="ORDERS", subjects=["orders.>"])
    for _ in range(20):
        publish(connection, "orders.other", 49)
        publish(connection, "orders.wanted", 1)
    follower = following(
        ("seq",),
        servers=server,
        stream="ORDERS",
        filterSubjects="orders.wanted",
        maxMsgsPerTrigger="8",
    )
    batches = []
    while True:
        start = follower.offset
        follower.offset = follower.reader.latestOffset(start, follower.reader.getDefaultReadLimit())
        if follower.offset == start:
            break
        batches.append([row["seq"] for row in follower.read(start, follower.offset)])
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert [seq for batch in batches for seq in batch] == list(range(50, 1001, 50))


def test_a_batch_whose_end_is_gone_is_an_error(
    server: str, connection: Any, following: Following
) -> None:
    streams = connection.jetstream_manager().streams
    add_empty_stream(streams, name="ORDERS", subjects=["orders.>"])
    publish(connection, "orders.x", 10)
    follower = following(("seq",), servers=server, stream="ORDERS")
    start, end = follower.plan()
    end["ORDERS"]["seq"] = 20  # as if it had been restored from an older backup
    with pytest.raises(DataLossError, match="sequences 11 to 20 are gone"):
        follower.read(start, end)


def test_a_query_that_waits_for_messages_keeps_one_connection(server: str, connection: Any) -> None:
    add_empty_stream(connection.jetstream_manager().streams, name="ORDERS", subjects=["orders.>"])
    publish(connection, "orders.x", 10)
    with Follower(("seq",), servers=server, stream="ORDERS") as follower:
        follower.plan()
        first = last_client_id(server)
        for _ in range(20):
            start, end = follower.plan()
            assert start == end
            follower.reader.reportLatestOffset()
        assert last_client_id(server) == first + 1


def last_client_id(server: str) -> int:
    """That of a connection that is made now; a server counts them."""
    with tradewind.sync.connect(server) as connected:
        found: int = connected.info.client_id
        return found


@pytest.mark.parametrize("kind", ["official", "tradewind"])
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_server_that_is_started_again_is_waited_for(
    kind: str, retention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "messages_ahead", lambda _size, _count: 50)
    monkeypatch.setattr(network, "ROWS_PER_BATCH", 50)
    monkeypatch.setattr(network, "DIRECT_BATCH", 50)
    place = RestartedServer(kind, tmp_path)
    try:
        with tradewind.sync.connect(place.url) as connected:
            connected.jetstream_manager().streams.add(
                name="ORDERS", subjects=["orders.>"], retention=retention, allow_direct=True
            )
            connected.jetstream_manager().consumers.add(
                "ORDERS", durable_name="keeper", ack_policy="explicit"
            )
            publish(connected, "orders.x", 500)
        with Follower(("seq",), servers=place.url, stream="ORDERS") as follower:
            start, end = follower.plan()
            found: list[int] = []
            for partition in follower.reader.partitions(start, end):
                for batch in follower.reader.read(partition):
                    if not found:
                        place.restart()
                    found += batch[0].to_pylist()
            assert found == list(range(1, 501))
            # The driver asks while nobody is there, and tasks begin then.
            place.restart()
            with tradewind.sync.connect(place.url, wait_for_server=True) as connected:
                publish(connected, "orders.x", 5)
            place.restart()
            start, end = follower.plan()
            partitions = follower.reader.partitions(start, end)
            place.restart()
            rows = [
                seq
                for partition in partitions
                for batch in follower.reader.read(partition)
                for seq in batch[0].to_pylist()
            ]
            assert rows == list(range(501, 506))
    finally:
        place.stop()


class RestartedServer:
    """A server that is killed, and comes back while others try to reach it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._port = "-1"
        self._starting: Thread | None = None
        self._start()

    def _start(self) -> None:
        arguments = ["-js", "-sd", str(self._folder), "-a", "127.0.0.1", "-p", self._port]
        self._process = ServerProcess(self._kind, arguments).wait_ready()
        self._port = str(self._process.port)
        self.url = self._process.url

    def _await_start(self) -> None:
        if self._starting is not None:
            self._starting.join()

    def restart(self) -> None:
        self._await_start()
        self._process.process.kill()
        self._process.wait()
        self._starting = Thread(target=self._start)
        self._starting.start()

    def stop(self) -> None:
        self._await_start()
        self._process.stop()


@pytest.mark.parametrize("start", [{"startingOffsets": "latest"}, {"startingSeq": "3"}])
def test_a_first_batch_that_was_not_committed_is_read_again(
    server: str, connection: Any, following: Following, start: dict[str, str]
) -> None:
    """Spark has noted where it ends, but asks the reader anew where it begins."""
    streams = connection.jetstream_manager().streams
    for name in ("ORDERS", "QUIET"):
        add_empty_stream(streams, name=name, subjects=[f"{name.lower()}.>"])
        publish(connection, f"{name.lower()}.x", 2)
    follower = following(("stream", "seq"), servers=server, stream="ORDERS,QUIET", **start)
    publish(connection, "orders.x", 3)
    _, end = follower.plan()
    publish(connection, "orders.x", 3)
    publish(connection, "quiet.x", 1)
    again = following(("stream", "seq"), servers=server, stream="ORDERS,QUIET", **start)
    rows = again.read(again.offset, end)
    assert [(row["stream"], row["seq"]) for row in rows] == [("ORDERS", seq) for seq in (3, 4, 5)]
    again.offset = end
    rows = again.read(*again.plan())
    assert [(row["stream"], row["seq"]) for row in rows] == [
        *(("ORDERS", seq) for seq in (6, 7, 8)),
        ("QUIET", 3),
    ]


def test_a_first_batch_whose_messages_are_gone_is_an_error(
    server: str, connection: Any, following: Following
) -> None:
    streams = connection.jetstream_manager().streams
    add_empty_stream(streams, name="ORDERS", subjects=["orders.>"])
    publish(connection, "orders.x", 10)
    _, end = following(("seq",), servers=server, stream="ORDERS").plan()
    streams.purge("ORDERS", keep=4)
    again = following(("seq",), servers=server, stream="ORDERS")
    with pytest.raises(DataLossError, match="sequences 1 to 6 were removed before they were read"):
        again.read(again.offset, end)


def test_a_report_says_what_waits_and_since_when(
    server: str, connection: Any, following: Following
) -> None:
    streams = connection.jetstream_manager().streams
    for name in ("ORDERS", "QUEUE"):
        retention = "workqueue" if name == "QUEUE" else "limits"
        add_empty_stream(
            streams, name=name, subjects=[f"{name}.>"], retention=retention, allow_direct=True
        )
        publish(connection, f"{name}.x", 10)
        streams.delete_message(name, 6)
        streams.delete_message(name, 1)
    follower = following(("seq",), servers=server, stream="ORDERS,QUEUE")
    end = follower.reader.latestOffset(follower.offset, ReadMaxRows(8))
    assert [point["seq"] for point in end.values()] == [5, 5]
    for name, report in (follower.reader.reportLatestOffset() or {}).items():
        info = streams.info(name)
        assert report == {
            "created_ns": end[name]["created_ns"],
            "seq": 10,
            "first_seq": 2,
            "messages": 8,
            "bytes": info.state.bytes,
            "waiting_ns": streams.get_message(name, seq=7).time_ns,
        }
    follower.reader.latestOffset(end, ReadAllAvailable())
    for report in (follower.reader.reportLatestOffset() or {}).values():
        assert "waiting_ns" not in report
    # A query is not to fail because of its metrics.
    follower.reader.latestOffset(end, ReadMaxRows(4))
    streams.delete("QUEUE")
    assert "waiting_ns" not in (follower.reader.reportLatestOffset() or {})["QUEUE"]
