"""The ready-made jobs: what they write, that they go on, and that they notice what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pipeline_kit import Place, orders_place
from spark_kit import open_store

import tradewind
import tradewind.sync
from chain_store_kit import rewrite_block, stored_chain, write_store
from tradewind.cli.main import run
from tradewind.pipelines.errors import JobError
from tradewind.pipelines.jobs import audit_chains
from tradewind.pipelines.jobs.archive_job import verify
from tradewind.pipelines.jobs.audit_job import audit
from tradewind.pipelines.jobs.compact_job import compact_to_stream
from tradewind.pipelines.jobs.mirror_job import compare
from tradewind.pipelines.jobs.replay_job import ReplaySettings, replay
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    with orders_place(spark, tmp_path) as place:
        yield place


def job(capsys: pytest.CaptureFixture[str], place: Place, *words: str) -> Any:
    """The report of a job that the command line has run."""
    capsys.readouterr()
    code = run(["-s", place.url, "job", *words, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return msgspec.json.decode(printed.out)


def messages(place: Place, stream: str, url: str = "") -> list[tuple[str, bytes]]:
    with tradewind.sync.connect(url or place.url) as connection:
        streams = connection.jetstream_manager().streams
        last = streams.info(stream).state.last_seq
        found = [streams.get_message(stream, seq=seq) for seq in range(1, last + 1)]
    return [(message.subject, message.data) for message in found]


def test_a_stream_goes_into_a_lake_once_and_back_in_order(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = place.folder / "lake"
    place.publish_orders(0, 50)
    first = job(capsys, place, "archive", "ORDERS", str(lake))
    assert (first["added"], first["rows"], first["missing"]) == (50, 50, 0)
    place.publish_orders(50, 25)
    # What the stream loses stays in the lake.
    place.connection.jetstream_manager().streams.delete_message("ORDERS", 3)
    second = job(capsys, place, "archive", "ORDERS", str(lake))
    assert (second["added"], second["rows"], second["last_seq"]) == (25, 75, 75)
    assert (second["missing"], second["duplicates"]) == (0, 0)

    place.connection.jetstream_manager().streams.add(name="AGAIN", subjects=["again.>"])
    flags = ["--subject", "again.{subject}", "--once", "first", "--where", "seq > 70"]
    folder = str(lake / "ORDERS")
    assert job(capsys, place, "replay", folder, "AGAIN", *flags) == {"rows": 5, "stored": 5}
    assert job(capsys, place, "replay", folder, "AGAIN", *flags) == {"rows": 5, "stored": 0}
    assert [data for _, data in messages(place, "AGAIN")] == [
        data for _, data in messages_of_lake(place, lake)
    ]

    for file in sorted((lake / "ORDERS").rglob("*.parquet"))[:1]:
        file.unlink()
    damaged = verify(place.spark, PipelineAddress(place.url), "ORDERS", lake / "ORDERS", 75)
    assert damaged.missing > 0


def messages_of_lake(place: Place, lake: Path) -> list[tuple[str, bytes]]:
    rows = place.spark.read.parquet(str(lake / "ORDERS")).where("seq > 70").orderBy("seq")
    return [(row["subject"], bytes(row["data"])) for row in rows.collect()]


def test_a_replay_at_the_original_pace_waits_between_messages(place: Place) -> None:
    lake = place.folder / "lake"
    rows = [(seq, "orders.us", f"2026-11-16 08:00:0{seq}", None, b"x") for seq in range(3)]
    schema = (
        "seq bigint, subject string, time string, headers map<string,array<string>>, data binary"
    )
    frame = place.spark.createDataFrame(rows, schema)
    frame.selectExpr("seq", "subject", "timestamp(time) as time", "headers", "data").write.parquet(
        str(lake)
    )

    class Waits(Event):
        """Remembers how long it was asked to wait, and does not."""

        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            self.seconds.append(timeout)
            return False

    waits = Waits()
    settings = ReplaySettings("ORDERS", is_paced=True, speed=0.0001)
    report = replay(
        place.spark, PipelineAddress(place.url), lake, settings, lambda _done, _all: None, waits
    )
    assert report.stored == 3
    # 1 s and 2 s after the first one, slowed down, less what the test took meanwhile.
    assert len(waits.seconds) == 2
    assert 0 < waits.seconds[0] <= 10_000 < waits.seconds[1] <= 20_000
    other = place.folder / "other"
    place.spark.range(1).write.parquet(str(other))
    with pytest.raises(JobError, match="is not an archive of a stream: no column seq"):
        replay(
            place.spark, PipelineAddress(place.url), other, settings, lambda _d, _a: None, Event()
        )


def test_a_mirror_goes_on_and_proves_that_both_agree(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    with tradewind.serve(port=0, jetstream=str(place.folder / "copy")) as other:
        flags = ["--to-server", other.url, "--state", str(place.folder / "mirror"), "--once"]
        place.publish_orders(0, 20)
        place.connection.jetstream().publish("orders.eu", b"with", headers={"Trace": "7"})
        first = job(capsys, place, "mirror", "ORDERS", *flags)
        assert (first["copied"], first["source_messages"], first["extra"]) == (21, 21, 0)
        place.publish_orders(20, 5)
        second = job(capsys, place, "mirror", "ORDERS", *flags)
        assert (second["copied"], second["target_messages"], second["missing"]) == (5, 26, 0)
        assert messages(place, "ORDERS", other.url) == messages(place, "ORDERS")

        with tradewind.sync.connect(other.url) as connection:
            streams = connection.jetstream_manager().streams
            assert streams.get_message("ORDERS", seq=21).headers["Trace"] == "7"
            streams.delete_message("ORDERS", 4)
            connection.jetstream().publish("orders.eu", b"not there")
        both = (PipelineAddress(place.url), "ORDERS", PipelineAddress(other.url), "ORDERS")
        report = compare(place.spark, *both, 26)
        assert (report.missing, report.extra, report.is_same) == (1, 1, False)


def test_an_audit_verifies_every_record(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, {"name": "ORDERS"}, {"name": "OTHERS"}, block_bytes_max=4000) as streams:
        for stream in streams:
            stream.add(200)
    report = audit(spark, root)
    assert (report.streams, report.records, report.damaged) == (2, 400, [])
    assert report.blocks > 4
    files = sorted((root / "jetstream/$G/streams/ORDERS/msgs").glob("*.blk"))
    content = bytearray(files[1].read_bytes())
    content[len(content) // 2] ^= 1
    files[1].write_bytes(content)
    report = audit(spark, root)
    (found,) = report.damaged
    assert found.path == str(files[1])
    assert found.problem.startswith("byte ")
    assert 0 < found.damaged_bytes < len(content)
    assert report.records < 400
    assert run(["job", "audit", str(root)]) == 1
    with pytest.raises(JobError, match="not a store; a store has a folder"):
        audit(spark, tmp_path)


def test_an_audit_verifies_chains_in_ranges(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit_chains, "TASK_ENTRIES", 8)
    chain = stored_chain(30)
    folder = write_store(tmp_path / "store", chain)
    (report,) = audit(spark, tmp_path / "store").chains
    assert report.faults == []
    assert (report.size, report.messages, report.checkpoints) == (33, 27, 6)
    assert (report.removed, report.proved_sequence) == ({"deleted": 3}, 30)
    messages = {**chain.live, 12: replace(chain.live[12], payload=b"forged")}
    del messages[21]
    rewrite_block(folder, "ORDERS", messages.values())
    capsys.readouterr()
    assert run(["job", "audit", str(tmp_path / "store")]) == 1
    said = capsys.readouterr().out
    assert "chain of ORDERS: changed: sequence 12: content changed\n" in said
    assert "chain of ORDERS: removed: sequence 21: missing, and" in said
    assert "33 entries, 26 messages, 2 faults, proved up to sequence 11\n" in said


def test_the_latest_message_of_each_subject_is_kept(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        place.publish(str(number).encode(), subject=f"orders.{number % 4}")
    flags = ["compact", "ORDERS", "--to", str(place.folder / "latest")]
    for _ in range(2):
        report = job(capsys, place, *flags)
        assert (report["messages"], report["subjects"]) == (12, 4)
    rows = place.spark.read.parquet(str(place.folder / "latest")).collect()
    assert sorted(int(bytes(row["data"])) for row in rows) == [8, 9, 10, 11]
    assert not (place.folder / "latest.new").exists()

    streams = place.connection.jetstream_manager().streams
    for lose in (None, None, streams.purge, streams.delete):
        if lose is not None:
            lose("LATEST")
        report = job(capsys, place, "compact", "ORDERS", "--to-stream", "LATEST")
        assert report["subjects"] == 4
    assert sorted(messages(place, "LATEST")) == [
        (f"latest.orders.{number}", str(number + 8).encode()) for number in range(4)
    ]
    with pytest.raises(JobError, match="keeps -1 messages of a subject"):
        compact_to_stream(
            place.spark, PipelineAddress(place.url), "LATEST", "ORDERS", "x.{subject}"
        )
