"""SQL on streams and buckets: results that do not depend on a sample, and what is not a query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_kit import Place, orders_place

import tradewind.sync
from harness import ServerProcess, wait_for
from tradewind.cli.main import run
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.payloads import schemas
from tradewind.pipelines.relations.queries import QueryResult, QueryTable
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql.query_session import QuerySession, SqlQuestion
from tradewind.pipelines.tables import small_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    with orders_place(spark, tmp_path) as place:
        yield place


def ask(place: Place, text: str) -> QueryResult:
    return QuerySession(place.spark).ask(
        SqlQuestion(text, PipelineAddress(place.url), rows_max=100)
    )


def values(place: Place, text: str) -> list[Any]:
    return [tuple(row) for row in ask(place, text).rows]


def test_messages_outside_the_sample_count_as_they_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "SAMPLE_MESSAGES", 4)
    for number in range(20):
        is_sampled = number in (0, 1, 18, 19)
        amount = b"%d" % number if is_sampled else b"%d.5" % number
        note = b"" if number != 10 else b', "note": {"a": 1}'
        place.publish(b'{"amount": %s, "note": "x"%s}' % (amount, note))
    place.publish(b"no json", b"[1, 2]", subject="orders.other")
    place.publish(b'{"amount": 1}')
    (total,) = values(place, "select sum(amount), count(amount) from ORDERS")
    assert total == (sum(range(20)) + 16 * 0.5 + 1, 21)
    assert values(place, "select count(*) from ORDERS where amount is null") == [(2,)]


def test_a_stream_at_its_limits_is_asked_while_it_is_written(place: Place) -> None:
    """Its first messages are gone when the first task begins."""
    streams = place.connection.jetstream_manager().streams
    streams.add(name="RECENT", subjects=["recent.>"], max_msgs=5000)
    for _ in range(6000):
        place.connection.jetstream().publish_async("recent.x", b'{"n": 1}')
    place.connection.jetstream().publish_async_completed()
    is_over = Event()

    def write() -> None:
        with tradewind.sync.connect(place.url) as connection:
            js = connection.jetstream()
            while not is_over.is_set():
                js.publish("recent.x", b'{"n": 1}')  # one at a time: most stay for a while

    writer = Thread(target=write)
    writer.start()
    try:
        wait_for(lambda: streams.info("RECENT").state.first_seq > 1100)
        ((count,),) = values(place, "select count(n) from RECENT")
    finally:
        is_over.set()
        writer.join()
    assert 0 < count <= 5000


def test_names_with_a_dash_and_statements_about_tables(place: Place) -> None:
    streams = place.connection.jetstream_manager().streams
    streams.add(name="RAW-1", subjects=["raw"])
    place.publish(b'{"id": 7}', subject="raw")
    assert values(place, "select id from `RAW-1`;") == [(7,)]
    assert values(place, "show tables") == [("ORDERS", "stream"), ("RAW-1", "stream")]
    described = values(place, "-- the columns\ndescribe `RAW-1`")
    assert ("id", "bigint") in [row[:2] for row in described]
    assert "jetstream" in values(place, "explain select id from `RAW-1`")[0][0].lower()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the query is empty"),
        (" ; ", "the query is empty"),
        ("-- nothing\n", "the query is empty"),
        ("insert into ORDERS values (1)", "'insert': queries only read"),
        ("drop table ORDERS", "'drop': queries only read"),
        ("show databases", "only 'show tables' is known"),
    ],
)
def test_what_is_no_query_is_named(place: Place, text: str, reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        ask(place, text)


STATE_QUERIES = (
    "select count(*) from {}",
    "select COUNT(1), Min(Seq), max({}.seq), count(seq) as n from {}",
    "select max(seq) as `the last` from {}",
)


@pytest.fixture(params=["official", "tradewind"])
def streams(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path, Any]]:
    """A server with streams that are whole, have holes at all places, were purged, or are empty."""
    folder = tmp_path / "store"
    flags = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(request.param, flags).wait_ready()
    try:
        with tradewind.sync.connect(process.url) as connection:
            for name in ("WHOLE", "HOLES", "ENDLESS", "PURGED", "EMPTY"):
                connection.jetstream_manager().streams.add(name=name, subjects=[name])
                for number in range(0 if name == "EMPTY" else 30):
                    connection.jetstream().publish(name, b"%d" % number)
            manager = connection.jetstream_manager().streams
            for seq in (1, 2, 7, 8, 20):
                manager.delete_message("HOLES", seq)
            for seq in (5, 28, 29, 30):
                manager.delete_message("ENDLESS", seq)
            manager.purge("PURGED")
        yield process.url, folder, process
    finally:
        process.stop()


def test_answers_from_the_state_are_those_of_a_read(
    spark: SparkSession, streams: tuple[str, Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder, process = streams
    session = QuerySession(spark.newSession())
    asked = [
        SqlQuestion(
            text.format(name, name) if "{}." in text else text.format(name), PipelineAddress(url)
        )
        for name in ("WHOLE", "HOLES", "ENDLESS", "PURGED", "EMPTY")
        for text in STATE_QUERIES
    ]
    with monkeypatch.context() as patch:
        patch.setattr(QueryTable, "__init__", _refuse)
        by_state = [session.ask(question) for question in asked]
    rows = [tuple(result.rows[0]) for result in by_state]
    assert rows[1::3] == [
        (30, 1, 30, 30),
        (25, 3, 30, 25),
        (26, 1, 27, 26),
        (0, None, None, 0),
        (0, None, None, 0),
    ]
    monkeypatch.setattr(
        "tradewind.pipelines.sql.query_session.recognise", lambda _text, _plan: None
    )
    for question, found in zip(asked[4:9:3], by_state[4:9:3], strict=True):
        read = session.ask(question)
        assert (read.columns, [tuple(row) for row in read.rows]) == (
            found.columns,
            [tuple(row) for row in found.rows],
        )
    monkeypatch.undo()
    first = session.ask(SqlQuestion("select seq from HOLES limit 5", PipelineAddress(url)))
    assert [row["seq"] for row in first.rows] == [3, 4, 5, 6, 9]
    # The files say the same once the server has ended, without a read or with one.
    process.stop()
    for question, found in zip(asked[1::3], by_state[1::3], strict=True):
        text = question.text
        read = session.ask(SqlQuestion(text, store=str(folder)))
        assert (read.columns, [tuple(row) for row in read.rows]) == (
            found.columns,
            [tuple(row) for row in found.rows],
        )
    first = session.ask(SqlQuestion("select seq from HOLES limit 5", store=str(folder)))
    assert [row["seq"] for row in first.rows] == [3, 4, 5, 6, 9]


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("a table was looked at, though the state has the answer")


def test_a_process_that_has_a_spark_uses_it_and_keeps_it(
    place: Place,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # no service of whoever runs the tests
    place.publish_orders(0, 3)
    text = "select sum(id) as s from ORDERS; select count(*) as n from ORDERS"
    assert run(["--server", place.url, "sql", text, "--csv"]) == 0
    assert capsys.readouterr().out == "s\n3\nn\n3\n"
    assert place.spark.range(5).count() == 5
    assert place.spark.conf.get("spark.sql.shuffle.partitions") == "2"


def plan_of(session: QuerySession, name: str) -> str:
    """How the frame that a session keeps of a stream is read."""
    (kept,) = [table for key, (_, table) in session._kept.items() if key[1] == name]
    assert isinstance(kept, QueryTable)
    text: str = kept._frame._jdf.queryExecution().executedPlan().toString()
    return text


def test_a_small_stream_is_read_at_once_and_again_after_each_change(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are the same by Spark's reader of files and by the format `jetstream`."""
    bucket = place.connection.jetstream().kv.create("PRICES")
    for number in range(20):
        place.publish(b'{"id": %d}' % number, subject=f"orders.{number % 3}")
        bucket.put(f"key{number % 4}", b'{"price": %d}' % number)
    place.connection.jetstream().publish("orders.x", b"no json", headers={"A": "b"})
    texts = (
        "select seq, subject, cast(time as string), headers, data, id from ORDERS order by 1",
        "select stream, seq from ORDERS order by seq desc",
        "select key, price, revision, operation from PRICES order by key",
        "select count(*) from ORDERS where id > 5 and subject = 'orders.1'",
        "select sum(price) from PRICES p join ORDERS o on o.id = p.price",
        "select id from ORDERS where false",
    )

    def answers(session: QuerySession) -> list[Any]:
        address = PipelineAddress(place.url)
        return [session.ask(SqlQuestion(text, address, rows_max=100)).rows for text in texts]

    session = QuerySession(place.spark.newSession())
    found = answers(session)
    assert len(found[0]) == 21
    assert found == answers(session)
    assert "parquet" in plan_of(session, "ORDERS").lower()
    monkeypatch.setattr(small_streams, "SMALL_BYTES_MAX", 10)
    by_format = QuerySession(place.spark.newSession())
    assert answers(by_format) == found
    assert "jetstream" in plan_of(by_format, "ORDERS").lower()
    monkeypatch.undo()
    files = Path(str(place.spark.sparkContext._temp_dir), "tails")
    before = set(files.iterdir())
    place.publish(b'{"id": 100, "new": true}')
    assert len(answers(session)[0]) == 22
    assert len(set(files.iterdir()) - before) == 1
    assert len(before - set(files.iterdir())) == 1, "the file of an answer that is out of date"
    counts = session.ask(SqlQuestion("select count(new) from ORDERS", PipelineAddress(place.url)))
    assert counts.rows[0][0] == 1
