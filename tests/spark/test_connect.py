"""The example of Spark Connect, as a program with a Connect server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tradewind
import tradewind.sync
from tradewind.spark.processes.java import find_java_home

pytest.importorskip("grpc", reason="pip install 'tradewind[declarative]'")
pytest.importorskip("pandas", reason="pip install 'tradewind[declarative]'")

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "spark_connect.py"
RUN_SECONDS = 600


@pytest.mark.timeout(2 * RUN_SECONDS)
def test_a_connect_client_reads_and_writes_streams(tmp_path: Path) -> None:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        streams = connection.jetstream_manager().streams
        streams.add(name="ORDERS", subjects=["orders.>"])
        streams.add(name="COPIES", subjects=["copies.>"])
        for number in range(30):
            connection.jetstream().publish(f"orders.{number % 3}", b"%d" % number)
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), "local[2]", server.url, "ORDERS", "COPIES"],
            env=environment,
            cwd=tmp_path,
            timeout=RUN_SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "|orders.2|10   |" in done.stdout
        counts = streams.info("COPIES", subjects_filter=">").state.subjects
        assert counts == {f"copies.orders.{number}": 10 for number in range(3)}
