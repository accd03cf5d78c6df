"""All streams and consumers are examined step by step, within bounds, whatever servers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo, SequenceInfo
from tradewind.api.responses import ConsumerListResponse, StreamListResponse
from tradewind.api.stream_types import DiscardPolicy, StreamConfig, StreamInfo, StreamState
from tradewind.client.api_errors import make_api_error
from tradewind.client.errors import DisconnectedError, OperationTimeoutError, PermissionsError
from tradewind.dashboard.data import survey as module
from tradewind.dashboard.data.attention import attention_items
from tradewind.dashboard.data.survey import REFUSED_SECONDS, Survey

PAGE = 2


class FakeServer:
    """Streams with consumers, listed two at a time, and how often it was asked."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.streams: dict[str, list[str]] = {}
        self.delivered: dict[str, int] = {}
        self.full: set[str] = set()
        self.letters: dict[str, str] = {}
        self.errors: dict[str, Exception] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.pending = 0

    @property
    def manager(self) -> FakeServer:
        return self

    @property
    def api(self) -> FakeServer:
        return self

    async def call(
        self, _answer: Any, endpoint: str, stream: str = "", *, body: Mapping[str, int]
    ) -> StreamListResponse | ConsumerListResponse:
        first = body["offset"]
        self.asked.append((endpoint, stream, first))
        await asyncio.sleep(0)
        if (error := self.errors.get(stream)) is not None:
            raise error
        if endpoint == "stream_list":
            names = sorted(self.streams)
            shown = [self.stream(name) for name in names[first : first + PAGE]]
            return StreamListResponse(total=len(names), offset=first, limit=PAGE, streams=shown)
        if stream not in self.streams:
            raise make_api_error(404, 10059, "stream not found")
        listed = self.streams[stream]
        found = [self.consumer(stream, name) for name in listed[first : first + PAGE]]
        return ConsumerListResponse(total=len(listed), offset=first, limit=PAGE, consumers=found)

    def stream(self, name: str) -> StreamInfo:
        config = StreamConfig(name=name, subjects=[name], max_msgs=5, discard=DiscardPolicy.NEW)
        messages = 5 if name in self.full else 1
        state = StreamState(messages=messages, consumer_count=len(self.streams[name]))
        return StreamInfo(config=config, state=state)

    def consumer(self, stream: str, name: str) -> ConsumerInfo:
        metadata = {}
        if name in self.letters:
            metadata["tradewind.dead_letter.stream"] = self.letters[name]
        durable = "" if name.startswith("ephemeral") else name
        return ConsumerInfo(
            stream_name=stream,
            name=name,
            config=ConsumerConfig(durable_name=durable, metadata=metadata),
            delivered=SequenceInfo(consumer_seq=self.delivered.get(name, 0)),
            num_pending=self.pending,
        )


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def survey(server: FakeServer) -> Survey:
    return Survey(lambda: cast("Any", server), lambda: server.now, lambda: int(server.now * 1e9))


async def whole_round(survey: Survey) -> None:
    survey.changed()
    while await survey.turn(1000) and survey._plan:
        pass


def known(survey: Survey) -> dict[str, list[str]]:
    """The consumers that are known, by stream."""
    return {name: sorted(survey.consumers.get(name, {})) for name in sorted(survey.streams)}


async def test_a_turn_makes_one_request_and_turns_end_with_everything(
    server: FakeServer, survey: Survey
) -> None:
    server.streams = {"A": ["a1", "a2", "a3"], "B": [], "C": ["c1"]}
    for turn in range(5):  # two pages of streams, two of A's consumers, one of C's
        assert not survey.is_whole
        assert await survey.turn(1) == 1
        assert len(server.asked) == turn + 1
    assert survey.is_whole
    assert known(survey) == {"A": ["a1", "a2", "a3"], "B": [], "C": ["c1"]}
    assert survey.consumers_known == 4


async def test_what_is_gone_is_forgotten(server: FakeServer, survey: Survey) -> None:
    server.streams = {"A": ["a1", "a2"], "B": ["b1"], "C": ["c1"]}
    await whole_round(survey)
    server.streams = {"A": ["a2", "a9"], "C": []}
    await whole_round(survey)
    assert known(survey) == {"A": ["a2", "a9"], "C": []}
    assert survey.consumers_known == 2


async def test_a_change_in_the_middle_of_a_round_removes_nothing(
    server: FakeServer, survey: Survey
) -> None:
    server.streams = {name: [] for name in "ABCDEF"}
    await whole_round(survey)
    await survey.turn(1)  # of the next round, which has seen A and B so far
    survey.changed()
    await survey.turn(1)
    assert sorted(survey.streams) == list("ABCDEF")


@pytest.mark.parametrize(
    "error",
    [make_api_error(503, 10008, "no leader"), OperationTimeoutError("late")],
)
async def test_a_stream_that_is_unwell_does_not_hide_the_others(
    server: FakeServer, survey: Survey, error: Exception
) -> None:
    server.streams = {"A": ["a1"], "B": ["b1"]}
    server.errors = {"A": error}
    await whole_round(survey)
    assert survey.is_whole
    assert known(survey) == {"A": [], "B": ["b1"]}


async def test_a_refusal_is_not_repeated_for_minutes(server: FakeServer, survey: Survey) -> None:
    text = 'Permissions Violation for Publish to "$JS.API.STREAM.LIST"'
    server.errors = {"": PermissionsError(text, text)}
    for _ in range(50):
        await survey.turn(1)
        server.now += REFUSED_SECONDS / 50
    assert len(server.asked) == 1
    assert survey.problem is not None
    assert survey.problem.kind == "denied"
    await survey.turn(1)
    assert len(server.asked) == 2


async def test_a_server_that_was_away_is_asked_again_at_the_next_turn(
    server: FakeServer, survey: Survey
) -> None:
    server.streams = {"A": ["a1"]}
    server.errors = {"": DisconnectedError("away")}
    await survey.turn(9)
    assert survey.problem is not None
    server.errors = {}
    await survey.turn(9)
    assert survey.problem is None
    assert known(survey) == {"A": ["a1"]}


async def test_what_is_stored_is_bounded_and_that_is_said(
    server: FakeServer, survey: Survey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STREAMS_MAX", 4)
    monkeypatch.setattr(module, "CONSUMERS_MAX", 3)
    server.streams = {f"S{number}": ["c1", "c2"] for number in range(9)}
    await whole_round(survey)
    assert len(survey.streams) == 4
    assert survey.consumers_known == sum(map(len, survey.consumers.values())) == 3
    assert survey.is_cut


async def test_rates_come_from_two_looks_and_not_from_a_consumer_made_anew(
    server: FakeServer, survey: Survey
) -> None:
    server.streams = {"A": ["c"]}
    server.delivered["c"] = 100
    await whole_round(survey)
    server.now += 10
    server.delivered["c"] = 150
    await whole_round(survey)
    assert survey.consumers["A"]["c"].delivered_rate == 5.0
    server.now += 10
    server.delivered["c"] = 3
    await whole_round(survey)
    assert survey.consumers["A"]["c"].delivered_rate is None


async def test_what_needs_attention_is_listed_worst_first(
    server: FakeServer, survey: Survey
) -> None:
    server.streams = {"DEAD": [], "FULL": [], "WELL": ["idle", "ephemeral", "failing"]}
    server.full = {"FULL"}
    server.letters = {"failing": "DEAD"}
    await whole_round(survey)
    items = attention_items(survey, None, {"one": "ok", "two": "disk is full"}, 3)
    assert [(item.state, item.subject) for item in items] == [
        ("stopped", "Server two"),
        ("stopped", "Stream FULL"),
        ("attention", "Dead letters in DEAD"),
        ("attention", "Slow clients"),
    ]
    server.pending = 7
    await whole_round(survey)
    subjects = [item.subject for item in attention_items(survey)]
    assert "Consumer idle of WELL" in subjects
    assert "Consumer ephemeral of WELL" not in subjects
