"""Several sinks with one read, several pipelines in one session, and tests of pipeline files."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_kit import Place

import tradewind
import tradewind.sync
from tradewind.pipelines.checks.case_runs import case_session, run_case
from tradewind.pipelines.checks.verifying import verify
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.errors import PipelineError, PipelineFileError
from tradewind.pipelines.running.runner import Runner
from tradewind.pipelines.running.together import own_session, run_together
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE = 20_000
ORDERS = 12
TEXT = """\
pipeline: shared
checkpoint: state
sources:
  orders:
    stream: ORDERS
    share: true
    batch: 8
    payload:
      schema: {id: bigint not null, region: string, pad: string}
      dead_letter: {stream: DEAD, subject: dead, create: [dead]}
steps:
  sales: {sql: "select stream, seq, id, region from orders where id >= 0"}
  same: {sql: "select region from orders"}
  sums: {sql: "select region, count(*) as n from sales group by region"}
sinks:
  lake: {from: sales, parquet: lake}
  second: {from: sales, parquet: second, partition_by: region}
  copy: {from: same, stream: COPY, subject: "copy.{region}", create: [copy.>]}
  show: {from: sales, console: {}}
  table: {from: sales, delta: table}
  sums: {from: sums, bucket: SUMS, key: "{region}", create: true, mode: update}
"""


class Counted(Place):
    """A place whose server says how many bytes it has sent."""

    monitor_url: str = ""

    def sent_bytes(self) -> int:
        with urllib.request.urlopen(f"{self.monitor_url}/varz", timeout=60) as answer:
            return int(json.load(answer)["out_bytes"])


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Counted]:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store"), http_port=-1) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        connection.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.*"])
        made = Counted(spark, tmp_path, server.url, connection)
        made.monitor_url = server.monitor_url
        yield made


class Breaking(list[Any]):
    """Rows that cannot be shown."""

    def append(self, _rows: object) -> None:
        raise RuntimeError("killed between two sinks")


def order(number: int) -> bytes:
    region = ("north", "east")[number % 2]
    return json.dumps({"id": number, "region": region, "pad": "x" * SIZE}).encode()


def test_sinks_share_one_read_and_each_gets_its_rows_once(
    place: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    place.publish(*(order(number) for number in range(ORDERS)), b"no order")
    before = place.sent_bytes()
    with monkeypatch.context() as broken:
        # The first batch dies between two sinks: three have it, one does not.
        broken.setattr(place, "shown", Breaking())
        with pytest.raises(PipelineError, match="killed between two sinks"):
            place.run(TEXT)
    streams = place.connection.jetstream_manager().streams
    assert streams.info("COPY").state.messages == 8
    assert not (place.folder / "table").exists()
    repeated = place.sent_bytes() - before
    status = place.run(TEXT)
    assert sorted(query.name for query in status.queries) == [
        *("copy", "lake", "orders_dead", "second", "show", "sums", "table")
    ]
    # The shared query reads it once, and so does the aggregate unless it did before.
    rows = {query.name: query.rows for query in status.queries}
    reads = 1 + (rows.pop("sums") > 0)
    assert place.sent_bytes() - before - repeated < (reads + 0.9) * (ORDERS + 1) * SIZE
    assert set(rows.values()) == {ORDERS + 1}
    queries = {path.name for path in (place.folder / "state" / "queries").iterdir()}
    assert queries == {"orders_shared", "sums"}
    whole = list(range(ORDERS))
    for name in ("lake", "second"):
        found = place.spark.read.parquet(str(place.folder / name)).collect()
        assert sorted(row["id"] for row in found) == whole
    table = deltalake.DeltaTable(str(place.folder / "table")).to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == whole
    assert sorted(row["id"] for row in place.rows("show")) == whole
    copies = streams.info("COPY", subjects_filter=">").state.subjects
    assert copies == {"copy.north": ORDERS // 2, "copy.east": ORDERS // 2}
    assert streams.info("DEAD").state.messages == 1
    verdict = verify(
        load_pipeline(place.folder / "p.yaml"), place.spark, PipelineAddress(place.url), "lake"
    )
    assert verdict.outcome == "same"


def test_a_sink_that_comes_later_has_its_own_query_and_none_may_leave(place: Counted) -> None:
    text = """\
pipeline: later
checkpoint: state
sources:
  orders: {stream: ORDERS, share: true, payload: {schema: id bigint, bad: skip}}
sinks:
  one: {from: orders, console: {}}
  two: {from: orders, console: {}}
"""
    place.publish(b'{"id": 1}', b"no order", b'{"id": 2}')
    status = place.run(text)
    assert [(query.name, query.bad_rows) for query in status.queries] == [("one", 1), ("two", 1)]
    place.publish(b'{"id": 3}')
    place.run(text + "  three: {from: orders, console: {}}\n")
    for sink in ("one", "two", "three"):
        assert sorted(row["id"] for row in place.rows(sink)) == [1, 2, 3]
    with pytest.raises(PipelineFileError, match=r"p\.yaml:6: one was written by the shared query"):
        place.run(text.replace(", share: true", ""))


def test_one_pipeline_that_fails_does_not_stop_the_others(place: Counted) -> None:
    place.publish(b'{"id": 1}', b"no order")
    shown: dict[str, list[int]] = {}

    def show(sink: str, _sink: object, batch: Any, _number: int) -> None:
        shown.setdefault(sink, []).extend(row["id"] for row in batch.collect())

    def make(name: str) -> Runner:
        bad = "fail" if name == "bad" else "skip"
        path = place.folder / f"{name}.yaml"
        # The same names of tables: each pipeline has its own.
        path.write_text(
            f"pipeline: {name}\ncheckpoint: state/{name}\nsources:\n"
            f"  orders: {{stream: ORDERS, payload: {{schema: id bigint, bad: {bad}}}}}\n"
            f"steps:\n  more: {{sql: 'select id + {len(name)} as id from orders'}}\n"
            f"sinks:\n  {name}: {{from: more, console: {{}}}}\n"
        )
        pipeline = load_pipeline(path)
        session = own_session(pipeline, place.spark)
        return Runner(pipeline, session, PipelineAddress(place.url), show, is_once=True)

    failures: list[Any] = []
    names = ("bad", "first", "second")
    makers = [partial(make, name) for name in names]
    runners = run_together(makers, Event(), lambda _status: None, failures.append)
    assert {runner.pipeline.name: runner.status.state for runner in runners} == {
        "bad": "failed",
        "first": "done",
        "second": "done",
    }
    assert len(failures) == 1
    assert "stream ORDERS sequence 2" in str(failures[0])
    assert shown["first"] == [6]
    assert shown["second"] == [7]


CASES = """\
pipeline: sales
checkpoint: state
sources:
  orders:
    stream: ORDERS
    payload:
      schema: {id: bigint not null, amount: "decimal(12,2)"}
      dead_letter: {stream: DEAD, subject: "dead.{subject}"}
  prices: {bucket: PRICES}
  taxes: {csv: taxes.csv}
steps:
  sales: {sql: "select id, split_part(subject, '.', 2) as region, amount from orders"}
  totals: {window: 1 hour, from: orders, keep: {orders: count(*), revenue: sum(amount)}}
  priced: {sql: "select key, cast(value as string) as price, rate from prices cross join taxes"}
sinks:
  lake: {from: sales, delta: lake, mode: upsert, key: region, order_by: id}
  out: {from: sales, stream: OUT, subject: "out.{region}"}
  last: {from: totals, console: {}, mode: complete}
tests:
  all_of_it:
    given:
      orders:
        - {subject: orders.us, data: {id: 1, amount: 10}, time: "2026-11-16T08:10:00Z"}
        - {subject: orders.us, data: {id: 2, amount: 2.5}, time: "2026-11-16T08:20:00Z"}
        - {subject: orders.eu, data: {amount: 5}}
      prices: [{key: apple, value: "3"}]
    expect:
      sales: [{id: 2, region: us, amount: 2.5}, {id: 1, region: us}]
      totals: [{start: "2026-11-16T08:00:00Z", orders: 2, revenue: 12.50}]
      priced: [{key: apple, price: "3", rate: 7}]
      lake: {ordered: true, rows: [{id: 2, region: us}]}
      out:
        - {subject: out.us, data: {region: us, id: 1, amount: 10}}
        - {subject: out.us, data: {id: 2, region: us, amount: 2.5}}
      orders_dead: [{subject: dead.orders.eu, data: {amount: 5}}]
  wrong:
    given: {orders: [{subject: orders.us, data: {id: 1, amount: 1}}]}
    expect: {sales: [{id: 2, region: us}]}
  fails:
    fails: divide by zero
"""


def test_the_tests_of_a_file_need_no_server(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "sales.yaml"
    path.write_text(CASES)
    (tmp_path / "taxes.csv").write_text("rate\n7\n")
    pipeline = load_pipeline(path)
    session = case_session(spark)
    results = {name: run_case(pipeline, session, name).problems for name in pipeline.cases}
    assert results == {
        # A column that only one of the rows names is null in the others.
        "all_of_it": [
            'sales: missing: {"id":1,"region":"us","amount":null}',
            "sales:   nearest: amount is 10 instead of null",
            'sales: not expected: {"id":1,"region":"us","amount":10}',
        ],
        "wrong": [
            'sales: missing: {"id":2,"region":"us"}',
            "sales:   nearest: id is 1 instead of 2",
            'sales: not expected: {"id":1,"region":"us"}',
        ],
        "fails": ["it did not fail with 'divide by zero'"],
    }
    path.write_text(CASES.replace("select id, split_part", "select id / 0 as id, split_part"))
    broken = load_pipeline(path)
    assert "by zero" in run_case(broken, session, "wrong").problems[0]
