"""`startingOffsets` and `endingOffsets`: their grammar, and what they choose from block files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tradewind.spark.errors import OptionError
from tradewind.spark.options.positions import SEQUENCE_MAX, Position
from tradewind.spark.options.source_options import SourceOptions, parse_options
from tradewind.spark.reads.reading import BatchReader
from tradewind.spark.reads.streaming import StreamReader
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.meta import StreamMeta

SECOND = 1_000_000_000
# 2026-11-16T08:00:00Z
START_NS = 1_794_816_000 * SECOND
NAMES = ("AUDIT", "LOGS", "ORDERS")


def options_of(**given: str) -> SourceOptions:
    return parse_options({"stream": "*", "servers": "nats://localhost", **given})


def test_each_stream_has_its_own_position() -> None:
    text = '{"ORDERS": 120, "LOGS": "Latest", "AUDIT": {"time": "2026-11-16T08:00:01.5Z"}}'
    options = options_of(startingOffsets=text)
    assert options.start_of("ORDERS") == Position(seq=120)
    assert options.start_of("LOGS") == Position("latest")
    assert options.start_of("AUDIT") == Position(time_ns=START_NS + 1_500_000_000)
    assert options.start_of("NEW") == Position("earliest")
    options = options_of(endingOffsets=text)
    assert options.end_of("ORDERS").seq == 120
    assert options.end_of("NEW") == Position("latest")


WRONG = [
    ('{"ORDERS": 0}', "'ORDERS': 0 is not a sequence from 1 to"),
    ('{"ORDERS": -2}', '\'ORDERS\': -2 is not a sequence .*; "earliest" and "latest" are words'),
    ('{"ORDERS": -7}', f"'ORDERS': -7 is not a sequence from 1 to {SEQUENCE_MAX}$"),
    (f'{{"ORDERS": {1 << 63}}}', f"'ORDERS': {1 << 63} is not a sequence"),
    (f'{{"ORDERS": {(1 << 64) - 1}}}', f"'ORDERS': {(1 << 64) - 1} is not a sequence"),
    (f'{{"ORDERS": {"9" * 5000}}}', "a number is above"),
    ('{"ORDERS": 1.5}', "'ORDERS': 1.5 is not a sequence, earliest, latest or"),
    ('{"ORDERS": true}', "'ORDERS': true is not a sequence"),
    ('{"ORDERS": null}', "'ORDERS': null is not a sequence"),
    ('{"ORDERS": "newest"}', "'ORDERS': \"newest\" is not a sequence"),
    ('{"ORDERS": {"seq": 1}}', "'ORDERS': {\"seq\": 1} is not a sequence"),
    ('{"ORDERS": {"time": 5}}', "'ORDERS': a time must be a string, not 5"),
    ('{"ORDERS": {"time": "noon"}}', "'ORDERS': 'noon' is not a time"),
    ('{"ORDERS": 1, "ORDERS": 2}', "'ORDERS' is named twice"),
    ('{"ORDERS": 1', "not JSON: .* at character 13"),
    ('{"ORDERS": ' + "[" * 100_000, "not JSON that names streams: it is nested too deeply"),
    ("[1]", "'\\[1\\]' is neither earliest nor latest nor a JSON object"),
    ("newest", "'newest' is neither earliest nor latest"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG, ids=range(len(WRONG)))
@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_what_is_no_position_is_named(name: str, text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"^option {name}: {reason}"):
        options_of(**{name: text})


def test_a_stream_that_is_not_read_is_named() -> None:
    with pytest.raises(OptionError, match=r"startingOffsets: 'LOGS' is not read: .* is ORDERS,X_"):
        options_of(stream="ORDERS,X_*", startingOffsets='{"X_1": 5, "LOGS": 5}')


TOGETHER = [
    {"startingOffsets": "latest", "startingSeq": "1"},
    {"startingOffsets": "{}", "startingTime": "1970-01-01T00:00:00Z"},
    {"startingSeq": "1", "startingTime": "1970-01-01T00:00:00Z"},
    {"endingOffsets": "latest", "endingSeq": "1"},
    {"endingOffsets": "{}", "endingTime": "1970-01-01T00:00:00Z"},
]


@pytest.mark.parametrize("given", TOGETHER, ids=lambda given: "+".join(given))
def test_there_is_one_way_at_a_time(given: dict[str, str]) -> None:
    first, second = given
    with pytest.raises(OptionError, match=f"option {second}: use {first} or {second}, not both"):
        options_of(**given)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """Three streams of ten messages, one each second; the first two of each are gone."""
    place = StoreRoot(OsDisk(str(tmp_path)), str(tmp_path))
    for name in NAMES:
        folder = place.stream("$G", name)
        folder.create(StreamMeta({"name": name, "subjects": [f"{name}.>"], "storage": "file"}, 1))
        _, store, _ = folder.open(START_NS)
        for number in range(1, 11):
            store.table.store(f"{name}.x".encode(), b"", b"x", START_NS + number * SECOND)
        store.table.compact(3)
        store.commit()
        store.close()
    yield tmp_path
    place.close()


def read(reader: Any, partitions: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in partitions:
        for batch in reader.read(partition):
            for row in batch.to_pylist():
                found.setdefault(row["stream"], []).append(row["seq"])
    return found


def batch(store: Path, **given: str) -> dict[str, list[int]]:
    options = parse_options({"stream": "*", "storeDir": str(store), **given})
    reader = BatchReader(options, ("stream", "seq"))
    return read(reader, reader.partitions())


def first_batch(store: Path, **given: str) -> dict[str, list[int]]:
    options = parse_options({"stream": "*", "storeDir": str(store), **given})
    reader = StreamReader(options, ("stream", "seq"))
    start = reader.initialOffset()
    return read(reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())))


def at(second: int) -> dict[str, str]:
    return {"time": f"2026-11-16T08:00:{second:02}Z"}


def test_a_batch_begins_and_ends_where_each_stream_is_told(store: Path) -> None:
    starts = json.dumps({"ORDERS": 5, "AUDIT": at(7)})
    ends = json.dumps({"LOGS": 4, "AUDIT": at(9)})
    assert batch(store, startingOffsets=starts, endingOffsets=ends) == {
        "ORDERS": [5, 6, 7, 8, 9, 10],
        "LOGS": [3, 4],
        "AUDIT": [7, 8, 9],
    }
    assert batch(store, startingOffsets="earliest", endingOffsets="latest") == batch(store)
    beyond = json.dumps(dict.fromkeys(NAMES, SEQUENCE_MAX))
    assert batch(store, startingOffsets=beyond) == {}
    assert batch(store, endingOffsets=beyond) == batch(store)


def test_a_query_begins_where_each_stream_is_told(store: Path) -> None:
    starts = json.dumps({"ORDERS": 5, "LOGS": "latest", "AUDIT": at(7)})
    assert first_batch(store, startingOffsets=starts) == {
        "ORDERS": [5, 6, 7, 8, 9, 10],
        "AUDIT": [7, 8, 9, 10],
    }
    # The first one that is still there; and the one that comes next.
    assert first_batch(store, startingOffsets='{"LOGS": 1, "AUDIT": 11}') == {
        "LOGS": list(range(3, 11)),
        "ORDERS": list(range(3, 11)),
    }


@pytest.mark.parametrize(
    ("time", "has_all"),
    [
        ("0001-01-01T00:00:00Z", True),
        ("1969-12-31T23:59:59.999999999Z", True),
        ("1970-01-01T00:00:00Z", True),
        ("2262-04-12T00:00:00Z", False),
        ("9999-12-31T23:59:59.999999999-12:00", False),
        ("9999-12-31T23:59:59", False),
    ],
)
def test_times_may_be_far_away(store: Path, time: str, has_all: bool) -> None:
    everything = {name: list(range(3, 11)) for name in NAMES}
    found = everything if has_all else {}
    all_at = json.dumps({name: {"time": time} for name in NAMES})
    assert batch(store, startingOffsets=all_at) == found
    assert batch(store, startingTime=time) == found
    assert batch(store, endingOffsets=all_at) == ({} if has_all else everything)
    assert batch(store, endingTime=time) == ({} if has_all else everything)
    assert first_batch(store, startingOffsets=all_at) == found
    assert first_batch(store, startingTime=time) == found


def test_a_stream_that_does_not_exist_is_named(store: Path) -> None:
    reason = "stream 'NONE' does not exist; found: AUDIT, LOGS, ORDERS"
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OptionError, match=f"option {name}: {reason}"):
            batch(store, **{name: '{"NONE": 1}'})
    with pytest.raises(OptionError, match=f"option startingOffsets: {reason}"):
        first_batch(store, startingOffsets='{"NONE": 1}')


def test_a_query_cannot_begin_behind_the_next_message(store: Path) -> None:
    for name, value in (("startingSeq", "12"), ("startingOffsets", '{"AUDIT": 12}')):
        with pytest.raises(OptionError, match=f"option {name}: 'AUDIT' ends at sequence 10: 12"):
            first_batch(store, **{name: value})


def test_words_that_leave_nothing_are_errors(store: Path) -> None:
    for value in ("latest", '{"LOGS": "latest"}'):
        with pytest.raises(OptionError, match="option startingOffsets: a batch that begins at"):
            batch(store, startingOffsets=value)
    for value in ("earliest", '{"LOGS": "earliest"}'):
        with pytest.raises(OptionError, match="option endingOffsets: a batch that ends at"):
            batch(store, endingOffsets=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("endingSeq", "5"), ("endingTime", "1970-01-01T00:00:00Z"), ("endingOffsets", "latest")],
)
def test_a_streaming_query_has_no_end(store: Path, name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: a streaming query has no end"):
        first_batch(store, **{name: value})
