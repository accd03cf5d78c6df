"""The table of a stream as its metadata has it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.state.figure_types import LakeFigures
from tradewind.pipelines.tables import table_dropping
from tradewind.pipelines.tables.table_dropping import check_droppable, drop_table
from tradewind.pipelines.tables.table_spec import (
    TABLE_KEY,
    TableSpec,
    problem_with,
    reserved_columns,
    state_folder,
    table_name,
    table_of,
    with_table,
)
from tradewind.pipelines.tables.table_status import (
    STATUS_FILE,
    TableFigureReader,
    TableStatus,
    check_identity,
    keep_identity,
    read_table_status,
    state_place,
    write_table_status,
)
from tradewind.pipelines.tables.table_writing import found_lake, open_lake

texts = st.text(max_size=10)
specs = st.builds(
    TableSpec,
    to=texts,
    format=st.sampled_from(["iceberg", "delta", "parquet"]),
    catalog=st.dictionaries(texts, texts, max_size=2),
    schema=st.one_of(texts, st.dictionaries(texts, texts, max_size=2)),
    partition=st.lists(texts, max_size=2),
    keeps_data=st.booleans(),
)


@given(specs)
def test_metadata_keeps_a_table_and_what_others_wrote(spec: TableSpec) -> None:
    metadata = with_table({"team": "shop"}, spec)
    assert table_of("ORDERS", metadata) == spec
    assert with_table(metadata, None) == {"team": "shop"}


def test_a_stream_without_a_table_has_none() -> None:
    assert table_of("ORDERS", None) is None
    assert table_of("ORDERS", {"team": "shop"}) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"to": 1}', '{"to": "/x", "formt": "delta"}', "\x00"])
def test_metadata_that_is_no_table_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(PipelineError, match=f"stream ORDERS: metadata {TABLE_KEY}"):
        table_of("ORDERS", {TABLE_KEY: text})


def test_the_table_of_a_bucket_has_one_row_per_key_unless_it_says_otherwise() -> None:
    plain = table_of("KV_PRICES", with_table({}, TableSpec("/lake")))
    changes = table_of("KV_PRICES", with_table({}, TableSpec("/lake", rows="changes")))
    assert plain is not None
    assert changes is not None
    assert (plain.rows, changes.rows) == ("latest", "changes")


@pytest.mark.parametrize(
    ("keys", "key", "problem"),
    [
        ({"to": "lake"}, "to", "absolute"),
        ({"to": "/"}, "to", "name a folder"),
        ({"to": "s3://user:pass@host/lake"}, "to", "no password"),
        ({"to": "s3://lake/orders", "format": "parquet"}, "format", "iceberg or delta"),
        ({"to": "s3://lake/orders"}, "catalog", "name another one"),
        ({"format": "delta", "catalog": {"uri": "x"}}, "catalog", "iceberg"),
        ({"table": "orders"}, "table", "NAMESPACE.NAME"),
        ({"rows": "latest"}, "rows", "buckets"),
        ({"partition": ["day", "day"]}, "partition", "twice"),
        ({"partition": ["data"]}, "partition", "cannot be"),
        ({"partition": ["a"] * 9}, "partition", "more than 8"),
        ({"every": "never"}, "every", "not a duration"),
        ({"dead_letters": "ORDERS"}, "dead_letters", "of their own"),
        ({"dead_letters": "DEAD", "schema": "raw"}, "dead_letters", "raw"),
        ({"schema": {}}, "schema", "names and types"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(keys: dict[str, Any], key: str, problem: str) -> None:
    found, text = problem_with("ORDERS", TableSpec(**{"to": "/lake/orders", **keys}))
    assert found == key
    assert problem in text


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"format": "parquet"}, "rows"),
        ({"tiers": True}, "tiers"),
        ({"partition": ["subject"]}, "partition"),
    ],
)
def test_one_row_per_key_needs_a_table_that_can_change(keys: dict[str, Any], key: str) -> None:
    spec = TableSpec("/lake", **keys)
    assert problem_with("KV_PRICES", spec)[0] == key


def test_right_tables_have_no_problem() -> None:
    for keys in (
        {"partition": ["day", "subject", "region"]},
        {"to": "s3://bucket/lake", "format": "delta"},
        {"catalog": {"type": "rest", "uri": "http://catalog"}, "table": "sales.orders"},
        {"format": "parquet", "schema": {"id": "bigint"}, "dead_letters": "DEAD"},
    ):
        assert problem_with("ORDERS", TableSpec(**{"to": "/lake", **keys})) == ("", "")
    assert problem_with("OBJ_FILES", TableSpec("/lake"))[0] == "to"


def test_names_follow_from_the_stream() -> None:
    assert table_name("My-Orders", TableSpec("/lake")) == "tradewind.my_orders"
    assert table_name("ORDERS", TableSpec("/lake", table="a.b")) == "a.b"
    assert state_folder("ORDERS", TableSpec("/lake/")) == "/lake/_tradewind/ORDERS"
    assert state_folder("ORDERS", TableSpec("file:///lake")) == "/lake/_tradewind/ORDERS"
    remote = TableSpec("s3://bucket/lake")
    assert state_folder("ORDERS", remote) == "s3a://bucket/lake/_tradewind/ORDERS"
    assert "day" in reserved_columns("ORDERS", TableSpec("/lake", partition=["day"]))
    assert "key" not in reserved_columns("ORDERS", TableSpec("/lake"))
    assert {"key", "data", "_rescued"} <= reserved_columns("KV_PRICES", TableSpec("/lake"))


# -------------------------------------------------------------------------- the status


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_table_status(tmp_path) is None
    status = TableStatus(
        *("ORDERS", "/lake", "delta", "running", 1, "elsewhere", 5, 4),
        figures=LakeFigures(3, 2, 100, "7", 6),
        behind_messages=9,
        error="the disk is full",
    )
    write_table_status(tmp_path, status)
    assert read_table_status(tmp_path) == status
    assert status.is_alive
    assert not msgspec.structs.replace(status, state="stopped").is_alive
    (tmp_path / STATUS_FILE).write_text("{")
    with pytest.raises(PipelineError, match="not a valid status file"):
        read_table_status(tmp_path)


@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"])
def test_a_table_that_is_not_there_has_no_figures(tmp_path: Path, kind: Any) -> None:
    spec = TableSpec(str(tmp_path / "lake"), format=kind)
    assert TableFigureReader("ORDERS", spec).read() == LakeFigures()


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"format": "delta"}, "format 'iceberg'"),
        ({"table": "a.b"}, "table 'tradewind.orders'"),
        ({"partition": []}, "partition ['day']"),
        ({"keeps_data": True}, "has data False"),
        ({"catalog": {"uri": "other", "token": "secret"}}, "catalog {}"),
    ],
)
def test_a_checkpoint_is_of_one_table(tmp_path: Path, keys: dict[str, Any], word: str) -> None:
    spec = TableSpec("/lake", partition=["day"])
    check_identity(tmp_path, "ORDERS", spec)
    keep_identity(tmp_path, "ORDERS", spec)
    check_identity(tmp_path, "ORDERS", msgspec.structs.replace(spec, every="1h"))
    with pytest.raises(PipelineError, match=re.escape(word)) as caught:
        check_identity(tmp_path, "ORDERS", msgspec.structs.replace(spec, **keys))
    assert "secret" not in str(caught.value)


# -------------------------------------------------------------------------- dropping


def test_only_what_is_of_the_table_is_dropped(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    spec = TableSpec(str(lake), format="delta")
    state = state_place("ORDERS", spec)
    assert isinstance(state, Path)
    for path in (
        state / "queries" / "table" / "metadata",
        lake / "_delta_log" / "0.json",
        lake / "day=1" / "part-a-1-2.parquet",
        lake / "mine" / "notes.txt",
    ):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    keep_identity(state, "ORDERS", spec)
    drop_table("ORDERS", spec)
    assert [path.relative_to(lake) for path in lake.rglob("*") if path.is_file()] == [
        Path("mine/notes.txt")
    ]
    assert not state.exists()
    assert not (lake / "day=1").exists()


def test_an_iceberg_table_is_dropped_with_its_files(tmp_path: Path) -> None:
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db"}
    for catalog in ({}, settings):
        spec = TableSpec(str(tmp_path / "lake"), catalog=catalog)
        lake = open_lake("ORDERS", spec)
        lake.prepare(pa.schema([("id", pa.int64())]), [])
        assert list((tmp_path / "lake" / "tradewind").rglob("*.metadata.json"))
        assert found_lake("ORDERS", spec) is not None
        keep_identity(state_place("ORDERS", spec), "ORDERS", spec)
        drop_table("ORDERS", spec)
        assert found_lake("ORDERS", spec) is None
        assert not list((tmp_path / "lake").rglob("*.metadata.json"))


def test_a_folder_that_no_runner_has_written_keeps_its_files(tmp_path: Path) -> None:
    mine = tmp_path / "part-mine.parquet"
    mine.write_text("x")
    drop_table("ORDERS", TableSpec(str(tmp_path), format="parquet"))
    assert mine.exists()


def test_a_catalog_cannot_name_a_folder_elsewhere_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("x")
    spec = TableSpec(str(tmp_path / "lake"), catalog={"type": "rest", "uri": "http://127.0.0.1:1"})
    keep_identity(state_place("ORDERS", spec), "ORDERS", spec)
    dropped: list[str] = []
    for location in (f"file://{mine.parent}", f"file://{tmp_path}/lake/../mine", f"{tmp_path}"):
        table = SimpleNamespace(location=lambda location=location: location)
        catalog = SimpleNamespace(
            load_table=lambda _name, table=table: table, drop_table=dropped.append
        )
        monkeypatch.setattr(table_dropping, "found_lake", lambda _stream, _spec: object())
        monkeypatch.setattr(
            table_dropping, "open_catalog", lambda _target, _folder, catalog=catalog: catalog
        )
        keep_identity(state_place("ORDERS", spec), "ORDERS", spec)
        drop_table("ORDERS", spec)
        assert mine.exists()
    assert dropped == ["tradewind.orders"] * 3


def test_a_table_in_use_or_elsewhere_is_not_dropped(tmp_path: Path) -> None:
    from tradewind.pipelines.state.leases import locked

    spec = TableSpec(str(tmp_path), format="parquet")
    (tmp_path / "part-a-1-2.parquet").write_text("x")
    with (
        locked(state_place("ORDERS", spec)),
        pytest.raises(PipelineError, match="in use"),
    ):
        drop_table("ORDERS", spec, seconds=0)
    assert (tmp_path / "part-a-1-2.parquet").exists()
    with pytest.raises(PipelineError, match="not a folder of this machine"):
        check_droppable("ORDERS", TableSpec("s3://bucket/lake"))
