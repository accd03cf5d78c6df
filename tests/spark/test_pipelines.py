"""Pipelines on Spark: sources, steps, sinks, bad rows, restarts and errors with lines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipeline_kit import Place, orders_place
from pipeline_texts_kit import HEAD, ORDERS

from tradewind.pipelines.checks.checking import check_server, check_tables
from tradewind.pipelines.checks.explaining import explain_lines, plan_lines
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.errors import PipelineError, PipelineFileError
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.pipeline_session import pipeline_session
from tradewind.pipelines.state.leases import locked
from tradewind.pipelines.state.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOW = "sinks:\n  show: {from: %s, console: {}}\n"


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    with orders_place(spark, tmp_path) as place:
        yield place


def test_steps_of_all_kinds_and_a_restart_that_goes_on(place: Place) -> None:
    (place.folder / "names.csv").write_text("region,name\nnorth,Nord\neast,Ost\nsouth,Sued\n")
    (place.folder / "steps.py").write_text(
        "def double(orders):\n    return orders.selectExpr('id', 'region', 'amount * 2 as twice')\n"
    )
    text = f"""{HEAD}{ORDERS}    watermark: {{delay: 1 hour}}
  names: {{csv: names.csv}}
steps:
  doubled: {{python: 'steps.py:double', from: orders}}
  named:
    sql: |
      select id, twice, name
      from doubled join names using (region)
  hours: {{from: orders, window: 365 days, by: region, keep: {{revenue: sum(amount)}}}}
sinks:
  sums: {{from: hours, console: {{}}, mode: update}}
  lake: {{from: named, parquet: lake, partition_by: name}}
"""
    place.publish_orders(0, 6)
    status = place.run(text)
    assert status.state == "done"
    assert {query.name: query.rows for query in status.queries} == {"sums": 6, "lake": 6}
    assert [lag.messages for query in status.queries for lag in query.lags] == [0, 0]
    place.publish_orders(6, 3)
    status = place.run(text)
    assert [query.rows_total for query in status.queries] == [9, 9]
    sums = {row["region"]: row["revenue"] for row in place.rows("sums")}
    assert sums == {"north": Decimal("9.75"), "east": Decimal("12.75"), "south": Decimal("15.75")}
    lake = place.spark.read.parquet(str(place.folder / "lake"))
    rows = lake.collect()
    assert sorted(row["id"] for row in rows) == list(range(9))
    assert {row["name"] for row in rows} == {"Nord", "Ost", "Sued"}
    assert read_status(place.folder / "state") == status


def test_an_inferred_schema_is_frozen(place: Place) -> None:
    source = "sources:\n  orders: {stream: ORDERS, payload: {bad: skip}}\n"
    place.publish(b'{"id": 1}', b'{"id": 2, "note": "x", "a.b": 7, "c`d": true}', b"no json")
    first = place.run(HEAD + source + SHOW % "orders")
    assert first.queries[0].bad_rows == 1
    place.publish(b'{"id": 3, "note": "y", "new": true}', b'{"id": "three"}')
    second = place.run(HEAD + source + SHOW % "orders")
    assert second.queries[0].bad_rows == 1
    assert {(row["a.b"], row["c`d"]) for row in place.rows("show")} == {(None, None), (7, True)}
    found = [(row["id"], row["note"]) for row in place.rows("show")]
    assert sorted(found) == [(1, None), (2, "x"), (3, "y")]


def test_a_bad_row_stops_a_pipeline_that_says_nothing_about_them(place: Place) -> None:
    place.publish(b'{"id": 1}', b'{"region": "north"}')
    with pytest.raises(PipelineError, match=r"stream ORDERS sequence 2: .*does not match"):
        place.run(HEAD + ORDERS + SHOW % "orders")
    status = read_status(place.folder / "state")
    assert status is not None
    assert status.state == "failed"
    assert "sequence 2" in status.error


def test_tables_of_delta_and_iceberg_hold_each_row_once(place: Place) -> None:
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    from tradewind.pipelines.definition.model import Iceberg
    from tradewind.pipelines.lake.delta_tables import DeltaLake
    from tradewind.pipelines.lake.iceberg_tables import IcebergLake
    from tradewind.pipelines.lake.lake_tables import TableSink, table_writer
    from tradewind.pipelines.lake.lakes import SinkQuery, open_catalog

    text = f"""{HEAD}{ORDERS}    batch: 4
sinks:
  delta: {{from: orders, delta: lake/delta, partition_by: [region, "bucket(2, id)"]}}
  iceberg:
    from: orders
    iceberg: {{table: sales.orders, warehouse: lake/ice}}
    partition_by: day(time)
  files: {{from: orders, parquet: lake/files, partition_by: hour(time)}}
"""
    place.publish_orders(0, 9)
    status = place.run(text)
    assert [query.batches for query in status.queries] == [3, 3, 3]
    path = str(place.folder / "lake" / "delta")
    target = Iceberg("sales.orders", str(place.folder / "lake" / "ice"))
    # The last batch comes again, as it does when the driver dies before it is noted as done.
    last = place.spark.range(3).selectExpr(
        *("'x' as stream", "id as seq", "'x' as subject", "current_timestamp() as time"),
        "cast(null as map<string,array<string>>) as headers",
        *("id", "'north' as region", "cast(1 as decimal(12,2)) as amount"),
    )
    queries = place.folder / "state" / "queries"
    delta = SinkQuery("test.delta", queries / "delta")
    writers = [
        table_writer(DeltaLake(path), delta, TableSink(["region", "bucket(2, id)"])),
        table_writer(
            IcebergLake(target, target.warehouse),
            SinkQuery("t.i", queries / "iceberg"),
            TableSink(["day(time)"]),
        ),
    ]

    def ids() -> list[list[int]]:
        ice = open_catalog(target, target.warehouse).load_table("sales.orders").scan().to_arrow()
        delta = deltalake.DeltaTable(path).to_pyarrow_table()
        return [sorted(table["id"].to_pylist()) for table in (delta, ice)]

    for write in writers:
        write(last, 2)
        # A checkpoint that was put back has planned another batch under the same number.
        with pytest.raises(PipelineError, match="the checkpoint is older than the table"):
            write(last, 1)
    assert ids() == [list(range(9))] * 2
    columns = deltalake.DeltaTable(path).metadata().partition_columns
    assert columns == ["region", "id_bucket_2"]
    files = place.spark.read.parquet(str(place.folder / "lake" / "files"))
    assert files.where("time_hour <> date_format(time, 'yyyy-MM-dd-HH')").count() == 0
    assert sorted(row["id"] for row in files.collect()) == list(range(9))
    # Without its checkpoint a sink begins again, and what is new arrives.
    shutil.rmtree(place.folder / "state")
    place.publish_orders(9, 1)
    place.run(text)
    assert ids() == [sorted([*range(9), *range(10)])] * 2


def test_rows_replace_others_by_key_and_columns_are_added(place: Place) -> None:
    """The last row of a key in a batch counts, rows that delete are gone, sums are replaced."""
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    from tradewind.pipelines.definition.model import Iceberg
    from tradewind.pipelines.lake.iceberg_tables import IcebergLake

    steps = '  orders_now: {sql: "select id, region, amount, seq from orders"}\n'
    text = f"""{HEAD}{ORDERS}    batch: 6
steps:
{steps}  sums: {{sql: 'select region, count(*) as n from orders group by region'}}
sinks:
  now:
    from: orders_now
    delta: lake/now
    partition_by: region
    mode: upsert
    key: id
    delete_when: amount < 0
  sums:
    from: sums
    iceberg: {{table: sales.sums, warehouse: lake/ice}}
    mode: upsert
    key: [region]
"""

    def order(number: int, region: str, amount: float) -> bytes:
        return json.dumps({"id": number, "region": region, "amount": amount}).encode()

    def now() -> dict[int, tuple[str, Decimal]]:
        rows = deltalake.DeltaTable(str(place.folder / "lake" / "now")).to_pyarrow_table()
        assert len(set(rows["id"].to_pylist())) == rows.num_rows
        return {row["id"]: (row["region"], row["amount"]) for row in rows.to_pylist()}

    place.publish(*(order(number, "north", 1) for number in range(4)))
    place.publish(order(0, "east", 2), order(1, "north", -1))
    place.publish(order(2, "south", 3), order(2, "north", 4), order(3, "north", -1))
    place.run(text)
    assert now() == {0: ("east", Decimal(2)), 2: ("north", Decimal(4))}
    place.publish(order(3, "east", 5))
    place.run(text.replace("amount, seq from", "amount, seq, 'new' as note from"))
    assert now()[3] == ("east", Decimal(5))
    table = deltalake.DeltaTable(str(place.folder / "lake" / "now")).to_pyarrow_table()
    notes = {row["id"]: row["note"] for row in table.to_pylist()}
    assert notes == {0: None, 2: None, 3: "new"}
    sums = IcebergLake(Iceberg("sales.sums", ""), str(place.folder / "lake" / "ice")).load()
    found = {row["region"]: row["n"] for row in sums.scan().to_arrow().to_pylist()}
    assert found == {"north": 7, "east": 2, "south": 1}
    place.publish(order(9, "east", 1))
    wrong = text.replace("region, amount,", "region, cast(amount as string) as amount,")
    with pytest.raises(PipelineError, match=r"column amount is decimal.* in the table and string"):
        place.run(wrong)
    path = place.folder / "p.yaml"
    for old, new, message in (
        ("key: id", "key: idd", "has no column 'idd'; did you mean 'id'?"),
        ("amount < 0", "amont < 0", "`amont`"),
        ("    key: [region]", "    key: [n, headers]", "has no column 'headers'"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(PipelineFileError) as caught:
            check_tables(load_pipeline(path), place.spark, PipelineAddress(place.url))
        assert message in caught.value.text


def test_streams_buckets_and_dead_letters_get_each_row_once(place: Place) -> None:
    letter = "dead_letter: {stream: DEAD, subject: 'dead.{subject}', create: [dead.>]}"
    text = f"""{HEAD}{ORDERS}      {letter}
steps:
  sums: {{sql: 'select region, count(*) as n, sum(amount) as revenue from orders group by region'}}
sinks:
  copy:
    from: orders
    stream: COPY
    subject: "copy.{{region}}"
    create: [copy.>]
    ordered: true
  totals: {{from: sums, bucket: TOTALS, key: "{{region}}", create: true, mode: update}}
"""
    place.publish_orders(0, 6)
    place.publish(b'{"id": "x"}', b"no json")
    place.publish_orders(6, 3)
    place.publish(b'{"region": "north"}')
    status = place.run(text)
    assert status.state == "done"
    streams = place.connection.jetstream_manager().streams
    copies = [streams.get_message("COPY", seq=seq) for seq in range(1, 10)]
    assert streams.info("COPY").state.messages == 9
    assert [json.loads(copy.data)["id"] for copy in copies] == list(range(9))
    assert copies[0].subject == "copy.north"
    totals = place.connection.jetstream().kv.open("TOTALS")
    found = {key: totals.get(key) for key in list(totals.keys())}
    assert {key: json.loads(entry.value)["n"] for key, entry in found.items() if entry} == {
        "north": 3,
        "east": 3,
        "south": 3,
    }
    dead = [streams.get_message("DEAD", seq=seq) for seq in range(1, 4)]
    assert streams.info("DEAD").state.messages == 3
    assert {(letter.data, letter.headers["Tradewind-Reason"]) for letter in dead} == {
        (b'{"id": "x"}', 'field id: "x" is not of type bigint'),
        (b"no json", "the payload is not JSON: JSON is malformed: invalid character (byte 4)"),
        (b'{"region": "north"}', "field id is missing"),
    }
    assert {letter.subject for letter in dead} == {"dead.orders.us"}
    assert {letter.headers["Tradewind-Sequence"] for letter in dead} == {"7", "8", "12"}


def test_buckets_and_folders_can_be_followed(place: Place) -> None:
    prices = place.connection.jetstream().kv.create("PRICES", history=5)
    prices.put("apple", b'{"price": 1}')
    prices.put("apple", b'{"price": 2}')
    (place.folder / "files").mkdir()
    (place.folder / "files" / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    text = f"""{HEAD}sources:
  prices: {{bucket: PRICES, follow: true, payload: {{schema: price bigint}}}}
  latest: {{bucket: PRICES, payload: {{format: text}}}}
  files: {{json: files, follow: true, schema: id bigint}}
steps:
  joined: {{sql: "select id, key, value from files cross join latest"}}
sinks:
  changes: {{from: prices, console: {{}}}}
  files: {{from: joined, console: {{}}}}
"""
    prices.delete("pear")
    prices.put("apple", b'{"price": 3}')
    status = place.run(text)
    changes = [(row["key"], row["operation"], row["price"]) for row in place.rows("changes")]
    assert changes == [
        ("apple", "PUT", 1),
        ("apple", "PUT", 2),
        ("pear", "DEL", None),
        ("apple", "PUT", 3),
    ]
    found = sorted((row["id"], row["key"], row["value"]) for row in place.rows("files"))
    assert found == [(1, "apple", '{"price": 3}'), (2, "apple", '{"price": 3}')]
    lags = {query.name: query.lags for query in status.queries}
    assert [lag.stream for lag in lags["changes"]] == ["KV_PRICES"]
    assert lags["files"] == []


WRONG = [
    ("  step: {sql: selec 1 from orders}", 9, "Syntax error at or near 'selec'"),
    ("  step:\n    sql: |\n      select id,\n        regon from orders", 12, "`regon`"),
    ("  step: {sql: select * from orders join nowhere}", 9, "`nowhere` cannot be found"),
    ("  step: {window: 1 h, from: orders, keep: {a: smu(id)}}", 9, "`smu`"),
    ("  step: {python: 'broken.py:f', from: orders}", 9, "broken.py:f: ValueError: on purpose"),
    ("  step: {python: 'broken.py:g', from: orders}", 9, "must return a DataFrame, not int"),
    ("  step: {sql: select * from orders, watermark: {delay: 1 s, column: id}}", 9, "is bigint"),
]


@pytest.mark.parametrize(("step", "line", "message"), WRONG)
def test_check_finds_errors_in_steps_with_their_lines(
    place: Place, step: str, line: int, message: str
) -> None:
    (place.folder / "broken.py").write_text(
        "def f(orders):\n    raise ValueError('on purpose')\ndef g(orders):\n    return 1\n"
    )
    path = place.folder / "p.yaml"
    path.write_text(f"{HEAD}{ORDERS}steps:\n{step}\n{SHOW % 'step'}")
    with pytest.raises(PipelineFileError) as caught:
        check_tables(load_pipeline(path), place.spark, PipelineAddress(place.url))
    assert message in caught.value.text
    assert caught.value.line == line


def test_check_finds_modes_columns_and_streams_that_do_not_exist(place: Place) -> None:
    path = place.folder / "p.yaml"
    steps = "steps:\n  sums: {sql: 'select region, count(*) as n from orders group by region'}\n"

    def error(text: str) -> str:
        path.write_text(text)
        pipeline = load_pipeline(path)

        def check() -> None:
            check_server(pipeline, PipelineAddress(place.url))
            check_tables(pipeline, place.spark, PipelineAddress(place.url))

        with pytest.raises(PipelineFileError) as caught:
            check()
        return f"{caught.value.line}: {caught.value.text}"

    whole = HEAD + ORDERS + steps
    assert "11: show: mode append does not suit sums" in error(whole + SHOW % "sums")
    sink = "sinks:\n  kept: {from: sums, bucket: B, key: '{regio}', create: true, mode: update}\n"
    assert "sums has no column 'regio'; did you mean 'region'?" in error(whole + sink)
    for entry, message in (
        ("day(tim)", "orders has no column 'tim'; did you mean 'time'?"),
        ("day(region)", "day(region) needs a timestamp or a date, and region is string"),
        ("week(time)", "'week(time)' is not known; use a column, month(COLUMN), day(COLUMN)"),
        ("'bucket(4, id)'", "bucket(N, COLUMN) is for Delta and Iceberg tables"),
    ):
        sink = f"sinks:\n  lake:\n    from: orders\n    parquet: lake\n    partition_by: {entry}\n"
        assert f"14: {message}" in error(whole + sink).replace("partition_by: ", "")
    text = (HEAD + ORDERS + SHOW % "orders").replace("stream: ORDERS", "stream: ODRERS")
    assert "5: stream 'ODRERS' does not exist; did you mean 'ORDERS'?" in error(text)
    sink = "sinks:\n  kept: {from: orders, bucket: B, key: '{id}'}\n"
    assert "bucket 'B' does not exist; there are none" in error(HEAD + ORDERS + sink)
    path.write_text(
        text.replace("stream: ODRERS", "stream: ORDERS\n    server: nats://127.0.0.1:1")
    )
    notes = check_server(load_pipeline(path), PipelineAddress(place.url))
    assert len(notes) == 1
    assert notes[0].startswith("line 4: orders is not checked: cannot connect")


def test_settings_of_sql_must_exist_and_reach_a_session_that_runs(place: Place) -> None:
    path = place.folder / "p.yaml"
    log_file = place.folder / "spark.log"

    def session(conf: str) -> SparkSession:
        path.write_text(f"{HEAD}spark:\n  conf:\n    {conf}\n{ORDERS}{SHOW % 'orders'}")
        return pipeline_session(load_pipeline(path), "", log_file)

    with pytest.raises(PipelineFileError, match=r"p.yaml:5: .*did you mean 'spark.sql.shuffle.p"):
        session("spark.sql.shufle.partitions: 3")
    with pytest.raises(PipelineError, match=r"spark\.executor\.memory cannot be changed"):
        session("spark.executor.memory: 3g")
    name = "spark.sql.files.maxRecordsPerFile"
    assert session(f"{name}: 12345").conf.get(name) == "12345"
    place.spark.conf.unset(name)


def test_explain_names_columns_and_plans(place: Place) -> None:
    path = place.folder / "p.yaml"
    path.write_text(HEAD + ORDERS + SHOW % "orders")
    pipeline = load_pipeline(path)
    frames = check_tables(pipeline, place.spark, PipelineAddress(place.url))
    text = "\n".join([*explain_lines(pipeline, frames), *plan_lines(pipeline, frames)])
    assert "orders: stream ORDERS; followed; payload json, bad rows stop it" in text
    assert "id bigint, region string, amount decimal(12,2)" in text
    assert "show: append to console; from orders (of orders)" in text
    assert "Plan of show" in text


def test_only_one_runner_uses_a_checkpoint(place: Place) -> None:
    with (
        locked(place.folder / "state"),
        pytest.raises(PipelineError, match="the pipeline is already running"),
    ):
        place.run(HEAD + ORDERS + SHOW % "orders")
