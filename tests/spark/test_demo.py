"""The main job: a server, orders, a pipeline; twice on one folder, ended by time and by Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tradewind.cli.main import run
from tradewind.pipelines.demo.demo_job import run_demo
from tradewind.pipelines.demo.demo_server import DemoSettings, Screen
from tradewind.pipelines.demo.figures import Figure
from tradewind.pipelines.demo.screen import DemoMoment, picture

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, text
    return found[1].replace(",", "")


def test_the_main_job_ends_by_itself_and_goes_on_after_ctrl_c(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version
    folder = tmp_path / "data"
    flags = ["--folder", str(folder), "--port", "0", "--http-port", "0"]
    assert run(["demo", *flags, "--seconds", "2", "--rate", "50"]) == 0
    first = capsys.readouterr().out
    assert "Tradewind listens on nats://127.0.0.1:" in first
    published = int(number(r"Published ([\d,]+) orders", first))
    assert published > 0
    assert f"stream ORDERS has {published:,} messages" in first
    assert f"from {published:,} orders in" in first
    assert re.search(r"Checked: the bucket has ([\d,.]+), the same as .* \(\1\)", first)

    lines: list[str] = []
    pictures: list[object] = []

    def draw(moment: DemoMoment) -> None:
        pictures.append(picture(moment))
        # Ctrl-C, as soon as figures of this run have come through the pipeline and into the table.
        has_rows = any(table.figures.rows > 0 for table in moment.tables)
        if has_rows and moment.figures.totals().orders > published and not moment.is_stopping:
            os.kill(os.getpid(), signal.SIGINT)

    run_demo(DemoSettings(folder, 0, 0, orders_per_second=50), Screen(lines.append, draw))
    second = "\n".join(lines)
    assert pictures
    more = int(number(r"Published ([\d,]+) orders", second))
    assert f"stream ORDERS has {published + more:,} messages" in second
    assert int(number(r"Table of ORDERS: ([\d,]+) rows", second)) > 0
    if "next run does" not in second:
        assert f"from {published + more:,} orders in" in second
        assert "the same as the sum over the stream" in second


def test_figures_are_read_from_what_spark_writes() -> None:
    value = b'{"minute":"2026-11-16T05-08","region":"us","revenue":4.50,"orders":2,"day":"x"}'
    figure = msgspec.json.decode(value, type=Figure, strict=False)
    assert (str(figure.revenue), figure.orders) == ("4.50", 2)
