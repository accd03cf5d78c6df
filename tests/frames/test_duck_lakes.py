"""SQL by DuckDB over streams that have a lake table: the files and the tail are one table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tradewind
import tradewind.sync
from tradewind.api.times import parse_time
from tradewind.pipelines.relations.queries import QueryResult
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql import duck_lakes, duck_runner
from tradewind.pipelines.sql.duck_runner import DuckRunner
from tradewind.pipelines.sql.engines import NeedsSparkError
from tradewind.pipelines.sql.plans import figures_in
from tradewind.pipelines.sql.query_session import SqlQuestion
from tradewind.pipelines.sql.wire import StatementError
from tradewind.pipelines.tables.table_columns import table_columns
from tradewind.pipelines.tables.table_spec import TableSpec, with_table
from written_tables import RAW_SCHEMA, WrittenFolder, WrittenTable, spec_of, written_table

pytest.importorskip("duckdb")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
FIELDS = pa.schema([pa.field("item", pa.string()), pa.field("price", pa.float64())])


class LakePlace:
    """A stream or bucket of a server, and the job that writes its table."""

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.connection = connection
        self.streams = connection.jetstream_manager().streams

    def add_stream(self, spec: TableSpec, name: str = "ORDERS") -> WrittenTable | WrittenFolder:
        info = self.streams.add(
            name=name,
            subjects=["orders.*"],
            metadata=with_table({}, spec),
            allow_direct=True,
        )
        return written_table(spec, name, parse_time(info.created))

    def publish(self, *orders: Any) -> None:
        js = self.connection.jetstream()
        for order in orders:
            data = order if isinstance(order, bytes) else json.dumps(order).encode()
            js.publish("orders.a", data)

    def write(self, table: Any, first: int, last: int, schema: pa.Schema = RAW_SCHEMA) -> None:
        """Have the table go from one sequence up to another."""
        messages = [
            self.streams.get_message(table.stream, seq=seq) for seq in range(first, last + 1)
        ]
        rows = []
        for one in messages:
            row = {"seq": one.seq, "subject": one.subject, "time": one.time, "headers": None}
            row |= {"day": one.time.date(), "data": one.data}
            if "item" in schema.names:
                row |= dict(json.loads(one.data).items())
            rows.append({name: row.get(name) for name in schema.names})
        table.add(pa.Table.from_pylist(rows, schema), last)

    def ask(self, text: str) -> QueryResult:
        return DuckRunner().ask(SqlQuestion(text, PipelineAddress(self.url)))

    def rows(self, text: str) -> list[Any]:
        return [tuple(row) for row in self.ask(text).rows]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[LakePlace]:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        yield LakePlace(server.url, connection)


def order(number: int) -> dict[str, Any]:
    return {"item": f"i{number % 3}", "price": number + 0.5}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_raw_tables_have_the_fields_of_their_messages_and_of_the_tail(
    place: LakePlace, tmp_path: Path, kind: str
) -> None:
    table = place.add_stream(spec_of(tmp_path, kind, tiers=True))
    place.publish(*(order(number) for number in range(1, 9)))
    place.write(table, 1, 5)
    place.streams.purge("ORDERS", seq=6)
    by_item = "select item, count(*), sum(price) from ORDERS group by item order by item"
    assert place.rows(by_item) == [("i0", 2, 10.0), ("i1", 3, 13.5), ("i2", 3, 16.5)]
    assert place.rows("select seq from ORDERS where seq > 4 and seq < 8 order by seq") == [
        (5,),
        (6,),
        (7,),
    ]
    assert place.rows("select distinct stream from ORDERS where stream = 'ORDERS'") == [("ORDERS",)]
    assert place.rows("select count(*) from ORDERS where subject = 'orders.b'") == [(0,)]
    assert place.rows("select count(item) from ORDERS where time < timestamptz '2020-01-01'") == [
        (0,)
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_decoded_tables_are_joined_with_the_tail(
    place: LakePlace, tmp_path: Path, kind: str
) -> None:
    spec = TableSpec(
        to=str(tmp_path / kind),
        format=kind,  # type: ignore[arg-type]
        schema={"item": "string", "price": "double"},
        partition=["day"],
    )
    table = place.add_stream(spec)
    place.publish(*(order(number) for number in range(1, 9)))
    place.write(table, 1, 5, table_columns("ORDERS", spec, FIELDS))
    by_item = "select item, sum(price) from ORDERS where price > 2 group by item order by item"
    assert place.rows(by_item) == [("i0", 10.0), ("i1", 12.0), ("i2", 16.5)]
    assert place.rows(
        "select count(distinct day), count(*) from ORDERS where day > '2020-01-01'"
    ) == [(1, 8)]
    names = [row[0] for row in place.rows("describe ORDERS")]
    assert names[:4] == ["stream", "seq", "subject", "time"]
    assert {"item", "price", "day"} < set(names)


def test_a_field_that_the_table_lacks_is_read_from_the_stream(
    place: LakePlace, tmp_path: Path
) -> None:
    spec = TableSpec(to=str(tmp_path / "t"), format="delta", schema={"item": "string"})
    table = place.add_stream(spec)
    place.publish(order(1), order(2))
    columns = table_columns("ORDERS", spec, pa.schema([FIELDS.field("item")]))
    place.write(table, 1, 1, columns)
    assert place.rows("select sum(price) from ORDERS") == [(4.0,)]
    with pytest.raises(StatementError, match="nope"):
        place.ask("select nope from ORDERS")


@pytest.mark.parametrize("decoded", [True, False])
def test_a_bucket_has_the_latest_value_of_each_key(
    place: LakePlace, tmp_path: Path, *, decoded: bool
) -> None:
    schema: Any = {"price": "bigint"} if decoded else "raw"
    spec = TableSpec(
        to=str(tmp_path / "t"), format="delta", schema=schema, rows="latest", keeps_data=True
    )
    kv = place.connection.jetstream().kv.create("PRICES", history=5)
    place.streams.update("KV_PRICES", metadata=with_table({}, spec))
    created = parse_time(place.streams.info("KV_PRICES").created)
    table = written_table(spec, "KV_PRICES", created)
    fields = pa.schema([pa.field("price", pa.int64())] if decoded else [])
    columns = table_columns("KV_PRICES", spec, fields)
    rows = []
    for price, key in enumerate("abc", 1):
        value = b'{"price":%d}' % price
        kv.put(key, value)
        row = {"key": key, "seq": price, "operation": "PUT", "data": value, "price": price}
        rows.append({name: row.get(name) for name in columns.names})
    table.add(pa.Table.from_pylist(rows, columns), 3)
    text = "select key, price, revision, value from PRICES order by key"
    assert [row[:3] for row in place.rows(text)] == [("a", 1, 1), ("b", 2, 2), ("c", 3, 3)]
    kv.put("b", b'{"price":20}')
    kv.delete("c")
    kv.put("d", b'{"price":4}')
    expected = [("a", 1, 1), ("b", 20, 4), ("d", 4, 6)]
    assert [row[:3] for row in place.rows(text)] == expected
    assert place.rows("select value from PRICES where key = 'b'") == [('{"price":20}',)]
    assert place.rows("select value from PRICES where key = 'c'") == []
    assert place.rows("select distinct bucket from PRICES") == [("PRICES",)]


@pytest.mark.parametrize("decoded", [True, False])
def test_files_that_compaction_removed_are_looked_up_again(
    place: LakePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, decoded: bool
) -> None:
    schema: Any = {"item": "string", "price": "double"} if decoded else "raw"
    spec = TableSpec(to=str(tmp_path / "t"), format="delta", schema=schema)
    table = place.add_stream(spec)
    columns = table_columns("ORDERS", spec, FIELDS) if decoded else RAW_SCHEMA
    place.publish(*(order(number) for number in range(1, 5)))
    place.write(table, 1, 2, columns)
    place.write(table, 3, 4, columns)
    opened = duck_runner._opened_table

    def removed(*given: Any) -> Any:
        found = opened(*given)
        old = list((tmp_path / "t").glob("*.parquet"))
        table.join()
        for path in old:
            path.unlink()
        monkeypatch.undo()
        return found

    monkeypatch.setattr(duck_runner, "_opened_table", removed)
    assert place.rows("select sum(price) from ORDERS") == [(12.0,)]


def test_a_tail_that_does_not_fit_names_its_size_and_what_to_do(
    place: LakePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.add_stream(spec_of(tmp_path, "delta"))
    place.publish(order(1), order(2))
    place.write(table, 1, 1)
    monkeypatch.setattr(duck_runner, "TAIL_BYTES_MAX", 1)
    monkeypatch.setattr(duck_lakes, "TAIL_BYTES_MAX", 5 << 20)
    with pytest.raises(NeedsSparkError, match="more than 5 MiB, until `tradewind table run`"):
        place.ask("select * from ORDERS")


def test_a_table_that_is_not_written_yet_is_the_stream(place: LakePlace, tmp_path: Path) -> None:
    place.add_stream(spec_of(tmp_path, "delta"))
    place.publish(order(1))
    assert place.rows("select item, price from ORDERS") == [("i1", 1.5)]


def test_whole_counts_and_ends_read_no_message(
    place: LakePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a table was opened")

    monkeypatch.setattr(duck_runner, "_opened_table", never)
    plain = place.streams.add(name="PLAIN", subjects=["plain"])
    assert plain.config.name == "PLAIN"
    for _ in range(3):
        place.connection.jetstream().publish("plain", b"x")
    found = place.ask("select count(*), min(seq) as low, max(seq) from PLAIN")
    assert (found.columns, found.rows) == (["count_star()", "low", "max(seq)"], [(3, 1, 3)])
    table = place.add_stream(spec_of(tmp_path, "delta"))
    place.publish(order(1), order(2))
    place.write(table, 1, 1)
    assert place.rows("select count(*) n from ORDERS") == [(2,)]


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) from A where seq > 1",
        "select count(seq) from A",
        "select count(*) + 1 from A",
        "select count(*) from A, B",
        "select max(time) from A",
        "select count(*) from A group by subject",
        "select 'count(*)' from A",
        "select count(*) from A limit 0",
    ],
)
def test_other_questions_are_left_to_the_engine(text: str) -> None:
    assert figures_in(text) is None
