"""Streams that come and go while a query over a pattern runs, on both servers.

No Spark is needed for this: the reader is called as Spark calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tradewind.sync
from follower_kit import Follower, publish
from jetstream_servers import jetstream_on_both
from tradewind.client.streams.api_requests import ApiRequests, Pages
from tradewind.spark.errors import DataLossError

server = jetstream_on_both()
MANY = 1000


class Place:
    """A server without streams at first."""

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.connection = connection
        self.streams = connection.jetstream_manager().streams
        for name in list(self.streams.names()):
            self.streams.delete(name)

    def add(self, name: str, count: int) -> None:
        self.streams.add(name=name, subjects=[f"{name}.>"], storage="memory")
        publish(self.connection, f"{name}.x", count)

    def follow(self, stream: str = "S*", **options: str) -> Follower:
        return Follower(("stream", "seq"), servers=self.url, stream=stream, **options)


@pytest.fixture
def place(server: str) -> Iterator[Place]:
    with tradewind.sync.connect(server) as connection:
        yield Place(server, connection)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The endpoints that were asked since the list was cleared."""
    asked: list[str] = []
    call_raw = ApiRequests.call_raw

    async def counted(self: ApiRequests, endpoint: str, *words: str, **more: Any) -> Any:
        asked.append(endpoint)
        return await call_raw(self, endpoint, *words, **more)

    monkeypatch.setattr(ApiRequests, "call_raw", counted)
    return asked


def rows(follower: Follower) -> list[tuple[str, int]]:
    return [(row["stream"], row["seq"]) for row in follower.read(*follower.plan())]


def test_streams_that_appear_are_read_from_their_begin(place: Place) -> None:
    place.add("S1", 2)
    with place.follow(startingOffsets="latest") as follower:
        assert rows(follower) == []
        place.add("S2", 2)
        place.add("OTHER", 2)
        assert rows(follower) == [("S2", 1), ("S2", 2)]
        publish(place.connection, "S1.x", 1)
        assert rows(follower) == [("S1", 3)]


@pytest.mark.parametrize("stream", ["S*", "S1,S2"])
def test_a_stream_that_is_deleted_is_lost_data(place: Place, stream: str) -> None:
    place.add("S1", 2)
    place.add("S2", 2)
    with place.follow(stream) as follower, place.follow(stream, failOnDataLoss="false") as lenient:
        assert rows(follower) == rows(lenient)
        place.streams.delete("S1")
        publish(place.connection, "S2.x", 1)
        with pytest.raises(DataLossError, match="stream S1 was deleted; it had been read up to 2"):
            follower.plan()
        assert rows(lenient) == [("S2", 3)]
        assert rows(lenient) == []
        place.add("S1", 1)
        assert rows(lenient) == [("S1", 1)]


def test_a_stream_that_vanishes_after_planning_is_lost_data(place: Place) -> None:
    place.add("S1", 1)
    with place.follow() as follower, place.follow(failOnDataLoss="false") as lenient:
        assert rows(follower) == rows(lenient)
        place.add("S2", 2)
        plan, lenient_plan = follower.plan(), lenient.plan()
        place.streams.delete("S2")
        with pytest.raises(DataLossError, match="stream S2 was deleted while it was read"):
            follower.read(*plan)
        assert lenient.read(*lenient_plan) == []
        assert rows(lenient) == []


def test_a_stream_that_comes_and_goes_unseen_is_nothing(place: Place) -> None:
    place.add("S1", 1)
    with place.follow() as follower:
        rows(follower)
        place.add("S2", 5)
        place.streams.delete("S2")
        start, end = follower.plan()
        assert start == end
        assert list(end) == ["S1"]


def test_a_stream_that_a_list_leaves_out_is_not_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are cut by number, so a stream moves to another page if one before it is deleted."""
    place.add("S1", 1)
    place.add("S2", 1)
    next_page: Callable[..., Any] = Pages.next_page

    async def without(self: Any) -> Any:
        return [info for info in await next_page(self) if info.config.name != "S1"]

    with place.follow() as follower:
        rows(follower)
        monkeypatch.setattr(Pages, "next_page", without)
        assert follower.plan() == (follower.offset, follower.offset)
    # Nor after a restart, when this is the first list.
    with place.follow() as again:
        again.offset = follower.offset
        assert again.plan() == (follower.offset, follower.offset)


def test_a_thousand_streams_are_planned_with_few_requests(
    place: Place, requests: list[str]
) -> None:
    for number in range(MANY):
        place.streams.add(name=f"S{number:04}", subjects=[f"s.{number}"], storage="memory")
    names = ",".join(f"S{number:04}" for number in range(MANY))
    for stream in ("S*", names):
        with place.follow(stream) as follower:
            publish(place.connection, "s.7", 3)
            publish(place.connection, "s.990", 3)
            requests.clear()
            start, end = follower.plan()
            assert len(end) == MANY
            assert len(follower.read(start, end)) == 6
            # One list in pages, and two tasks: a consumer, and the proof, each.
            assert requests.count("stream_list") == -(-MANY // 256)
            assert len(requests) < 20
            requests.clear()
            assert follower.plan() == (end, end)
            assert set(requests) == {"stream_list"}
        place.streams.purge("S0007")
        place.streams.purge("S0990")
