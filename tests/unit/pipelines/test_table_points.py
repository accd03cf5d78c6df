"""A table at one moment: what it has and how far it goes, whatever is committed on top."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.compaction import compact
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lakes import MARK_UNTIL
from tradewind.pipelines.tables.table_points import (
    StreamMark,
    TablePoint,
    check_stream,
    pin_table,
)
from written_tables import START_US, WrittenTable, raw_rows, read_point, spec_of

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
CREATED_NS = (START_US - 10) * 1000


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> WrittenTable:
    return WrittenTable(spec_of(tmp_path, request.param), created_ns=CREATED_NS)


def pinned(table: WrittenTable) -> TablePoint:
    point = pin_table(table.stream, table.spec)
    assert point is not None
    return point


def seqs(point: TablePoint) -> list[int]:
    found: list[int] = read_point(point)["seq"].to_pylist()
    return sorted(found)


def test_a_table_that_is_not_there_yet_is_none(table: WrittenTable) -> None:
    assert pin_table(table.stream, table.spec) is None
    table.lake.prepare(raw_rows(1, 1).schema, [])
    point = pinned(table)
    assert (point.files, point.mark, point.until_seq) == ((), None, 0)
    check_stream(point, "ORDERS", 7, 0)


def test_what_is_pinned_stays_whatever_is_committed(table: WrittenTable) -> None:
    table.add(raw_rows(1, 10), 10)
    table.add(raw_rows(11, 15), 20)
    before = pinned(table)
    table.add(raw_rows(21, 30), 30)
    compact(table.lake)
    after = pinned(table)
    assert (before.until_seq, seqs(before)) == (20, [*range(1, 16)])
    assert (after.until_seq, seqs(after)) == (30, [*range(1, 16), *range(21, 31)])
    assert len(after.files) < len(before.files) + 1
    assert after.version != before.version


def test_a_commit_without_marks_leaves_the_table_as_far_as_it_was(table: WrittenTable) -> None:
    table.add(raw_rows(1, 10), 10)
    table.add(raw_rows(11, 20), 20)
    compact(table.lake)
    table.lake.prepare(raw_rows(1, 1, note=["x"]).schema, [])
    point = pinned(table)
    assert point.mark == StreamMark(CREATED_NS, 20)
    assert point.schema.names[-1] == "note"
    assert set(read_point(point)["note"].to_pylist()) == {None}
    table.add(raw_rows(21, 22, note=["a", "b"]), 22)
    rows = read_point(pinned(table))
    notes = dict(zip(rows["seq"].to_pylist(), rows["note"].to_pylist(), strict=True))
    assert notes == dict.fromkeys(range(1, 21)) | {21: "a", 22: "b"}


def forget_history(table: WrittenTable) -> None:
    """Have the log begin with the latest state, as expiry leaves it."""
    if isinstance(table.lake, DeltaLake):
        library = table.lake.load()
        library.create_checkpoint()
        for path in Path(table.spec.to, "_delta_log").glob("*.json"):
            path.unlink()
        return
    library = table.lake.load()
    current = library.current_snapshot().snapshot_id
    old = [one.snapshot_id for one in library.snapshots() if one.snapshot_id != current]
    library.maintenance.expire_snapshots().by_ids(old).commit()


def test_a_mark_whose_commit_has_expired_is_found_or_derived(table: WrittenTable) -> None:
    table.add(raw_rows(1, 10), 10)
    table.add(raw_rows(11, 20), 25)
    compact(table.lake)
    forget_history(table)
    point = pinned(table)
    assert seqs(point) == [*range(1, 21)]
    if isinstance(table.lake, IcebergLake):
        # The properties of the table still say it.
        assert point.mark == StreamMark(CREATED_NS, 25)
        return
    # The statistics say less, and what is behind is read from the stream.
    assert point.mark == StreamMark(0, 20)
    check_stream(point, "ORDERS", CREATED_NS, 30)
    with pytest.raises(PipelineError, match="stream ORDERS was deleted and created again"):
        check_stream(point, "ORDERS", (START_US + 5) * 1000, 30)


def test_a_table_that_does_not_say_how_far_it_goes_is_refused(
    table: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.add(raw_rows(1, 10), 10, **{MARK_UNTIL: ""})
    monkeypatch.setattr(type(table.lake), "pinned", _without_bounds(type(table.lake).pinned))
    with pytest.raises(PipelineError, match=r"does not say up to where it goes.*no statistics"):
        pin_table(table.stream, table.spec)


def _without_bounds(real: Any) -> Any:
    return lambda lake, _columns=(): real(lake, ())


def test_another_creation_of_the_stream_is_refused(table: WrittenTable) -> None:
    table.add(raw_rows(1, 10), 10)
    point = pinned(table)
    check_stream(point, "ORDERS", CREATED_NS, 10)
    with pytest.raises(PipelineError, match="stream ORDERS was deleted and created again"):
        check_stream(point, "ORDERS", CREATED_NS + 1, 100)
    with pytest.raises(PipelineError, match=r"ends at sequence 9, and its table .* up to 10"):
        check_stream(point, "ORDERS", CREATED_NS, 9)


def test_a_table_of_something_else_is_refused(table: WrittenTable) -> None:
    table.add(raw_rows(1, 10), 10)
    with pytest.raises(PipelineError, match="holds ORDERS, not the stream OTHER alone"):
        pin_table("OTHER", _named(table))
    two = {name: {"created_ns": 1, "seq": 10} for name in ("ORDERS", "OTHER")}
    table.add(raw_rows(11, 12), 12, **{MARK_UNTIL: json.dumps(two)})
    with pytest.raises(PipelineError, match="holds ORDERS, OTHER, not the stream ORDERS alone"):
        pin_table("ORDERS", table.spec)


def _named(table: WrittenTable) -> Any:
    """The same table, also for a stream of another name."""
    import msgspec

    if table.spec.format == "delta":
        return table.spec
    return msgspec.structs.replace(table.spec, table="tradewind.orders")


def test_rows_behind_the_mark_are_refused(table: WrittenTable) -> None:
    table.add(raw_rows(1, 10), 10)
    table.add(raw_rows(11, 20), 15)
    with pytest.raises(PipelineError, match="goes up to sequence 15, and has 20"):
        pin_table(table.stream, table.spec)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_partitions_with_unusual_names_are_read_as_they_are(tmp_path: Path, kind: str) -> None:
    table = WrittenTable(spec_of(tmp_path, kind, partition=["subject"]), created_ns=CREATED_NS)
    subjects = ["orders.a b", "orders.%41", "orders.ü=1", "orders./x"] * 5
    rows = raw_rows(1, 20).set_column(1, "subject", pa.array(subjects))
    table.add(rows, 20)
    table.add(raw_rows(21, 26), 26)
    compact(table.lake)
    point = pinned(table)
    found = {row["seq"]: row["subject"] for row in read_point(point).to_pylist()}
    assert found == {
        **dict(enumerate(subjects, 1)),
        **{seq: f"orders.{seq % 3}" for seq in range(21, 27)},
    }
    assert point.partition_by == ("subject",)
