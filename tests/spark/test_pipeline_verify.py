"""Lakes that are what their streams are, and lakes that are not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pipeline_kit import REGIONS, Place, orders_place
from pipeline_texts_kit import HEAD, ORDERS
from pyarrow import parquet

from tradewind.cli.main import run
from tradewind.pipelines.checks.verifying import verify
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.state.verdicts import Difference, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    with orders_place(spark, tmp_path) as place:
        yield place


def check(place: Place, sink: str, *columns: str) -> Verdict:
    pipeline = load_pipeline(place.folder / "p.yaml")
    return verify(pipeline, place.spark, PipelineAddress(place.url), sink, columns)


def test_a_lake_is_compared_with_its_stream(place: Place) -> None:
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    text = f"""{HEAD}{ORDERS}      bad: skip
steps:
  kept: {{sql: "select seq, subject, id, region, amount from orders where id <> 5"}}
  sums: {{sql: 'select region, count(*) as n from orders group by region'}}
sinks:
  delta: {{from: kept, delta: lake/delta, partition_by: [region, "bucket(2, id)"]}}
  now: {{from: kept, iceberg: {{table: a.now, warehouse: lake/ice}}, mode: upsert, key: region}}
"""
    place.publish_orders(0, 10)
    place.publish(b"no json")
    place.run(text)
    for sink, rows in (("delta", 9), ("now", 3)):
        verdict = check(place, sink)
        assert (verdict.outcome, verdict.rows_stream, verdict.rows_lake) == ("same", rows, rows)
        assert [(one.first_seq, one.last_seq) for one in verdict.ranges] == [(1, 11)]

    # What is gone from the stream cannot be compared, at its begin and inside of it. What comes
    # later is not committed. A row less, one twice, one of no message, one with another column.
    place.publish_orders(10, 1)
    streams = place.connection.jetstream_manager().streams
    streams.purge("ORDERS", seq=3)
    streams.delete_message("ORDERS", 5)
    table = deltalake.DeltaTable(str(place.folder / "lake" / "delta"))
    table.delete("seq = 4")
    table.update(updates={"amount": "7.77"}, predicate="seq = 8")
    rows = table.to_pyarrow_table()
    twice = rows.filter([seq == 9 for seq in rows["seq"].to_pylist()])
    for more in (twice, twice.set_column(0, "seq", [[6]])):
        deltalake.write_deltalake(table, more, mode="append")
    verdict = check(place, "delta")
    assert (verdict.outcome, verdict.rows_stream, verdict.rows_lake) == ("different", 6, 8)
    assert verdict.removed == 1
    assert [(one.first_seq, one.rows_before) for one in verdict.ranges] == [(3, 2)]
    assert verdict.counts == {"missing": 1, "changed": 1, "twice": 1, "extra": 1}
    assert verdict.differences == [
        Difference("ORDERS", 4, 4, "missing"),
        Difference("ORDERS", 6, 6, "extra"),
        Difference("ORDERS", 8, 8, "changed"),
        Difference("ORDERS", 9, 9, "twice"),
    ]

    with (place.folder / "p.yaml").open("a") as file:
        file.write("  sums: {from: sums, delta: lake/sums, mode: complete}\n")
    assert check(place, "sums").reason == "it has not committed a batch yet"
    queries = place.folder / "state" / "queries"
    shutil.copytree(queries / "delta", queries / "sums")
    reason = check(place, "sums").reason
    assert "step sums cannot be recomputed: it makes rows from several others (Aggregate" in reason


def test_the_command_compares_folders_of_parquet_files(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        code = run(["-s", place.url, "pipeline", "verify", str(place.folder / "p.yaml"), *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    text = f"""{HEAD}{ORDERS}      bad: skip
steps:
  kept: {{sql: "select seq, subject, id, region, amount from orders"}}
sinks:
  files: {{from: kept, parquet: lake, partition_by: region}}
  shown: {{from: kept, console: {{rows: 1}}}}
"""
    place.publish_orders(0, 12)
    place.run(text)
    code, out, _ = command("--sink", "files")
    assert code == 0
    assert out == (
        "files: the lake matches the stream: 12 rows of the stream, 12 of the lake\n"
        "  ORDERS: sequences 1 to 12 were compared\n"
    )
    # One file is gone, another one is there a second time, and one has another amount.
    lake = place.folder / "lake"
    north, east, south = (next((lake / f"region={name}").iterdir()) for name in REGIONS)
    lost = parquet.read_table(north, partitioning=None)["seq"].to_pylist()
    twice = parquet.read_table(east, partitioning=None)["seq"].to_pylist()
    north.unlink()
    shutil.copy(east, east.with_name("part-copy.parquet"))
    table = parquet.read_table(south, partitioning=None)
    amounts = pa.array([0, *table["amount"].to_pylist()[1:]], table.schema.field("amount").type)
    changed = table["seq"][0].as_py()
    column = table.column_names.index("amount")
    parquet.write_table(table.set_column(column, "amount", amounts), south)
    code, out, _ = command("--json")
    assert code == 1
    (verdict,) = json.loads(out)
    assert verdict["outcome"] == "different"
    assert (verdict["rows_stream"], verdict["rows_lake"]) == (12, 12 - len(lost) + len(twice))
    assert verdict["counts"] == {"missing": len(lost), "twice": len(twice), "changed": 1}
    found = {
        (seq, one["kind"])
        for one in verdict["differences"]
        for seq in range(one["first_seq"], one["last_seq"] + 1)
    }
    assert found == {
        *((seq, "missing") for seq in lost),
        *((seq, "twice") for seq in twice),
        (changed, "changed"),
    }
    # Without the column that was changed there is nothing wrong with that row.
    code, out, _ = command("--columns", "id,region", "--json")
    assert "changed" not in json.loads(out)[0]["counts"]
    for words, problem in (
        (("--sink", "shown"), "shown is a console sink: there is no lake to compare"),
        (("--sink", "filse"), "sink 'filse' does not exist; did you mean 'files'?"),
        (("--columns", "amuont"), "amuont"),
    ):
        code, out, err = command(*words)
        assert (code, out) == (1, "")
        assert problem in err
        assert "Traceback" not in err
