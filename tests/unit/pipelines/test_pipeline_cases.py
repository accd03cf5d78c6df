"""Tests inside of pipeline files: sample messages, and the comparison of rows, without Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.checks.case_rows import differences
from tradewind.pipelines.definition.case_messages import sample_rows
from tradewind.pipelines.errors import PipelineFileError

TEXT = """pipeline: copy
checkpoint: state
sources:
  orders: {stream: ORDERS, subjects: "orders.>"}
  prices: {bucket: PRICES, follow: true}
sinks:
  lake: {from: orders, parquet: lake}
tests:
  one:
    given:
      orders:
        - {subject: orders.us, data: {id: 1}}
        - {subject: orders.eu, data: plain, headers: {A: x, B: [y, z]}, seq: 7}
        - {subject: other}
        - {subject: orders.eu, time: "2026-11-16T09:00:00+01:00"}
      prices:
        - {key: apple, value: {price: 1}}
        - {key: apple, operation: DEL}
    expect: {lake: []}
"""
FIELDS: dict[str, Any] = {
    "id": "long",
    "amount": "decimal(12,2)",
    "rate": "double",
    "at": "timestamp",
    "day": "date",
    "note": "string",
    "data": "binary",
    "tags": {"type": "array", "elementType": "string", "containsNull": True},
    "item": {
        "type": "struct",
        "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "integer"}],
    },
}


def test_sample_messages_become_rows_of_a_source() -> None:
    rows = sample_rows(pipeline_of_text(TEXT), "one", "orders")
    assert [(row["seq"], row["subject"]) for row in rows] == [
        (1, "orders.us"),
        (7, "orders.eu"),
        (8, "orders.eu"),
    ]
    assert [row["data"] for row in rows] == [b'{"id":1}', b"plain", b""]
    assert rows[0]["stream"] == "ORDERS"
    assert rows[1]["headers"] == {"A": ["x"], "B": ["y", "z"]}
    assert rows[2]["time"] == datetime(2026, 11, 16, 8, tzinfo=UTC)


def test_sample_changes_become_rows_of_a_bucket() -> None:
    rows = sample_rows(pipeline_of_text(TEXT), "one", "prices")
    found = [(row["revision"], row["operation"], row["value"]) for row in rows]
    assert found == [(1, "PUT", b'{"price":1}'), (2, "DEL", b"")]
    assert {row["bucket"] for row in rows} == {"PRICES"}


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("seq: 7", "seq: 1", 13, "message 2: seq must be a whole number above 1"),
        ("seq: 7", "sec: 7", 13, "key 'sec' does not exist; did you mean 'seq'?"),
        ("headers: {A: x,", "headers: {A: 1,", 13, "header A: its values must be strings"),
        ("subject: other", "subject: a.*", 14, "'a.*' is not the subject of a message"),
        ("2026-11-16T09:00:00+01:00", "noon", 15, "'noon' is not a time"),
        ("operation: DEL", "operation: X", 18, "operation 'X' is not one of PUT, DEL, PURGE"),
        ("stream: ORDERS", "stream: ORD*", 12, "specify `stream` in the message"),
    ],
)
def test_a_wrong_sample_is_an_error_of_its_line(
    old: str, new: str, line: int, message: str
) -> None:
    pipeline = pipeline_of_text(TEXT.replace(old, new))
    source = "prices" if line > 15 else "orders"
    with pytest.raises(PipelineFileError) as caught:
        sample_rows(pipeline, "one", source)
    assert (caught.value.line, message in caught.value.text) == (line, True), caught.value.text


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("expect: {lak: []}", "no table or sink is called 'lak'; did you mean 'lake'?"),
        ("fails: x\n    expect: {lake: []}", "use expect or fails, not both"),
        ("expect: {}", "a test needs `expect`"),
        ("expect: {lake: {row: []}}", "key 'row' does not exist"),
    ],
)
def test_a_wrong_test_is_found_when_the_file_is_read(new: str, message: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        pipeline_of_text(TEXT.replace("expect: {lake: []}", new))
    assert message in caught.value.text


def diff(expected: list[dict[str, Any]], actual: list[dict[str, Any]], **how: bool) -> list[str]:
    return differences(expected, actual, FIELDS, ordered=how.get("ordered", False))


def test_values_are_equal_whatever_their_notation() -> None:
    expected = [
        {"id": 1, "amount": 2.5, "rate": 0.3, "at": "2026-11-16T08:00:00Z", "day": "2026-11-16"},
        {"id": 2, "amount": "3.10", "data": "x", "tags": ["a"], "item": {"sku": "s"}},
    ]
    moment = datetime(2026, 11, 16, 8, tzinfo=UTC)
    actual = [
        {
            "id": 2,
            "amount": Decimal("3.10"),
            "data": bytearray(b"x"),
            "tags": ["a"],
            "item": {"sku": "s", "n": None},
        },
        {
            "id": 1,
            "amount": Decimal("2.50"),
            "rate": 0.1 + 0.2,
            "at": moment,
            "day": date(2026, 11, 16),
        },
    ]
    assert diff(expected, actual) == []
    assert diff(expected, actual, ordered=True) != []


def test_columns_that_no_row_names_are_not_compared_and_others_are_null() -> None:
    assert diff([{"id": 1}], [{"id": 1, "note": "x"}]) == []
    assert diff([{"id": 1, "note": None}], [{"id": 1, "note": "x"}]) != []
    assert diff([{"id": 1}, {"id": 2, "note": "x"}], [{"id": 1}, {"id": 2, "note": "x"}]) == []
    assert diff([{"id": 1}, {"id": 2, "note": "x"}], [{"id": 1, "note": "y"}, {"id": 2}]) != []


def test_differences_are_readable() -> None:
    lines = diff([{"id": 1, "note": "a"}, {"id": 2}], [{"id": 1, "note": "b"}])
    assert lines == [
        "2 rows were expected, there are 1",
        'missing: {"id":1,"note":"a"}',
        '  nearest: note is "b" instead of "a"',
        'missing: {"id":2,"note":null}',
        'not expected: {"id":1,"note":"b"}',
    ]
    assert diff([{"id": 1}, {"id": 1}], [{"id": 1}]) == [
        "2 rows were expected, there are 1",
        'missing: {"id":1}',
    ]
    assert diff([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}], ordered=True) == [
        "row 1: id is 2 instead of 1",
        "row 2: id is 1 instead of 2",
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"ids": 1}, "there is no column 'ids'; did you mean 'id'?"),
        ({"id": "x"}, "row 1: column id: 'x' is not a long"),
        ({"id": 1.5}, "row 1: column id: 1.5 is not a whole number"),
        ({"at": 5}, "row 1: column at: 5 is not a time such as"),
        ({"item": {"x": 1}}, "row 1: column item: it has no field 'x'"),
        ({"tags": "a"}, "row 1: column tags: 'a' is not a list"),
    ],
)
def test_what_a_column_cannot_have_is_an_error_of_the_test(
    row: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        diff([row], [])
