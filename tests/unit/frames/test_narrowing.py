"""Conditions narrow a read to at least the rows that fulfil them, and to exactly those bounds that
they name.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.frames.narrowing import arrow_conditions, polars_conditions
from tradewind.spark.contract.filters import RowFilter, push_filters
from tradewind.spark.options.source_options import SourceOptions

pl = pytest.importorskip("polars")

BEGIN = datetime(2026, 11, 16, 8, tzinfo=UTC)
SUBJECTS = ("a", "a.b", "a.b.c", "b", 'q"uote', "back\\slash", "x and y", "(x)")
ROWS = pa.table(
    {
        "seq": pa.array(range(1, 41), pa.int64()),
        "subject": [SUBJECTS[number % len(SUBJECTS)] for number in range(40)],
        "time": pa.array(
            [BEGIN + timedelta(microseconds=number * 7) for number in range(40)],
            pa.timestamp("us", tz="UTC"),
        ),
    }
)
SIGNS = ("==", ">", ">=", "<", "<=", "!=")
VALUES: dict[str, Any] = {
    "seq": st.integers(-5, 50),
    "subject": st.sampled_from(SUBJECTS),
    "time": st.integers(-10, 300).map(lambda number: BEGIN + timedelta(microseconds=number)),
}
COMPARISONS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda column: st.tuples(st.just(column), st.sampled_from(SIGNS), VALUES[column])
)
LISTS = st.tuples(
    st.just("subject"), st.just("in"), st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=12)
)
PREFIXES = st.tuples(st.just("subject"), st.just("starts"), st.sampled_from(SUBJECTS))
LEAVES: Any = st.one_of(COMPARISONS, LISTS, PREFIXES)
TREES: Any = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(st.sampled_from(("and", "or")), inner, inner) | st.tuples(st.just("not"), inner)
    ),
    max_leaves=6,
)


def of_arrow(tree: Any) -> Any:
    if tree[0] == "not":
        return ~of_arrow(tree[1])
    if tree[0] in ("and", "or"):
        one, other = of_arrow(tree[1]), of_arrow(tree[2])
        return one & other if tree[0] == "and" else one | other
    column, sign, value = tree
    field = pc.field(column)
    if sign == "in":
        return field.isin(value)
    if sign == "starts":
        return pc.starts_with(field, value)
    kind = ROWS.schema.field(column).type
    return _compared(field, sign, pa.scalar(value, kind))


def of_polars(tree: Any) -> Any:
    if tree[0] == "not":
        return ~of_polars(tree[1])
    if tree[0] in ("and", "or"):
        one, other = of_polars(tree[1]), of_polars(tree[2])
        return one & other if tree[0] == "and" else one | other
    column, sign, value = tree
    if sign == "in":
        return pl.col(column).is_in(value)
    if sign == "starts":
        return pl.col(column).str.starts_with(value)
    return _compared(pl.col(column), sign, value)


def _compared(column: Any, sign: str, value: Any) -> Any:
    return {
        "==": lambda: column == value,
        "!=": lambda: column != value,
        ">": lambda: column > value,
        ">=": lambda: column >= value,
        "<": lambda: column < value,
        "<=": lambda: column <= value,
    }[sign]()


def narrowed(conditions: list[Any]) -> RowFilter:
    rows, _ = push_filters(RowFilter(), conditions, SourceOptions(stream=("S",)))
    return rows


def seqs_of(rows: RowFilter) -> set[int]:
    """The sequences of the rows that a decoder takes."""
    if rows.is_empty:
        return set()
    decoder = rows.decoder()
    for row in ROWS.to_pylist():
        elapsed = row["time"] - datetime(1970, 1, 1, tzinfo=UTC)
        time_ns = (elapsed // timedelta(microseconds=1)) * 1000
        decoder.take_row(row["seq"], time_ns, row["subject"].encode(), None, b"")
    seqs = pa.Array.from_buffers(
        pa.int64(), decoder.row_count, [None, pa.py_buffer(decoder.seqs(0, decoder.row_count))]
    )
    return set(seqs.to_pylist())


@given(TREES)
def test_no_row_that_fulfils_an_expression_of_arrow_is_left_out(tree: Any) -> None:
    expression = of_arrow(tree)
    wanted = set(ROWS.filter(expression)["seq"].to_pylist())
    assert wanted <= seqs_of(narrowed(arrow_conditions(expression)))


@given(TREES)
def test_no_row_that_fulfils_an_expression_of_polars_is_left_out(tree: Any) -> None:
    predicate = of_polars(tree)
    frame: Any = pl.from_arrow(ROWS)
    wanted = set(frame.filter(predicate)["seq"].to_list())
    assert wanted <= seqs_of(narrowed(polars_conditions(predicate)))


def test_bounds_of_arrow_are_taken_over() -> None:
    expression = (
        (pc.field("seq") > 10)
        & (pc.field("seq") <= 20)
        & (pc.field("time") >= pa.scalar(BEGIN, pa.timestamp("us", tz="UTC")))
        & pc.field("subject").isin(["a.b", "b"])
        & pc.starts_with(pc.field("subject"), "a")
    )
    rows = narrowed(arrow_conditions(expression))
    assert (rows.first_seq, rows.last_seq) == (11, 20)
    assert rows.first_time_ns == int(BEGIN.timestamp()) * 1_000_000_000
    assert rows.patterns == ((b"a.b", b"b"),)
    assert rows.prefixes == (b"a",)


def test_bounds_of_polars_are_taken_over() -> None:
    predicate = (
        pl.col("seq").is_between(11, 20)
        & (pl.lit(15) > pl.col("seq"))
        & (pl.col("time") >= BEGIN)
        & pl.col("subject").is_in(["a.b", "b"])
        & pl.col("subject").str.starts_with("a")
    )
    asked: list[Any] = []

    def read(with_columns: Any, predicate: Any, n_rows: Any, batch_size: Any) -> Any:
        asked.append(predicate)
        yield pl.from_arrow(ROWS)

    # As polars hands it over, with the types of the columns in it.
    source = pl.io.plugins.register_io_source(read, schema=pl.from_arrow(ROWS).schema)
    source.filter(predicate).collect()
    rows = narrowed(polars_conditions(asked[0]))
    assert (rows.first_seq, rows.last_seq) == (11, 14)
    assert rows.first_time_ns == int(BEGIN.timestamp()) * 1_000_000_000
    assert rows.patterns == ((b"a.b", b"b"),)
    assert rows.prefixes == (b"a",)


def test_a_list_that_arrow_shows_shortened_is_left_to_arrow() -> None:
    subjects = [f"s.{number}" for number in range(100)]
    assert arrow_conditions(pc.field("subject").isin(subjects)) == []


def test_alternatives_narrow_nothing() -> None:
    either = (pc.field("seq") > 10) | (pc.field("subject") == "a")
    assert arrow_conditions(either) == []
    assert polars_conditions((pl.col("seq") > 10) | (pl.col("subject") == "a")) == []
