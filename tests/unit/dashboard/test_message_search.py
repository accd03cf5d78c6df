"""Searches through a whole stream, compared with looking at each message."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.api.stream_types import StreamConfig, StreamInfo, StreamState
from tradewind.dashboard.data import message_search
from tradewind.dashboard.data.message_data import ListedMessage, MessageReader
from tradewind.dashboard.data.message_export import ExportError, export
from tradewind.dashboard.data.message_filters import make_filter
from tradewind.dashboard.data.message_search import (
    MessageSearch,
    MessageSearches,
    TooManySearchesError,
)


class FakeStream:
    """The messages of a stream, in place of a server; counts what is asked."""

    def __init__(self, sequences: list[int]) -> None:
        self.messages = [
            ListedMessage(each, "a.b", each, [], b'{"n": %d}' % (each % 7)) for each in sequences
        ]
        self.asked = 0
        self.largest = 0
        self.hold: asyncio.Event | None = None
        last = sequences[-1] if sequences else 0
        state = StreamState(first_seq=sequences[0] if sequences else 0, last_seq=last)
        self.info_value = StreamInfo(config=StreamConfig(name="S"), state=state)
        self.manager = self.streams = self

    async def info(self, _name: str) -> StreamInfo:
        return self.info_value

    async def batch(
        self, _reader: Any, _pattern: str, start: int, most: int, _size: int
    ) -> list[ListedMessage]:
        self.asked += 1
        self.largest = max(self.largest, most)
        if self.hold is not None:
            await self.hold.wait()
        return [each for each in self.messages if each.sequence >= start][:most]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_search, "BATCH_MESSAGES", 4)
    monkeypatch.setattr(message_search, "WINDOW", 10)
    monkeypatch.setattr(message_search, "FOUND_MAX", 5)

    async def batch(reader: Any, *rest: Any) -> list[ListedMessage]:
        return await reader._js.batch(reader, *rest)  # type: ignore[no-any-return]

    monkeypatch.setattr(MessageReader, "batch", batch)


async def run_through(stream: FakeStream, search: MessageSearch) -> list[int]:
    """Begin a search and continue it until it has passed the whole stream."""
    searches, found = MessageSearches(lambda: 0.0), []
    for _ in range(1000):
        searches.begin(stream, search)  # type: ignore[arg-type]
        assert search.task is not None
        await search.task
        found += [each.sequence for each in search.found]
        search.found, search.found_bytes = [], 0
        if search.state == "done":
            return found
        assert search.state == "full"
    raise AssertionError("the search never ends")


def search_of(stream: FakeStream, *, is_older: bool, start: int = 0, n: int = 3) -> MessageSearch:
    state = stream.info_value.state
    lowest, highest = max(state.first_seq, 1), state.last_seq
    at = min(start + 1, highest + 1) if start else highest + 1
    if not is_older:
        at = max(start - 1, lowest - 1)
    wanted = make_filter("", "", f"n = {n}")
    return MessageSearch(
        "S", ">", wanted, is_older, lowest=lowest, highest=highest, begun_seq=at, at_seq=at
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 400), unique=True, max_size=150).map(sorted),
    st.booleans(),
    st.integers(0, 450),
)
def test_a_search_finds_what_looking_at_each_message_finds(
    sequences: list[int], is_older: bool, start: int
) -> None:
    stream = FakeStream(sequences)
    search = search_of(stream, is_older=is_older, start=start)
    found = asyncio.run(run_through(stream, search))
    wanted = [each for each in sequences if each % 7 == 3]
    if is_older:
        wanted = [each for each in reversed(wanted) if not start or each <= start]
    else:
        wanted = [each for each in wanted if each >= start]
    assert found == wanted
    assert search.part == 1.0
    assert stream.largest <= 4


def test_a_sparse_stream_costs_few_batches() -> None:
    stream = FakeStream([1, 1 << 40])
    search = search_of(stream, is_older=True, n=1)
    assert asyncio.run(run_through(stream, search)) == [1]
    assert stream.asked < 100


def test_a_search_stops_and_continues_where_it_was() -> None:
    async def scenario() -> None:
        stream = FakeStream(list(range(1, 200)))
        stream.hold = asyncio.Event()
        searches = MessageSearches(lambda: 0.0)
        search = search_of(stream, is_older=False)
        searches.begin(stream, search)  # type: ignore[arg-type]
        other = search_of(stream, is_older=True)
        searches.begin(stream, other)  # type: ignore[arg-type]
        with pytest.raises(TooManySearchesError, match="2 searches are running"):
            searches.begin(stream, search_of(stream, is_older=True))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        search.stop()
        assert search.task is not None
        with pytest.raises(asyncio.CancelledError):
            await search.task
        assert (search.state, search.looked_at) == ("stopped", 0)
        stream.hold.set()
        assert await run_through(stream, search) == [each for each in range(200) if each % 7 == 3]
        assert searches.see("unknown") is None
        await searches.close()
        assert other.task is not None
        assert other.task.done()

    asyncio.run(scenario())


def test_a_search_that_no_page_shows_ends() -> None:
    async def scenario() -> None:
        now = 0.0
        stream = FakeStream(list(range(1, 100)))
        searches = MessageSearches(lambda: now)
        search = search_of(stream, is_older=False, n=99)
        stream.hold = asyncio.Event()
        searches.begin(stream, search)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        now = message_search.WATCHED_SECONDS + 1
        stream.hold.set()
        assert search.task is not None
        with pytest.raises(asyncio.CancelledError):
            await search.task
        assert (search.state, search.text) == ("stopped", "No page has shown it for a minute.")

    asyncio.run(scenario())


FOUND = [
    ListedMessage(1, "a", 10**18, [("A", "1"), ("A", "2")], '{"name": "Zoë"}'.encode()),
    ListedMessage(2, "=cmd", 10**18 + 1, [], b"\xff\x00"),
    ListedMessage(2**64 - 1, "b\udc80", 0, [("H\udc80", "x")], b'a,b\r\n"c'),
]


async def written(kind: str) -> bytes:
    return b"".join([chunk async for chunk in export("S", FOUND, kind)])


def test_found_messages_are_saved_without_loss() -> None:
    lines = asyncio.run(written("jsonl")).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[0]["payload"] == '{"name": "Zoë"}'
    assert rows[0]["headers"] == {"A": ["1", "2"]}
    assert (rows[1]["payload"], rows[1]["encoding"]) == ("/wA=", "base64")
    assert rows[2]["sequence"] == 2**64 - 1
    table = list(csv.DictReader(io.StringIO(asyncio.run(written("csv")).decode(), newline="")))
    assert table[2]["payload"] == 'a,b\r\n"c'
    # A spreadsheet must not run it.
    assert table[1]["subject"] == "'=cmd"
    made = pq.read_table(io.BytesIO(asyncio.run(written("parquet"))))
    assert made["payload"].to_pylist() == [each.data for each in FOUND]
    assert made["sequence"].to_pylist() == [each.sequence for each in FOUND]
    assert made["headers"].to_pylist()[0] == [("A", ["1", "2"])]
    with pytest.raises(ExportError, match="must be one of jsonl, csv, parquet"):
        export("S", FOUND, "xml")
