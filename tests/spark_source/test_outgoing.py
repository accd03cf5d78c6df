"""Rows to messages: ids, header blocks and columns, against a naive model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tradewind.client.core.headers import decode_headers
from tradewind.client.core.protocol import ClientWire
from tradewind.client.streams.row_inbox import RowInbox
from tradewind.spark.errors import OptionError, RowError
from tradewind.spark.options.sink_options import parse_sink_options
from tradewind.spark.writes.outgoing import OutgoingRows
from tradewind.spark.writes.outgoing_columns import plan_columns

NOBODY: Any = object()  # who is never called: nothing is sent and nobody reads
LISTS = pa.map_(pa.string(), pa.list_(pa.string()))
SINGLES = pa.map_(pa.string(), pa.string())
NAMES = st.sampled_from(["Tag", "No", "nats-msg-id", "Nats-Expected-Stream", "Nats-Batch-Id"])
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), max_size=4)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a.b", "a.c", "ü.x"]),
        st.none() | st.dictionaries(NAMES, st.lists(VALUES, max_size=3), max_size=3),
        st.binary(max_size=3),
    ),
    max_size=30,
)


def published(data: bytes) -> list[tuple[str, bytes, bytes]]:
    """Subject, payload and header block of each operation in an outbox."""
    found = []
    while data:
        line, _, rest = data.partition(b"\r\n")
        verb, subject, _, header, total = line.split(b" ")
        assert verb == b"HPUB"
        found.append((subject.decode(), rest[int(header) : int(total)], rest[: int(header)]))
        data = rest[int(total) + 2 :]
    return found


def sent(rows: OutgoingRows, batch: pa.RecordBatch, stored: set[bytes] | None = None) -> list[Any]:
    core = ClientWire(NOBODY)
    window = RowInbox(NOBODY, core, "inbox.")
    rows.load(batch.column(0), batch.column(2), batch.column(1))
    row = 0
    while row < rows.count:
        row = rows.send(window, row, 64, 1.0, stored, None)
    return published(core.take_output())


def batch_of(rows: list[tuple[Any, ...]], skip: int = 0) -> pa.RecordBatch:
    """Columns that begin inside of their buffers, as those of a slice do."""
    padded = [("pad", {"Pad": ["x", "y"]}, b"pad")] * skip + rows
    headers = [None if each[1] is None else list(each[1].items()) for each in padded]
    return pa.record_batch(
        [
            pa.array([each[0] for each in padded], pa.string()),
            pa.array(headers, LISTS),
            pa.array([each[2] for each in padded], pa.binary()),
        ],
        names=["subject", "headers", "data"],
    ).slice(skip)


def kept(headers: dict[str, list[str]] | None) -> dict[str, list[str]]:
    return {name: values for name, values in (headers or {}).items() if name in ("Tag", "No")}


@given(ROWS, st.integers(0, 9))
def test_each_row_becomes_a_message_with_its_headers(
    given_rows: list[tuple[Any, ...]], skip: int
) -> None:
    messages = sent(OutgoingRows(b"s:", by_key=False), batch_of(given_rows, skip))
    assert [message[:2] for message in messages] == [(row[0], row[2]) for row in given_rows]
    for row, (_, _, block) in zip(given_rows, messages, strict=True):
        headers = decode_headers(block)
        assert headers["Nats-Msg-Id"].startswith("s:")
        found = {name: headers.get_all(name) for name in headers if name != "Nats-Msg-Id"}
        assert found == {name: values for name, values in kept(row[1]).items() if values}


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 9))
def test_ids_do_not_depend_on_order_or_batches(
    given_rows: list[tuple[Any, ...]], chance: Any, size: int
) -> None:
    rows = OutgoingRows(b"s:", by_key=False)
    rows.load(*_columns(given_rows))
    ids = rows.ids()
    assert len(set(ids)) == len(given_rows)
    shuffled = list(given_rows)
    chance.shuffle(shuffled)
    again = OutgoingRows(b"s:", by_key=False)
    found: list[bytes] = []
    for start in range(0, len(shuffled), size):
        again.load(*_columns(shuffled[start : start + size]))
        found += again.ids()
    assert set(found) == set(ids)
    assert (again.digest, again.row_count) == (rows.digest, rows.row_count)
    # Of rows whose ids are stored none is sent, of the others each one.
    stored = set(ids[: len(ids) // 2])
    messages = sent(OutgoingRows(b"s:", by_key=False), batch_of(given_rows), stored)
    left = Counter((row[0], row[2]) for row in given_rows[len(ids) // 2 :])
    assert Counter(message[:2] for message in messages) == left


def _columns(rows: list[tuple[Any, ...]]) -> tuple[pa.Array, pa.Array, pa.Array]:
    batch = batch_of(rows)
    return batch.column(0), batch.column(2), batch.column(1)


def test_other_content_has_another_id() -> None:
    rows = [
        ("a.b", None, b""),
        ("a.b", {}, b""),
        ("a.b", {"Tag": []}, b""),
        ("a.b", {"Tag": ["b", "c"]}, b""),
        ("a.b", {"Tagb": ["c"]}, b""),
        ("a", None, b".b"),
        ("a.b", None, b"x"),
    ]
    outgoing = OutgoingRows(b"", by_key=False)
    outgoing.load(*_columns(rows))
    assert len({one.partition(b"-")[0] for one in outgoing.ids()}) == len(rows)


def test_ids_of_a_bucket_count_the_rows_of_a_key() -> None:
    rows = OutgoingRows(b"s:", by_key=True)
    rows.load(pa.array(["k1", "k2", "k1"]), pa.array(["a", "b", "c"]))
    first, second, third = rows.ids()
    assert first.endswith(b"-1")
    assert second.endswith(b"-1")
    assert third == first[:-1] + b"2"


def test_operations_become_headers() -> None:
    rows = OutgoingRows(b"s:", by_key=True)
    operations = pa.array(["DEL", "PURGE", "PUT", None])
    rows.load(pa.array(["a", "b", "c", "d"]), pa.array([""] * 4), operations=operations)
    core = ClientWire(NOBODY)
    rows.send(RowInbox(NOBODY, core, "inbox."), 0, 10_000, 1.0, None, None)
    found = [decode_headers(block) for _, _, block in published(core.take_output())]
    assert [headers.get("KV-Operation") for headers in found] == ["DEL", "PURGE", None, None]
    assert [headers.get("Nats-Rollup") for headers in found] == [None, "sub", None, None]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ((pa.array([None], pa.string()), pa.array(["x"])), "without a subject"),
        ((["a"], ["x"], None, pa.array([None], pa.string())), "column id: a row has none"),
        ((["a"], ["x"], None, pa.array(["b\nc"])), "is no message id"),
        ((["a"], ["x"], None, None, pa.array(["put"])), "operation b'put'"),
        ((["a"], ["x"], pa.array([[("a b", "c")]], SINGLES)), "header name b'a b'"),
        ((["a"], ["x"], pa.array([[("", "c")]], SINGLES)), "without a name"),
        ((["a"], ["x"], pa.array([[("a", "c\r")]], SINGLES)), "a value has no newline"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: tuple[Any, ...], text: str) -> None:
    rows = OutgoingRows(b"s:", by_key=False)
    rows.load(*(pa.array(one) if isinstance(one, list) else one for one in columns))
    with pytest.raises(RowError, match=text):
        rows.ids()


TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "bigint": LongType(),
    "headers": MapType(StringType(), ArrayType(StringType())),
}


def schema(**columns: str) -> StructType:
    return StructType([StructField(name, TYPES[kind]) for name, kind in columns.items()])


def test_a_template_inserts_columns() -> None:
    options = parse_sink_options({"servers": "x", "stream": "S", "subject": "a.{n}.{{b}}.{t}"})
    plan = plan_columns(schema(n="bigint", t="string"), options)
    batch = pa.record_batch([pa.array([1, None, 3]), pa.array(["x", "y", "z"])], names=["n", "t"])
    outgoing = plan.outgoing(batch)
    assert outgoing.subjects.to_pylist() == ["a.1.{b}.x", None, "a.3.{b}.z"]
    assert outgoing.payloads.to_pylist()[0] == b'{"n":1,"t":"x"}'


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"data": "binary"}, {}, "no column subject"),
        ({"subject": "string", "data": "bigint"}, {}, "column data is bigint"),
        ({"subject": "binary", "data": "binary"}, {}, "column subject is binary"),
        ({"subject": "string", "data": "binary", "n": "bigint"}, {}, "would not be written"),
        ({"subject": "string", "data": "binary"}, {"idColumn": "n"}, "no column 'n'"),
        ({"n": "bigint"}, {"subject": "a.{}"}, "the name of a column only"),
        ({"n": "bigint"}, {"subject": "a.{n:3}"}, "the name of a column only"),
        ({"n": "bigint"}, {"subject": "a.{m}"}, "no column 'm'"),
        ({"n": "bigint"}, {"bucket": "B", "stream": ""}, "it is empty"),
        ({"n": "bigint"}, {"bucket": "B"}, "either stream or bucket"),
        ({"n": "bigint"}, {"key": "a"}, "a stream has subjects"),
        ({"n": "bigint"}, {"txnAppId": "a"}, "set both txnAppId and txnVersion"),
        ({"n": "bigint"}, {"timeoutSeconds": "0"}, "not a whole number from 1"),
    ],
)
def test_a_write_that_makes_no_sense_is_refused(
    columns: dict[str, str], options: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        plan_columns(
            schema(**columns), parse_sink_options({"servers": "x", "stream": "S", **options})
        )
