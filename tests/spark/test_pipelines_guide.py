"""The program of docs/how-to/PIPELINES.md runs, and so do the examples."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipeline_kit import orders_place

from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.demo import demo_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "PIPELINES.md"


def test_the_guide_is_a_program_that_runs(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version
    text = PAGE.read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "guide"})
    printed = capsys.readouterr().out
    (screen,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    assert screen in printed
    assert "verified: no message of the stream is missing" in printed
    assert "0 blocks are damaged" in printed


def test_the_example_runs(spark: SparkSession, tmp_path: Path) -> None:
    with orders_place(spark, tmp_path) as place:
        for name in ("orders_steps.py", "orders_taxes.csv"):
            shutil.copy(ROOT / "examples" / name, tmp_path)
        orders = [("de", 100), ("fr", 10), ("jp", 1), ("de", 0.5)]
        place.publish(
            *(
                json.dumps({"id": number, "country": country, "amount": amount}).encode()
                for number, (country, amount) in enumerate(orders)
            ),
            b'{"id": 9, "amount": 1}',
        )
        place.run((ROOT / "examples" / "orders_pipeline.yaml").read_text())
        lake = spark.read.parquet(str(tmp_path / "orders_lake"))
        found = {row["id"]: str(row["gross"]) for row in lake.collect()}
        assert found == {0: "119.00", 1: "12.00", 2: "1.00", 3: "0.60"}
        (chart,) = (rows for sink, rows in place.shown if sink == "chart" and rows)
        assert {row["country"]: row["orders"] for row in chart} == {"de": 2, "fr": 1, "jp": 1}
        streams = place.connection.jetstream_manager().streams
        assert streams.info("ORDERS_TAXED").state.messages == 4
        letter = streams.get_message("ORDERS_DEAD", seq=1)
        assert letter.headers["Tradewind-Reason"] == "field country is missing"


def test_the_file_of_the_main_job_is_right() -> None:
    pipeline = load_pipeline(Path(demo_job.__file__).with_name(demo_job.PIPELINE_FILE))
    assert set(pipeline.sinks) == {demo_job.LIVE_SINK, "lake"}
