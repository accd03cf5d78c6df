"""SQL on streams and buckets: results that do not depend on a sample, and what is no query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_kit import Place, orders_place

from tradewind.pipelines import schemas
from tradewind.pipelines.connections import Address
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.queries import Result
from tradewind.pipelines.sql.desk import Desk, Question

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    with orders_place(spark, tmp_path) as place:
        yield place


def ask(place: Place, text: str) -> Result:
    return Desk(place.spark).ask(Question(text, Address(place.url), rows_max=100))


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
