"""The programs of docs/how-to/SPARK_RECIPES.md run: joins, duplicates, state and changes."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_kit import Place

import tradewind
import tradewind.sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "SPARK_RECIPES.md"
# The only section whose program needs more than PySpark.
STATE = "Keep your own state"


def sections() -> dict[str, str]:
    """The page by its headings; what comes before the first has none."""
    title, *parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return {"": title, **dict(zip(parts[::2], parts[1::2], strict=True))}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run_program(*texts: str) -> set[str]:
    """The names of the queries, which are those of their checkpoints."""
    names: dict[str, Any] = {"__name__": "recipes", "opened": ExitStack()}
    try:
        program = "\n".join(block for text in texts for block in blocks(text, "python"))
        exec(compile(program, str(PAGE), "exec"), names)
    finally:
        names["opened"].close()
    return {path.name for path in names["folder"].iterdir()}


@pytest.mark.usefixtures("_patient_start")
def test_the_recipes_are_a_program_that_runs(spark: SparkSession) -> None:
    assert spark.version.startswith("4.")
    texts = [text for heading, text in sections().items() if heading != STATE]
    assert {"join", "once"} <= run_program(*texts)


@pytest.mark.usefixtures("_patient_start")
def test_the_state_of_transform_with_state_survives_a_restart(spark: SparkSession) -> None:
    pytest.importorskip("pandas", reason="pip install 'tradewind[declarative]'")
    setting = "spark.sql.streaming.stateStore.providerClass"
    try:
        assert "failures" in run_program(sections()[""], sections()[STATE])
    finally:
        spark.conf.unset(setting)


def test_a_pipeline_keeps_the_current_values_and_the_history_of_a_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = sections()["Changes of a bucket as a table"]
    (pipeline,), (history,) = blocks(text, "yaml"), blocks(text, "sql")
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        place = Place(spark, tmp_path, server.url, connection)
        bucket = connection.jetstream().kv.create("PRICES", history=5)
        bucket.put("apple", b'{"price": 1.5}')
        bucket.put("fig", b'{"price": 4}')
        assert place.run(pipeline).state == "done"
        assert current(tmp_path) == {"apple": 1.5, "fig": 4.0}

        bucket.put("apple", b'{"price": 2}')
        bucket.put("apple", b'{"price": 2.5}')
        bucket.delete("fig")
        bucket.put("pear", b'{"price": 3}')
        assert place.run(pipeline).state == "done"
    assert current(tmp_path) == {"apple": 2.5, "pear": 3.0}

    spark.createDataFrame(rows_of(tmp_path / "lake" / "changes")).createOrReplaceTempView("changes")
    versions = sorted(spark.sql(history).collect(), key=lambda row: (row["key"], row["valid_from"]))
    assert [(row["key"], row["price"], row["valid_to"] is None) for row in versions] == [
        ("apple", 1.5, False),
        ("apple", 2.0, False),
        ("apple", 2.5, True),
        ("fig", 4.0, False),
        ("pear", 3.0, True),
    ]


def current(folder: Path) -> dict[str, float]:
    return {row["key"]: row["price"] for row in rows_of(folder / "lake" / "prices")}


def rows_of(table: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    return DeltaTable(str(table)).to_pyarrow_table().to_pylist()
