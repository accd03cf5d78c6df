"""Source and sink on a stream with three replicas in a nats-server cluster, with killed leaders."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import run_query

from cluster_kit import LocalCluster, local_cluster, patiently, replicated_stream
from harness import wait_for
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 4000
PIPE_COUNT = 600
PIPE_SECONDS = 200
PIPELINE = """\
pipeline: numbers
checkpoint: state
trigger: 1 second
sources:
  numbers: {stream: NUMBERS}
steps:
  texts: {sql: "select cast(data as string) as number from numbers"}
sinks:
  copy: {from: texts, stream: COPY, subject: "copy.{number}", data: number}
  keys: {from: texts, bucket: KEYS, key: "{number}", value: number}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def numbers(spark: SparkSession, cluster: LocalCluster, stream: str) -> list[int]:
    """What Spark reads of a stream, sorted."""
    reader = spark.read.format("jetstream").options(servers=cluster.url, stream=stream)
    return sorted(int(row.data) for row in reader.load().select("data").collect())


def test_a_write_goes_on_when_the_leader_is_killed(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    with replicated_stream(cluster, "OUT", "out.>") as connection:
        leader = cluster.leader_of(connection, "OUT")
        streams = connection.jetstream_manager().streams

        def kill_when_rows_arrive() -> None:
            while not patiently(lambda: streams.info("OUT")).state.messages:
                pass
            leader.kill()

        killer = threading.Thread(target=kill_when_rows_arrive)
        killer.start()
        frame = spark.range(COUNT).selectExpr(
            "'out.row' as subject", "cast(cast(id as string) as binary) as data"
        )
        writer = frame.repartition(2).write.format("jetstream").mode("append")
        writer.options(servers=cluster.url, stream="OUT").save()
        killer.join()
        cluster.start()
        assert numbers(spark, cluster, "OUT") == list(range(COUNT))


def test_a_streaming_query_resumes_after_the_leader_was_killed(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    with replicated_stream(cluster, "IN", "in.>") as connection:
        js = connection.jetstream()

        def publish(begin: int) -> None:
            for number in range(begin, begin + 200):
                js.publish("in.row", str(number).encode(), msg_id=str(number), timeout=60)

        def batch() -> None:
            frame = spark.readStream.format("jetstream").options(
                servers=cluster.url, stream="IN", startingOffsets="earliest"
            )
            run_query(
                frame.load()
                .selectExpr("cast(data as string) as number")
                .writeStream.format("json")
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
            )

        publish(0)
        batch()
        cluster.leader_of(connection, "IN").kill()
        publish(200)
        batch()
        found = spark.read.json(str(tmp_path / "out")).collect()
        assert sorted(int(row.number) for row in found) == list(range(400))


class Feeder(threading.Thread):
    """Publishes while a pipeline runs, kills the leader of what it reads and of what it writes
    after a third and two thirds, and ends the run when both sinks have caught up.
    """

    def __init__(self, cluster: LocalCluster, connection: Any) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.connection = connection
        self.is_done = threading.Event()
        self.error = ""

    def messages(self, stream: str) -> int:
        streams = self.connection.jetstream_manager().streams
        return int(patiently(lambda: streams.info(stream)).state.messages)

    def run(self) -> None:
        try:
            js = self.connection.jetstream()
            for number in range(PIPE_COUNT):
                if number in (PIPE_COUNT // 3, 2 * PIPE_COUNT // 3):
                    self._wait_for(number)
                    stream = "NUMBERS" if number < PIPE_COUNT // 2 else "COPY"
                    self.cluster.start()
                    self.cluster.leader_of(self.connection, stream).kill()
                js.publish("numbers.x", str(number).encode(), msg_id=str(number), timeout=60)
            self._wait_for(PIPE_COUNT)
        except Exception as error:
            self.error = repr(error)
        finally:
            self.is_done.set()

    def _wait_for(self, count: int) -> None:
        wait_for(
            lambda: min(self.messages("COPY"), self.messages("KV_KEYS")) >= count,
            f"the pipeline has not written {count} rows",
            PIPE_SECONDS,
        )


def test_a_pipeline_goes_on_when_leaders_are_killed(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """It is one run: nobody starts it again. Each row is in the stream and in the bucket once."""
    path = tmp_path / "numbers.yaml"
    path.write_text(PIPELINE)
    with (
        replicated_stream(cluster, "NUMBERS", "numbers.>") as connection,
        replicated_stream(cluster, "COPY", "copy.>"),
    ):
        js = connection.jetstream()
        patiently(lambda: js.kv.create("KEYS", replicas=3))
        pipeline = load_pipeline(path)
        runner = Runner(pipeline, spark, PipelineAddress(cluster.url), lambda *_: None)
        feeder = Feeder(cluster, connection)
        with running(runner, pipeline.checkpoint):
            feeder.start()
            runner.wait(feeder.is_done, lambda _status: None)
        assert (feeder.error, runner.status.state) == ("", "stopped")
        cluster.start()
        streams = connection.jetstream_manager().streams
        for stream, subject in (("COPY", "copy."), ("KV_KEYS", "$KV.KEYS.")):
            found = patiently(partial(streams.info, stream, subjects_filter=">")).state
            assert found.subjects == {f"{subject}{number}": 1 for number in range(PIPE_COUNT)}
            # None was written and replaced: a bucket shows only the last value of a key.
            assert found.last_seq == PIPE_COUNT
        patiently(lambda: js.kv.delete("KEYS"))
