"""Types that Spark does not have are found without Spark."""

from __future__ import annotations

import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.errors import PipelineFileError
from tradewind.pipelines.payloads.schema_types import UnknownTypeError, check_fields, check_types

TEXT = """pipeline: copy
checkpoint: state
sources:
  orders:
    stream: ORDERS
    payload:
      schema:
        id: bigint not null
        items: array<struct<sku:string, price:decimal(12,2)>>
  taxes: {csv: taxes, schema: "country string, rate double comment 'of, all'"}
sinks:
  lake: {from: orders, parquet: lake}
"""


@pytest.mark.parametrize(
    "text",
    [
        "id bigint not null, amount DECIMAL(12, 2)",
        "`a b, c` map<string, array<timestamp_ntz>>, x int comment 'text, more'",
        "s struct<a int, b: struct<`c d`: varchar(3)>>, i interval day to second",
        "t time(6), v variant",
        "",
    ],
)
def test_types_of_spark_are_right(text: str) -> None:
    check_fields(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id bigit", "type 'bigit' does not exist; did you mean 'bigint'?"),
        ("id int, at datetime", "type 'datetime' does not exist; did you mean 'timestamp'?"),
        ("a array<strng>", "did you mean 'string'?"),
        ("m map<string,struct<x:dubble>>", "did you mean 'double'?"),
        ("s struct<a int, b text>", "type 'text' does not exist; did you mean 'string'?"),
    ],
)
def test_a_misspelt_type_is_found(text: str, message: str) -> None:
    with pytest.raises(UnknownTypeError, match=message.replace("?", r"\?")):
        check_fields(text)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("bigint", "bigit", 8),
        ("price:decimal", "price:decimel", 9),
        ("rate double", "rate x", 10),
    ],
)
def test_the_line_of_a_type_is_named(old: str, new: str, line: int) -> None:
    check_types(pipeline_of_text(TEXT))
    with pytest.raises(PipelineFileError) as caught:
        check_types(pipeline_of_text(TEXT.replace(old, new)))
    assert caught.value.line == line
