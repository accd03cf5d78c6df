"""A stream is followed as batches, and never silently continued on another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest
from frame_kit import FramePlace

import tradewind
from tradewind import frames
from tradewind.spark.errors import DataLossError, OptionError


async def rows(
    batches: AsyncIterator[pa.RecordBatch], count: int, column: str = "data"
) -> list[Any]:
    """The values of a column, until there are this many."""
    found: list[Any] = []
    async for batch in batches:
        found += batch.column(column).to_pylist()
        if len(found) >= count:
            break
    await batches.aclose()  # type: ignore[attr-defined]
    return found


async def test_old_messages_come_first_and_then_new_ones(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"1", b"2")
    async with await tradewind.connect(place.url) as connection:
        js = connection.jetstream()
        batches = frames.follow(js, stream)
        found: list[bytes] = []
        async for batch in batches:
            found += batch.column("data").to_pylist()
            if len(found) == 2:
                place.publish(stream, b"3")
            if len(found) == 3:
                break
        await batches.aclose()
        assert found == [b"1", b"2", b"3"]
        assert await rows(frames.follow(js, stream, start=2), 2) == [b"2", b"3"]


async def test_subjects_columns_and_fields_are_chosen(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b'{"n": 1}', subject="other")
    place.publish(stream, b'{"n": 2}', b'{"n": 3}')
    async with await tradewind.connect(place.url) as connection:
        subject = f"{stream.lower()}.a"
        batches = frames.follow(
            connection.jetstream(), stream, subjects=subject, columns=("n",), decode="json"
        )
        assert await rows(batches, 2, "n") == [2, 3]


async def test_fields_follow_the_schema_of_the_subject(place: FramePlace) -> None:
    stream = place.add_stream()
    record = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    async with await tradewind.connect(place.url) as connection:
        js = connection.jetstream()
        await js.schemas.add("reading", record, subject=f"{stream.lower()}.*", format="avro")
        place.publish(stream, b"\x02", b"\x04")
        batches = frames.follow(
            js, stream, columns=("n",), decode="avro", schema="bucket:TW_SCHEMAS"
        )
        assert await rows(batches, 2, "n") == [1, 2]
        await js.kv.delete("TW_SCHEMAS")


async def test_a_stream_that_is_recreated_is_not_continued(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"old")
    async with await tradewind.connect(place.url) as connection:
        batches = frames.follow(connection.jetstream(), stream)
        assert (await anext(batches)).column("data").to_pylist() == [b"old"]
        place.connection.jetstream_manager().streams.delete(stream)
        place.add_stream(stream)
        place.publish(stream, b"new", b"newer")
        with pytest.raises(DataLossError, match=f"stream {stream} was deleted"):
            await anext(batches)


async def test_messages_that_limits_removed_first_are_a_loss(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, *(b"%d" % number for number in range(10)))
    place.connection.jetstream_manager().streams.purge(stream, seq=6)
    async with await tradewind.connect(place.url) as connection:
        js = connection.jetstream()
        assert await rows(frames.follow(js, stream), 5) == [b"5", b"6", b"7", b"8", b"9"]
        with pytest.raises(DataLossError, match="sequences 3 to 5 were removed"):
            await rows(frames.follow(js, stream, start=3), 5)
        lenient = frames.follow(js, stream, start=3, fails_on_data_loss=False)
        assert await rows(lenient, 5) == [b"5", b"6", b"7", b"8", b"9"]


def test_a_blocking_client_iterates(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"1")
    for batch in frames.follow(place.connection.jetstream(), stream):
        assert batch.column("data").to_pylist() == [b"1"]
        break


async def test_what_cannot_be_followed_is_an_error(place: FramePlace) -> None:
    stream = place.add_stream(retention="workqueue")
    async with await tradewind.connect(place.url) as connection:
        js = connection.jetstream()
        with pytest.raises(OptionError, match="a consumer would change what it keeps"):
            await rows(frames.follow(js, stream), 1)
        with pytest.raises(OptionError, match="0 is not all, new, a sequence or a time"):
            frames.follow(js, stream, start=0)
