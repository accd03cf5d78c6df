"""Each row of a frame is stored exactly once, whatever the library and whatever is repeated."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frame_kit import FramePlace
from frame_writer import frame_of

import tradewind
from harness import wait_for
from tradewind import frames
from tradewind.spark.errors import OptionError, RowError

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

COLUMNS = {"region": ["north", "south", "north"], "amount": [1.5, 2.5, 1.5]}
PROGRAM = Path(__file__).parent / "frame_writer.py"
ROWS = 200_000


def payloads(place: FramePlace, stream: str) -> list[Any]:
    return [json.loads(row["data"]) for row in place.messages(stream)]


def make(kind: str) -> Any:
    table = pa.table(COLUMNS)
    if kind == "batches":
        return iter(table.to_batches())
    if kind == "reader":
        return table.to_reader()
    if kind == "polars":
        return pl.DataFrame(COLUMNS)
    if kind == "lazy":
        return pl.LazyFrame(COLUMNS)
    if kind == "duckdb":
        return duckdb.from_arrow(table)
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(COLUMNS)
    return table


@pytest.mark.parametrize(
    "kind", ["table", "batches", "reader", "polars", "lazy", "duckdb", "pandas"]
)
def test_a_frame_of_any_library_is_stored_once(place: FramePlace, kind: str) -> None:
    stream = place.add_stream()
    js = place.connection.jetstream()
    subject = f"{stream.lower()}.{{region}}"
    first = frames.write(js, make(kind), subject=subject)
    assert (first.stream, first.rows, first.stored) == (stream, 3, 3)
    again = frames.write(js, make("table"), subject=subject)
    assert (again.batch_id, again.rows, again.stored) == (first.batch_id, 3, 0)
    expected = [{"region": one, "amount": two} for one, two in zip(*COLUMNS.values(), strict=True)]
    assert payloads(place, stream) == expected
    subjects = [row["subject"].rpartition(".")[2] for row in place.messages(stream)]
    assert subjects == COLUMNS["region"]


def test_another_batch_id_stores_the_same_rows_again(place: FramePlace) -> None:
    stream = place.add_stream()
    js = place.connection.jetstream()
    for day, stored in (("monday", 3), ("tuesday", 3), ("monday", 0)):
        subject = f"{stream.lower()}.a"
        written = frames.write(js, make("table"), subject=subject, batch_id=day)
        assert written.stored == stored
    assert len(place.messages(stream)) == 6


def test_a_write_can_be_awaited(place: FramePlace) -> None:
    stream = place.add_stream()

    async def write() -> Any:
        async with await tradewind.connect(place.url) as connection:
            js = connection.jetstream()
            return await frames.write(js, make("table"), subject=f"{stream.lower()}.a")

    assert asyncio.run(write()).stored == 3


def test_a_repeat_after_the_duplicate_window_stores_nothing_twice(place: FramePlace) -> None:
    stream = place.add_stream(duplicate_window=0.1)
    js = place.connection.jetstream()
    subject = f"{stream.lower()}.a"
    frames.write(js, make("table"), subject=subject)

    def is_forgotten() -> bool:
        """Whether the server stores an id of the frame again."""
        ids = [row["headers"]["Nats-Msg-Id"][0] for row in place.messages(stream)]
        ack = js.publish(subject, b"{}", msg_id=ids[0])
        return not ack.duplicate

    wait_for(is_forgotten)
    count = len(place.messages(stream))
    assert frames.write(js, make("table"), subject=subject).stored == 0
    assert len(place.messages(stream)) == count


def test_a_killed_write_is_completed_by_a_repeat(place: FramePlace) -> None:
    stream = place.add_stream()
    streams = place.connection.jetstream_manager().streams
    command = [sys.executable, str(PROGRAM), place.url, stream, str(ROWS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        wait_for(lambda: streams.info(stream).state.messages > 1000)
        writer.kill()
    begun = streams.info(stream).state.messages
    written = frames.write(
        place.connection.jetstream(), frame_of(ROWS), subject=f"{stream.lower()}.a"
    )
    assert written.rows == ROWS
    # What the killed program had sent may have arrived after it was counted.
    assert written.stored <= ROWS - begun
    table = frames.stream(stream, servers=place.url, decode="json", columns=("n",)).arrow()
    counted = Counter(table["n"].to_pylist())
    assert counted == Counter(number // 2 for number in range(ROWS))


def test_rows_of_a_bucket_are_keys(place: FramePlace) -> None:
    bucket = place.add_stream().lower()
    kv = place.connection.jetstream().kv.create(bucket)
    frame = pa.table({"key": ["a", "b", "a"], "value": ["1", "2", "3"]})
    written = frames.write(place.connection.jetstream(), frame, bucket=bucket)
    assert (written.stream, written.rows) == (f"KV_{bucket}", 3)
    assert (kv.get("a").value, kv.get("b").value) == (b"3", b"2")


def test_headers_and_ids_are_columns(place: FramePlace) -> None:
    stream = place.add_stream()
    frame = duckdb.sql(
        f"select '{stream.lower()}.x' as subject, 'hello' as data, map{{'Kind': 'new'}} as headers,"
        " 'id-' || range as id from range(2)"
    )
    frames.write(place.connection.jetstream(), frame, id_column="id")
    headers = [row["headers"] for row in place.messages(stream)]
    assert headers == [
        {"Nats-Msg-Id": ["id-0"], "Kind": ["new"]},
        {"Nats-Msg-Id": ["id-1"], "Kind": ["new"]},
    ]


@pytest.mark.parametrize(
    ("columns", "options", "error", "reason"),
    [
        (
            {"region": ["a", "b c"]},
            {"subject": "{0}.{{region}}"},
            RowError,
            "row 1, column region:",
        ),
        (
            {"subject": ["{0}.a", "other"], "x": [1, 2]},
            {"stream": "{1}"},
            RowError,
            "row 1, column subject:",
        ),
        ({"subject": ["{0}.a", None], "x": [1, 2]}, {}, RowError, "row 1: a row without a subject"),
        (
            {"data": ["x", "y"], "id": ["a", ""]},
            {"subject": "{0}.a", "id_column": "id"},
            RowError,
            "row 1, column id: b'' is no message id",
        ),
        ({"x": [1]}, {"subject": "{0}.{{y}}"}, OptionError, "no column 'y'; available: x"),
        ({"x": [1]}, {"subject": "nobody.has.this"}, OptionError, "no stream stores subject"),
        ({"x": [1]}, {}, OptionError, "give a subject, or a frame with a column subject"),
        ({"data": ["x"], "y": [1]}, {"subject": "{0}.a"}, OptionError, "y would not be written"),
        ({"x": [1]}, {"subject": "{0}.a", "bucket": "b"}, OptionError, "use bucket, or stream"),
        ({"x": [1]}, {"subject": "{0}.a", "batch_id": "x" * 1001}, OptionError, "at most 1000"),
    ],
)
def test_nothing_is_stored_if_a_row_is_wrong(
    place: FramePlace,
    columns: dict[str, Any],
    options: dict[str, str],
    error: type[Exception],
    reason: str,
) -> None:
    stream = place.add_stream()
    names = (stream.lower(), stream)
    given = {name: text.format(*names) for name, text in options.items()}
    frame = pa.table(
        {
            name: [one.format(*names) if isinstance(one, str) else one for one in values]
            for name, values in columns.items()
        }
    )
    with pytest.raises(error) as caught:
        frames.write(place.connection.jetstream(), frame, **given)
    assert reason in str(caught.value)
    assert place.messages(stream) == []


def test_no_frame_is_an_error(place: FramePlace) -> None:
    with pytest.raises(OptionError, match="int is no frame: give one of Arrow"):
        frames.write(place.connection.jetstream(), 5, subject="a")
