"""The example of a declarative pipeline of Spark, run by Spark's own command twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import tradewind
import tradewind.sync
from tradewind.spark.java import find_java_home

pytest.importorskip("grpc", reason="pip install 'tradewind[declarative]'")
pytest.importorskip("pandas", reason="pip install 'tradewind[declarative]'")

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "spark_pipelines"
RUN_SECONDS = 600


def run(folder: Path) -> None:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    program = str(home / "bin" / "spark-pipelines")
    subprocess.run(
        [program, "run", "--spec", "spark-pipeline.yml"],
        env=environment,
        cwd=folder,
        timeout=RUN_SECONDS,
        check=True,
    )


@pytest.mark.timeout(2 * RUN_SECONDS)
def test_a_declarative_pipeline_copies_each_order_once(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, folder)
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        streams = connection.jetstream_manager().streams
        streams.add(name="ORDERS", subjects=["orders.>"])
        streams.add(name="PAID", subjects=["paid.>"])
        spec = folder / "spark-pipeline.yml"
        text = spec.read_text().replace("nats://127.0.0.1:4222", server.url)
        spec.write_text(text.replace("/tmp/tradewind-orders-pipeline", str(tmp_path / "storage")))
        for total in (50, 80):
            publish(connection, total - int(streams.info("ORDERS").state.messages))
            run(folder)
            counts = streams.info("PAID", subjects_filter=">").state.subjects
            assert counts == {"paid.east": total // 2, "paid.north": total // 2}


def publish(connection: Any, count: int) -> None:
    js = connection.jetstream()
    for number in range(count):
        js.publish_async(f"orders.{('north', 'east')[number % 2]}", b"{}")
    js.publish_async_completed()
