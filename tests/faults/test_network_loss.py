"""Messages that are removed between the planning of a network read and the read, on both servers.

No Spark is needed for this: a plan is made, the stream is changed, and the tasks are run.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

import tradewind.sync
from harness import RawClient
from jetstream_servers import add_empty_stream, jetstream_on_both
from tradewind.client.core.message import Msg
from tradewind.client.errors import JetStreamUnavailableError
from tradewind.client.streams.ordered import OrderedMessages
from tradewind.client.streams.packed import PackedMessages
from tradewind.spark.connections.patience import Patience
from tradewind.spark.contract.filters import RowFilter, filter_of
from tradewind.spark.errors import DataLossError
from tradewind.spark.options.source_options import SourceOptions, parse_options
from tradewind.spark.providers import network, proof
from tradewind.spark.providers.network import NetworkProvider, RangeTask
from tradewind.spark.providers.provider_choice import open_provider
from tradewind.spark.reads.reading import BatchReader

COUNT = 1000


server = jetstream_on_both()


class Place:
    """A stream ORDERS of a thousand messages on four subjects."""

    def __init__(self, connection: Any, url: str) -> None:
        self.url = url
        self.reads: dict[str, str] = {}  # options of all reads
        self.js = connection.jetstream()
        self.streams = connection.jetstream_manager().streams
        if "ORDERS" in list(self.streams.names()):
            self.streams.delete("ORDERS")

    def make(self, **settings: Any) -> None:
        add_empty_stream(self.streams, name="ORDERS", subjects=["orders.>"], **settings)
        if settings.get("retention") == "interest":
            self.js.manager.consumers.add("ORDERS", durable_name="keeper", ack_policy="explicit")
        self.publish(COUNT)

    def publish(self, count: int) -> None:
        for number in range(1, count + 1):
            self.js.publish_async(f"orders.{number % 4}", b"x")
        self.js.publish_async_completed()

    def plan(self, parts: int = 3, **options: str) -> list[Any]:
        """Tasks that tell every loss, unless the options say otherwise."""
        return self.plan_as_said(parts, **{"failOnDataLoss": "true", **options})

    def plan_as_said(self, parts: int = 3, **options: str) -> list[Any]:
        given = self.options(**self.reads, **options)
        with closing(open_provider(given)) as provider:
            provider.states()
            return list(provider.tasks("ORDERS", filter_of(given), parts))

    def options(self, **options: str) -> SourceOptions:
        return parse_options({"servers": self.url, "stream": "ORDERS", **options})


@pytest.fixture
def place(server: str) -> Iterator[Place]:
    with tradewind.sync.connect(server) as connection:
        yield Place(connection, server)


def read(tasks: list[Any]) -> list[int]:
    return [
        seq for task in tasks for batch in task.batches(("seq",)) for seq in batch[0].to_pylist()
    ]


# What the stream is like, and how it is read.
KINDS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    ({"retention": "interest", "allow_direct": True}, {}),
    ({}, {"readMode": "backup"}),
    ({"retention": "interest"}, {"readMode": "backup"}),
]


@pytest.fixture(params=KINDS, ids=["consumer", "direct", "backup", "backup of interest"])
def kind(request: pytest.FixtureRequest, place: Place) -> dict[str, Any]:
    """How the stream is read. One with interest keeps messages for a consumer."""
    settings: dict[str, Any]
    settings, place.reads = request.param
    return settings


def make(place: Place, kind: dict[str, Any], **settings: Any) -> None:
    place.make(**kind, **settings)


def test_all_of_a_stream_with_holes_is_read(place: Place, kind: dict[str, Any]) -> None:
    make(place, kind)
    for seq in range(7, COUNT + 1, 7):
        place.streams.delete_message("ORDERS", seq)
    assert read(place.plan()) == [seq for seq in range(1, COUNT + 1) if seq % 7]


@pytest.mark.parametrize("has_holes", [False, True])
def test_what_a_limit_removes_before_the_read_is_an_error(
    place: Place, kind: dict[str, Any], has_holes: bool
) -> None:
    make(place, kind, max_msgs=COUNT)
    if has_holes:
        place.streams.delete_message("ORDERS", 30)
    tasks = place.plan()
    place.publish(100 + has_holes)
    with pytest.raises(DataLossError) as caught:
        read(tasks)
    last = 101 if has_holes else 100
    assert f"stream ORDERS: 100 messages among the sequences 1 to {last}" in str(caught.value)
    assert "failOnDataLoss=false to continue" in str(caught.value)


@pytest.mark.parametrize("subject", ["", "orders.0,orders.3"])
def test_a_replica_that_is_behind_is_asked_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    """Its consumer says that nothing is pending before the end is reached."""
    place.make()
    deliver = RangeTask._delivered
    calls: list[int] = []

    async def behind(
        self: RangeTask, connection: Any, messages: OrderedMessages
    ) -> AsyncIterator[PackedMessages]:
        calls.append(messages.info.num_pending)
        if len(calls) == 1:
            await messages.stop()
            return
        async for chunk in deliver(self, connection, messages):
            yield chunk

    monkeypatch.setattr(RangeTask, "_delivered", behind)
    found = read(place.plan(1, **({"filterSubjects": subject} if subject else {})))
    assert found == [seq for seq in range(1, COUNT + 1) if not subject or seq % 4 in (0, 3)]
    assert len(calls) == 2


def test_a_replica_that_is_behind_is_asked_again_for_direct_batches(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(place, {"retention": "interest", "allow_direct": True})
    fetch = RangeTask._direct_batch
    calls: list[int] = []

    async def behind(self: RangeTask, connection: Any, next_seq: int) -> list[Msg]:
        calls.append(next_seq)
        return [] if len(calls) == 1 else await fetch(self, connection, next_seq)

    monkeypatch.setattr(RangeTask, "_direct_batch", behind)
    assert read(place.plan(1)) == list(range(1, COUNT + 1))
    assert calls == [1, 1]


def test_a_replica_that_stays_behind_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.make()

    async def behind(
        self: RangeTask, connection: Any, messages: OrderedMessages
    ) -> AsyncIterator[PackedMessages]:
        await messages.stop()
        return
        yield

    monkeypatch.setattr(RangeTask, "_delivered", behind)
    # Not by the option: a busy server would have no more time to accept the connection.
    monkeypatch.setattr(network, "Patience", lambda _seconds: Patience(1))
    with pytest.raises(JetStreamUnavailableError, match="message 1 is stored, but the replica"):
        read(place.plan(1))


def test_messages_that_are_all_gone_are_an_error(place: Place, kind: dict[str, Any]) -> None:
    make(place, kind)
    tasks = place.plan(1)
    place.streams.purge("ORDERS")
    with pytest.raises(DataLossError, match="1000 messages among the sequences 1 to 1000"):
        read(tasks)


def test_single_messages_that_are_removed_are_an_error(place: Place, kind: dict[str, Any]) -> None:
    make(place, kind)
    place.streams.delete_message("ORDERS", 10)
    tasks = place.plan()
    place.streams.delete_message("ORDERS", 20)
    with pytest.raises(DataLossError, match="1 messages among the sequences 20 to 20"):
        read(tasks)


def test_the_last_messages_that_are_removed_are_an_error(
    place: Place, kind: dict[str, Any]
) -> None:
    make(place, kind)
    tasks = place.plan()
    place.streams.delete_message("ORDERS", COUNT)
    with pytest.raises(DataLossError, match="1 messages among the sequences 1000 to 1000"):
        read(tasks)


def test_another_stream_of_the_same_name_is_an_error(place: Place, kind: dict[str, Any]) -> None:
    make(place, kind)
    tasks = place.plan()
    place.streams.delete("ORDERS")
    make(place, kind)
    with pytest.raises(DataLossError, match="was deleted and recreated while it was read"):
        read(tasks)


def test_with_leave_to_lose_the_rest_is_read(place: Place, kind: dict[str, Any]) -> None:
    make(place, kind, max_msgs=COUNT)
    tasks = place.plan(failOnDataLoss="false")
    place.publish(100)
    assert read(tasks) == list(range(101, COUNT + 1))


def test_chosen_subjects_that_are_removed_are_an_error(place: Place) -> None:
    place.make(max_msgs=COUNT)
    place.streams.delete_message("ORDERS", 3)
    tasks = place.plan(filterSubjects="orders.1")
    assert read(tasks) == list(range(1, COUNT + 1, 4))
    place.publish(9)
    with pytest.raises(DataLossError, match="8 messages among the sequences 1 to 9 may have"):
        read(tasks)


def test_one_chosen_message_that_is_removed_is_an_error(place: Place) -> None:
    place.make()
    tasks = place.plan(filterSubjects="orders.1")
    place.streams.delete_message("ORDERS", 501)
    with pytest.raises(DataLossError, match="1 messages among the sequences 501 to 501"):
        read(tasks)


def test_what_is_removed_behind_the_reader_is_no_loss(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server leaves subjects out, so it is asked again and again what it has removed."""
    monkeypatch.setattr(proof, "MESSAGES_PER_CHECK", 1)
    monkeypatch.setattr(network, "messages_ahead", lambda _size, _count: 10)
    monkeypatch.setattr(network, "ROWS_PER_BATCH", 10)
    place.make(max_msgs=COUNT)
    (task,) = place.plan(1, filterSubjects="orders.1")
    batches = task.batches(("seq",))
    found = next(batches)[0].to_pylist()
    place.publish(5)
    found += [seq for batch in batches for seq in batch[0].to_pylist()]
    assert found == list(range(1, COUNT + 1, 4))


def test_of_a_stream_with_too_many_holes_to_name_losses_are_counted(
    place: Place, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "DELETED_MAX", 1)
    make(place, kind)
    for seq in (7, 8, 9, 500, 900):
        place.streams.delete_message("ORDERS", seq)
    tasks = place.plan()
    assert len(read(tasks)) == COUNT - 5
    place.streams.delete_message("ORDERS", 20)
    place.streams.delete_message("ORDERS", 25)
    # What is lost is known as a number, for the range of the task alone.
    with pytest.raises(DataLossError, match=r"2 messages among the sequences 7 to \d+ (were|may) "):
        read(tasks[:1])
    assert len(read(tasks[1:])) == (COUNT - COUNT // 3 - 2 if tasks[1:] else 0)


def test_chosen_subjects_of_a_stream_with_too_many_holes_are_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "DELETED_MAX", 1)
    place.make()
    for seq in (7, 8, 9):
        place.streams.delete_message("ORDERS", seq)
    tasks = place.plan(filterSubjects="orders.1")
    place.streams.delete_message("ORDERS", 20)  # of another subject
    assert read(tasks) == [seq for seq in range(1, COUNT + 1, 4) if seq != 9]
    place.streams.delete_message("ORDERS", 501)
    with pytest.raises(DataLossError, match="1 messages among the sequences"):
        read(tasks)


def test_gaps_that_become_too_many_are_not_all_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.make()
    tasks = place.plan(1, filterSubjects="orders.1")
    for seq in (20, 24, 28):
        place.streams.delete_message("ORDERS", seq)
    monkeypatch.setattr(proof, "DELETED_MAX", 1)
    with pytest.raises(DataLossError, match="3 messages among the sequences 2 to 1000 may have"):
        read(tasks)


def test_what_a_limit_removes_at_the_head_only_begins_a_batch_later(
    place: Place, kind: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    make(place, kind, max_msgs=COUNT)
    place.streams.delete_message("ORDERS", 30)
    tasks = place.plan_as_said(1)
    place.publish(100)
    assert read(tasks) == list(range(101, COUNT + 1))
    (record,) = caplog.records
    assert "stream ORDERS: 99 messages among the sequences 1 to 100 were removed at its head" in (
        record.message
    )
    # It is another thing in the middle, or if the begin was named.
    tasks = place.plan_as_said(1)
    place.streams.delete_message("ORDERS", 500)
    with pytest.raises(DataLossError, match="1 messages among the sequences 500 to 500 were rem"):
        read(tasks)


def read_all(reader: BatchReader, partitions: Sequence[Any]) -> list[int]:
    return [
        seq
        for partition in partitions
        for batch in reader.read(partition)
        for seq in batch[0].to_pylist()
    ]


@pytest.mark.parametrize(
    "start", [{"startingSeq": "50"}, {"startingOffsets": '{"ORDERS": 50}'}, {"startingSeq": "1"}]
)
def test_a_batch_whose_begin_is_named_wants_all_that_was_planned(
    place: Place, start: dict[str, str]
) -> None:
    place.make(max_msgs=COUNT)
    place.publish(10)
    options = parse_options({"servers": place.url, "stream": "ORDERS", **start})
    reader = BatchReader(options, ("seq",))
    partitions = reader.partitions()
    place.publish(60)
    with pytest.raises(DataLossError, match=r"before they were read; raise .* failOnDataLoss=fal"):
        read_all(reader, partitions)


def microseconds_text(time_ns: int) -> str:
    """The time as users write it, never later than the time itself."""
    moment = datetime.fromtimestamp(time_ns // 10**9, UTC)
    return moment.replace(microsecond=time_ns % 10**9 // 1000).isoformat()


def test_a_batch_from_a_time_on_does_not_want_what_is_older(place: Place) -> None:
    half = COUNT // 2
    add_empty_stream(place.streams, name="ORDERS", subjects=["orders.>"], max_msgs=COUNT)
    place.publish(half)
    before = place.streams.get_message("ORDERS", seq=half).time_ns
    place.publish(half)
    start = place.streams.get_message("ORDERS", seq=half + 1).time_ns
    assert start - before > 1000, "the second half was stored more than a microsecond later"
    options = parse_options(
        {"servers": place.url, "stream": "ORDERS", "startingTime": microseconds_text(start)}
    )
    reader = BatchReader(options, ("seq",))
    partitions = reader.partitions()
    place.publish(100)
    assert read_all(reader, partitions) == list(range(half + 1, COUNT + 1))
    place.publish(half)
    with pytest.raises(DataLossError, match="messages among the sequences"):
        read_all(reader, partitions)


def test_messages_that_are_replaced_are_told_but_not_lost(
    place: Place, kind: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    make(place, kind, max_msgs_per_subject=100)
    tasks = place.plan(1)
    first = COUNT - 400 + 1
    assert read(tasks) == list(range(first, COUNT + 1))
    place.publish(8)
    assert read(tasks) == list(range(first + 8, COUNT + 1))
    (record,) = caplog.records
    assert f"8 messages among the sequences {first} to {first + 7} were removed" in record.message


@pytest.mark.parametrize(
    ("used_by", "advice"),
    [
        ("spark", "set failOnDataLoss=false to continue without them"),
        ("pipeline", "set data_loss: continue on the source to continue without them"),
        ("sql", "run the query again"),
        ("job", "run the job again"),
    ],
)
def test_an_error_advises_what_the_command_offers(place: Place, used_by: str, advice: str) -> None:
    place.make()
    tasks = place.plan_as_said(usedBy=used_by)
    place.streams.delete_message("ORDERS", 20)
    with pytest.raises(DataLossError) as caught:
        read(tasks)
    text = str(caught.value)
    assert text.endswith(advice)
    assert ("failOnDataLoss" in text) == ("storeDir" in text) == (used_by == "spark")
    assert ("--store" in text) == (used_by == "sql")


def test_rows_of_a_bucket_may_be_replaced_at_any_time(place: Place) -> None:
    bucket = place.js.kv.create("PRICES", history=1)
    try:
        for number in range(20):
            bucket.put(f"key{number}", b"1")
        options = parse_options({"servers": place.url, "bucket": "PRICES", "history": "true"})
        with closing(NetworkProvider(options)) as provider:
            provider.states()
            tasks = provider.tasks("KV_PRICES", RowFilter(), 1)
        bucket.put("key0", b"2")
        assert read(list(tasks)) == list(range(2, 21))
    finally:
        place.js.kv.delete("PRICES")


def test_a_subject_that_is_no_utf8_is_read(place: Place, kind: dict[str, Any]) -> None:
    make(place, kind)
    publish_raw(place.url, b"orders.\xff\xc3")
    rows = [
        row
        for task in place.plan(1)
        for batch in task.batches(("seq", "subject", "data"))
        for row in batch.to_pylist()
    ]
    assert len(rows) == COUNT + 1
    assert rows[-1] == {"seq": COUNT + 1, "subject": "orders.\ufffd\ufffd", "data": b"raw"}


def publish_raw(url: str, subject: bytes) -> None:
    """Publish as no client of ours would, and wait until the server has stored it."""
    with RawClient(int(url.rpartition(":")[2])) as raw:
        raw.connect()
        raw.send(b"SUB stored 1\r\nPUB %s stored 3\r\nraw\r\n" % subject)
        assert json.loads(raw.read_message()[2])["seq"] == COUNT + 1
