"""Batches on their way into tables of Delta and Iceberg, killed, repeated and hindered.

No Spark is needed for this: the work of the executors is done in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lake_kit import Frame, KilledError, Lake, executors, lake, orders

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake import lake_files, lake_tables
from tradewind.pipelines.lake.compaction import compact
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lake_tables import ConflictError
from tradewind.pipelines.lake.upserts import Upsert

__all__ = ["executors", "lake"]


def killed(*_args: Any, **_settings: Any) -> None:
    raise KilledError


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_table_whose_making_was_killed_has_its_partitions(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_behind: bool
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    rows = orders([1, 2, 3], region=["a", "b", "a"])
    write: Any = lake.writer(partition_by=["region"])
    with monkeypatch.context() as patch:
        for name in ("create_table", "commit_table"):
            real = getattr(SqlCatalog, name)

            def last(*args: Any, real: Any = real, **settings: Any) -> None:
                if is_behind:
                    real(*args, **settings)
                raise KilledError

            patch.setattr(SqlCatalog, name, last)
        with pytest.raises(KilledError):
            write(rows, 0)
    write(rows, 0)
    assert lake.ids() == [1, 2, 3]
    (part,) = lake.table.load().spec().fields  # type: ignore[union-attr]
    assert part.name == "region"


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_catalog_that_several_writers_make_at_once_is_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step finds something missing that another writer has made when the step is taken."""
    from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

    made: list[str] = []
    tables, real = SqlCatalogBaseTable.metadata.sorted_tables, SqlCatalog.namespace_exists

    def create_tables(catalog: Any) -> None:
        table = tables[len(made)]
        made.append(table.name)
        table.create(catalog.engine)
        table.create(catalog.engine)

    def namespace_exists(catalog: Any, namespace: Any) -> bool:
        if len(made) == len(tables):
            made.append(namespace)
            SqlCatalog.create_namespace(catalog, namespace)
            return False
        return bool(real(catalog, namespace))

    monkeypatch.setattr(SqlCatalog, "create_tables", create_tables)
    monkeypatch.setattr(SqlCatalog, "namespace_exists", namespace_exists)
    write: Any = lake.writer()
    write(orders([1, 2, 3]), 0)
    assert lake.ids() == [1, 2, 3]
    assert made == [*(table.name for table in tables), "sales"]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_table_that_another_writer_makes_first_is_taken(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = orders([1, 2, 3])
    other: Any = lake.writer()
    other(rows, 0)
    real, looks = type(lake.table).load, iter([False, False])

    def load(table: Any) -> Any:
        return real(table) if next(looks, True) else None

    monkeypatch.setattr(type(lake.table), "load", load)
    other(orders([4, 5]), 1)
    assert lake.ids() == [1, 2, 3, 4, 5]


def test_rows_are_there_once_if_it_is_killed_before_or_behind_the_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Any = lake.writer()
    write(orders([1, 2, 3]), 0)
    with monkeypatch.context() as patch:
        patch.setattr(type(lake.table), "commit", killed)
        with pytest.raises(KilledError):
            write(orders([4, 5]), 1)
    # The files are written, and nobody sees them.
    assert lake.ids() == [1, 2, 3]
    orphans = len(lake.stored())
    assert orphans == 4
    real = type(lake.table).commit

    def commit(*args: Any) -> None:
        real(*args)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(type(lake.table), "commit", commit)
        with pytest.raises(KilledError):
            write(orders([4, 5]), 1)
    # Spark does not know that the batch is done, and gives it again.
    for _ in range(2):
        write(orders([4, 5]), 1)
        assert lake.ids() == [1, 2, 3, 4, 5]


def test_a_file_that_is_killed_half_way_is_no_part_of_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Any = lake.writer()
    write(orders([1]), 0)
    with monkeypatch.context() as patch:
        patch.setattr(lake_files.FileWriter, "_finish", killed)
        with pytest.raises(KilledError):
            write(orders([2, 3]), 1)
    assert lake.ids() == [1]
    write(orders([2, 3]), 1)
    assert lake.ids() == [1, 2, 3]


def test_a_checkpoint_that_was_put_back_is_an_error(lake: Lake) -> None:
    write: Any = lake.writer()
    for number in (0, 1):
        write(orders([number]), number)
    with pytest.raises(PipelineError, match="the checkpoint is older than the table"):
        write(orders([7]), 0)
    (lake.folder / "state" / "offsets" / "1").write_text("planned otherwise")
    with pytest.raises(PipelineError, match="the checkpoint is older than the table"):
        write(orders([7]), 1)
    assert lake.ids() == [0, 1]


def test_a_batch_is_known_when_the_history_is_gone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old commits are removed from logs, and snapshots expire."""
    write: Any = lake.writer()
    for number in (0, 1):
        write(orders([number]), number)
    if hasattr(lake.table, "path"):
        import deltalake

        monkeypatch.setattr(deltalake.DeltaTable, "history", lambda _self: [])
    else:
        table = lake.table.load()
        old = [one.snapshot_id for one in table.snapshots()]
        write(orders([2]), 2)
        table = lake.table.load()
        table.maintenance.expire_snapshots().by_ids(old).commit()
        assert len(lake.table.load().snapshots()) == 1
        with pytest.raises(PipelineError, match="older than the table"):
            write(orders([1]), 1)
        return
    write(orders([1]), 1)
    assert lake.ids() == [0, 1]
    with pytest.raises(PipelineError, match="older than the table"):
        write(orders([0]), 0)


def test_a_commit_that_others_were_in_the_way_of_is_tried_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Any = lake.writer(upsert=Upsert(("id",)))
    write(orders([1, 2], v=["a", "a"]), 0)
    real = type(lake.table).commit
    other = Lake(lake.folder / "other", lake.table)
    (lake.folder / "other" / "state" / "metadata").write_text('{"id": "0fe5"}')
    attempts = 0

    def commit(table: Any, change: Any, marks: Any) -> None:
        """Another query replaces a file between what this one has planned and its commit."""
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            other_write: Any = other.writer(upsert=Upsert(("id",)))
            other_write(orders([2], v=["other"]), 0)
        real(table, change, marks)

    monkeypatch.setattr(type(lake.table), "commit", commit)
    write(orders([1], v=["b"]), 1)
    assert {row["id"]: row["v"] for row in lake.rows()} == {1: "b", 2: "other"}
    assert attempts == 3


def before_the_library_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]
) -> list[str]:
    """Do something once, when everything is checked and the library begins to commit.

    Returns a list that grows with each attempt to commit, without those of the deed.
    """
    if isinstance(lake.table, DeltaLake):
        owner, name = import_module("deltalake").DeltaTable, "create_write_transaction"
    else:
        owner, name = import_module("pyiceberg.table").Table, "_do_commit"
    real = getattr(owner, name)
    attempts: list[str] = []

    def commit(table: Any, *args: Any, **settings: Any) -> Any:
        attempts.append(name)
        if len(attempts) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, real)
                deed()
        return real(table, *args, **settings)

    monkeypatch.setattr(owner, name, commit)
    return attempts


@pytest.mark.parametrize("how", [{"upsert": Upsert(("id",))}, {"is_complete": True}])
def test_rows_are_there_once_beside_a_compaction_at_the_moment_of_the_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """The library must not put a commit that removes files on top of one that rewrote them."""
    write: Any = lake.writer(**how)
    fill: Any = lake.writer()
    for number in range(3):
        fill(orders([2 * number, 2 * number + 1], v=["a", "a"]), number)
    attempts = before_the_library_commits(lake, monkeypatch, lambda: compact(lake.table))
    write(orders([0, 5], v=["b", "b"]), 3)
    assert len(attempts) == 2
    rows = sorted((row["id"], row["v"]) for row in lake.rows())
    others = [(number, "a") for number in range(1, 5)]
    assert rows == ([(0, "b"), (5, "b")] if "is_complete" in how else [(0, "b"), *others, (5, "b")])


@pytest.mark.parametrize(
    "how", [{"upsert": Upsert(("id",))}, {"is_complete": True}, {"partition_by": []}]
)
def test_rows_are_there_once_if_a_batch_comes_at_the_moment_of_a_compaction(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """The other way round: what is joined holds only for a table that nobody has changed."""
    write: Any = lake.writer(**how)
    fill: Any = lake.writer()
    for number in range(3):
        fill(orders([2 * number, 2 * number + 1], v=["a", "a"]), number)

    def interfere() -> None:
        write(orders([5, 6], v=["b", "b"]), 3)

    before_the_library_commits(lake, monkeypatch, interfere)
    compact(lake.table)
    rows = sorted((row["id"], row["v"]) for row in lake.rows())
    others = [] if "is_complete" in how else [(number, "a") for number in range(5)]
    others += [(5, "a")] if "partition_by" in how else []
    assert rows == sorted([*others, (5, "b"), (6, "b")])
    write(orders([5, 6], v=["b", "b"]), 3)
    assert len(lake.rows()) == len(rows)


@pytest.mark.parametrize("moment", ["planned", "checked"])
@pytest.mark.parametrize("how", [{"upsert": Upsert(("id",))}, {"is_complete": True}])
def test_a_key_that_another_query_adds_meanwhile_is_there_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], moment: str
) -> None:
    """No file that the first query has planned with is touched by the other one."""
    write: Any = lake.writer(**how)
    write(orders([1, 2], v=["a", "a"]), 0)
    other = Lake(lake.folder / "other", lake.table)
    (lake.folder / "other" / "state" / "metadata").write_text('{"id": "0fe5"}')
    other_write: Any = other.writer(upsert=Upsert(("id",)))

    def interfere() -> None:
        other_write(orders([3, 4], v=["other", "other"]), 0)

    if moment == "checked":
        before_the_library_commits(lake, monkeypatch, interfere)
    else:
        real = type(lake.table).commit

        def commit(table: Any, change: Any, marks: Any) -> None:
            monkeypatch.setattr(type(lake.table), "commit", real)
            interfere()
            real(table, change, marks)

        monkeypatch.setattr(type(lake.table), "commit", commit)
    write(orders([3, 5], v=["b", "b"]), 1)
    rows = sorted((row["id"], row["v"]) for row in lake.rows())
    others = [] if "is_complete" in how else [(1, "a"), (2, "a"), (4, "other")]
    assert rows == sorted([*others, (3, "b"), (5, "b")])
    if isinstance(lake.table, IcebergLake):
        assert "commit.retry.num-retries" not in lake.table.load().properties


def test_a_table_that_always_changes_is_an_error_in_the_end(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(*_args: Any) -> None:
        raise ConflictError("somebody")

    monkeypatch.setattr(type(lake.table), "commit", commit)
    write: Any = lake.writer()
    with pytest.raises(PipelineError, match=r"batch 0 was not committed in 20 attempts.*somebody"):
        write(orders([1]), 0)


def test_new_columns_are_null_in_old_rows_and_missing_ones_in_new_rows(lake: Lake) -> None:
    write: Any = lake.writer()
    inner = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    write(orders([1], inside=inner, note=["old"]), 0)
    wider = pa.array([{"a": 2, "b": "x"}], pa.struct([("a", pa.int32()), ("b", pa.string())]))
    write(orders([2], inside=wider, amount=pa.array([1.5])), 1)
    write(orders([3], note=["new"]), 2)
    found = {row["id"]: (row["inside"], row["note"], row["amount"]) for row in lake.rows()}
    assert found == {
        1: ({"a": 1, "b": None}, "old", None),
        2: ({"a": 2, "b": "x"}, None, 1.5),
        3: (None, "new", None),
    }


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"amount": ["x"]}, "column amount is bigint in the table and string in the rows"),
        ({"amount": pa.array([1.5])}, "column amount is bigint in the table and double"),
        (
            {"inside": pa.array([{"a": True}], pa.struct([("a", pa.bool_())]))},
            "column inside.a is int in the table and boolean in the rows",
        ),
        ({"nothing": pa.nulls(1)}, "column nothing has no type: cast(null as string)"),
        ({"Amount": [1]}, "column Amount differs from amount of the table only in its case"),
    ],
)
def test_a_change_that_does_not_fit_names_the_column_and_both_types(
    lake: Lake, columns: dict[str, Any], message: str
) -> None:
    write: Any = lake.writer()
    inner = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    write(orders([1], amount=[1], inside=inner), 0)
    with pytest.raises(PipelineError) as caught:
        write(orders([2], **columns), 1)
    assert f"test.lake: {message}" in str(caught.value)
    write(orders([2], amount=pa.array([7], pa.int16())), 1)
    assert lake.ids() == [1, 2]


VALUES: dict[str, list[Any]] = {
    "text": ["a b", "ä/=%:#", None, "x"],
    "day": [date(2026, 11, 16), None, date(1969, 1, 1), date(2026, 11, 16)],
    "flag": [True, False, None, True],
    "number": [-5, 0, None, 1 << 62],
}


@pytest.mark.parametrize("column", VALUES)
def test_partitions_of_any_value_come_back(lake: Lake, column: str) -> None:
    write: Any = lake.writer(partition_by=[column], upsert=Upsert(("id",)))
    write(orders([0, 1, 2, 3], **{column: VALUES[column]}), 0)
    assert [row[column] for row in sorted(lake.rows(), key=lambda row: row["id"])] == VALUES[column]
    # A row that moves to another partition leaves the one where it was.
    write(orders([0], **{column: pa.array([VALUES[column][1]], pa.array(VALUES[column]).type)}), 1)
    found = {row["id"]: row[column] for row in lake.rows()}
    assert found == dict(enumerate([VALUES[column][1], *VALUES[column][1:]]))
    assert len(lake.rows()) == 4
    with pytest.raises(PipelineError, match="a table keeps its partitions"):
        lake.writer()(orders([9], **{column: VALUES[column][:1]}), 2)


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_an_empty_text_and_null_are_two_partitions(lake: Lake) -> None:
    """Delta has no empty texts in partitions; in Iceberg a filter must find either."""
    lake.writer(partition_by=["r"])(Frame(pa.table({"id": [1, 2], "r": ["", None]})), 0)
    table: Any = lake.table
    found = [
        table.load().scan(row_filter=wanted).to_arrow()["id"].to_pylist()
        for wanted in ("r == ''", "r is null")
    ]
    assert found == [[1], [2]]


def test_values_of_all_types_come_back(lake: Lake) -> None:
    moment = datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC)
    headers = pa.map_(pa.string(), pa.list_(pa.string()))
    columns = {
        "time": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
        "headers": pa.array([[("a", ["b", "c"])], None], headers),
        "data": pa.array([b"\xff\x00", None], pa.binary()),
        "amount": pa.array([Decimal("1.25"), None], pa.decimal128(12, 2)),
        "ratio": pa.array([float("nan"), None], pa.float64()),
        "long": pa.array(["x" * 500, None], pa.string()),
    }
    lake.writer()(orders([1, 2], **columns), 0)
    first, second = sorted(lake.rows(), key=lambda row: row["id"])
    assert first["time"] == moment
    assert first["headers"] == [("a", ["b", "c"])]
    assert (first["data"], first["amount"]) == (b"\xff\x00", Decimal("1.25"))
    assert first["long"] == "x" * 500
    assert set(second.values()) == {2, None}


def test_complete_replaces_all_rows(lake: Lake) -> None:
    write: Any = lake.writer(is_complete=True)
    write(orders([1, 2, 3]), 0)
    write(orders([4]), 1)
    assert lake.ids() == [4]
    write(orders([]), 2)
    assert lake.ids() == []


def test_an_upsert_of_a_key_that_is_there_twice_in_a_batch_is_an_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Any = lake.writer(upsert=Upsert(("id",)))
    write(orders([1, 2], v=["a", "b"]), 0)
    # Rows that come equally late are both left, in one part.
    table = pa.table({"id": [5, 5], "v": ["a", "b"]})
    deleted = table.append_column("__tradewind_deleted", pa.array([False, False]))
    monkeypatch.setattr(lake_tables, "latest_rows", lambda _frame, _upsert: Frame(deleted))
    with pytest.raises(PipelineError, match=r"several rows of the key id=5 .*`order_by`"):
        write(Frame(table), 1)
    assert lake.ids() == [1, 2]


CHANGES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from("ab"), st.sampled_from(["yes", "no", None])),
        max_size=6,
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("files_max", [1, lake_files.FILE_BYTES_MAX])
def test_upserts_are_like_those_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    lake: Lake,
    files_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lake_files, "FILE_BYTES_MAX", files_max)

    @settings(
        max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(CHANGES)
    def check(batches: list[list[tuple[int, str, str | None]]]) -> None:
        folder = tmp_path_factory.mktemp("model")
        kind = type(lake.table)
        place = kind(str(folder / "t")) if hasattr(lake.table, "path") else _iceberg(str(folder))
        one = Lake(folder, place)
        write: Any = one.writer(upsert=Upsert(("id", "part"), "gone"))
        model: dict[tuple[int, str], int] = {}
        for number, changes in enumerate(batches):
            rows = {
                "part": pa.array([part for _, part, _ in changes], pa.string()),
                "gone": pa.array([gone for _, _, gone in changes], pa.string()),
                "v": pa.array([number * 100 + index for index in range(len(changes))], pa.int64()),
            }
            write(orders([key for key, _, _ in changes], **rows), number)
            for index, (key, part, gone) in enumerate(changes):
                model[key, part] = number * 100 + index
                if gone == "yes":
                    del model[key, part]
        found = [((row["id"], row["part"]), row["v"]) for row in one.rows()]
        assert sorted(found) == sorted(model.items())

    check()


def _iceberg(folder: str) -> Any:
    from tradewind.pipelines.definition.model import Iceberg
    from tradewind.pipelines.lake.iceberg_tables import IcebergLake

    return IcebergLake(Iceberg("sales.orders", ""), folder)
