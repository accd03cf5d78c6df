"""Acknowledging through a consumer that has not counted its messages yet, or holds some back.

nats-server counts a message for its consumers some time after it is stored, which no test can have
it do at will; the rest of `ackConsumer` is in tests/spark_source/test_ack_consumer.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ConsumerInfo, SequenceInfo
from tradewind.api.stream_types import RetentionPolicy, StreamConfig, StreamInfo
from tradewind.api.times import parse_time
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.core.login import ServerInfo
from tradewind.client.errors import PermissionsError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.reads.acking import Acknowledger
from tradewind.subjects import collide

CREATED = "2026-01-01T00:00:00Z"


class FakeMessage:
    def __init__(self, server: FakeServer, seq: int) -> None:
        self.server = server
        self.stream_sequence = seq

    @property
    def metadata(self) -> FakeMessage:
        return self

    def ack(self) -> None:
        del self.server.stored[self.stream_sequence]

    async def ack_sync(self) -> None:
        self.ack()

    def nak(self) -> None:
        raise AssertionError("nothing behind the commit is asked for")


class FakeServer:
    """A connection to a work queue ORDERS with the consumer `lake`, and everything in between."""

    def __init__(self, *subjects: str, filters: tuple[str, ...] = ()) -> None:
        self.info = ServerInfo(version="2.15.1")
        self.stored = dict(enumerate(subjects, 1))
        self.filters = filters
        self.uncounted: set[int] = set()  # until somebody waits for a message
        self.is_paused = False
        self.is_deaf = False  # what is uncounted stays so
        self.may_get = True
        self.fetches: list[bool] = []  # whether they waited
        self.floor = 0
        self.config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, filter_subjects=list(filters), max_ack_pending=-1
        )

    def jetstream_manager(self) -> FakeServer:
        return self

    def jetstream(self) -> FakeServer:
        return self

    @property
    def streams(self) -> FakeStreams:
        return FakeStreams(self)

    @property
    def consumers(self) -> FakeConsumers:
        return FakeConsumers(self)

    def run(self, work: Any) -> Any:
        """What `KeptConnection` does."""
        return asyncio.run(work(self))

    def pending(self) -> list[int]:
        wanted = self.filters or (">",)
        return [
            seq
            for seq, subject in self.stored.items()
            if seq not in self.uncounted and any(collide(one, subject) for one in wanted)
        ]


class FakeStreams:
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def info(self, name: str) -> StreamInfo:
        config = StreamConfig(name=name, retention=RetentionPolicy.WORK_QUEUE)
        return StreamInfo(config=config, created=CREATED)

    async def get_message(self, _stream: str, *, seq: int, next_by_subject: str) -> Any:
        if not self.server.may_get:
            raise PermissionsError("may not", "may not")
        for one, subject in self.server.stored.items():
            if one >= seq and collide(next_by_subject, subject):
                return FakeFound(one)
        raise NoMessageFoundError(404, 10037, "no message found")


class FakeFound:
    def __init__(self, seq: int) -> None:
        self.seq = seq


class FakeConsumers:
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def get(self, _stream: str, _name: str) -> FakeConsumer:
        return FakeConsumer(self.server)

    async def info(self, stream: str, name: str) -> ConsumerInfo:
        return ConsumerInfo(
            stream_name=stream,
            name=name,
            config=self.server.config,
            ack_floor=SequenceInfo(stream_seq=self.server.floor),
            num_pending=len(self.server.pending()),
        )


class FakeConsumer:
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def info(self) -> ConsumerInfo:
        return await FakeConsumers(self.server).info("ORDERS", "lake")

    async def fetch(
        self, count: int, *, expires: float, no_wait: bool = False
    ) -> AsyncIterator[FakeMessage]:
        assert expires > 0
        server = self.server
        server.fetches.append(not no_wait)
        if not no_wait and not server.is_deaf:
            server.uncounted.clear()
        found = [] if server.is_paused else server.pending()[:count]
        return _each([FakeMessage(server, seq) for seq in found])


async def _each(messages: list[FakeMessage]) -> AsyncIterator[FakeMessage]:
    for message in messages:
        yield message


def acknowledger(server: FakeServer) -> Acknowledger:
    given = {"servers": "nats://x", "stream": "ORDERS", "ackConsumer": "lake"}
    if server.filters:
        given["filterSubjects"] = ",".join(server.filters)
    made = Acknowledger(parse_options(given))
    made._kept = cast("Any", server)
    return made


def commit(acks: Acknowledger, seq: int) -> None:
    acks.move({"ORDERS": {"created_ns": parse_time(CREATED), "seq": seq, **acks.mark}})


def test_messages_that_are_counted_late_are_acknowledged_with_their_commit() -> None:
    server = FakeServer(*["orders.a"] * 5)
    server.uncounted = {4, 5}
    acks = acknowledger(server)
    commit(acks, 5)
    assert server.stored == {}
    fetches = len(server.fetches)
    commit(acks, 5)
    assert len(server.fetches) == fetches


@pytest.mark.parametrize("filters", [("orders.a",), ("orders.a", "orders.c")])
def test_an_end_without_messages_of_the_query_is_not_waited_for(filters: tuple[str, ...]) -> None:
    server = FakeServer("orders.a", "orders.b", "orders.b", "orders.a", filters=filters)
    server.uncounted = {4}  # it is stored, but not committed
    acks = acknowledger(server)
    for _ in range(3):
        commit(acks, 3)
    assert sorted(server.stored) == [2, 3, 4]
    assert server.fetches == [False, False]
    del server.stored[4]
    commit(acks, 4)
    assert server.fetches == [False, False, False]


def test_messages_that_are_held_back_are_asked_for_again_but_not_at_once() -> None:
    server = FakeServer("orders.a", "orders.a")
    server.is_paused = True
    acks = acknowledger(server)
    for _ in range(3):
        commit(acks, 2)
    assert server.fetches == [False, True]
    server.is_paused = False
    acks._floors["ORDERS"].again_at = 0.0  # some time later
    commit(acks, 2)
    assert server.stored == {}


def test_messages_that_a_consumer_never_delivers_are_waited_for_once() -> None:
    """Such as those of a consumer that delivers the last of each subject."""
    server = FakeServer("orders.a", "orders.a")
    server.uncounted, server.is_deaf = {1, 2}, True
    acks = acknowledger(server)
    for _ in range(3):
        commit(acks, 2)
    assert server.fetches == [False, True]


def test_a_login_that_may_not_ask_the_stream_waits_for_the_consumer() -> None:
    server = FakeServer("orders.a", "orders.a")
    server.uncounted, server.may_get = {2}, False
    commit(acknowledger(server), 2)
    assert server.stored == {}
