"""Small files become large ones beside whoever writes, and only old files of no table go."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from lake_kit import KilledError, Lake, executors, lake, orders

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake import compaction
from tradewind.pipelines.lake.compaction import CompactReport, compact, small_groups
from tradewind.pipelines.lake.lake_files import LakeFile
from tradewind.pipelines.lake.upserts import Upsert

__all__ = ["executors", "lake"]
MIB = 1 << 20


def age(lake: Lake, hours: float) -> None:
    """Have all data files be so old."""
    then = time.time() - hours * 3600
    for path in lake.folder.rglob("*.parquet"):
        os.utime(path, (then, then))


def fill(lake: Lake, count: int = 4, **how: Any) -> Any:
    write: Any = lake.writer(**how)
    for number in range(count):
        write(orders([2 * number, 2 * number + 1], region=["a", "b"]), number)
    return write


def test_rows_stay_and_files_become_fewer(lake: Lake) -> None:
    write = fill(lake, partition_by=["region"])
    report = compact(lake.table)
    assert (report.files_before, report.files_after, report.removed) == (8, 2, 0)
    assert lake.ids() == list(range(8))
    assert {row["region"] for row in lake.rows()} == {"a", "b"}
    # A query goes on, and a batch that was there stays known.
    write(orders([6, 7], region=["a", "b"]), 3)
    write(orders([8], region=["a"]), 4)
    assert lake.ids() == list(range(9))
    assert compact(lake.table).files_after == 2


def test_files_of_a_batch_on_its_way_stay_and_old_ones_of_none_go(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = fill(lake, 2)

    def killed(*_args: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(type(lake.table), "commit", killed)
        with pytest.raises(KilledError):
            write(orders([4, 5], region=["a", "b"]), 2)
    orphans = {path for path in lake.stored() if "00000002" in path.name}
    assert len(orphans) == 2
    compact(lake.table)
    assert orphans <= lake.stored()
    age(lake, 8 * 24)
    assert compact(lake.table).removed >= 2
    assert not orphans & lake.stored()
    assert lake.ids() == list(range(4))
    write(orders([4, 5], region=["a", "b"]), 2)
    assert lake.ids() == list(range(6))


def test_what_is_committed_meanwhile_is_not_lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query replaces rows between what compaction has read and its commit."""
    write = fill(lake, 3, upsert=Upsert(("id",)))
    real = compaction._joined

    def joined(table: Any, group: Any) -> Any:
        files = real(table, group)
        monkeypatch.setattr(compaction, "_joined", real)
        write(orders([0, 9], region=["new", "new"]), 3)
        return files

    monkeypatch.setattr(compaction, "_joined", joined)
    compact(lake.table)
    assert lake.ids() == [0, 1, 2, 3, 4, 5, 9]
    assert {row["id"]: row["region"] for row in lake.rows()}[0] == "new"


def test_killed_between_writing_and_committing_it_loses_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake)

    def killed(*_args: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(type(lake.table), "commit", killed)
        with pytest.raises(KilledError):
            compact(lake.table)
    assert lake.ids() == list(range(8))
    assert compact(lake.table).files_after == 1
    assert lake.ids() == list(range(8))


def test_a_table_that_is_not_there_is_an_error(lake: Lake) -> None:
    with pytest.raises(PipelineError, match=r"table .* does not exist yet"):
        compact(lake.table)


def test_a_table_without_rows_is_left_as_it_is(lake: Lake) -> None:
    lake.table.prepare(orders([1]).parts[0].schema, [])
    assert compact(lake.table) == CompactReport(lake.table.name, 0, 0, 0)


def test_groups_are_of_one_partition_and_near_the_size_that_is_wanted() -> None:
    files = [LakeFile(f"{index:02}", 4 * MIB, 1, {"r": "a"}) for index in range(7)]
    files += [LakeFile("b0", MIB, 1, {"r": "b"}), LakeFile("big", 11 * MIB, 1, {"r": "b"})]
    files += [LakeFile(f"n{index}", MIB, 1, {"r": None}) for index in range(2)]
    groups = [[file.path for file in group] for group in small_groups(files, 12 * MIB)]
    assert groups == [["00", "01", "02"], ["03", "04", "05"], ["n0", "n1"]]
