"""A batch on its way into a folder of Parquet files, killed at every step: each row is there once.

No Spark is needed for this: a frame that writes itself with Arrow stands for one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake import parquet_lakes
from tradewind.pipelines.lake.lakes import SinkQuery
from tradewind.pipelines.lake.parquet_lakes import parquet_writer

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset")


class KilledError(Exception):
    """The process ends here."""


class Frame:
    """Rows that become two files; it may be killed behind the first."""

    def __init__(self, rows: list[int], *, is_killed: bool = False) -> None:
        self._rows = rows
        self._is_killed = is_killed
        self.write = self

    def parquet(self, path: str) -> None:
        folder = Path(path)
        folder.mkdir(parents=True)
        half = len(self._rows) // 2
        for index, rows in enumerate((self._rows[:half], self._rows[half:], [])):
            table = pa.table({"id": pa.array(rows, pa.int64())})
            pq.write_table(table, folder / f"part-{index}-x.snappy.parquet")
            if self._is_killed:
                raise KilledError


@pytest.fixture
def query(tmp_path: Path) -> SinkQuery:
    checkpoint = tmp_path / "state"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "f7c1"}')
    for number in range(4):
        (checkpoint / "offsets" / str(number)).write_text(f"planned {number}")
    return SinkQuery("test.lake", checkpoint)


def ids(lake: Path) -> list[int]:
    """What a reader sees that knows nothing of Spark."""
    found: list[int] = dataset.dataset(str(lake), format="parquet").to_table()["id"].to_pylist()
    assert len(list(lake.rglob("*.parquet"))) == len(list(lake.iterdir()))
    return sorted(found)


@pytest.mark.parametrize("kill_at", [1, 2, 3, 4])
def test_each_row_is_there_once_wherever_a_batch_is_killed(
    tmp_path: Path, query: SinkQuery, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    """Nothing becomes visible but by renaming: the list, each of two files, and that it is done."""
    lake = tmp_path / "lake"
    write: Any = parquet_writer(str(lake), query, [])
    write(Frame([1, 2, 3]), 0)
    with pytest.raises(KilledError):
        write(Frame([4, 5, 6], is_killed=True), 1)
    assert ids(lake) == [1, 2, 3]
    calls = 0

    def killed_in(real: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def call(self: Path, target: Path) -> Path:
            nonlocal calls
            calls += 1
            if calls == kill_at:
                raise KilledError
            return real(self, target)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(Path, name, killed_in(getattr(Path, name)))
        with pytest.raises(KilledError):
            write(Frame([4, 5, 6]), 1)
    found = ids(lake)
    assert len(found) == len(set(found))
    for _ in range(2):
        write(Frame([4, 5, 6]), 1)
        assert ids(lake) == [1, 2, 3, 4, 5, 6]
    assert list((tmp_path / ".lake.staging").iterdir()) == []


def test_all_names_of_a_batch_are_on_the_disk_before_it_is_done(
    tmp_path: Path, query: SinkQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is new to the folder above it, so that one is synced as well."""
    synced: set[Path] = set()
    lake = tmp_path / "lake"

    class Nested(Frame):
        def parquet(self, path: str) -> None:
            super().parquet(f"{path}/day=1/hour=2")

    def sync(path: Path) -> None:
        if "published" not in synced_names():
            synced.add(Path(path))

    def synced_names() -> list[str]:
        return [path.stem for path in query.checkpoint.iterdir()]

    monkeypatch.setattr(parquet_lakes, "sync_path", sync)
    write: Any = parquet_writer(str(lake), query, [])
    write(Nested([1, 2, 3]), 0)
    wanted = {lake, lake / "day=1", lake / "day=1" / "hour=2", tmp_path}
    assert wanted | {tmp_path / ".lake.staging"} <= synced


def test_a_checkpoint_that_was_put_back_is_an_error(tmp_path: Path, query: SinkQuery) -> None:
    write: Any = parquet_writer(str(tmp_path / "lake"), query, [])
    for number in (0, 1):
        write(Frame([number]), number)
    with pytest.raises(PipelineError, match="the checkpoint is older than the table"):
        write(Frame([7]), 0)
    (query.checkpoint / "offsets" / "1").write_text("planned otherwise")
    with pytest.raises(PipelineError, match="the checkpoint is older than the table"):
        write(Frame([7]), 1)
    assert ids(tmp_path / "lake") == [0, 1]


def test_a_folder_of_sparks_own_sink_is_refused(tmp_path: Path, query: SinkQuery) -> None:
    (tmp_path / "lake" / parquet_lakes.SPARK_LIST).mkdir(parents=True)
    with pytest.raises(PipelineError, match="choose another folder"):
        parquet_writer(str(tmp_path / "lake"), query, [])


def test_files_of_an_attempt_whose_java_lives_on_are_not_in_the_lake(
    tmp_path: Path, query: SinkQuery
) -> None:
    """The Python of a driver is killed; its Java goes on writing while the next driver begins."""
    lake = tmp_path / "lake"
    write: Any = parquet_writer(str(lake), query, [])
    paths: list[str] = []

    class Dying(Frame):
        def parquet(self, path: str) -> None:
            paths.append(path)
            raise KilledError

    class Next(Frame):
        def parquet(self, path: str) -> None:
            super().parquet(path)
            folder = Path(paths[0])
            folder.mkdir(parents=True, exist_ok=True)
            table = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
            pq.write_table(table, folder / "part-0-of-the-other.snappy.parquet")

    with pytest.raises(KilledError):
        write(Dying([1, 2, 3]), 0)
    write(Next([1, 2, 3]), 0)
    assert ids(lake) == [1, 2, 3]
    assert list((tmp_path / ".lake.staging").iterdir()) == []
