"""SQL by DuckDB: the answers of the client, in an engine that reads nothing but its tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame_kit import FramePlace

from tradewind.cli.main import run
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import QueryResult
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql import duck_tables, engines
from tradewind.pipelines.sql.engines import NeedsSparkError, duck_text
from tradewind.pipelines.sql.query_session import PendingAnswer, SqlQuestion
from tradewind.pipelines.sql.wire import StatementError

pytest.importorskip("duckdb")

from tradewind.pipelines.sql.duck_runner import DuckRunner


def ask(place: FramePlace, text: str, **more: Any) -> QueryResult:
    question = SqlQuestion(text, PipelineAddress(place.url), **{"rows_max": 100, **more})
    return DuckRunner().ask(question)


def values(place: FramePlace, text: str, **more: Any) -> list[Any]:
    return [tuple(row) for row in ask(place, text, **more).rows]


def test_streams_are_tables_with_the_fields_of_their_messages(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b'{"region": "north", "amount": 1.5}', b'{"region": "south"}', b"no JSON")
    place.publish(stream, b'{"region": "north", "amount": 2}', subject="b")
    found = values(
        place, f"select region, count(*), sum(amount) from {stream} group by 1 order by 1"
    )
    assert found == [("north", 2, 3.5), ("south", 1, None), (None, 1, None)]
    assert values(place, f"select json.region from {stream} where subject like '%.b'") == [
        ("north",)
    ]
    assert values(place, f"select data from {stream} where seq = 3") == [("no JSON",)]
    assert values(
        place, f"select seq from {stream} a join {stream} b using (seq) where seq < 3"
    ) == [
        (1,),
        (2,),
    ]


def test_names_with_a_dash_and_statements_about_tables(place: FramePlace) -> None:
    stream = place.add_stream("RAW-1")
    place.publish(stream, b'{"id": 7}')
    for quoted in ("`RAW-1`", '"RAW-1"'):
        assert values(place, f"select id from {quoted};") == [(7,)]
        described = values(place, f"-- the columns\ndescribe {quoted}")
        assert ("id", "bigint", None) in described
    assert ("RAW-1", "stream") in values(place, "show tables")
    assert ask(place, "show tables").columns == ["table", "kind"]
    assert "PYTHON_ARROW_SCAN" in str(values(place, 'explain select id from "RAW-1"')).upper()


def test_buckets_are_tables_of_their_keys(place: FramePlace) -> None:
    bucket = place.add_stream().lower()
    kv = place.connection.jetstream().kv.create(bucket)
    kv.put("a", b'{"x": 1}')
    kv.put("a", b'{"x": 2}')
    assert values(place, f"select key, x, value from {bucket}") == [("a", 2, '{"x": 2}')]


def test_messages_outside_the_sample_count_as_they_are(
    place: FramePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tradewind.frames import frame_columns

    monkeypatch.setattr(frame_columns, "SAMPLE_MESSAGES", 4)
    stream = place.add_stream()
    for number in range(20):
        is_sampled = number in (0, 1, 18, 19)
        amount = b"%d" % number if is_sampled else b"%d.5" % number
        note = b"" if number != 10 else b', "note": {"a": 1}'
        place.publish(stream, b'{"amount": %s, "note": "x"%s}' % (amount, note))
    place.publish(stream, b"no json", b"[1, 2]", subject="other")
    place.publish(stream, b'{"amount": 1}')
    (total,) = values(place, f"select sum(amount), count(amount) from {stream}")
    assert total == (sum(range(20)) + 16 * 0.5 + 1, 21)
    assert values(place, f"select count(*) from {stream} where amount is null") == [(2,)]


def test_numbers_that_no_double_holds_exactly_are_the_nearest_ones(place: FramePlace) -> None:
    stream = place.add_stream()
    large = (1 << 60) + 1
    place.publish(stream, b'{"n": 0.5}', b'{"n": %d}' % large)
    assert values(place, f"select n from {stream} order by n desc") == [(float(large),), (0.5,)]


def test_bytes_that_are_no_text_are_shown_as_hex(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b"\xff\x00", b"text")
    assert values(place, f"select data from {stream} order by seq") == [("0xff00",), ("text",)]


def test_a_store_folder_is_read_without_its_server(place: FramePlace) -> None:
    stream = place.add_stream()
    place.publish(stream, b'{"n": 1}', b'{"n": 2}')
    question = SqlQuestion(f"select sum(n) from {stream}", store=str(place.store))
    assert DuckRunner().ask(question).rows == [(3,)]


def test_streams_are_joined_with_lakes_of_all_formats(place: FramePlace, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    stream = place.add_stream()
    place.publish(stream, b'{"id": 1}', b'{"id": 2}')
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["one", "two", "three"]})
    (tmp_path / "plain").mkdir()
    pq.write_table(rows, tmp_path / "plain" / "part.parquet")
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "rows.csv").write_text("id,name\n1,one\n2,two\n3,three\n")
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "rows.json").write_text('{"id":1,"name":"one"}\n{"id":2,"name":"two"}\n')
    folders = {name: str(tmp_path / name) for name in ("plain", "delta", "text", "lines")}
    folders["berg"] = f"iceberg:{iceberg_table(tmp_path, rows)}"
    for name in folders:
        text = f"select name from {stream} join {name} using (id) order by id"
        assert values(place, text, folders=folders) == [("one",), ("two",)], name
    assert values(place, "select count(*) from delta", folders=folders) == [(3,)]


def iceberg_table(folder: Path, rows: pa.Table) -> str:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    settings = {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db"}
    catalog = catalogs.load_catalog("tradewind", **settings, warehouse=str(warehouse))
    catalog.create_namespace("sales")
    catalog.create_table("sales.names", rows.schema).append(rows)
    catalog.close()
    return f"{warehouse}#sales.names"


FORBIDDEN = (
    "copy (select 1) to '{0}/out.csv'",
    "select * from '{0}/secret.csv'",
    "select * from read_csv('{0}/secret.csv')",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from read_json('/etc/passwd')",
    "select * from parquet_scan('{0}/x.parquet')",
    "select * from sniff_csv('{0}/secret.csv')",
    "select * from glob('{0}/*')",
    "select * from query('select * from read_text(''/etc/passwd'')')",
    "select * from read_csv('http://127.0.0.1:1/x.csv')",
    "select getenv('HOME')",
    "select * from duckdb_secrets()",
    "attach '{0}/other.db'",
    "install httpfs",
    "load httpfs",
    "load '{0}/any.duckdb_extension'",
    "set enable_external_access = true",
    "set memory_limit = '100GB'",
    "reset lock_configuration",
    "pragma database_list",
    "export database '{0}/all'",
    "import database '{0}/all'",
    "create table t as select 1",
    "create secret (type s3)",
    "select 1; copy (select 1) to '{0}/out.csv'",
    "with x as (select 1) insert into t select * from x",
    "from FORBIDDEN",
    "select * from FORBIDDEN",
    "explain analyze copy (select 1) to '{0}/out.csv'",
    "values (1); select 2",
    "call pragma_version()",
    "select * from json_execute_serialized_sql(json_serialize_sql('select * from glob(''/*'')'))",
)


@pytest.mark.parametrize("text", FORBIDDEN)
def test_a_question_reads_nothing_but_its_tables(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret.csv").write_text("secret\n1\n")
    before = sorted(tmp_path.iterdir())
    question = SqlQuestion(text.format(tmp_path), PipelineAddress("nats://127.0.0.1:1"))
    runner = DuckRunner()
    empty = duck_tables.ds.dataset(pa.table({"a": [1]}))
    with pytest.raises(PipelineError):
        runner._answer(question.text.format(tmp_path), (), {"mine": empty}, ["mine"], 10)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the query is empty"),
        (" ; ", "the query is empty"),
        ("show databases", "only 'show tables' is known"),
        ("selec 1", "'selec': queries only read"),
        ("attach 'x'", "'attach': queries only read"),
    ],
)
def test_what_is_no_query_is_named(place: FramePlace, text: str, reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        ask(place, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("insert into ORDERS values (1)", "writes"),
        ("create materialized view v as select 1", "writes"),
        ("show materialized views", "materialized views"),
        ("select * from parquet.`/data`", "names a file"),
    ],
)
def test_what_needs_spark_says_so(place: FramePlace, text: str, why: str) -> None:
    with pytest.raises(NeedsSparkError, match=why):
        ask(place, text, may_write=True)


def test_errors_are_one_line_with_a_place(place: FramePlace) -> None:
    stream = place.add_stream("PLACED")
    place.publish(stream, b'{"n": 1}')
    with pytest.raises(StatementError) as caught:
        ask(place, f"select\n  nope from {stream}")
    assert str(caught.value).startswith('Referenced column "nope" not found')
    assert "--engine spark" in str(caught.value)
    assert (caught.value.line, caught.value.column) == (2, 3)
    with pytest.raises(PipelineError, match="table 'PLACET' does not exist; did you mean 'PLACED'"):
        ask(place, "select * from PLACET")


def test_a_question_can_be_cancelled(place: FramePlace) -> None:
    text = "select count(*) from range(1000000000) a, range(1000000000) b where a.range = -b.range"
    runner = DuckRunner()
    asked = PendingAnswer(runner, SqlQuestion(text, PipelineAddress(place.url)))
    while runner._engine is None and not asked.wait(0.01):
        pass
    asked.cancel()
    assert asked.wait(30)
    with pytest.raises(PipelineError, match="the query was cancelled"):
        asked.result()


def test_rows_are_limited(place: FramePlace) -> None:
    found = ask(place, "select range from range(1000000)", rows_max=10)
    assert [row[0] for row in found.rows] == list(range(10))
    assert found.has_more


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("select `a` from `b-c`", 'select "a" from "b-c"'),
        ("select 'it''s `x`', \"y\" -- `z`", "select 'it''s `x`', \"y\" -- `z`"),
        ('select `a"b`, /* `c` */ `d``e`', 'select "a""b", /* `c` */ "d`e"'),
    ],
)
def test_names_in_backticks_are_quoted_for_duckdb(text: str, quoted: str) -> None:
    assert duck_text(text, '"') == quoted


# -------------------------------------------------------------------------- the command


def test_the_command_asks_duckdb_unless_a_cluster_is_named(
    place: FramePlace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    stream = place.add_stream()
    place.publish(stream, b'{"n": 1}', b'{"n": 2}')
    command = ["--server", place.url, "sql", f"select n, seq from {stream} order by seq", "--json"]
    assert run(command) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"n": 1, "seq": 1},
        {"n": 2, "seq": 2},
    ]
    monkeypatch.setattr(engines, "has_spark", lambda: False)
    from tradewind.cli.spark import sql_answers

    monkeypatch.setattr(sql_answers, "has_spark", lambda: False)
    assert run(["--server", place.url, "sql", f"insert into {stream} values (1)"]) == 1
    assert "only --engine spark can do this: the statement writes" in capsys.readouterr().err
    assert run(["--server", place.url, "sql", "select 1", "--engine", "spark"]) == 1
    assert "--engine spark needs Spark: " in capsys.readouterr().err
    assert run(["--server", place.url, "sql", "select 1", "--engine", "presto"]) == 2
    assert "one of auto, duckdb, spark" in capsys.readouterr().err
    assert run(["sql", "--serve", "--engine", "duckdb"]) == 2
    assert "DuckDB needs no service" in capsys.readouterr().err
    monkeypatch.setenv("TRADEWIND_SQL_ENGINE", "presto")
    assert run(["--server", place.url, "sql", "select 1"]) == 1
    assert "TRADEWIND_SQL_ENGINE='presto': one of" in capsys.readouterr().err
