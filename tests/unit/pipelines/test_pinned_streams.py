"""Table and tail together are the stream, at every moment and whoever else is at work."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tradewind
import tradewind.sync
from tradewind.api.times import parse_time
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lakes import MARK_BATCH, MARK_UNTIL, MARK_WRITER
from tradewind.pipelines.lake.parquet_lakes import keep_columns
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.tables import pinned_streams
from tradewind.pipelines.tables.pinned_streams import (
    PinnedStream,
    StreamPlace,
    latest_puts,
    pin_stream,
    table_spec_of,
)
from tradewind.pipelines.tables.table_columns import table_columns
from tradewind.pipelines.tables.table_spec import TableSpec, with_table
from tradewind.spark.errors import DataLossError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.reads.reading import BatchReader
from written_tables import RAW_SCHEMA, WrittenTable, raw_rows, read_point, spec_of, written_table

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
BATCHES = 12
PER_BATCH = 40


class Live:
    """A server with a stream, and the job that writes its table."""

    def __init__(self, url: str, connection: Any, spec: TableSpec, stream: str = "ORDERS") -> None:
        self.where = StreamPlace(PipelineAddress(url))
        self.connection = connection
        self.streams = connection.jetstream_manager().streams
        self.spec = spec
        info = self.streams.add(
            name=stream, subjects=["orders.*"], metadata=with_table({}, spec), allow_direct=True
        )
        self.table = written_table(spec, stream, parse_time(info.created))
        self.done = 0

    def publish(self, count: int) -> None:
        js = self.connection.jetstream()
        for number in range(count):
            js.publish_async(f"orders.{number % 3}", b"%d" % number)
        js.publish_async_completed()

    def write_batch(self, until_seq: int) -> None:
        """Have the table go up to a sequence."""
        found = [self.streams.get_message("ORDERS", seq=seq) for seq in self.missing(until_seq)]
        rows = {
            "seq": [one.seq for one in found],
            "subject": [one.subject for one in found],
            "time": [one.time for one in found],
            "headers": [None for _ in found],
            "data": [one.data for one in found],
        }
        self.table.add(pa.table(rows, RAW_SCHEMA), until_seq)
        self.done = until_seq

    def missing(self, until_seq: int) -> range:
        return range(self.done + 1, until_seq + 1)

    def pin(self, **more: Any) -> PinnedStream:
        found = pin_stream("ORDERS", self.where, **more)
        assert found is not None
        return found


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[TableSpec], Live]]:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        yield lambda spec: Live(server.url, connection, spec)


def all_rows(pinned: PinnedStream) -> list[tuple[int, bytes]]:
    assert pinned.rows is not None
    both = pa.concat_tables([read_point(pinned.point), pinned.rows])
    return sorted(zip(both["seq"].to_pylist(), both["data"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_every_point_is_the_exact_begin_of_the_stream(
    serve: Callable[[TableSpec], Live], tmp_path: Path, kind: str
) -> None:
    """A writer commits, a compactor compacts, and the stream loses what the table has."""
    live = serve(spec_of(tmp_path, kind, tiers=True))
    live.publish(PER_BATCH)
    live.write_batch(PER_BATCH // 2)
    ended, failed = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            for _ in range(BATCHES):
                live.publish(PER_BATCH)
                live.write_batch(live.done + PER_BATCH)
                live.streams.purge("ORDERS", seq=live.done + 1)
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    def tidy() -> None:
        try:
            while not ended.is_set():
                live.table.join()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for work in (write, tidy)]
    for thread in threads:
        thread.start()
    points: list[PinnedStream] = []
    try:
        while not ended.is_set():
            points.append(live.pin())
            check_prefix(points[-1])
    finally:
        ended.wait(120)
        for thread in threads:
            thread.join(120)
    assert not failed
    last = live.pin()
    assert last.last_seq == PER_BATCH * (BATCHES + 1)
    # What was pinned first can still be read.
    for point in (*points[:3], last):
        check_prefix(point)
    assert len({point.point.version for point in points}) > 3


def check_prefix(pinned: PinnedStream) -> None:
    rows = all_rows(pinned)
    assert [seq for seq, _ in rows] == list(range(1, pinned.last_seq + 1))
    assert all(data == b"%d" % ((seq - 1) % PER_BATCH) for seq, data in rows)


def test_the_table_is_found_on_the_server_and_in_its_files(
    serve: Callable[[TableSpec], Live], tmp_path: Path
) -> None:
    live = serve(spec_of(tmp_path, "delta"))
    live.publish(10)
    assert pin_stream("ORDERS", live.where) is None
    live.write_batch(6)
    files = StreamPlace(store=str(tmp_path / "store"))
    for where in (live.where, files):
        assert table_spec_of("ORDERS", where) == live.spec
        found = pin_stream("ORDERS", where)
        assert found is not None
        assert found.rows is not None
        assert found.rows["seq"].to_pylist() == [7, 8, 9, 10]
        assert [seq for seq, _ in all_rows(found)] == list(range(1, 11))
    live.write_batch(10)
    assert not live.pin().has_tail
    live.streams.add(name="OTHER", subjects=["other"])
    assert table_spec_of("OTHER", live.where) is None
    with pytest.raises(PipelineError, match="'NONE': stream not found"):
        table_spec_of("NONE", live.where)


def test_a_large_tail_is_left_to_the_executors_up_to_the_same_end(
    serve: Callable[[TableSpec], Live], tmp_path: Path
) -> None:
    live = serve(spec_of(tmp_path, "delta"))
    live.publish(10)
    live.write_batch(4)
    large = live.pin(tail_bytes_max=0)
    live.publish(5)
    assert large.rows is None
    assert large.has_tail
    assert (large.options["startingSeq"], large.options["endingSeq"]) == ("5", "10")


def test_a_tail_that_limits_remove_meanwhile_is_looked_for_again(
    serve: Callable[[TableSpec], Live], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = serve(spec_of(tmp_path, "iceberg", tiers=True))
    live.publish(20)
    live.write_batch(5)
    real = pinned_streams._tail_tasks

    def late(*given: Any, **named: Any) -> Any:
        tasks = real(*given, **named)
        monkeypatch.setattr(pinned_streams, "_tail_tasks", real)
        live.write_batch(15)
        live.streams.purge("ORDERS", seq=13)
        return tasks

    monkeypatch.setattr(pinned_streams, "_tail_tasks", late)
    assert [seq for seq, _ in all_rows(live.pin())] == list(range(1, 21))

    def never(*_given: Any, **_named: Any) -> Any:
        raise DataLossError("sequences 1 to 2 are gone")

    monkeypatch.setattr(pinned_streams, "_tail_tasks", never)
    with pytest.raises(PipelineError, match="in 10 attempts, messages were removed"):
        live.pin()


def test_a_stream_that_was_created_again_is_an_error(
    serve: Callable[[TableSpec], Live], tmp_path: Path
) -> None:
    live = serve(spec_of(tmp_path, "delta"))
    live.publish(5)
    live.write_batch(5)
    live.streams.delete("ORDERS")
    live.streams.add(name="ORDERS", subjects=["orders.*"], metadata=with_table({}, live.spec))
    live.publish(9)
    with pytest.raises(PipelineError, match="stream ORDERS was deleted and created again"):
        live.pin()


def test_what_was_removed_before_the_table_had_it_is_told(
    serve: Callable[[TableSpec], Live], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = serve(spec_of(tmp_path, "delta"))
    live.publish(10)
    live.write_batch(4)
    live.streams.purge("ORDERS", seq=8)
    found = [seq for seq, _ in all_rows(live.pin())]
    assert found == [1, 2, 3, 4, 8, 9, 10]
    assert "3 sequences behind the end of its table (4) were removed" in caplog.text


def read_format(where: StreamPlace, *columns: str, **options: str) -> list[dict[str, Any]]:
    """What a batch of the format `jetstream` has."""
    chosen = {**where.options, "stream": "ORDERS", **options}
    reader = BatchReader(parse_options(chosen), columns)
    return [
        row
        for part in pickle.loads(pickle.dumps(reader.partitions()))
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_batch_has_what_only_the_table_has_of_a_stream_in_two_tiers(
    serve: Callable[[TableSpec], Live], tmp_path: Path, kind: str
) -> None:
    live = serve(spec_of(tmp_path, kind, tiers=True, partition=["subject"]))
    live.publish(30)
    live.write_batch(10)
    live.write_batch(20)
    live.streams.purge("ORDERS", seq=16)
    files = StreamPlace(store=str(tmp_path / "store"))
    for where in (live.where, files):
        rows = read_format(where, "stream", "seq", "data", "headers")
        assert sorted(row["seq"] for row in rows) == list(range(1, 31))
        assert all(row["data"] == b"%d" % (row["seq"] - 1) for row in rows)
        assert {(row["stream"], row["headers"]) for row in rows} == {("ORDERS", None)}
        some = read_format(where, "seq", startingSeq="4", endingSeq="24", filterSubjects="*.2")
        assert sorted(row["seq"] for row in some) == [6, 9, 12, 15, 18, 21, 24]
    times = {row["seq"]: row["time"] for row in read_format(live.where, "seq", "time")}
    late = read_format(live.where, "seq", startingTime=times[12].isoformat())
    assert {row["seq"] for row in late} == {seq for seq in times if times[seq] >= times[12]}
    assert not read_format(live.where, "seq", startingSeq="31")
    alone = read_format(live.where, "seq", tiers="false")
    assert [row["seq"] for row in alone] == list(range(16, 31))
    live.streams.delete("ORDERS")
    live.streams.add(name="ORDERS", subjects=["orders.*"], metadata=with_table({}, live.spec))
    with pytest.raises(PipelineError, match="stream ORDERS was deleted and created again"):
        read_format(live.where, "seq")


def test_a_table_without_tiers_leaves_a_batch_as_it_was(
    serve: Callable[[TableSpec], Live], tmp_path: Path
) -> None:
    live = serve(spec_of(tmp_path, "delta"))
    live.publish(10)
    live.write_batch(8)
    live.streams.purge("ORDERS", seq=5)
    assert [row["seq"] for row in read_format(live.where, "seq")] == [5, 6, 7, 8, 9, 10]


def test_the_tail_of_a_bucket_has_its_changes_and_a_value_of_each_key(
    serve: Callable[[TableSpec], Live], tmp_path: Path
) -> None:
    live = serve(spec_of(tmp_path, "iceberg"))
    bucket = live.connection.jetstream().kv.create("PRICES")
    spec = TableSpec(str(tmp_path / "lake"), "delta", rows="latest")
    info = live.streams.info("KV_PRICES")
    table = WrittenTable(spec, "KV_PRICES", parse_time(info.created))
    columns = table_columns("KV_PRICES", spec, pa.schema([("price", pa.int64())]))
    table.add(columns.empty_table(), 0)
    for key, price in (("a", 1), ("b", 2), ("a", 3)):
        bucket.put(key, b'{"price": %d, "unit": "kg"}' % price)
    bucket.delete("b")
    bucket.put("c", b"no json")
    live.streams.update("KV_PRICES", metadata=with_table({}, spec))
    found = pin_stream("KV_PRICES", live.where)
    assert found is not None
    assert found.rows is not None
    changes = [
        (row["seq"], row["key"], row["operation"], row["price"]) for row in found.rows.to_pylist()
    ]
    assert changes == [(3, "a", "PUT", 3), (4, "b", "DEL", None), (5, "c", "PUT", None)]
    rescued = found.rows["_rescued"].to_pylist()
    assert (rescued[0], rescued[1]) == ('{"unit":"kg"}', None)
    assert "_reason" in rescued[2]
    assert latest_puts(found.rows)["key"].to_pylist() == ["a", "c"]


def test_a_folder_has_the_batches_that_are_complete(
    serve: Callable[[TableSpec], Live], tmp_path: Path
) -> None:
    live = serve(spec_of(tmp_path, "iceberg"))
    live.publish(12)
    spec = TableSpec(str(tmp_path / "folder"), "parquet", schema="raw", partition=["subject"])
    live.streams.update("ORDERS", metadata=with_table({}, spec))
    assert pin_stream("ORDERS", live.where) is None
    write_folder(spec, live.table.created_ns, [(1, 4), (5, 8)], done=1)
    found = pin_stream("ORDERS", live.where)
    assert found is not None
    assert sorted(seq for seq, _ in all_rows(found)) == list(range(1, 13))
    # One more batch is on its way: some of its files are there.
    write_folder(spec, live.table.created_ns, [(1, 4), (5, 8), (9, 11)], done=1)
    again = pin_stream("ORDERS", live.where)
    assert again is not None
    assert (again.point.until_seq, len(again.point.files)) == (8, len(found.point.files))
    (tmp_path / "folder" / "mine.parquet").touch()
    with pytest.raises(PipelineError, match=r"mine\.parquet is not of the query"):
        pin_stream("ORDERS", live.where)


def write_folder(
    spec: TableSpec, created_ns: int, batches: list[tuple[int, int]], done: int
) -> None:
    """A folder as its writer leaves it, with a note of the last batch that is done."""
    import pyarrow.parquet as pq

    state = Path(spec.to, "_tradewind", "ORDERS", "queries", "table")
    state.mkdir(parents=True, exist_ok=True)
    schema = raw_rows(1, 1).schema
    keep_columns(state, schema)
    for number, (first, last) in enumerate(batches):
        rows = raw_rows(first, last)
        for index, subject in enumerate(sorted(set(rows["subject"].to_pylist()))):
            folder = Path(spec.to, f"subject={subject}")
            folder.mkdir(exist_ok=True)
            part = rows.filter(pc.equal(rows["subject"], subject))
            name = f"part-w1-{number:08}-{index:05}.parquet"
            pq.write_table(part.drop_columns(["subject"]), folder / name)
    until = {"ORDERS": {"created_ns": created_ns, "seq": batches[done][1]}}
    marks = {MARK_WRITER: "w1", MARK_BATCH: str(done), MARK_UNTIL: json.dumps(until)}
    (state / "published.json").write_text(json.dumps(marks))
