"""Schemas from samples, reasons for bad rows, templates, lengths of time, charts, status files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.decoding.payload_kinds import Kind, kind_of, merge
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.column_templates import parse_template, template_sql
from tradewind.pipelines.notation.intervals import parse_interval_ms, spark_interval
from tradewind.pipelines.notation.text_charts import bar, bars, number_text, sparkline
from tradewind.pipelines.payloads.inference import infer
from tradewind.pipelines.payloads.schema_reasons import reason_of
from tradewind.pipelines.payloads.schemas import declared_ddl, freeze, read_frozen
from tradewind.pipelines.state.status import PipelineStatus, read_status, write_status

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def fits(value: Any, kind: Kind) -> bool:
    """Whether Spark can read a value as this kind: the naive model of `merge`."""
    if value is None or kind.name == "string":
        return True
    if kind.name == "boolean":
        return isinstance(value, bool)
    if kind.name == "bigint":
        return type(value) is int and -(1 << 63) <= value < 1 << 63
    if kind.name == "double":
        return type(value) in (int, float)
    if kind.name == "array":
        assert kind.item is not None
        item = kind.item
        return isinstance(value, list) and all(fits(one, item) for one in value)
    if kind.name == "struct":
        return isinstance(value, dict) and all(
            name in kind.fields and fits(one, kind.fields[name]) for name, one in value.items()
        )
    return False


@given(VALUES, VALUES)
def test_a_merged_kind_holds_both_values(one: Any, other: Any) -> None:
    merged = merge(kind_of(one), kind_of(other))
    assert fits(one, merged)
    assert fits(other, merged)
    # Equal but for the order of fields, which a dict does not compare.
    assert merge(kind_of(other), kind_of(one)) == merged


def test_a_schema_is_inferred_from_objects() -> None:
    payloads = [b'{"id": 1, "at": {"x": 1}}', b'{"id": 2.5, "tags": ["a"], "at": {"y": "b"}}']
    found = infer([*payloads, b"no json", b"[1]"])
    assert found.ddl == ("`id` double, `at` struct<`x`: bigint, `y`: string>, `tags` array<string>")
    assert (found.sampled, found.others) == (4, 2)


def test_fields_that_spark_cannot_have_are_left_out_or_texts() -> None:
    found = infer([b'{"": 1, "id": 2, "at": {"x": 1, "X": 2}, "no": {}}'])
    assert found.ddl == "`id` bigint, `at` string, `no` string"


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        ([], "none of the 0 messages"),
        ([b"x", b"1", b"{}"], "none of the 3 messages"),
        ([b'{"a": 1, "A": 2}'], "fields 'a' and 'A' differ by case only"),
    ],
)
def test_what_has_no_schema_says_why(payloads: list[bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        infer(payloads)


def test_a_frozen_schema_is_read_again(tmp_path: Path) -> None:
    assert read_frozen(tmp_path, "orders") is None
    freeze(tmp_path, "orders", infer([b'{"id": 1}']))
    frozen = read_frozen(tmp_path, "orders")
    assert frozen is not None
    assert frozen.schema == "`id` bigint"
    (tmp_path / "schemas" / "orders.json").write_text("{")
    with pytest.raises(PipelineError, match="delete it to infer the schema again"):
        read_frozen(tmp_path, "orders")


def test_declared_schemas() -> None:
    assert declared_ddl({"id": "bigint not null", "a`b": "string"}) == (
        "`id` bigint not null, `a``b` string"
    )
    assert declared_ddl("id bigint") == "id bigint"
    assert declared_ddl("infer") == ""


FIELDS = [("id", "bigint", True), ("amount", "decimal(5,2)", False), ("tags", "array<int>", False)]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "the payload is empty"),
        (b"", "the payload is empty"),
        (b"hello", "the payload is not JSON: JSON is malformed: invalid character (byte 0)"),
        (b"[1]", "the payload is JSON, but not an object: [1]"),
        (b"{}", "field id is missing"),
        (b'{"id": null}', "field id is missing"),
        (b'{"id": "x"}', 'field id: "x" is not of type bigint'),
        (b'{"id": true}', "field id: true is not of type bigint"),
        (b'{"id": 9223372036854775808}', "field id: 9223372036854775808 is not of type bigint"),
        (b'{"id": 1, "amount": 1000}', "field amount: 1000 is not of type decimal(5,2)"),
        (b'{"id": 1, "tags": {}}', "field tags: {} is not of type array<int>"),
        (b'{"id": 1}', "the payload does not match the schema"),
    ],
)
def test_reasons_name_the_field(payload: bytes | None, reason: str) -> None:
    assert reason_of(payload, FIELDS) == reason


def test_long_values_are_cut_in_reasons() -> None:
    assert len(reason_of(json.dumps({"id": "x" * 500}).encode(), FIELDS)) < 150


def test_templates() -> None:
    assert parse_template("a.{b}.{c.d}") == [
        ("text", "a."),
        ("column", "b"),
        ("text", "."),
        ("column", "c.d"),
    ]
    assert template_sql("it's.{b}") == "concat('it\\'s.', cast(`b` as string))"
    with pytest.raises(ValueError, match="a column is written as"):
        parse_template("a.{b")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500 ms", 500), ("1.5s", 1500), ("2 minutes", 120_000), ("1 Day", 86_400_000)],
)
def test_lengths_of_time(text: str, milliseconds: int) -> None:
    assert parse_interval_ms(text) == milliseconds
    assert spark_interval(text) == f"{milliseconds} milliseconds"


@pytest.mark.parametrize("text", ["", "5", "five seconds", "1 fortnight", "0 s", "-1 s"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|is too short"):
        parse_interval_ms(text)


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 200))
def test_a_bar_is_never_wider_than_its_space(value: float, largest: float, width: int) -> None:
    drawn = bar(value, largest, width)
    assert len(drawn) <= width
    assert bool(drawn) == (value > 0 and largest > 0)


def test_bars_and_sparklines() -> None:
    assert bars([("north", 10.0), ("s", 5)], 30, is_plain=True) == [
        "north  ###################  10",
        "s      ##########            5",
    ]
    assert bars([], 30) == ["(no rows)"]
    assert sparkline([0, 1, 2]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert [number_text(value) for value in (1234.5, 3.0, 0.126)] == ["1,234.5", "3", "0.13"]


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    status = PipelineStatus("p", "p.yaml", "running", os.getpid(), os.uname().nodename, "m", 1, 2)
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status
    assert status.is_alive
    status.state = "stopped"
    assert not status.is_alive
    (tmp_path / "status.json").write_text("no")
    with pytest.raises(PipelineError, match="not a valid status file"):
        read_status(tmp_path)
