"""A real standalone cluster from the pip package: one master, two workers, on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

import tradewind
import tradewind.sync
from tradewind.spark.java import find_java_home

START_SECONDS = 300
RUN_SECONDS = 600
COUNT = 1000
SPARK_HOME = Path(pyspark.__file__).parent


class Daemon:
    """A process of the cluster; its log is read until a line tells that it is there."""

    def __init__(self, arguments: list[str], folder: Path, ready: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": str(find_java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._is_ready = threading.Event()
        self._ready = re.compile(ready)
        self.found = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._is_ready.wait(START_SECONDS), "\n".join(self._lines)
        assert self.found, "\n".join(self._lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.append(line.rstrip())
                if not self.found and (match := self._ready.search(line)):
                    self.found = match[1]
                    self._is_ready.set()
        self._is_ready.set()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of its master."""
    package = "org.apache.spark.deploy"
    host = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        head = Daemon(
            [f"{package}.master.Master", *host, "--port", "0"],
            tmp_path,
            r"Starting Spark master at (spark://\S+)",
        )
        running.callback(head.stop)
        for number in range(2):
            worker = Daemon(
                [
                    f"{package}.worker.Worker",
                    *host,
                    *("--cores", "1", "--memory", "600m"),
                    *("--work-dir", str(tmp_path / f"worker{number}"), head.found),
                ],
                tmp_path,
                r"(Successfully registered) with master",
            )
            running.callback(worker.stop)
        yield head.found


@pytest.mark.timeout(900)
def test_a_batch_a_query_and_a_pipeline_run_on_a_cluster(cluster: str, tmp_path: Path) -> None:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        streams = connection.jetstream_manager().streams
        for name in ("ORDERS", "BATCH", "TAIL", "PAID"):
            streams.add(name=name, subjects=[f"{name.lower()}.>"])
        js = connection.jetstream()
        for number in range(COUNT):
            js.publish_async("orders.x", b"%d" % number)
        js.publish_async_completed()
        script = Path(__file__).with_name("cluster_driver.py")
        driver = subprocess.run(
            [sys.executable, str(script), cluster, server.url, str(tmp_path)],
            timeout=RUN_SECONDS,
        )
        assert driver.returncode == 0
        result = json.loads((tmp_path / "result.json").read_text())
        assert result == {"executors": 2, "batches": 2, "pipeline": "done"}
        for name in ("BATCH", "TAIL", "PAID"):
            subjects = streams.info(name, subjects_filter=">").state.subjects
            assert subjects == {f"{name.lower()}.{seq}": 1 for seq in range(1, COUNT + 1)}
