"""Streams and buckets as tables, kept up to date by themselves."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from kill_kit import wait_until
from table_kit import TablePlace, rows_of, table_place

from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.tables.stream_tables import remove_table
from tradewind.pipelines.tables.table_status import read_table_status, state_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.table_runs.table_runner import TableRunner

SECONDS = 240


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[TablePlace]:
    with table_place(spark, tmp_path, "tradewind") as made:
        yield made


def test_each_format_has_every_message_once_and_its_new_fields(place: TablePlace) -> None:
    specs = {}
    for kind in ("iceberg", "delta", "parquet"):
        stream = kind.upper()
        place.add_stream(stream)
        parts = ["day"] if kind != "parquet" else ["day", "subject"]
        specs[stream] = place.add_table(stream, format=kind, partition=parts)
        place.publish(stream, *({"id": number, "time": "x"} for number in range(5)))
    # By block files first; the offsets are the same by the network.
    first = place.run_once(store=str(place.store))
    assert {status.rows_written for status in first.values()} == {5}
    for stream in specs:
        # A new field, one inside of it, a value of another type, and no object at all.
        place.publish(stream, {"id": 5, "more": {"a": 1}})
        place.publish(stream, {"id": "six", "more": {"a": 2, "b": "x"}}, b"not json")
    second = place.run_once()
    for stream, spec in specs.items():
        rows = rows_of(stream, spec)
        assert [row["seq"] for row in rows] == [*range(1, 9)]
        assert [row["id"] for row in rows] == [0, 1, 2, 3, 4, 5, None, None]
        assert [row["payload_time"] for row in rows[:6]] == ["x"] * 5 + [None]
        assert rows[5]["more"] == {"a": 1, "b": None}
        assert rows[6]["more"] == {"a": 2, "b": "x"}
        assert json.loads(rows[6]["_rescued"]) == {"id": "six"}
        kept = json.loads(rows[7]["_rescued"])
        assert base64.b64decode(kept["_payload"]) == b"not json"
        assert "_reason" in kept
        assert rows[0]["_rescued"] is None
        status = second[stream]
        assert (status.figures.rows, status.rows_written) == (8, 8)
        assert (status.rescued, status.undecoded, status.behind_messages) == (1, 1, 0)
        assert status.figures.files >= 2
        assert status.figures.version
        assert read_table_status(state_place(stream, spec)) == status
    assert {row["day"] for row in rows_of("ICEBERG", specs["ICEBERG"])} == {
        row["time"].date() for row in rows_of("ICEBERG", specs["ICEBERG"])
    }


def test_a_bucket_is_its_latest_values_or_all_changes_on_the_official_server(
    spark: SparkSession, tmp_path: Path
) -> None:
    with table_place(spark, tmp_path, "official") as place:
        kv = place.connection.jetstream().kv
        buckets = [kv.create(name, history=5) for name in ("LATEST", "CHANGES")]
        place.add_stream("DEAD")
        latest = place.add_table("KV_LATEST", format="delta", dead_letters="DEAD")
        changes = place.add_table(
            "KV_CHANGES", rows="changes", partition=["operation"], keeps_data=True
        )

        def change(key: str, value: Any) -> None:
            for bucket in buckets:
                if value is None:
                    bucket.delete(key)
                else:
                    bucket.put(
                        key, value if isinstance(value, bytes) else json.dumps(value).encode()
                    )

        for key in ("apple", "pear", "plum"):
            change(key, {"price": 1})
        change("apple", {"price": 2})
        place.run_once()
        assert [(row["key"], row["price"]) for row in rows_of("KV_LATEST", latest)] == [
            *(("pear", 1), ("plum", 1), ("apple", 2)),
        ]
        change("pear", None)
        change("apple", {"price": 3, "currency": "EUR"})
        change("plum", b"no price")
        found = place.run_once()
        rows = rows_of("KV_LATEST", latest)
        assert [(row["key"], row["price"], row["currency"]) for row in rows] == [
            *(("apple", 3, "EUR"), ("plum", None, None)),
        ]
        assert "_reason" in json.loads(rows[1]["_rescued"])
        ((subject, data, headers),) = place.letters("DEAD")
        assert (subject, data) == ("dead.KV_LATEST", b"no price")
        assert (headers["Tradewind-Stream"], headers["Tradewind-Sequence"]) == ("KV_LATEST", "7")
        assert (found["KV_LATEST"].dead_letters, found["KV_LATEST"].undecoded) == (1, 1)
        rows = rows_of("KV_CHANGES", changes)
        assert [(row["seq"], row["operation"], row["price"]) for row in rows] == [
            *((1, "PUT", 1), (2, "PUT", 1), (3, "PUT", 1), (4, "PUT", 2)),
            *((5, "DEL", None), (6, "PUT", 3), (7, "PUT", None)),
        ]
        assert rows[6]["data"] == b"no price"
        assert list(json.loads(rows[6]["_rescued"])) == ["_reason"]


def test_a_batch_that_fails_between_its_steps_is_there_once(
    place: TablePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add_stream("ORDERS")
    place.add_stream("DEAD")
    spec = place.add_table("ORDERS", format="delta", dead_letters="DEAD", partition=["region"])
    place.publish("ORDERS", *({"id": number, "region": "eu"} for number in range(4)), b"bad 1")
    commit = DeltaLake.commit

    def broken(is_before: bool) -> Callable[..., None]:
        def once(lake: DeltaLake, *arguments: Any) -> None:
            monkeypatch.setattr(DeltaLake, "commit", commit)
            if not is_before:
                commit(lake, *arguments)
            raise OSError("the disk is gone")

        return once

    for is_before in (True, False):
        monkeypatch.setattr(DeltaLake, "commit", broken(is_before))
        runner = place.runner("ORDERS", is_once=True)
        runner.wait(Event())
        (status,) = runner.statuses
        assert (status.state, "the disk is gone" in status.error) == ("failed", True)
        place.publish("ORDERS", {"id": 4, "new": is_before}, b"bad 2")
    place.run_once()
    rows = rows_of("ORDERS", spec)
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4, 4]
    assert [row["new"] for row in rows] == [None] * 4 + [True, False]
    assert [data for _, data, _ in place.letters("DEAD")] == [b"bad 1", b"bad 2", b"bad 2"]


def test_tables_come_change_and_go_while_they_run_and_fail_alone(place: TablePlace) -> None:
    manager = place.connection.jetstream_manager()
    for stream in ("GOOD", "BAD"):
        place.add_stream(stream)
        place.publish(stream, {"id": 1})
    good = place.add_table("GOOD", format="parquet", every="1s")
    (place.folder / "bad").write_text("no folder")
    place.add_table("BAD", format="parquet", every="1s")
    # So much waits that it is not left to the next hour.
    place.add_stream("BULK")
    bulk = place.add_table("BULK", format="parquet", every="1h")
    place.publish("BULK", *({"id": number} for number in range(9)))
    runner = place.runner(batch_messages=2)
    try:
        await_state(runner, "GOOD", lambda status: status.rows_written == 1)
        await_state(runner, "BAD", lambda status: status.state == "failed")
        await_state(runner, "BULK", lambda status: status.rows_written == 9)
        other = place.runner("GOOD", is_once=True)
        other.wait(Event())
        assert "in use" in other.statuses[0].error
        remove_table(manager, "BAD")
        place.add_stream("LATE")
        late = place.add_table("LATE", format="parquet", every="1s", schema="raw")
        place.publish("LATE", b"\x00\xff")
        place.publish("GOOD", {"id": 2})
        await_state(runner, "LATE", lambda status: status.rows_written == 1)
        await_state(runner, "GOOD", lambda status: status.rows_written == 2)
        assert [status.stream for status in runner.statuses] == ["BULK", "GOOD", "LATE"]
    finally:
        runner.close()
    assert [row["id"] for row in rows_of("GOOD", good)] == [1, 2]
    assert [row["id"] for row in rows_of("BULK", bulk)] == [*range(9)]
    (row,) = rows_of("LATE", late)
    assert (row["seq"], row["subject"], row["data"]) == (1, "late.a", b"\x00\xff")
    assert {*row} == {"seq", "subject", "time", "headers", "data"}
    status = read_table_status(state_place("GOOD", good))
    assert status is not None
    assert (status.state, status.figures.rows) == ("stopped", 2)


def await_state(runner: TableRunner, stream: str, is_so: Callable[[Any], bool]) -> None:
    def look() -> bool:
        runner.poll()
        return any(one.stream == stream and is_so(one) for one in runner.statuses)

    wait_until(look, SECONDS)
