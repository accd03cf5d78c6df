"""A driver for a cluster: a batch, a streaming query and a pipeline, then the counts as JSON.

It has the NATS server inside. Each job has a login of its own: from a context, a variable and a
file, which every host has for itself.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql.functions import udf
from spark_kit import run_query

import tradewind
import tradewind.sync
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.spark.connections.logins import JobLogin
from tradewind.spark.processes.spark_session import get_session

COUNT = 1000
# Of each of two partitions so many rows come before the kill: the batch is killed in its middle.
ROWS_BEFORE_KILL = 250
WAIT_SECONDS = 900
PIPELINE = """\
pipeline: regions
checkpoint: state
sources:
  orders: {stream: ORDERS}
steps:
  paid: {sql: "select seq, cast(data as string) as text from orders"}
sinks:
  out: {from: paid, stream: PAID, subject: "paid.{seq}", data: text}
"""


class Place:
    """The names of files in a folder through which the test and the driver communicate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, name: str) -> None:
        (self.folder / name).touch()

    def wait(self, name: str, is_other_there: Callable[[], bool] = lambda: True) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (self.folder / name).exists():
            assert is_other_there(), f"it has ended before it said {name!r}"
            assert time.monotonic() < deadline, f"nobody says {name!r}"
            time.sleep(0.01)


class Jobs:
    """All jobs on one cluster, through one server."""

    def __init__(self, spark: Any, server: str, given: dict[str, Any], place: Place) -> None:
        self.spark = spark
        self.server = server
        self.given = given
        self.place = place
        by_context = given["logins"]["context"]
        self.connection = tradewind.sync.connect(
            server, user=by_context["user"], password=by_context["password"]
        )
        self.streams = self.connection.jetstream_manager().streams
        self.result: dict[str, Any] = {}

    def fill(self) -> None:
        for name in ("ORDERS", "BATCH", "TAIL", "PAID"):
            self.streams.add(name=name, subjects=[f"{name.lower()}.>"])
        js = self.connection.jetstream()
        for number in range(COUNT):
            js.publish_async("orders.x", b"%d" % number)
        js.publish_async_completed()

    def batch(self) -> None:
        """By a context, which driver and executors each have in a file of their own."""
        login = {"context": "hub"}
        orders = self.spark.read.format("jetstream").options(
            **login, stream="ORDERS", minPartitions=2
        )
        frame = orders.load().selectExpr("concat('batch.', seq) as subject", "data")
        frame.write.format("jetstream").mode("append").options(**login, stream="BATCH").save()
        self.result["executors"] = self._executors(orders)

    def query(self) -> None:
        """By a variable that Spark gives to executors, while a host is killed in mid-batch."""
        login = {"servers": self.server, "user": "variable", "password": "env:NATS_PASSWORD"}
        folder = str(self.place.folder)
        held = udf(lambda seq: _held(seq, folder), useArrow=False)
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        run_query(
            self.spark.readStream.format("jetstream")
            .options(**login, stream="ORDERS", minPartitions=2)
            .load()
            .select(held("seq").alias("subject"), "data")
            .writeStream.format("jetstream")
            .options(**login, stream="TAIL", checkpointLocation=str(self.place.folder / "check"))
            .trigger(availableNow=True)
        )
        watcher.join()
        orders = self.spark.read.format("jetstream").options(
            **login, stream="ORDERS", minPartitions=2
        )
        self.result["executors_left"] = self._executors(orders)

    def _watch(self) -> None:
        """Ask for the kill when some rows of the batch are there, and say how many there were."""
        while not self.streams.info("TAIL").state.messages:
            time.sleep(0.01)
        self.place.say("rows")
        self.place.wait("killed")
        self.result["rows_at_kill"] = self.streams.info("TAIL").state.messages
        self.place.say("counted")

    def pipeline(self) -> None:
        """By a file that each host has."""
        path = self.place.folder / "regions.yaml"
        path.write_text(PIPELINE)
        made = load_pipeline(path)
        login = JobLogin(user="file", password=f"file:{self.given['password_file']}")
        address = PipelineAddress(self.server, "", login)
        runner = Runner(made, self.spark, address, lambda *_: None, is_once=True)
        with running(runner, made.checkpoint):
            runner.wait(Event(), lambda _status: None)
        self.result["pipeline"] = runner.status.state

    def counts(self) -> None:
        """Print, for each copy, how many rows exist exactly once, as they should, and how many
        others.
        """
        for name in ("BATCH", "TAIL", "PAID"):
            found = self.streams.info(name, subjects_filter=">").state.subjects
            wanted = {f"{name.lower()}.{seq}": 1 for seq in range(1, COUNT + 1)}
            right = sum(wanted.get(subject) == count for subject, count in found.items())
            self.result[name] = [right, len(found) - right]

    def _executors(self, orders: Any) -> int:
        """How many executors read a stream; none of them sees the store."""
        store = self.given["store"]
        seen = orders.load().rdd.map(lambda _: _executor(store)).distinct().collect()
        self.result.setdefault("stores_seen", []).extend(has_store for _, has_store in seen)
        return len(seen)


def main(master: str, folder: str) -> None:
    place = Place(Path(folder))
    given = json.loads((place.folder / "given.json").read_text())
    address = given["address"]
    spark = get_session(
        master,
        {
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            "spark.executorEnv.NATS_PASSWORD": given["logins"]["variable"]["password"],
            "spark.ui.enabled": "false",
            # Both workers take part from the first task on.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{WAIT_SECONDS}s",
            # Rows reach the sink in small portions, and none waits for others.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
            "spark.buffer.size": "512",
            "spark.sql.warehouse.dir": folder,
        },
    )
    with tradewind.serve(config=given["config"], host=address) as server:
        jobs = Jobs(spark, server.url, given, place)
        with jobs.connection:
            jobs.fill()
            jobs.batch()
            jobs.query()
            jobs.pipeline()
            jobs.counts()
    (place.folder / "result.json").write_text(json.dumps(jobs.result))
    spark.stop()


def _held(seq: int, folder: str) -> str:
    """The subject of a row; one in the middle of a partition comes after the kill."""
    while seq % (COUNT // 2) == ROWS_BEFORE_KILL and not Path(folder, "counted").exists():
        time.sleep(0.01)
    return f"tail.{seq}"


def _executor(store: str) -> tuple[str, bool]:
    """The folder of the executor that this runs in, and whether it sees the server's store."""
    return str(Path.cwd()), any(Path(store).iterdir())


if __name__ == "__main__":
    main(*sys.argv[1:])
