"""Tables of both kinds, and frames that do in this process what Spark does in its executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.lake import lake_tables
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake, commits_of
from tradewind.pipelines.lake.lakes import BatchWriter, SinkQuery, latest_of
from tradewind.pipelines.lake.upserts import DELETED, Upsert


class KilledError(Exception):
    """The process ends here."""


class Frame:
    """Rows in one part for each table."""

    def __init__(self, *parts: pa.Table) -> None:
        self.parts = parts
        self.sparkSession = self
        self.sparkContext = self

    @dataclass
    class Broadcast:
        value: Any

        def unpersist(self) -> None:
            """Do nothing: the data is small."""

    def broadcast(self, value: Any) -> Broadcast:
        return Frame.Broadcast(value)


@dataclass
class Rows:
    rows: list[dict[str, Any]]

    def collect(self) -> list[dict[str, Any]]:
        return self.rows


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors in this process; the last row of a key is found by a loop."""

    def map_in_arrow(frame: Frame, function: Callable[..., Any], _schema: str) -> Rows:
        found: list[dict[str, Any]] = []
        for part in frame.parts:
            for batch in function(iter(part.to_batches())):
                found += batch.to_pylist()
        return Rows(found)

    def latest_rows(frame: Frame, upsert: Upsert) -> Frame:
        rows = pa.concat_tables(frame.parts)
        last: dict[Any, int] = {}
        for index, row in enumerate(rows.to_pylist()):
            last[tuple(row[name] for name in upsert.key)] = index
        kept = rows.take(pa.array(sorted(last.values()), pa.int64()))
        deleted = (
            pc.fill_null(pc.equal(kept[upsert.delete_when], "yes"), False)
            if upsert.delete_when
            else pa.chunked_array([pa.array([False] * kept.num_rows)])
        )
        return Frame(kept.append_column(DELETED, deleted))

    monkeypatch.setattr(lake_tables, "map_in_arrow", map_in_arrow)
    monkeypatch.setattr(lake_tables, "latest_rows", latest_rows)
    monkeypatch.setattr(lake_tables, "arrow_schema", lambda frame: frame.parts[0].schema)
    monkeypatch.setattr(
        lake_tables, "spread", lambda _spark, texts: Frame(pa.table({"item": list(texts)}))
    )


@dataclass
class Lake:
    """A table with the checkpoint of the query that writes it."""

    folder: Path
    table: DeltaLake | IcebergLake
    query: SinkQuery = field(init=False)

    def __post_init__(self) -> None:
        checkpoint = self.folder / "state"
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "metadata").write_text('{"id": "f7c1"}')
        for number in range(40):
            (checkpoint / "offsets" / str(number)).write_text(f"planned {number}")
        self.query = SinkQuery("test.lake", checkpoint)

    def writer(self, **how: Any) -> BatchWriter:
        return lake_tables.table_writer(self.table, self.query, lake_tables.TableSink(**how))

    def rows(self) -> list[dict[str, Any]]:
        """The rows that a reader of the table's own library sees."""
        if isinstance(self.table, IcebergLake):
            found: list[dict[str, Any]] = self.table.load().scan().to_arrow().to_pylist()
            return found
        import deltalake

        rows: list[dict[str, Any]] = (
            deltalake.DeltaTable(self.table.path).to_pyarrow_table().to_pylist()
        )
        return rows

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def stored(self) -> set[Path]:
        """All data files, of the table or not."""
        return {path for path in self.folder.rglob("part-*.parquet") if "state" not in path.parts}


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, executors: None) -> Lake:
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    table: DeltaLake | IcebergLake = DeltaLake(str(tmp_path / "delta"))
    if request.param == "iceberg":
        table = IcebergLake(Iceberg("sales.orders", ""), str(tmp_path / "ice"))
    return Lake(tmp_path, table)


def orders(ids: Sequence[int], **columns: Sequence[Any]) -> Frame:
    """Rows in two parts."""
    table = pa.table({"id": pa.array(ids, pa.int64()), **columns})
    half = len(ids) // 2
    return Frame(table.slice(0, half), table.slice(half))


def latest_marks(table: DeltaLake | IcebergLake) -> dict[str, dict[str, str]]:
    """The marks of the latest batch of each writer, whatever has expired or was joined."""
    found = table.load()
    if isinstance(table, DeltaLake):
        return latest_of(found.history())
    return latest_of([found.properties, *commits_of(found)])
