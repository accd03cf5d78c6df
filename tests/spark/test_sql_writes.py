"""SQL that writes: rows to streams and buckets, lakes from queries, and materialized views."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pipeline_kit import Place, orders_place

from harness import wait_for
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import QueryResult
from tradewind.pipelines.relations.statements import split_statements
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql.query_session import PendingAnswer, QuerySession, SqlQuestion
from tradewind.pipelines.sql.wire import StatementError
from tradewind.pipelines.views.view_runner import ViewRunner
from tradewind.pipelines.views.view_store import ViewStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "SQL.md"
STATEMENT = "0123456789abcdef" * 2


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    with orders_place(spark, tmp_path) as place:
        yield place


def question(place: Place, text: str, **more: Any) -> SqlQuestion:
    settings = {"rows_max": 100, "may_write": True, "folder": str(place.folder)} | more
    return SqlQuestion(text, PipelineAddress(place.url), **settings)


def ask(place: Place, text: str, **more: Any) -> QueryResult:
    return QuerySession(place.spark).ask(question(place, text, **more))


def values(place: Place, text: str, **more: Any) -> list[Any]:
    return [tuple(row) for row in ask(place, text, **more).rows]


def messages(place: Place, stream: str) -> list[tuple[str, bytes]]:
    manager = place.connection.jetstream_manager().streams
    state = manager.info(stream).state
    found = [manager.get_message(stream, seq=seq) for seq in range(1, state.last_seq + 1)]
    return [(one.subject, bytes(one.data)) for one in found]


def test_rows_become_messages_and_keys(place: Place) -> None:
    streams = place.connection.jetstream_manager().streams
    streams.add(name="COPY", subjects=["copy.*"])
    streams.add(name="ONE", subjects=["one"])
    place.connection.jetstream().kv.create("prices")
    place.publish_orders(0, 6)
    text = (
        "-- totals\ninsert into copy"
        " select concat('copy.', region) as subject, id, amount from ORDERS"
    )
    assert values(place, text) == [(6,)]
    found = {(subject, json.loads(data)["id"]) for subject, data in messages(place, "COPY")}
    assert found == {(f"copy.{('north', 'east', 'south')[n % 3]}", n) for n in range(6)}
    # A statement that is sent again under its id writes nothing more; another one does.
    more = {"statement": STATEMENT}
    assert values(place, "insert into ONE (data) values ('a'), ('b')", **more) == [(2,)]
    assert sorted(messages(place, "ONE")) == [("one", b"a"), ("one", b"b")]
    assert values(place, "insert into ONE (data) values ('a')") == [(1,)]
    assert len(messages(place, "ONE")) == 3
    text = (
        "insert into prices (key, value)"
        " select region, cast(sum(id) as string) from ORDERS group by 1"
    )
    assert values(place, text) == [(3,)]
    entry = place.connection.jetstream().kv.open("prices").get("north")
    assert entry is not None
    assert entry.value == b"3"
    assert values(place, "insert into ONE select 'x' as data where false") == [(0,)]
    marks = place.connection.jetstream().kv.open("spark_sinks")
    assert list(marks.keys()) == [], "nothing is left of statements that are done"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("insert into ORDERS (data) values ('a')", "no column subject, and stream ORDERS has"),
        ("insert into ORDERS values ('orders.us', 'a')", "name the columns of the values"),
        ("insert into ORDERS (subject, data) select 1", "names 2 columns .* has 1"),
        ("insert into ORDER (data) values ('a')", "did you mean 'ORDERS'"),
        ("insert overwrite ORDERS select 1", "only grow"),
        ("insert into ORDERS select 'orders.us' as subject, 'a' as data, 1 as id", "column id"),
        ("insert into ORDERS (subject, subject) values ('a', 'b')", "is there twice"),
        ("insert into KV_b (data) values ('a')", r"insert into b \(key, value\)"),
        ("insert into lake select 1 as a", "is a folder"),
        ("insert into ORDERS select nothing from ORDERS", "nothing"),
        ("drop table ORDERS", "this statement is not known"),
        ("create table t (a int) using delta", "needs a query"),
        ("create table t using orc as select 1 as a", "using parquet, delta or iceberg"),
        ("create table t using delta partitioned by (b) as select 1 as a", "no such column"),
        ("create table there using parquet as select 1 as a", "exists already"),
        ("create or replace table there using parquet as select 1 as a", "is not replaced"),
        ("with x as (select 1) insert into ORDERS select * from x", "begins with insert"),
        ("from ORDERS insert into ORDERS select *", "begins with insert"),
    ],
)
def test_what_cannot_be_written_is_named_before_anything_is(
    place: Place, text: str, reason: str
) -> None:
    place.connection.jetstream().kv.create("b")
    (place.folder / "there").mkdir()
    (place.folder / "there" / "kept").write_text("x")
    with pytest.raises(PipelineError, match=reason):
        ask(place, text, folders={"lake": "parquet:/nowhere"} if "lake" in text else {})
    assert messages(place, "ORDERS") == []
    assert (place.folder / "there" / "kept").exists()


def test_a_query_that_may_only_read_never_writes(place: Place) -> None:
    target = place.folder / "stolen"
    hidden = (
        f"with x as (select 1 as a) insert overwrite directory '{target}' using csv select * from x"
    )
    for text in ("insert into ORDERS (subject, data) values ('orders.us', 'a')", hidden):
        with pytest.raises(PipelineError, match=r"only read|begins with insert"):
            ask(place, text, may_write=False)
    assert not target.exists()
    assert messages(place, "ORDERS") == []


def test_a_failed_and_a_cancelled_insert_say_what_they_left(place: Place) -> None:
    place.connection.jetstream_manager().streams.add(name="SLOW", subjects=["slow.*"])
    bad = (
        "insert into SLOW (subject, data)"
        " select if(id = 5, 'no.such', 'slow.a'), 'x' from range(0, 6, 1, 1)"
    )
    with pytest.raises(PipelineError, match=r"did not finish: .*no.such.*; (none|5) of its rows"):
        ask(place, bad)
    before = len(messages(place, "SLOW"))
    # One part is written at once, the other never ends.
    text = (
        "insert into SLOW (subject, data) select 'slow.b', cast(id as string) from"
        " (select id from range(0, 10, 1, 2) union all"
        " select id from range(0, 1000000000000000, 1, 1) where id % 7 = hash(id) % 11 and id < 0)"
    )
    session = QuerySession(place.spark)
    asked = PendingAnswer(session, question(place, text))
    wait_for(lambda: asked.wait(0) or len(messages(place, "SLOW")) == before + 10, seconds=240)
    assert not asked.wait(0), asked.outcome()
    asked.cancel()
    assert asked.wait(120)
    with pytest.raises(PipelineError, match="10 of its rows were written to SLOW and stay"):
        asked.result()
    assert "10 of its rows" in asked.outcome()
    assert len(messages(place, "SLOW")) == before + 10


def test_a_lake_is_there_as_a_whole_or_not(place: Place) -> None:
    place.publish_orders(0, 6)
    for format_ in ("parquet", "delta"):
        text = f"create table {format_}s using {format_} as select id, region, time from ORDERS"
        path = str(place.folder / f"{format_}s")
        assert values(place, text, statement=STATEMENT) == [(f"{format_}s", path, 6)]
        assert values(place, text, statement=STATEMENT) == [(f"{format_}s", path, 6)]
        with pytest.raises(PipelineError, match="exists already"):
            ask(place, text)
        folders = {"lake": f"{format_}:{path}"}
        total = "select count(*), sum(id) from lake"
        assert values(place, total, folders=folders) == [(6, 15)]
        replaced = (
            f"create or replace table x using {format_} location '{path}'"
            " partitioned by (region) as select id, region from ORDERS where id < 2"
        )
        assert values(place, replaced) == [("x", path, 2)]
        assert values(place, total, folders=folders) == [(2, 1)]
    fails = "create table none using delta as select cast(raise_error('no') as int) as a"
    with pytest.raises(PipelineError, match="was not made: no; nothing was changed"):
        ask(place, fails)
    names = sorted(path.name for path in place.folder.iterdir())
    assert names == ["deltas", "parquets", "store"]


def test_an_iceberg_table_is_made_and_read(place: Place) -> None:
    pytest.importorskip("pyiceberg")
    place.publish_orders(0, 6)
    made = (
        "create table sales.orders using iceberg location 'house' as select id, region from ORDERS"
    )
    where = f"iceberg:{place.folder}/house#sales.orders"
    assert values(place, made) == [("sales.orders", where, 6)]
    folders = {"lake": where}
    assert values(place, "select sum(id), min(region) from lake", folders=folders) == [(15, "east")]
    with pytest.raises(PipelineError, match="exists already in"):
        ask(place, made)
    again = made.replace("create", "create or replace") + " where id > 3"
    assert values(place, again) == [("sales.orders", where, 2)]
    assert values(place, "select sum(id) from lake", folders=folders) == [(9,)]
    fails = (
        "create table sales.none using iceberg location 'house' as"
        " select cast(raise_error('no') as int) as a"
    )
    with pytest.raises(PipelineError, match="nothing was changed"):
        ask(place, fails)
    with pytest.raises(PipelineError, match="has no table"):
        ask(place, "select * from lake", folders={"lake": where.replace("orders", "none")})


def test_the_statements_of_the_page_run(place: Place, tmp_path: Path) -> None:
    streams = place.connection.jetstream_manager().streams
    streams.add(name="LARGE", subjects=["large"])
    place.connection.jetstream().kv.create("regions")
    place.publish_orders(0, 6)
    (text,) = re.findall(r"^```\n(insert.*?)```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    statements, rest = split_statements(text)
    assert not rest.strip()
    found = []
    for statement in statements:
        if statement.startswith("select"):
            run_views(place, tmp_path / "views")
        found.append(values(place, statement))
    assert found[:2] == [[(4,)], [(3,)]]
    assert found[2] == [("history", str(place.folder / "lake/history"), 6)]
    assert found[4][0][:4] == ("totals", "not running", "bucket totals", "region")
    assert found[5] == [("east", 2), ("north", 2), ("south", 2)]
    assert found[7] == [("totals", "dropped")]


def run_views(place: Place, state: Path, *names: str) -> list[str]:
    notes: list[str] = []
    address = PipelineAddress(place.url)
    runner = ViewRunner(place.spark, address, state, notes.append, names, is_once=True)
    runner.run(Event())
    return notes


def results(place: Place, bucket: str) -> dict[str, Any]:
    found = place.connection.jetstream().kv.open(bucket)
    entries = {key: found.get(key) for key in found.keys()}  # noqa: SIM118
    return {key: json.loads(entry.value) for key, entry in entries.items() if entry is not None}


def test_a_view_is_kept_paused_resumed_and_dropped(place: Place, tmp_path: Path) -> None:
    state = tmp_path / "views"
    place.publish_orders(0, 6)
    place.publish(b"no json", b'{"region": "x y.", "amount": 1}', b'{"amount": 4}')
    create = (
        "create materialized view totals as\n"
        "select region, count(*) as orders, sum(amount) as amount from ORDERS"
        " where amount is not null group by region"
    )
    (row,) = values(place, create)
    assert row == (
        "totals",
        "created; `tradewind view run` keeps it up to date",
        "bucket totals",
        "region",
    )
    files = (
        "create materialized view big using delta location 'big' as"
        " select seq, id, region from ORDERS where id >= 3"
    )
    ask(place, files)
    assert run_views(place, state)[-2:] == ["view big: done", "view totals: done"]
    first = results(place, "totals")
    assert first["north"] == {"region": "north", "orders": 2, "amount": 3.5}
    assert first["x=20y=2E"] == {"region": "x y.", "orders": 1, "amount": 1.0}
    assert first["=null"] == {"region": None, "orders": 1, "amount": 4.0}
    # It continues where it was, also after a kill in between: nothing is counted twice.
    place.publish_orders(6, 3)
    run_views(place, state)
    assert results(place, "totals")["north"] == {"region": "north", "orders": 3, "amount": 9.75}
    lake = {"lake": f"delta:{place.folder}/big"}
    assert values(place, "select count(*), sum(id) from lake", folders=lake) == [(6, 33)]
    # A view that is paused stays as it is.
    assert values(place, "alter materialized view totals pause")[0][:2] == ("totals", "paused")
    place.publish_orders(9, 3)
    run_views(place, state)
    assert results(place, "totals")["north"]["orders"] == 3
    shown = {row[0]: row[1:4] for row in values(place, "show materialized views", may_write=False)}
    assert shown == {
        "totals": ("paused", "bucket totals", "region"),
        "big": ("done", f"delta {place.folder}/big", ""),
    }
    ask(place, "alter materialized view totals resume")
    assert run_views(place, state, "totals") == [
        "view totals: running (bucket totals)",
        "view totals: done",
    ]
    assert results(place, "totals")["north"]["orders"] == 4
    # Nobody else continues with another state, nor this one without it.
    assert "its state is" in run_views(place, tmp_path / "other", "totals")[0]
    (checkpoint,) = state.glob("totals-*/checkpoint")
    checkpoint.rename(checkpoint.with_name("lost"))
    assert "is gone" in run_views(place, state, "totals")[0]
    assert values(place, "drop materialized view totals") == [("totals", "dropped")]
    assert "totals" not in place.connection.jetstream().kv.names()
    with pytest.raises(PipelineError, match="'totals' does not exist"):
        ask(place, "alter materialized view totals pause")


def test_a_running_view_follows_its_stream_and_its_definition(place: Place, tmp_path: Path) -> None:
    place.publish_orders(0, 3)
    ask(place, "create materialized view seen as select count(*) as n, max(id) as last from ORDERS")
    notes: list[str] = []
    stop = Event()
    address = PipelineAddress(place.url)
    runner = ViewRunner(place.spark, address, tmp_path / "views", notes.append)
    thread = threading.Thread(target=runner.run, args=(stop,), daemon=True)
    thread.start()
    try:
        wait_for(lambda: results(place, "seen") == {"all": {"n": 3, "last": 2}}, seconds=240)
        place.publish_orders(3, 4)
        wait_for(lambda: results(place, "seen") == {"all": {"n": 7, "last": 6}}, seconds=240)
        store = ViewStore(place.connection)
        store.change("seen", lambda view: msgspec.structs.replace(view, is_paused=True))
        wait_for(lambda: "view seen: paused" in notes, seconds=120)
        place.publish(b'{"id": "no number any more"}')
        store.change("seen", lambda view: msgspec.structs.replace(view, is_paused=False))
        wait_for(lambda: "has another type" in store.reports()["seen"].error, seconds=240)
        store.drop("seen")
        wait_for(lambda: not runner._failed and not runner._running, seconds=120)
    finally:
        stop.set()
        thread.join(120)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "select region, count(*) as n from ORDERS group by region having count(*) > 1",
            "a condition",
        ),
        ("select count(*) as n from ORDERS group by region", "which is none of its columns"),
        ("select region from ORDERS", "only if the query groups them"),
        ("select id, count(*) as n from ORDERS group by id order by n", "Sort"),
        ("select 1 as a", "follows a stream"),
        ("select region, nothing from ORDERS group by region", "nothing"),
    ],
)
def test_a_view_that_cannot_be_kept_up_is_not_made(place: Place, query: str, reason: str) -> None:
    place.publish_orders(0, 3)
    with pytest.raises(PipelineError, match=reason) as caught:
        ask(place, f"create materialized view v as {query}")
    if isinstance(caught.value, StatementError):
        assert caught.value.column > len("create materialized view v as ")
    assert values(place, "show materialized views") == []
