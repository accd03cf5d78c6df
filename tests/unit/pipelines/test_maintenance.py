"""Tables that are kept in order while others write them, read them, and die."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from lake_kit import Lake, executors, lake, latest_marks, orders
from maintenance_loop import EAGER

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake import compaction, lake_expiry
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.lake_expiry import expire, expired_ids
from tradewind.pipelines.lake.maintenance import (
    MaintenancePolicy,
    TableFigures,
    figures,
    maintain,
)
from tradewind.pipelines.lake.parquet_lakes import ParquetLake, StagedBatch
from tradewind.pipelines.lake.upserts import Upsert

__all__ = ["executors", "lake"]
BATCHES = 9
KEYS = 30
HOUR = 3600


def another(lake: Lake, name: str) -> Lake:
    """Another query that writes to the same table."""
    other = Lake(lake.folder / name, lake.table)
    (lake.folder / name / "state" / "metadata").write_text(f'{{"id": "{name}"}}')
    return other


class Model:
    """What two queries write: one replaces rows by key, the other one appends."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.changes = [
            {0: number, **{chance.randrange(KEYS): number for _ in range(6)}}
            for number in range(BATCHES)
        ]
        self.states: list[dict[int, int]] = []
        for changes in self.changes:
            self.states.append({**(self.states[-1] if self.states else {}), **changes})

    def upsert(self, write: Any, number: int) -> None:
        changes = self.changes[number]
        write(orders(list(changes), v=pa.array(list(changes.values()), pa.int64())), number)

    def append(self, write: Any, number: int) -> None:
        ids = [1000 + 3 * number + index for index in range(3)]
        write(orders(ids, v=pa.array([number] * 3, pa.int64())), number)

    def check(self, rows: list[dict[str, Any]]) -> tuple[int, int]:
        """How many batches of each are there; every row of those is, once, and no other."""
        pairs = sorted((row["id"], row["v"]) for row in rows)
        replaced = [pair for pair in pairs if pair[0] < 1000]
        appended = [pair for pair in pairs if pair[0] >= 1000]
        done = dict(replaced)[0] + 1 if replaced else 0
        assert replaced == (sorted(self.states[done - 1].items()) if done else [])
        assert len(appended) % 3 == 0
        assert appended == [(1000 + index, index // 3) for index in range(len(appended))]
        return done, len(appended) // 3


@contextmanager
def beside(*deeds: Callable[[], None]) -> Iterator[None]:
    """Do things again and again in threads; what they raise fails the test."""
    is_over = threading.Event()
    errors: list[BaseException] = []

    def repeat(deed: Callable[[], None]) -> None:
        try:
            while not is_over.is_set():
                deed()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=[deed]) for deed in deeds]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(120)
    assert errors == []


def in_threads(*deeds: Callable[[], None]) -> None:
    """Do things at the same time, each once."""
    errors: list[BaseException] = []

    def do(deed: Callable[[], None]) -> None:
        try:
            deed()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=do, args=[deed]) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are shortened at once, also while others begin to read them."""
    monkeypatch.setattr(lake_expiry, "SETTLED_SECONDS", 0.0)


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    """What a reader sees that begins again if the log was shortened before its eyes."""
    if isinstance(lake.table, DeltaLake):
        found: list[dict[str, Any]] = lake.table.read(
            lambda table: table.to_pyarrow_table().to_pylist()
        )
        return found
    return lake.rows()


def test_rows_and_marks_stay_right_at_every_moment_beside_maintenance(lake: Lake) -> None:
    model = Model(1)
    other = another(lake, "appender")
    how: dict[str, Any] = {"partition_by": ["bucket(2, id)"]}
    replace: Any = lake.writer(upsert=Upsert(("id",)), **how)
    append: Any = other.writer(**how)
    model.upsert(replace, 0)
    rounds: list[int] = []
    seen = (0, 0)

    def read() -> None:
        nonlocal seen
        found = model.check(rows_of(lake))
        assert found[0] >= seen[0]
        assert found[1] >= seen[1]
        seen = found

    def keep() -> None:
        rounds.append(maintain(lake.table, EAGER).files_joined)

    def write_all() -> None:
        for number in range(1, BATCHES):
            model.upsert(replace, number)
            # A batch that Spark repeats is known, whatever was joined and forgotten meanwhile.
            model.upsert(replace, number)

    def append_all() -> None:
        for number in range(BATCHES):
            model.append(append, number)
            model.append(append, number)

    with beside(keep, read):
        in_threads(write_all, append_all)
    keep()
    assert model.check(lake.rows()) == (BATCHES, BATCHES)
    assert sum(rounds) > 0
    assert len(lake.table.files()) == 2
    latest = {one.query.query_id: one.query.marks(BATCHES - 1) for one in (lake, other)}
    assert latest_marks(lake.table) == latest
    for one, repeat in ((replace, model.upsert), (append, model.append)):
        repeat(one, BATCHES - 1)
        with pytest.raises(PipelineError, match="older than the table"):
            repeat(one, BATCHES - 2)
    assert model.check(lake.rows()) == (BATCHES, BATCHES)


def test_maintenance_can_be_killed_at_any_moment(lake: Lake) -> None:
    model = Model(3)
    chance = random.Random(3)
    replace: Any = lake.writer(upsert=Upsert(("id",)))
    kind = "delta" if isinstance(lake.table, DeltaLake) else "iceberg"
    program = Path(__file__).with_name("maintenance_loop.py")
    number = 0
    for _ in range(3):
        model.upsert(replace, number)
        number += 1
        with subprocess.Popen(
            [sys.executable, str(program), str(lake.folder), kind], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"round\n"
            for _ in range(2):
                model.upsert(replace, number)
                number += 1
            threading.Event().wait(chance.uniform(0, 0.2))
            process.kill()
        assert model.check(lake.rows())[0] == number
        model.upsert(replace, number - 1)
        assert model.check(lake.rows())[0] == number
    # What the killed ones have left is removed, and nothing else.
    policy = MaintenancePolicy(
        expire_seconds=0, keep_snapshots=1, orphan_seconds=0, is_thorough=True
    )
    age(lake, 2)
    maintain(lake.table, policy)
    age(lake, 2)
    maintain(lake.table, policy)
    assert model.check(lake.rows())[0] == number
    if kind == "iceberg":
        assert len(lake.stored()) == len(lake.table.files()) == 1


def age(lake: Lake, hours: float) -> None:
    """Have all files of the table be so old."""
    then = time.time() - hours * HOUR
    for path in lake.folder.rglob("*"):
        if path.is_file() and "state" not in path.parts:
            os.utime(path, (then, then))


def fill(lake: Lake, count: int) -> Any:
    write: Any = lake.writer()
    for number in range(count):
        write(orders([2 * number, 2 * number + 1]), number)
    return write


def test_a_version_goes_some_time_after_it_was_replaced(lake: Lake) -> None:
    """Not after it was made: it was the latest one until the next came."""
    write = fill(lake, 4)
    versions = figures(lake.table).snapshots
    assert expire(lake.table, HOUR, 1) == 0
    assert figures(lake.table).snapshots == versions
    assert expire(lake.table, 0, 3) == versions - 3
    assert figures(lake.table).snapshots == 3
    assert expire(lake.table, 0, 3) == 0
    assert expire(lake.table, 0, 1) == 2
    assert lake.ids() == list(range(8))
    write(orders([6, 7]), 3)
    write(orders([8]), 4)
    assert lake.ids() == list(range(9))


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_marks_of_a_delta_table_outlive_the_log_that_had_them(lake: Lake) -> None:
    """The commits of the queries are gone, and only those of maintenance are left."""
    write = fill(lake, 3)
    other = another(lake, "other")
    other.writer()(orders([100]), 0)
    write(orders([6]), 3)
    for number in range(4, 8):
        write(orders([number + 3]), number)
    assert expire(lake.table, 0, 2) > 0
    assert isinstance(lake.table, DeltaLake)
    writers = {"f7c1": lake.query.marks(7), "other": other.query.marks(0)}
    assert latest_marks(lake.table) == writers
    # Of the other query only what was repeated is left; it is enough to know the batch exactly.
    offsets = other.folder / "state" / "offsets" / "0"
    offsets.write_text("planned otherwise")
    with pytest.raises(PipelineError, match="older than the table"):
        other.writer()(orders([100]), 0)
    offsets.write_text("planned 0")
    other.writer()(orders([100]), 0)
    assert lake.ids() == [*range(11), 100]
    assert expire(lake.table, 0, 1) > 0
    assert latest_marks(lake.table) == writers


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_marks_that_only_snapshots_have_are_kept_when_these_go(lake: Lake) -> None:
    """As tables of an older version have them."""
    write = fill(lake, 3)
    assert isinstance(lake.table, IcebergLake)
    with lake.table.load().transaction() as transaction:
        transaction.remove_properties("tradewind.latest.f7c1")
    maintain(lake.table, EAGER)
    assert expire(lake.table, 0, 1) > 0
    write(orders([4, 5]), 2)
    assert lake.ids() == list(range(6))


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_files_of_forgotten_snapshots_stay_as_long_as_orphans(lake: Lake) -> None:
    """However old the files themselves are: a reader may have begun before."""
    fill(lake, 4)
    assert isinstance(lake.table, IcebergLake)
    reader = lake.table.load().scan()
    before = lake.stored()
    age(lake, 30 * 24)
    policy = MaintenancePolicy(expire_seconds=0, keep_snapshots=1)
    report = maintain(lake.table, policy)
    assert (report.files_joined, report.snapshots_expired, report.removed) == (8, 4, 0)
    assert before < lake.stored()
    assert sorted(reader.to_arrow()["id"].to_pylist()) == list(range(8))
    age(lake, 8 * 24)
    report = maintain(lake.table, policy)
    # Eight files, and the lists of four snapshots with their manifests; and the note of them.
    assert report.removed >= 8 + 4 + 4 + 1
    assert not before & lake.stored()
    assert not list(lake.folder.rglob("tradewind-expired-*"))
    assert lake.ids() == list(range(8))
    assert maintain(lake.table, policy).removed == 0


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_table_that_is_rolled_back_meanwhile_keeps_its_snapshot(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    fill(lake, 3)
    table: Any = lake.table
    oldest = table.load().snapshots()[0].snapshot_id
    real = SqlCatalog.commit_table

    def commit_table(catalog: Any, found: Any, *args: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        table.load().manage_snapshots().rollback_to_snapshot(oldest).commit()
        return real(catalog, found, *args)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    assert expire(table, 0, 1) == 2
    assert [one.snapshot_id for one in table.load().snapshots()] == [oldest]
    assert lake.ids() == [0, 1]


def test_snapshots_of_branches_tags_and_no_branch() -> None:
    def snapshot(number: int, parent: int | None) -> SimpleNamespace:
        return SimpleNamespace(
            snapshot_id=number, parent_snapshot_id=parent, timestamp_ms=number * 100
        )

    def ref(number: int, kind: str) -> SimpleNamespace:
        return SimpleNamespace(snapshot_id=number, snapshot_ref_type=SimpleNamespace(value=kind))

    parents = [(1, None), (2, 1), (3, 2), (4, 3), (5, 2), (6, 1), (7, 4)]
    metadata = SimpleNamespace(
        snapshots=[snapshot(*pair) for pair in parents],
        refs={"main": ref(7, "branch"), "audit": ref(1, "tag"), "try": ref(5, "branch")},
    )
    # 3 was replaced at 400, 2 at 300 in the main branch and at 500 in the other one.
    assert expired_ids(metadata, 399, 1) == set()
    assert expired_ids(metadata, 400, 1) == {3}
    assert expired_ids(metadata, 500, 1) == {2, 3}
    assert expired_ids(metadata, 600, 1) == {2, 3, 6}
    assert expired_ids(metadata, 700, 1) == {2, 3, 4, 6}
    assert expired_ids(metadata, 700, 2) == {3, 6}


def test_a_round_ends_at_its_limits_and_the_next_one_goes_on(lake: Lake) -> None:
    write: Any = lake.writer(partition_by=["region"])
    for number in range(5):
        regions = ["a", "b", "c"] if number < 2 else ["b"]
        write(orders(range(10 * number, 10 * number + len(regions)), region=regions), number)
    report = maintain(lake.table, MaintenancePolicy(bytes_max=1))
    # The partition with the most files comes first.
    assert (report.files_joined, report.files_written, report.groups_left) == (5, 1, 2)
    files = {tuple(file.partition.values()) for file in lake.table.files()}
    assert len([file for file in lake.table.files() if file.partition["region"] == "b"]) == 1
    assert len(files) == 3
    report = maintain(lake.table, MaintenancePolicy(seconds_max=-1))
    assert (report.files_joined, report.groups_left) == (0, 2)
    report = maintain(lake.table)
    assert (report.files_joined, report.groups_left, report.figures.files) == (4, 0, 3)
    assert len(lake.ids()) == 9


def test_a_large_file_is_not_written_again_for_a_few_small_ones(lake: Lake) -> None:
    write: Any = lake.writer()
    many = pa.array([os.urandom(40).hex() for _ in range(400)])
    write(orders(range(400), v=many), 0)
    maintain(lake.table)
    (large,) = lake.table.files()
    for number in range(1, 4):
        write(orders([400 + number], v=["x"]), number)
    assert maintain(lake.table).files_joined == 0
    assert maintain(lake.table, MaintenancePolicy(is_thorough=True)).figures.files == 1
    assert large.path not in {file.path for file in lake.table.files()}
    for number in range(4, 20):
        write(orders([400 + number], v=["x"]), number)
    assert maintain(lake.table).figures.files == 1
    assert len(set(lake.ids())) == len(lake.ids()) == 419


def test_commits_come_in_rounds_so_that_writers_meet_few(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Any = lake.writer(partition_by=["region"])
    for number in range(2):
        write(orders(range(4 * number, 4 * number + 4), region=list("abcd")), number)
    before = figures(lake.table).snapshots
    maintain(lake.table, MaintenancePolicy(expire_seconds=None))
    assert figures(lake.table).snapshots == before + 1
    for number in range(2, 4):
        write(orders(range(4 * number, 4 * number + 4), region=list("abcd")), number)
    before = figures(lake.table).snapshots
    monkeypatch.setattr(compaction, "ROUND_BYTES", 1)
    maintain(lake.table, MaintenancePolicy(expire_seconds=None))
    assert figures(lake.table).snapshots == before + 4
    assert lake.ids() == list(range(16))


def test_figures_tell_of_a_table(lake: Lake) -> None:
    kind = "delta" if isinstance(lake.table, DeltaLake) else "iceberg"
    assert figures(lake.table) == TableFigures(table=lake.table.name, format=kind)
    begin_ms = time.time_ns() // 1_000_000
    fill(lake, 3)
    found = figures(lake.table)
    sizes = [path.stat().st_size for path in lake.stored()]
    assert (found.rows, found.files, found.bytes) == (6, 6, sum(sizes))
    assert (found.small_files, found.average_file_bytes) == (6, sum(sizes) // 6)
    # A Delta table is made by a commit of its own.
    assert found.snapshots == 3 + (kind == "delta")
    assert found.last_compaction_ms is None
    assert found.is_exact
    assert figures(lake.table, target_bytes=100).small_files == 0
    after = maintain(lake.table).figures
    assert (after.rows, after.files, after.snapshots) == (6, 1, found.snapshots + 1)
    assert after.last_compaction_ms is not None
    assert begin_ms - 1000 <= found.committed_ns // 1_000_000 <= after.last_compaction_ms + 1000
    # It is known when the version of that time is gone.
    write: Any = lake.writer()
    for number in range(3, 6):
        write(orders([number * 2]), number)
    assert expire(lake.table, 0, 1) > 0
    assert figures(lake.table).last_compaction_ms == after.last_compaction_ms


def test_a_table_that_is_not_there_is_an_error(lake: Lake) -> None:
    with pytest.raises(PipelineError, match=r"table .* does not exist yet"):
        maintain(lake.table)


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_delta_table_with_deletion_vectors_is_left_alone(lake: Lake) -> None:
    import deltalake

    assert isinstance(lake.table, DeltaLake)
    rows = pa.table({"id": [1, 2, 3]})
    settings = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(lake.table.path, rows, configuration=settings)
    with pytest.raises(PipelineError, match="uses deletionVectors, which is not understood here"):
        maintain(lake.table)
    found = figures(lake.table)
    assert (found.is_exact, found.files) == (False, 1)


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_an_iceberg_table_with_delete_files_is_left_alone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No library here writes such files; a scan tells of them as of these."""
    from pyiceberg.table import DataScan

    fill(lake, 2)
    real = DataScan.plan_files

    def plan_files(scan: Any) -> list[Any]:
        tasks = list(real(scan))
        tasks[0].delete_files.add(tasks[0].file)
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", plan_files)
    with pytest.raises(PipelineError, match="has files of deleted rows, made by another writer"):
        maintain(lake.table)
    assert not figures(lake.table).is_exact


def test_of_a_parquet_folder_only_what_unfinished_batches_left_is_removed(tmp_path: Path) -> None:
    from pyarrow import parquet

    lake = ParquetLake(str(tmp_path / "lake"))
    staging = tmp_path / ".lake.staging"
    with pytest.raises(PipelineError, match=r"table .* does not exist yet"):
        maintain(lake)
    rows = pa.table({"id": [1, 2]})
    places = {
        "in the lake": tmp_path / "lake" / "day=1" / "part-a.parquet",
        "listed": staging / "w-7" / "files-1" / "part-0.parquet",
        "killed before it was listed": staging / "w-7" / "files-0" / "part-0.parquet",
        "of no list": staging / "v-3" / "files-9" / "part-0.parquet",
        "on its way": staging / "u-1" / "files-2" / "part-0.parquet",
    }
    for place in places.values():
        place.parent.mkdir(parents=True)
        parquet.write_table(rows, place)
    moves = [("files-1/part-0.parquet", "day=1/part-w.parquet")]
    staged = StagedBatch({"tradewind.batch": "7"}, moves)
    (staging / "w-7" / "list.json").write_bytes(msgspec.json.encode(staged))
    then = time.time() - 8 * 24 * HOUR
    for path in [*staging.rglob("*"), *tmp_path.rglob("*.parquet")]:
        if "u-1" not in path.parts:
            os.utime(path, (then, then))
    report = maintain(lake)
    assert (report.removed, report.files_joined, report.snapshots_expired) == (2, 0, 0)
    left = {name for name, place in places.items() if place.exists()}
    assert left == {"in the lake", "listed", "on its way"}
    assert (report.figures.rows, report.figures.files, report.figures.small_files) == (2, 1, 1)
    # The folder of the batch is younger now, because something in it has gone.
    assert maintain(lake, MaintenancePolicy(orphan_seconds=-1)).removed == 1
    assert not (staging / "v-3").exists()
    assert places["listed"].exists()
    with pytest.raises(PipelineError, match="is written by Spark's own sink"):
        maintain(ParquetLake("s3://lake/orders"))
