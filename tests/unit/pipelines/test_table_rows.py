"""Messages as rows of a table, and batches of them in lakes, without Spark."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from lake_kit import Frame, KilledError, Lake, executors, lake

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_tables import LakeTable, TableSink, table_writer
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.tables import table_writing
from tradewind.pipelines.tables.table_columns import (
    COLUMNS_MAX,
    evolved,
    fields_of,
    joined_fields,
    table_columns,
)
from tradewind.pipelines.tables.table_decoders import table_decoder
from tradewind.pipelines.tables.table_rows import (
    DeadLetterJob,
    RowsNote,
    TableRowStep,
    notes_of,
)
from tradewind.pipelines.tables.table_spec import TableSpec
from tradewind.pipelines.tables.table_writing import (
    LetterBox,
    StreamBatchStep,
    letter_subject,
)

__all__ = ["executors", "lake"]
MOMENT = datetime(2026, 11, 18, 14, 45, 1, tzinfo=UTC)


def messages(*payloads: Any, first: int = 1) -> pa.Table:
    """A part of a batch as the source gives it."""
    data = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in payloads]
    count = len(data)
    headers = pa.array([[("A", ["1", "2"])]] * count, pa.map_(pa.string(), pa.list_(pa.string())))
    return pa.table(
        {
            "stream": ["ORDERS"] * count,
            "seq": pa.array(range(first, first + count), pa.int64()),
            "subject": ["orders.eu"] * count,
            "time": pa.array([MOMENT] * count, pa.timestamp("us", tz="UTC")),
            "headers": headers,
            "data": pa.array(data, pa.binary()),
        }
    )


def step_of(spec: TableSpec, fields: pa.Schema | None = None) -> TableRowStep:
    decoder = table_decoder("ORDERS", spec, PipelineAddress())
    return TableRowStep("ORDERS", spec, decoder, fields or pa.schema([]))


def rows_of(step: TableRowStep, part: pa.Table) -> tuple[list[dict[str, Any]] | None, RowsNote]:
    task = pickle.loads(pickle.dumps(step)).task()
    (batch,) = part.to_batches()
    rows = task.rows(batch)
    (note,) = notes_of([task.note()])
    return None if rows is None else rows.to_pylist(), note


ID = pa.schema([("id", pa.int64())])


def test_a_row_has_the_message_its_fields_and_what_does_not_fit() -> None:
    spec = TableSpec("/lake", partition=["day", "hour"])
    rows, note = rows_of(step_of(spec, ID), messages({"id": 1}, {"id": "one"}))
    assert rows is not None
    assert rows[0] == {
        "seq": 1,
        "subject": "orders.eu",
        "time": MOMENT,
        "headers": [("A", ["1", "2"])],
        "id": 1,
        "day": MOMENT.date(),
        "hour": MOMENT.replace(minute=0, second=0),
        "_rescued": None,
    }
    assert (rows[1]["id"], json.loads(rows[1]["_rescued"])) == (None, {"id": "one"})
    assert note == RowsNote(rows=2, rescued=1)


def test_a_new_field_is_learned_in_the_pass_that_decodes() -> None:
    step = step_of(TableSpec("/lake"), ID)
    rows, note = rows_of(step, messages({"id": 1}, {"id": 2, "more": {"a": 1.5}}))
    assert rows is None
    more = step.with_notes([note])
    assert more is not None
    assert more.fields.names == ["id", "more"]
    rows, note = rows_of(more, messages({"id": 2, "more": {"a": 1.5}}))
    assert rows is not None
    assert rows[0]["more"] == {"a": 1.5}
    assert more.with_notes([note]) is None


def test_what_cannot_be_decoded_is_kept_with_its_payload_and_reason() -> None:
    rows, note = rows_of(step_of(TableSpec("/lake"), ID), messages({"id": 1}, b"\xff"))
    assert rows is not None
    kept = json.loads(rows[1]["_rescued"])
    assert base64.b64decode(kept["_payload"]) == b"\xff"
    assert kept["_reason"]
    assert rows[1]["id"] is None
    assert note == RowsNote(rows=2, undecoded=1)


def test_dead_letters_are_no_rows_unless_the_table_stands_for_the_stream() -> None:
    part = messages({"id": 1}, b"bad")
    rows, note = rows_of(step_of(TableSpec("/lake", dead_letters="DEAD"), ID), part)
    assert rows is not None
    assert [row["seq"] for row in rows] == [1]
    assert note == RowsNote(rows=1, undecoded=1)
    tiered = TableSpec("/lake", dead_letters="DEAD", tiers=True)
    rows, _ = rows_of(step_of(tiered, ID), part)
    assert rows is not None
    assert [row["data"] for row in rows] == [b'{"id": 1}', b"bad"]
    assert list(json.loads(rows[1]["_rescued"])) == ["_reason"]


def test_a_dead_letter_has_its_payload_and_where_it_came_from() -> None:
    step = step_of(TableSpec("/lake", dead_letters="DEAD"), ID)
    (letters,) = DeadLetterJob(step, "dead.ORDERS")(iter(messages({"id": 1}, b"bad").to_batches()))
    (letter,) = letters.to_pylist()
    headers = dict(letter["headers"])
    assert (letter["subject"], letter["data"]) == ("dead.ORDERS", b"bad")
    assert headers["Tradewind-Reason"][0]
    assert headers["Tradewind-Pipeline"] == ["table.ORDERS"]
    assert headers["Tradewind-Stream"] == ["ORDERS"]
    assert headers["Tradewind-Sequence"] == ["2"]


def test_raw_rows_are_messages_as_they_were() -> None:
    rows, note = rows_of(step_of(TableSpec("/lake", schema="raw")), messages(b"\x00"))
    assert rows is not None
    assert {*rows[0]} == {"seq", "subject", "time", "headers", "data"}
    assert rows[0]["data"] == b"\x00"
    assert note == RowsNote(rows=1)


def test_a_deletion_in_a_bucket_has_no_fields() -> None:
    part = pa.table(
        {
            "bucket": ["PRICES"] * 2,
            "key": ["pear", "plum"],
            "value": pa.array([b'{"id": 1}', b""], pa.binary()),
            "revision": pa.array([1, 2], pa.int64()),
            "time": pa.array([MOMENT] * 2, pa.timestamp("us", tz="UTC")),
            "operation": ["PUT", "DEL"],
        }
    )
    spec = TableSpec("/lake", rows="changes")
    decoder = table_decoder("KV_PRICES", spec, PipelineAddress())
    rows, note = rows_of(TableRowStep("KV_PRICES", spec, decoder, ID), part)
    assert rows is not None
    assert [(row["seq"], row["key"], row["operation"], row["id"]) for row in rows] == [
        (1, "pear", "PUT", 1),
        (2, "plum", "DEL", None),
    ]
    assert note == RowsNote(rows=2)


# -------------------------------------------------------------------------- columns


def test_known_types_stay_and_new_ones_hold_all_parts() -> None:
    whole = pa.schema([("id", pa.int64()), ("new", pa.int64())])
    broken = pa.schema([("id", pa.float64()), ("new", pa.float64())])
    other = pa.schema([("new", pa.string()), ("last", pa.list_(pa.null()))])
    joined = joined_fields([whole, broken, other], ID)
    assert joined == pa.schema([("id", pa.int64()), ("new", pa.float64())])


def test_fields_that_no_reader_could_name_are_left_out() -> None:
    found = pa.schema([(name, pa.int64()) for name in ("a", "A", "b.c", "d e", "x=y", "", "ok")])
    assert evolved(pa.schema([]), found).names == ["a", "ok"]
    many = pa.schema([(f"f{number}", pa.int64()) for number in range(COLUMNS_MAX + 5)])
    assert len(evolved(pa.schema([]), many)) == COLUMNS_MAX


def test_types_that_tables_lack_become_wider_ones() -> None:
    found = pa.schema([("a", pa.uint32()), ("b", pa.uint64()), ("c", pa.list_(pa.int8()))])
    assert [str(one.type) for one in evolved(pa.schema([]), found)] == [
        *("int64", "decimal128(20, 0)", "list<element: int32>"),
    ]


def test_the_columns_of_a_table_give_its_fields_back() -> None:
    spec = TableSpec("/lake", partition=["day"], keeps_data=True)
    fields = pa.schema([("id", pa.int64()), ("payload_time", pa.string())])
    columns = table_columns("ORDERS", spec, fields)
    assert columns.names == [
        *("seq", "subject", "time", "headers", "id", "payload_time", "day", "_rescued", "data"),
    ]
    assert fields_of("ORDERS", spec, columns) == fields


def test_letters_get_a_subject_of_their_stream() -> None:
    assert letter_subject("DEAD", ["dead.>"], "ORDERS") == "dead.ORDERS"
    assert letter_subject("DEAD", ["dead.*.now", "x"], "ORDERS") == "dead.ORDERS.now"
    assert letter_subject("DEAD", ["dead"], "ORDERS") == "dead"
    with pytest.raises(PipelineError, match="DEAD has no subjects"):
        letter_subject("DEAD", [], "ORDERS")


# -------------------------------------------------------------------------- batches


class Letters:
    """What would be published, under the number of its batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    def settle(self, step: TableRowStep, frame: Frame, number: int) -> None:
        found = []
        for part in frame.parts:
            for batch in DeadLetterJob(step, "dead")(iter(part.to_batches())):
                found += [row["data"] for row in batch.to_pylist()]
        assert self.batches.setdefault(number, found) == found, "a repeated batch is the same"


class Writer:
    """The table of ORDERS in a lake, whose executors are in this process."""

    def __init__(self, lake: Lake, **keys: Any) -> None:
        self.letters = Letters()
        self.counts: list[RowsNote] = []
        spec = TableSpec("/lake", **keys)
        box = LetterBox("DEAD", "dead", PipelineAddress()) if spec.dead_letters else None
        decoder = table_decoder("ORDERS", spec, PipelineAddress())
        step = _Step("ORDERS", spec, decoder, lake.query, self._count, box)
        object.__setattr__(step, "kept", self.letters)
        table: LakeTable = lake.table
        self.write: Any = table_writer(table, lake.query, TableSink(spec.partition, step=step))

    def _count(self, notes: Sequence[RowsNote]) -> None:
        self.counts += notes


class _Step(StreamBatchStep):
    kept: Letters

    def settle(self, batch: Any, number: int, step: Any, notes: Any) -> None:
        if self.letters is not None and any(note.undecoded for note in notes_of(notes)):
            self.kept.settle(step, batch, number)


def test_parts_of_a_batch_find_fields_together(lake: Lake) -> None:
    writer = Writer(lake, partition=["region"])
    first = messages({"id": 1, "region": "eu"}, {"id": 2, "region": "us", "a": 1})
    writer.write(Frame(first, messages({"region": "eu", "b": [{"c": 1}]}, first=3)), 0)
    writer.write(Frame(messages({"b": [{"d": "x"}], "a": 1.5}, b"bad", first=4)), 1)
    rows = sorted(lake.rows(), key=lambda row: row["seq"])
    assert [row["id"] for row in rows] == [1, 2, None, None, None]
    assert [row["a"] for row in rows] == [None, 1, None, None, None]
    assert json.loads(rows[3]["_rescued"]) == {"a": 1.5}
    assert rows[2]["b"] == [{"c": 1, "d": None}]
    assert rows[3]["b"] == [{"c": None, "d": "x"}]
    assert sum(note.undecoded for note in writer.counts) == 1
    # What was written before the fields were known is gone.
    assert len(lake.stored()) == len(lake.table.files())


def test_messages_without_any_field_are_rows_before_and_after_others(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(Frame(messages(b"bad", {}, {"": 1})), 0)
    writer.write(Frame(messages(b"bad", {"id": 1}, first=4)), 1)
    writer.write(Frame(messages({}, first=6)), 2)
    rows = sorted(lake.rows(), key=lambda row: row["seq"])
    assert [(row["seq"], row["id"]) for row in rows] == [
        *((1, None), (2, None), (3, None), (4, None), (5, 1), (6, None)),
    ]
    assert [row["_rescued"] is None for row in rows] == [False, True, False, False, True, True]


def test_a_partition_by_a_field_that_no_payload_has_is_refused(lake: Lake) -> None:
    writer = Writer(lake, partition=["region"])
    with pytest.raises(PipelineError, match="no column 'region' for region"):
        writer.write(Frame(messages({"id": 1})), 0)


@pytest.mark.parametrize("step", ["prepare", "commit", "committed"])
def test_a_batch_killed_at_any_step_is_there_once(
    lake: Lake, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Frame(messages({"id": 1}, b"bad 1"))
    second = Frame(messages({"id": 2, "new": "x"}, b"bad 2", first=3), messages({"n": 1}, first=5))
    writer = Writer(lake, dead_letters="DEAD")
    writer.write(first, 0)
    with monkeypatch.context() as patch:
        method = "prepare" if step == "prepare" else "commit"
        real = getattr(type(lake.table), method)

        def killed(*arguments: Any) -> None:
            if step != "commit":
                real(*arguments)
            raise KilledError

        patch.setattr(type(lake.table), method, killed)
        with pytest.raises(KilledError):
            writer.write(second, 1)
    again = Writer(lake, dead_letters="DEAD")
    again.letters.batches = dict(writer.letters.batches)
    again.write(second, 1)
    again.write(second, 1)
    rows = sorted(lake.rows(), key=lambda row: row["seq"])
    assert [(row["seq"], row["id"], row["new"], row["n"]) for row in rows] == [
        *((1, 1, None, None), (3, 2, "x", None), (5, None, None, 1)),
    ]
    assert again.letters.batches == {0: [b"bad 1"], 1: [b"bad 2"]}


def test_lakes_are_opened_by_their_format(tmp_path: Any) -> None:
    spec = TableSpec(str(tmp_path), format="parquet")
    with pytest.raises(PipelineError, match="has no log"):
        table_writing.open_lake("ORDERS", spec)
