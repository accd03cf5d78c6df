"""Tables that are partitioned by what is derived from a column."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake_kit import Frame, Lake, executors, lake, orders
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, MonthTransform
from pyiceberg.types import BinaryType, DateType, LongType, StringType, TimestampType

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.compaction import compact
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lake_partitions import PartitionField, partition_fields
from tradewind.pipelines.lake.upserts import Upsert

__all__ = ["executors", "lake"]
MOMENT = pa.timestamp("us", tz="UTC")
START = datetime(2026, 11, 18, 22, 30, tzinfo=UTC)
TIMES = [START + timedelta(hours=hours) for hours in (0, 1, 2, 26, 24 * 20)]
ALL = ["month(time)", "day(time)", "hour(time)", "bucket(4, key)", "region"]


def rows_of(ids: list[int], **columns: Any) -> Frame:
    times = pa.array([None if number == 9 else TIMES[number % 5] for number in ids], MOMENT)
    keys = pa.array([None if number == 9 else f"key {number}" for number in ids], pa.string())
    regions = pa.array([["a", "ä/ b", "", None][number % 4] for number in ids], pa.string())
    return orders(ids, time=times, key=keys, region=regions, **columns)


@pytest.mark.parametrize(
    "partition_by", [*([one] for one in ALL), ["day(time)", "bucket(4, key)", "region"]]
)
def test_rows_are_replaced_moved_and_compacted_in_derived_partitions(
    lake: Lake, partition_by: list[str]
) -> None:
    write: Any = lake.writer(partition_by=partition_by, upsert=Upsert(("id",)))
    write(rows_of(list(range(10)), v=["old"] * 10), 0)
    write(rows_of([3, 4, 9], v=["new"] * 3), 1)
    # The row moves to another partition.
    times, keys = pa.array([TIMES[4]], MOMENT), pa.array(["elsewhere"])
    write(orders([0], time=times, key=keys, region=["other"], v=["moved"]), 2)
    again = lake.table.files()
    compact(lake.table)
    assert len(lake.table.files()) <= len(again)
    found = {row["id"]: (row["v"], row["time"], row["key"]) for row in lake.rows()}
    wanted = {
        number: (
            "new" if number in (3, 4, 9) else "old",
            None if number == 9 else TIMES[number % 5],
            None if number == 9 else f"key {number}",
        )
        for number in range(10)
    } | {0: ("moved", TIMES[4], "elsewhere")}
    assert found == wanted
    assert len(lake.rows()) == 10


FILTERS = [
    ("day(time)", "time >= '2026-11-19T22:00:00+00:00'", [3, 4]),
    ("hour(time)", "time < '2026-11-18T23:00:00+00:00'", [0]),
    ("month(time)", "time >= '2026-12-01T00:00:00+00:00'", [4]),
    ("bucket(64, key)", "key == 'key 2'", [2]),
    ("bucket(64, id)", "id == 3", [3]),
]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
@pytest.mark.parametrize(("partition_by", "filter_text", "expected"), FILTERS)
def test_readers_of_iceberg_pass_over_files_by_their_partition_alone(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    partition_by: str,
    filter_text: str,
    expected: list[int],
) -> None:
    lake.writer(partition_by=[partition_by])(rows_of(list(range(5))), 0)
    assert isinstance(lake.table, IcebergLake)
    scan = lake.table.load().scan
    assert sorted(scan(row_filter=filter_text).to_arrow()["id"].to_pylist()) == expected
    # Without the bounds of columns there is nothing else to go by.
    monkeypatch.setattr(
        import_module("pyiceberg.table"), "_InclusiveMetricsEvaluator", lambda *_args, **_how: ANY
    )
    assert len(list(scan().plan_files())) > len(list(scan(row_filter=filter_text).plan_files()))
    assert sorted(scan(row_filter=filter_text).to_arrow()["id"].to_pylist()) == expected


class _Any:
    """A file may always have a row that is looked for."""

    def eval(self, _file: Any) -> bool:
        return True


ANY = _Any()


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_delta_table_has_a_column_for_what_is_derived(lake: Lake) -> None:
    write: Any = lake.writer(partition_by=["hour(time)", "bucket(8, key)"])
    write(rows_of([0, 1, 2, 3, 4, 9]), 0)
    rows = {row["id"]: (row["time_hour"], row["key_bucket_8"]) for row in lake.rows()}
    assert rows[0] == ("2026-11-18-22", BucketTransform(8).transform(StringType())("key 0"))
    assert rows[3][0] == "2026-11-20-00"
    assert rows[9] == (None, None)
    assert lake.table.partition_by() == ["time_hour", "key_bucket_8"]
    folders = {path.relative_to(lake.folder / "delta").parts[0] for path in lake.stored()}
    assert "time_hour=2026-11-18-22" in folders
    assert "time_hour=__HIVE_DEFAULT_PARTITION__" in folders
    # A column that comes later does not disturb them.
    write(rows_of([5], more=["x"]), 1)
    assert {row["time_hour"] for row in lake.rows() if row["id"] == 5} == {"2026-11-18-22"}


# An Iceberg timestamp has no time zone.
MOMENTS = st.datetimes(datetime(1901, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001


@given(
    st.one_of(
        st.lists(MOMENTS, min_size=1),
        st.lists(st.dates(date(1901, 1, 1), date(2200, 1, 1)), min_size=1),
        st.lists(st.text(), min_size=1),
        st.lists(st.binary(), min_size=1),
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1),
    )
)
def test_values_are_those_of_iceberg(values: list[Any]) -> None:
    """Of the same row, a partition of ours has the value that pyiceberg would give it."""
    column = pa.array([*values, None])
    kind = {
        datetime: TimestampType(),
        date: DateType(),
        str: StringType(),
        bytes: BinaryType(),
        int: LongType(),
    }[type(values[0])]
    transforms: list[Any] = [("bucket", 7, BucketTransform(7))]
    if isinstance(values[0], date):
        transforms += [("month", 0, MonthTransform()), ("day", 0, DayTransform())]
    if isinstance(values[0], datetime):
        transforms += [("hour", 0, HourTransform())]
    for name, buckets, transform in transforms:
        field = PartitionField("c", name, buckets)
        function = transform.transform(kind)
        found = [field.text(value) for value in field.values(column).to_pylist()]
        assert found == [*(field.text(function(value)) for value in values), None]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["week(time)"], "'week(time)' is not known; use a column, month(COLUMN)"),
        (["day()"], "'day()' is not known"),
        (["bucket(16", "key)"], "'bucket(16' is not complete; in a list, quote"),
        (["bucket(0, key)"], "is not bucket(N, COLUMN) with N of 1 to 4096"),
        (["bucket(5000, key)"], "is not bucket(N, COLUMN) with N of 1 to 4096"),
        (["bucket(key, 16)"], "is not bucket(N, COLUMN)"),
        (["region", "region"], "region is there twice"),
        (["day(time)", "hour(time)"], "only one of month, day and hour of time"),
        ([" "], "an entry is empty"),
    ],
)
def test_what_cannot_be_meant_is_an_error(entries: list[str], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        partition_fields(entries)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("day(key)", "day(key) needs a timestamp or a date, and key is string"),
        ("hour(date)", "hour(date) needs a timestamp, and date is date32[day]"),
        ("bucket(4, ratio)", "needs an integer, a string"),
        ("day(tyme)", "there is no column 'tyme' for day(tyme)"),
        ("day(time)", "the rows have a column of that name"),
    ],
)
def test_a_column_that_does_not_fit_is_an_error_before_anything_is_written(
    lake: Lake, entry: str, message: str
) -> None:
    columns = {"date": [date(2026, 1, 1)], "ratio": [1.5], "time_day": ["x"]}
    with pytest.raises(PipelineError) as caught:
        lake.writer(partition_by=[entry])(rows_of([1], **columns), 0)
    assert message in str(caught.value)
    assert not lake.table.is_there
    assert lake.stored() == set()


def test_a_table_keeps_its_transform(lake: Lake) -> None:
    lake.writer(partition_by=["day(time)"])(rows_of([1]), 0)
    with pytest.raises(PipelineError, match=r"day.*hour.*a table keeps its partitions"):
        lake.writer(partition_by=["hour(time)"])(rows_of([2]), 1)
    assert lake.ids() == [1]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_table_whose_partitions_another_writer_has_named_is_written_too(lake: Lake) -> None:
    table: Any = lake.table
    lake.writer(partition_by=["bucket(4, key)", "day(time)"])(rows_of([1, 2]), 0)
    with table.load().update_spec() as update:
        update.rename_field("key_bucket_4", "shard").rename_field("time_day", "date")
    with pytest.raises(PipelineError, match="has files of an older partition spec"):
        table.files()
    lake.writer(partition_by=["bucket(4, key)", "day(time)"])(rows_of([3]), 1)
    assert lake.ids() == [1, 2, 3]
    shards = table.load().inspect.partitions()["partition"].to_pylist()
    assert {"shard", "date"} <= shards[0].keys()
