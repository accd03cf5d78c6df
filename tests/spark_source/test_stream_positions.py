"""Where reads through a server begin and end, stream by stream, on both servers.

No Spark is needed for this: the readers are called as Spark calls them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import tradewind.sync
from follower_kit import Follower, publish
from jetstream_servers import jetstream_on_both
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.reads.reading import BatchReader

server = jetstream_on_both()
KINDS = {"LIMITS": "limits", "INTEREST": "interest", "QUEUE": "workqueue"}
COUNT = 10


@pytest.fixture(scope="module")
def middle(server: str) -> str:
    """Ten messages in a stream of each kind; the time of the fifth."""
    with tradewind.sync.connect(server) as connection:
        manager = connection.jetstream_manager()
        for name, retention in KINDS.items():
            subjects = [f"{name}.>"]
            manager.streams.add(
                name=name, subjects=subjects, retention=retention, allow_direct=True
            )
            manager.consumers.add(name, durable_name="keeper", ack_policy="explicit")
            publish(connection, f"{name}.x", COUNT // 2 - 1)
        moment = datetime.now(UTC).isoformat()
        for name in KINDS:
            publish(connection, f"{name}.x", COUNT // 2 + 1)
    return moment


def batch(server: str, **given: str) -> dict[str, list[int]]:
    reader = BatchReader(
        parse_options({"servers": server, "stream": "*", **given}), ("stream", "seq")
    )
    found: dict[str, list[int]] = {}
    for partition in reader.partitions():
        for part in reader.read(partition):
            for row in part.to_pylist():
                found.setdefault(row["stream"], []).append(row["seq"])
    return found


def first_batch(server: str, **given: str) -> dict[str, list[int]]:
    with Follower(("stream", "seq"), servers=server, stream="*", **given) as follower:
        found: dict[str, list[int]] = {}
        for row in follower.read(*follower.plan()):
            found.setdefault(row["stream"], []).append(row["seq"])
        return found


def for_each(value: Any) -> str:
    return json.dumps(dict.fromkeys(KINDS, value))


def all_from(seq: int) -> dict[str, list[int]]:
    return {name: list(range(seq, COUNT + 1)) for name in KINDS}


def test_streams_of_all_kinds_begin_at_a_time(server: str, middle: str) -> None:
    chosen = for_each({"time": middle})
    assert first_batch(server, startingOffsets=chosen) == all_from(5)
    assert first_batch(server, startingTime=middle) == all_from(5)
    assert batch(server, startingOffsets=chosen) == all_from(5)
    assert batch(server, endingOffsets=chosen) == {name: [1, 2, 3, 4] for name in KINDS}


@pytest.mark.parametrize(
    ("time", "first"),
    [
        ("0001-01-01T00:00:00Z", 1),
        ("1969-12-31T23:59:59Z", 1),
        ("2262-04-12T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 0),
    ],
)
def test_times_may_be_far_away(server: str, middle: str, time: str, first: int) -> None:
    found = all_from(first) if first else {}
    assert first_batch(server, startingOffsets=for_each({"time": time})) == found
    assert batch(server, startingOffsets=for_each({"time": time})) == found


def test_streams_begin_and_end_at_sequences(server: str, middle: str) -> None:
    starts = json.dumps({"LIMITS": 9, "QUEUE": "latest"})
    assert first_batch(server, startingOffsets=starts) == {
        "LIMITS": [9, 10],
        "INTEREST": list(range(1, COUNT + 1)),
    }
    given = {"startingOffsets": '{"QUEUE": 9}', "endingOffsets": '{"LIMITS": 2, "INTEREST": 1}'}
    assert batch(server, **given) == {"LIMITS": [1, 2], "INTEREST": [1], "QUEUE": [9, 10]}


def test_a_stream_that_is_not_there_is_named(server: str, middle: str) -> None:
    reason = "option startingOffsets: stream 'NONE' does not exist; found: INTEREST, LIMITS, QUEUE"
    with pytest.raises(OptionError, match=reason):
        batch(server, startingOffsets='{"NONE": 1}')
    with pytest.raises(OptionError, match=reason):
        first_batch(server, startingOffsets='{"NONE": 1}')


def test_a_query_waits_for_the_sequence_that_comes_next(server: str, middle: str) -> None:
    with tradewind.sync.connect(server) as connection:
        streams = connection.jetstream_manager().streams
        streams.add(name="NEXT", subjects=["next.>"])
        publish(connection, "next.x", 3)
        with Follower(("seq",), servers=server, stream="NEXT", startingSeq="4") as follower:
            assert follower.read(*follower.plan()) == []
            publish(connection, "next.x", 1)
            assert follower.read(*follower.plan()) == [{"seq": 4}]
        with pytest.raises(OptionError, match="'NEXT' ends at sequence 4: 6 is not the next one"):
            Follower(("seq",), servers=server, stream="NEXT", startingSeq="6")
        streams.delete("NEXT")
