"""One Spark session for all tests of this folder, which therefore run in one process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_kit import start_query

from tradewind.spark.processes.spark_session import get_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


LACKING = re.compile(r"[^:\n]+ with Spark [\d.]+ or later; this is [\d.]+")


# As text: there are tens of thousands of items, and comparing paths took a fifth of the collection.
FOLDER = f"{Path(__file__).parent}/"


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`--dist loadgroup` keeps a group together: those that share the session, which takes its time
    to start. Tests with programs of their own need not wait for them.
    """
    for item in items:
        if str(item.path).startswith(FOLDER):
            shares = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shares else item.path.stem))
            item.add_marker(pytest.mark.timeout(300))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip a test that needs a part which an older Spark lacks, and that reports so."""
    try:
        return (yield)
    except Exception as error:
        from tradewind.spark.processes.features import (
            HAS_PUSHDOWN,
            HAS_STREAM_READS,
            HAS_STREAM_WRITES,
        )

        lacks = not (HAS_STREAM_READS and HAS_STREAM_WRITES and HAS_PUSHDOWN)
        if lacks and (found := LACKING.search(str(error))):
            pytest.skip(found[0])
        raise


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    session = get_session(
        "local[2]",
        {
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "local"),
        },
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _asks_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of the command line go to Spark here; DuckDB has tests of its own."""
    monkeypatch.setenv("TRADEWIND_SQL_ENGINE", "spark")


@pytest.fixture
def _patient_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs of the documentation, which start their queries themselves."""
    from pyspark.sql.streaming import DataStreamWriter

    start = DataStreamWriter.start

    def patiently(writer: DataStreamWriter) -> StreamingQuery:
        return start_query(lambda: start(writer))

    monkeypatch.setattr(DataStreamWriter, "start", patiently)
