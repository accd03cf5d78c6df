"""The decoder and the walks over blocks: damage, torn ends, limits, options and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from tradewind.errors import CorruptRecord
from tradewind.spark.columnar.arrow import arrow_schema, batches
from tradewind.spark.columnar.columns import (
    BUCKET,
    MESSAGES,
    OBJECTS,
    BucketRows,
    Column,
    MessageRows,
    ObjectRow,
)
from tradewind.spark.columnar.rows import RowDecoder
from tradewind.spark.contract.filters import RowFilter, push_filters
from tradewind.spark.errors import OptionError
from tradewind.spark.files.block_summary import LimitReplay, first_message, summarize_block
from tradewind.spark.options.source_options import SourceOptions, parse_options
from tradewind.store.contract import StoreLimits
from tradewind.store.folder.recover import open_store
from tradewind.store.format.hash import key_for
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.testing.fake_disk import SimulatedDisk

KEY = key_for("S-1")


def make_block(steps: list[tuple[str, Any]]) -> bytes:
    """The first block of a store without limits: ("add", subject) and ("remove", sequence)."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S")
    store, _ = open_store(disk, "/disk/S", "S", now_ns=1)
    for name, value in steps:
        if name == "add":
            store.table.store(value, b"", b"p" * 20, 1000 + store.table.last_seq)
        else:
            store.table.remove(value)
    store.commit()
    return disk.read_file("/disk/S/msgs/1.blk")


def seqs(decoder: RowDecoder) -> list[int]:
    return [row["seq"] for batch in batches(decoder, "S", ("seq",)) for row in batch.to_pylist()]


def take(data: bytes, *, ends_torn: bool = False, skips_damage: bool = False) -> RowDecoder:
    decoder = RowDecoder()
    decoder.take_block(
        data,
        KEY,
        "1.blk",
        first_seq=1,
        last_seq=1 << 40,
        ends_torn=ends_torn,
        skips_damage=skips_damage,
    )
    return decoder


def test_a_torn_end_is_no_damage() -> None:
    data = make_block([("add", b"a")] * 5)
    for cut in range(1, 60):
        assert seqs(take(data[:-cut], ends_torn=True)) in ([1, 2, 3, 4, 5], [1, 2, 3, 4], [1, 2, 3])
    with pytest.raises(CorruptRecord, match=r"1\.blk: byte "):
        take(data[:-50])


def test_the_first_message_is_found_in_the_head_of_a_block() -> None:
    data = make_block([("add", b"a"), ("add", b"b")])
    place = data.index(b"p" * 20) - len(b"a") - 22
    assert place % 8  # behind marks of 30 bytes
    assert first_message(data) == (1, 1000)
    for size in range(len(data)):
        assert first_message(data[:size]) == ((1, 1000) if size >= place + 30 else (0, 0))


def test_a_length_that_no_checksum_covers_is_damage_too() -> None:
    """The lowest bit of a subject length takes a byte of the payload into the subject."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S")
    store, _ = open_store(disk, "/disk/S", "S", now_ns=1)
    for seq in range(1, 31):
        store.table.store(b"orders.aaaaaa", b"", b"p" * 20, seq)
    store.close()
    data = bytearray(disk.read_file("/disk/S/msgs/1.blk"))
    data[data.index(b"orders.") - 2] ^= 2
    with pytest.raises(CorruptRecord, match="no intact record; sequence 0 is in front of it"):
        take(bytes(data))
    decoder = take(bytes(data), skips_damage=True)
    assert seqs(decoder) == [*range(2, 31)]


def test_damage_is_named_or_passed_over_with_nothing_else_lost() -> None:
    data = bytearray(make_block([("add", b"a")] * 9))
    place = bytes(data).index(b"p" * 20, len(data) // 2)
    data[place] ^= 1
    with pytest.raises(CorruptRecord, match=r"no intact record; sequence \d is in front of it"):
        take(bytes(data))
    decoder = take(bytes(data), skips_damage=True)
    assert len(seqs(decoder)) == 8
    assert decoder.damaged_bytes == 51


@given(
    names=st.lists(st.sampled_from([b"A", b"B", b"Long-Name"]), max_size=6),
    values=st.lists(st.sampled_from([b"", b"x", b" two words\t"]), min_size=6, max_size=6),
)
def test_headers_become_a_map_of_lists(names: list[bytes], values: list[bytes]) -> None:
    lines = b"".join(b"%s: %s\r\n" % pair for pair in zip(names, values, strict=False))
    decoder = RowDecoder()
    decoder.take_row(1, 1, b"s", b"NATS/1.0\r\n" + lines + b"\r\n", b"")
    decoder.take_row(2, -1, b"s", None, b"data")
    (batch,) = batches(decoder, "S", tuple(MESSAGES))
    batch.validate(full=True)
    expected: dict[str, list[str]] = {}
    for name, value in zip(names, values, strict=False):
        expected.setdefault(name.decode(), []).append(value.decode().strip(" \t"))
    rows = batch.to_pylist()
    assert rows[0]["headers"] == list(expected.items())
    assert rows[1]["headers"] is None
    assert batch.column("time").cast(pa.int64()).to_pylist() == [0, -1]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from([b"a", b"b", b"c"])),
            st.tuples(st.just("remove"), st.integers(1, 40)),
        ),
        max_size=40,
    ),
    msgs_max=st.sampled_from([0, 1, 3, 10]),
    bytes_max=st.sampled_from([0, 51, 160]),
    subject_msgs_max=st.sampled_from([0, 1, 2]),
)
def test_replayed_limits_remove_what_they_removed_at_the_time(
    steps: list[tuple[str, Any]], msgs_max: int, bytes_max: int, subject_msgs_max: int
) -> None:
    limits = StoreLimits(msgs_max, bytes_max, 0, subject_msgs_max)
    disk = SimulatedDisk()
    disk.make_directory("/disk/S")
    store, _ = open_store(disk, "/disk/S", "S", limits, now_ns=1)
    done, last = [], 0
    for name, value in steps:
        if name == "add":
            last = store.table.store(value, b"", b"p" * 20, 1000 + last)
            done.append((name, value))
        elif store.table.remove(value):
            done.append((name, value))
    data = make_block(done)
    replay = LimitReplay(
        msgs_max, bytes_max, subject_msgs_max, SequenceSet(), 0, follows_tombstones=True
    )
    replay.feed(data, KEY, 0)
    live = [seq for seq in range(1, last + 1) if seq not in replay.removed]
    assert live == [message.seq for message in store.table.messages()]
    assert (replay.live, replay.live_bytes) == (store.table.msgs, store.table.bytes)
    summary = summarize_block(data, KEY, verifies=True)
    assert (summary.messages, summary.spoken_seq) == (last, last)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option stream: specify which stream"),
        ({"stream": "S"}, "option servers: specify where the stream is"),
        ({"stream": "S", "readMode": "blocks"}, "option storeDir: readMode blocks needs"),
        ({"stream": "S", "readMode": "network"}, "option servers: readMode network needs"),
        ({"stream": "S", "readMode": "backup"}, "option servers: readMode backup needs"),
        (
            {"bucket": "B", "servers": "h", "readMode": "backup"},
            "option readMode: a bucket or an object store is read by network, not backup",
        ),
        (
            {"stream": "S", "readmode": "fast"},
            "option readMode: 'fast' is not one of auto, blocks,",
        ),
        ({"stream": "S,,T"}, "option stream: 'S,,T' has an empty part"),
        (
            {"stream": "S", "startingSeq": "0"},
            "option startingSeq: '0' is not a whole number from 1",
        ),
        ({"stream": "S", "startingTime": "soon"}, "option startingTime: 'soon' is not a time"),
        (
            {"stream": "S", "columns": "seq,body"},
            "option columns: no column 'body'; available: stream, seq, subject, time, headers,",
        ),
        ({"stream": "S", "columns": "seq,data,seq"}, "option columns: 'seq' is named twice"),
        ({"stream": "S", "bucket": "B"}, "option bucket: use stream or this, not both"),
        ({"stream": "S", "history": "true"}, "option history: only a bucket has one"),
        ({"bucket": "B", "columns": "seq"}, "option columns: no column 'seq'; available: bucket,"),
        (
            {"stream": "S", "filterSubjects": "a..b"},
            "option filterSubjects: 'a..b' is not a subject",
        ),
        (
            {"stream": "S", "failOnDataLoss": "1"},
            "option failOnDataLoss: '1' is not one of true, fal",
        ),
        ({"stream": "S", "minPartitions": "1000000"}, "option minPartitions: '1000000' is no"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError) as error:
        parse_options(options)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize("table", [MESSAGES, BUCKET, OBJECTS])
def test_every_column_is_the_same_in_spark_and_in_arrow(table: Mapping[str, Column[Any]]) -> None:
    schema = from_arrow_schema(arrow_schema(table, table))
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    assert found == {name: column.ddl for name, column in table.items()}


def test_every_column_extracts_the_type_that_it_states() -> None:
    decoder = RowDecoder()
    decoder.take_row(1, 0, b"$KV.B.apple", b"NATS/1.0\r\nA: b\r\n\r\n", b"1")
    (messages,) = batches(decoder, "KV_B", tuple(MESSAGES))
    rows: list[tuple[Mapping[str, Column[Any]], Any]] = [
        (MESSAGES, MessageRows(decoder, "KV_B", 0, 1)),
        (BUCKET, BucketRows("B", messages)),
        (OBJECTS, ObjectRow("O", "name", 1, 2, "SHA-256=", None)),
    ]
    for table, row in rows:
        for name, column in table.items():
            array = column.extract(row, column.arrow)
            assert (name, array.type, len(array)) == (name, column.arrow, 1)


def test_an_unknown_column_is_named_with_the_valid_ones() -> None:
    decoder = RowDecoder()
    decoder.take_row(1, 0, b"a", None, b"1")
    with pytest.raises(OptionError, match=f"no column 'nope'; available: {', '.join(MESSAGES)}"):
        list(batches(decoder, "S", ("seq", "nope")))


def test_a_password_in_an_address_is_not_shown() -> None:
    options = parse_options({"stream": "S", "servers": "nats://me:secret@host:4222"})
    assert "secret" not in repr(options)
    assert options.servers == ("nats://me:secret@host:4222",)


def condition(kind: str, column: str, value: Any = None) -> Any:
    made = type(kind, (SimpleNamespace,), {})
    return made(attribute=(column,), value=value)


MOMENT = datetime(2026, 11, 1, tzinfo=UTC)
MOMENT_NS = 1_793_491_200_000_000_000


@pytest.mark.parametrize(
    ("given_condition", "expected"),
    [
        (condition("GreaterThan", "seq", 5), RowFilter(first_seq=6)),
        (condition("LessThan", "seq", 5), RowFilter(last_seq=4)),
        (condition("EqualTo", "seq", 5), RowFilter(first_seq=5, last_seq=5)),
        (condition("GreaterThan", "time", MOMENT), RowFilter(first_time_ns=MOMENT_NS + 1000)),
        (condition("LessThanOrEqual", "time", MOMENT), RowFilter(last_time_ns=MOMENT_NS + 999)),
        (condition("EqualTo", "subject", "a.b"), RowFilter(patterns=((b"a.b",),))),
        (condition("In", "subject", ("a", "b")), RowFilter(patterns=((b"a", b"b"),))),
        (condition("StringStartsWith", "subject", "a."), RowFilter(prefixes=(b"a.",))),
        (condition("EqualTo", "stream", "S"), RowFilter(streams=frozenset({"S"}))),
        (condition("IsNotNull", "seq"), RowFilter()),
    ],
)
def test_conditions_become_bounds(given_condition: Any, expected: RowFilter) -> None:
    assert push_filters(RowFilter(), [given_condition], SourceOptions()) == (expected, [])


@pytest.mark.parametrize(
    "given_condition",
    [
        condition("EqualTo", "subject", "a.*"),
        condition("EqualTo", "data", b"x"),
        condition("StringEndsWith", "subject", "x"),
        condition("Not", "seq", 5),
        condition("IsNotNull", "headers"),
        condition("EqualTo", "seq", None),
    ],
)
def test_what_cannot_be_said_exactly_is_left_to_spark(given_condition: Any) -> None:
    assert push_filters(RowFilter(), [given_condition], SourceOptions()) == (
        RowFilter(),
        [given_condition],
    )
