"""The option `ackConsumer`: a durable consumer follows what Spark has committed, on both servers.

No Spark is needed for this: the reader is called as Spark calls it. A batch is committed when the
next one is planned behind it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import tradewind.sync
from follower_kit import Follower, publish
from harness import ServerProcess
from jetstream_servers import add_empty_stream, jetstream_on_both
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.reads.streaming import StreamReader

server = jetstream_on_both()
RETENTIONS = ("limits", "interest", "workqueue")
WAIT_SECONDS = 20.0


class Place:
    """A stream ORDERS and its consumer `lake`."""

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.connection = connection
        self.manager = connection.jetstream_manager()
        for name in list(self.manager.streams.names()):
            self.manager.streams.delete(name)

    def add(self, retention: str = "limits", name: str = "ORDERS") -> None:
        add_empty_stream(
            self.manager.streams,
            name=name,
            subjects=[f"{name.lower()}.>"],
            retention=retention,
            allow_direct=True,
        )

    def publish(self, count: int, subject: str = "orders.x") -> None:
        publish(self.connection, subject, count)

    def follow(self, **options: str) -> Follower:
        """A query that has looked at its streams once, which makes the consumers."""
        given = {"servers": self.url, "stream": "ORDERS", "ackConsumer": "lake", **options}
        follower = Follower(("seq",), **given)
        begin = follower.offset
        try:
            follower.plan()
        except OptionError:
            follower.reader.stop()
            raise
        follower.offset = begin
        return follower

    def info(self, stream: str = "ORDERS") -> Any:
        return self.manager.consumers.info(stream, "lake")

    def pending(self, wanted: int, *, counts_delivered: bool = False) -> int:
        """How many messages the consumer has still to deliver, which shall be so many.

        nats-server tells its consumers of a message when it has answered that it is stored.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            info = self.info()
            count = int(info.num_pending + (info.num_ack_pending if counts_delivered else 0))
            if count == wanted or time.monotonic() > deadline:
                return count

    @property
    def floor(self) -> int:
        return int(self.info().ack_floor.stream_seq)

    def kept(self) -> int:
        return int(self.manager.streams.info("ORDERS").state.messages)


@pytest.fixture
def place(server: str) -> Iterator[Place]:
    with tradewind.sync.connect(server) as connection:
        yield Place(server, connection)


def seqs(rows: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


def test_the_floor_is_what_was_committed(place: Place) -> None:
    for retention in RETENTIONS:
        place.add(retention)
        with place.follow() as follower:
            place.publish(100)
            assert seqs(follower.read(*follower.plan())) == list(range(1, 101))
            # It was read, but not committed.
            assert (place.floor, place.kept()) == (0, 100)
            place.publish(50)
            start, end = follower.plan()
            assert (place.floor, place.pending(50)) == (100, 50)
            assert place.kept() == (150 if retention == "limits" else 50)
            assert seqs(follower.read(start, end)) == list(range(101, 151))
            follower.reader.commit(end)
            assert (place.floor, place.pending(0)) == (150, 0)
            assert place.kept() == (150 if retention == "limits" else 0)
            assert follower.plan() == (end, end)
        place.manager.streams.delete("ORDERS")


@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_batch_that_was_not_committed_can_be_read_again(place: Place, retention: str) -> None:
    place.add(retention)
    with place.follow() as follower:
        place.publish(40)
        follower.read(*follower.plan())
        place.publish(40)
        start, end = follower.plan()
        follower.read(start, end)
    # The driver is killed here, and another one does the batch again.
    with place.follow() as follower:
        assert seqs(follower.read(start, end)) == list(range(41, 81))
        assert place.floor == 40
    # It is killed when Spark had committed, before anything was acknowledged.
    with place.follow() as follower:
        follower.offset = end
        assert follower.plan() == (end, end)
        assert place.floor == 80


def test_a_first_batch_that_was_not_committed_is_no_begin(place: Place) -> None:
    """The next run is asked where it begins, and would begin behind messages that are not read."""
    place.add()
    with place.follow(startingOffsets="latest") as follower:
        place.publish(10)
        _, end = follower.plan()
    assert place.floor == 0
    again = Follower(
        ("seq",),
        servers=place.url,
        stream="ORDERS",
        ackConsumer="lake",
        startingOffsets="latest",
    )
    with again:
        assert seqs(again.read(again.offset, end)) == list(range(1, 11))
        assert place.floor == 0
        again.offset = end
        again.plan()
        assert place.floor == 10


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_what_was_delivered_to_a_query_that_died_is_acknowledged(
    place: Place, retention: str
) -> None:
    place.add(retention)
    with place.follow() as follower:
        place.publish(60)
        _, end = follower.plan()
    consumer = place.connection.jetstream().consumers.get("ORDERS", "lake")
    assert len(list(consumer.fetch(20))) == 20
    with place.follow() as follower:
        follower.offset = end
        follower.plan()
    assert (place.floor, place.kept(), place.info().num_ack_pending) == (60, 0, 0)


@pytest.mark.parametrize("retention", RETENTIONS)
def test_nothing_behind_the_commit_is_acknowledged(place: Place, retention: str) -> None:
    place.add(retention)
    with place.follow() as follower:
        place.publish(50)
        for seq in (2, 3, 4, 49, 50):
            place.manager.streams.delete_message("ORDERS", seq)
        follower.read(*follower.plan())
        place.publish(30)
        start, end = follower.plan()
        assert place.pending(30, counts_delivered=True) == 30
        assert place.kept() == (75 if retention == "limits" else 30)
        assert seqs(follower.read(start, end)) == list(range(51, 81))
        follower.plan()
        assert place.pending(0, counts_delivered=True) == 0
        assert place.kept() == (75 if retention == "limits" else 0)


@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_consumer_has_the_subjects_of_the_query(place: Place, retention: str) -> None:
    place.add(retention)
    with place.follow(filterSubjects="orders.a,orders.c") as follower:
        if retention == "interest":
            place.manager.consumers.add(
                "ORDERS", durable_name="other", ack_policy="explicit", filter_subject="orders.b"
            )
        for subject in ("orders.a", "orders.b", "orders.c", "orders.b"):
            place.publish(10, subject)
        wanted = [*range(1, 11), *range(21, 31)]
        assert seqs(follower.read(*follower.plan())) == wanted
        follower.plan()
        assert place.pending(0) == 0
        assert place.kept() == (40 if retention == "limits" else 20)
    with pytest.raises(OptionError) as caught:
        place.follow(filterSubjects="orders.a")
    assert str(caught.value) == (
        "option ackConsumer: 'lake' of stream ORDERS has the subjects orders.a, orders.c, but"
        " filterSubjects is orders.a"
    )


def test_a_consumer_of_another_kind_is_an_error(place: Place) -> None:
    place.add()
    consumers = place.manager.consumers
    consumers.add("ORDERS", durable_name="lake", ack_policy="none")
    with pytest.raises(OptionError, match="has the ack policy none; use all or explicit"):
        place.follow()
    consumers.delete("ORDERS", "lake")
    consumers.add("ORDERS", durable_name="lake", ack_policy="all", deliver_subject="to.me")
    with pytest.raises(OptionError, match=r"pushes its messages to 'to\.me'; use a pull consumer"):
        place.follow()


def test_a_consumer_that_cannot_be_moved_is_an_error(place: Place) -> None:
    place.add()
    place.manager.consumers.add(
        "ORDERS", durable_name="lake", ack_policy="all", deliver_policy="new"
    )
    with place.follow() as follower:
        place.publish(5)
        follower.plan()
        with pytest.raises(OptionError, match="'lake' of stream ORDERS: invalid reset"):
            follower.plan()


@pytest.mark.parametrize("kind", ["official", "tradewind"])
@pytest.mark.parametrize("retention", RETENTIONS)
def test_reads_from_blocks_are_acknowledged_too(kind: str, retention: str, tmp_path: Path) -> None:
    flags = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(kind, flags).wait_ready()
    try:
        with tradewind.sync.connect(process.url) as connection:
            place = Place(process.url, connection)
            place.add(retention)
            with place.follow(storeDir=str(tmp_path)) as follower:
                for first in (1, 51):
                    place.publish(50)
                    assert seqs(follower.read(*follower.plan())) == list(range(first, first + 50))
                follower.plan()
                assert (place.floor, place.kept()) == (100, 100 if retention == "limits" else 0)
    finally:
        process.stop()


def test_messages_that_the_query_does_not_read_are_not_acknowledged(place: Place) -> None:
    place.add()
    place.publish(10)
    with place.follow(startingOffsets="latest") as follower:
        assert (place.floor, place.pending(0)) == (10, 0)
        follower.plan()
    place.manager.consumers.delete("ORDERS", "lake")
    place.manager.consumers.add("ORDERS", durable_name="lake", ack_policy="explicit")
    with pytest.raises(OptionError, match="has unacknowledged messages from sequence 1 on"):
        place.follow(startingOffsets="latest")
    assert place.floor == 0


def test_a_work_queue_is_read_from_its_begin(place: Place) -> None:
    place.add("workqueue")
    place.publish(10)
    with pytest.raises(OptionError, match="has unacknowledged messages from sequence 1 on"):
        place.follow(startingSeq="5")
    assert list(place.manager.consumers.names("ORDERS")) == []


def test_another_stream_of_the_same_name_is_not_acknowledged(place: Place) -> None:
    place.add("workqueue")
    place.publish(10)
    with place.follow(failOnDataLoss="false") as follower:
        follower.read(*follower.plan())
        place.manager.streams.delete("ORDERS")
        place.add("workqueue")
        place.publish(20)
        start, end = follower.plan()
        assert place.kept() == 20
        assert seqs(follower.read(start, end)) == list(range(1, 21))
        follower.plan()
        assert place.kept() == 0


def test_a_consumer_that_was_deleted_is_made_again(place: Place) -> None:
    place.add("workqueue")
    with place.follow() as follower:
        place.publish(10)
        follower.read(*follower.plan())
        place.manager.consumers.delete("ORDERS", "lake")
        follower.plan()
        assert (place.floor, place.kept()) == (10, 0)


def test_streams_that_appear_later_get_a_consumer_too(place: Place) -> None:
    place.add("workqueue")
    with place.follow(stream="*") as follower:
        place.add("workqueue", "OTHERS")
        place.publish(5, "others.x")
        follower.read(*follower.plan())
        assert place.info("OTHERS").ack_floor.stream_seq == 0
        follower.plan()
        assert place.info("OTHERS").ack_floor.stream_seq == 5


def test_only_streaming_queries_with_an_address_acknowledge(place: Place) -> None:
    with pytest.raises(OptionError, match="option servers: ackConsumer needs the address"):
        parse_options({"storeDir": "/tmp", "stream": "ORDERS", "ackConsumer": "lake"})
    with pytest.raises(
        OptionError, match=r"option ackConsumer: 'a\.b' is not a name of a consumer"
    ):
        parse_options({"servers": place.url, "stream": "ORDERS", "ackConsumer": "a.b"})


def test_offsets_do_not_depend_on_the_consumer(place: Place) -> None:
    place.add()
    place.publish(10)
    plain = StreamReader(parse_options({"servers": place.url, "stream": "ORDERS"}), ("seq",))
    with place.follow() as follower:
        begin = plain.initialOffset()
        assert follower.offset == begin
        planned = follower.plan()[1]
        # That the consumer was there is all that the offset says more.
        assert planned["ORDERS"].pop("acks") > 0
        assert planned == plain.latestOffset(begin, ReadAllAvailable())
    plain.stop()


def read_without_consumer(place: Place) -> dict[str, Any]:
    """The offset of a query that has begun at sequence 5 and has no consumer yet."""
    options = {"servers": place.url, "stream": "ORDERS", "startingSeq": "5"}
    with Follower(("seq",), **options) as follower:
        _, end = follower.plan()
    return end


def go_on(place: Place, offset: dict[str, Any]) -> None:
    """A run with a consumer from there on: what comes is read, and committed."""
    follower = Follower(("seq",), servers=place.url, stream="ORDERS", ackConsumer="lake")
    with follower:
        follower.offset = offset
        follower.plan()
        place.publish(5)
        follower.offset = offset
        assert seqs(follower.read(*follower.plan())) == list(range(11, 16))
        follower.plan()


@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_consumer_that_comes_later_acknowledges_nothing_that_was_read_before(
    place: Place, retention: str
) -> None:
    """The query may have begun behind messages that nobody has read, as this one has."""
    place.add(retention)
    if retention == "interest":
        place.manager.consumers.add("ORDERS", durable_name="other", ack_policy="explicit")
    place.publish(10)
    offset = read_without_consumer(place)
    if retention == "workqueue":
        text = r"from sequence 1 on, but the query starts after 10; .*purge the stream"
        with pytest.raises(OptionError, match=text):
            go_on(place, offset)
        assert list(place.manager.consumers.names("ORDERS")) == []
        assert place.kept() == 10
        place.manager.streams.purge("ORDERS", seq=11)
    go_on(place, offset)
    assert place.floor == 15
    assert place.kept() == (0 if retention == "workqueue" else 15)


def test_a_consumer_that_was_there_is_not_moved_over_what_was_read_before_it_was_named(
    place: Place,
) -> None:
    place.add()
    place.publish(10)
    offset = read_without_consumer(place)
    place.manager.consumers.add("ORDERS", durable_name="lake", ack_policy="all")
    with pytest.raises(OptionError, match="from sequence 1 on, but the query starts after"):
        go_on(place, offset)
    assert place.floor == 0


def test_another_name_is_another_consumer(place: Place) -> None:
    place.add()
    with place.follow() as follower:
        place.publish(10)
        _, offset = follower.plan()
    place.manager.consumers.add("ORDERS", durable_name="mine", ack_policy="all")
    other = Follower(("seq",), servers=place.url, stream="ORDERS", ackConsumer="mine")
    other.offset = offset
    with other, pytest.raises(OptionError, match="'mine' of stream ORDERS has unacknowledged"):
        other.plan()
