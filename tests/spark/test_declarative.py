"""The examples of declarative pipelines of Spark, run by Spark's own command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import tradewind
import tradewind.sync
from tradewind.spark.processes.java import find_java_home

pytest.importorskip("grpc", reason="pip install 'tradewind[declarative]'")
pytest.importorskip("pandas", reason="pip install 'tradewind[declarative]'")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
RUN_SECONDS = 600


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    program = str(home / "bin" / "spark-pipelines")
    return subprocess.run(
        [program, "run", "--spec", "spark-pipeline.yml"],
        env=environment,
        cwd=folder,
        timeout=RUN_SECONDS,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def copy_example(name: str, folder: Path, server: str) -> Path:
    """An example that reads from this server and keeps its state in this folder."""
    shutil.copytree(EXAMPLES / name, folder / name)
    spec = folder / name / "spark-pipeline.yml"
    text = spec.read_text().replace("nats://127.0.0.1:4222", server)
    spec.write_text(re.sub("file:///tmp/.*", f"file://{folder / 'storage'}", text))
    return spec.parent


@pytest.mark.timeout(2 * RUN_SECONDS)
def test_a_declarative_pipeline_copies_each_order_once(tmp_path: Path) -> None:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        streams = connection.jetstream_manager().streams
        streams.add(name="ORDERS", subjects=["orders.>"])
        streams.add(name="PAID", subjects=["paid.>"])
        folder = copy_example("spark_pipelines", tmp_path, server.url)
        for total in (50, 80):
            publish(connection, total - int(streams.info("ORDERS").state.messages))
            done = run(folder)
            assert done.returncode == 0, done.stdout
            counts = streams.info("PAID", subjects_filter=">").state.subjects
            assert counts == {"paid.east": total // 2, "paid.north": total // 2}


def publish(connection: Any, count: int) -> None:
    js = connection.jetstream()
    for number in range(count):
        js.publish_async(f"orders.{('north', 'east')[number % 2]}", b"{}")
    js.publish_async_completed()


@pytest.mark.timeout(2 * RUN_SECONDS)
def test_auto_cdc_reads_a_bucket_but_cannot_merge_into_a_table_of_spark_itself(
    tmp_path: Path,
) -> None:
    """When this fails because a format of PySpark can be merged into, the example can be run."""
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        connection.jetstream().kv.create("PRICES").put("apple", b"1.5")
        done = run(copy_example("spark_auto_cdc", tmp_path, server.url))
        assert done.returncode != 0
        assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in done.stdout, done.stdout
