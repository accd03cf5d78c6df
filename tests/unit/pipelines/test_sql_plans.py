"""Which plans, as Spark's parser writes them, are answered by the state of a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.pipelines.sql.plans import FiguresPlan, FirstRowsPlan, PlanFigure, recognise
from tradewind.spark.reads.stream_figures import Figures, last_left

LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."


def node(kind: str, children: int = 0, **members: Any) -> dict[str, Any]:
    return {"class": kind, "num-children": children, **members}


def literal(value: object) -> dict[str, Any]:
    return node(EXPRESSIONS + "Literal", value=str(value), dataType="integer")


def attribute(*parts: str) -> dict[str, Any]:
    return node(ANALYSIS + "UnresolvedAttribute", nameParts=f"[{', '.join(parts)}]")


def call(function: str, argument: dict[str, Any], alias: str = "", **members: Any) -> list[Any]:
    name = (
        node(EXPRESSIONS + "Alias", 1, name=alias)
        if alias
        else node(ANALYSIS + "UnresolvedAlias", 1)
    )
    settings = {"isDistinct": False, "orderingWithinGroup": [], "isInternal": False, **members}
    made = node(ANALYSIS + "UnresolvedFunction", 1, nameParts=f"[{function}]", **settings)
    return [name, made, argument]


def relation(*parts: str) -> dict[str, Any]:
    names = f"[{', '.join(parts or ('ORDERS',))}]"
    return node(ANALYSIS + "UnresolvedRelation", multipartIdentifier=names, isStreaming=False)


def project(*items: list[Any]) -> dict[str, Any]:
    return node(LOGICAL + "Project", 1, projectList=list(items))


def limits(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        node(LOGICAL + "GlobalLimit", 1, limitExpr=[value]),
        node(LOGICAL + "LocalLimit", 1, limitExpr=[value]),
    ]


def found(*nodes: dict[str, Any], text: str = "") -> object:
    return recognise(text, json.dumps(nodes))


STAR = [node(ANALYSIS + "UnresolvedStar")]


def test_counts_and_ends_of_a_whole_stream() -> None:
    items = [
        call("count", literal(1)),
        call("COUNT", attribute("seq"), "n"),
        call("min", attribute("Seq")),
        call("MAX", attribute("orders", "seq")),
    ]
    assert found(project(*items), relation()) == FiguresPlan(
        "ORDERS",
        (
            PlanFigure("count", "count(1)"),
            PlanFigure("count", "n"),
            PlanFigure("min", "min(Seq)"),
            PlanFigure("max", "max(seq)"),
        ),
    )


@pytest.mark.parametrize(
    "item",
    [
        call("count", attribute("data")),
        call("count", literal(1), isDistinct=True),
        call("count", literal(1), filter=[literal(1)]),
        call("first", attribute("seq"), ignoreNulls=True),
        call("min", literal(1)),
        call("max", attribute("other", "seq")),
        call("max", attribute("json", "seq")),
        call("count, x", literal(1)),
        [call("count", literal(1))[0], node(EXPRESSIONS + "Add", 2), literal(1), literal(2)],
    ],
)
def test_what_is_anything_else_is_left_to_spark(item: list[Any]) -> None:
    assert found(project(item), relation()) is None
    assert found(project(call("count", literal(1)), item), relation()) is None


@pytest.mark.parametrize(
    "kind", ["Filter", "Aggregate", "Sort", "SubqueryAlias", "Sample", "Offset"]
)
def test_what_stands_in_between_is_left_to_spark(kind: str) -> None:
    between = node(LOGICAL + kind, 1)
    assert found(project(call("count", literal(1))), between, relation()) is None
    assert found(between, project(call("count", literal(1))), relation()) is None
    assert found(*limits(literal(3)), between, project(STAR), relation()) is None


def test_a_limit_on_figures_or_a_join_is_left_to_spark() -> None:
    assert found(*limits(literal(0)), project(call("count", literal(1))), relation()) is None
    join = node(LOGICAL + "Join", 2)
    assert found(project(call("count", literal(1))), join, relation(), relation("B")) is None


def test_names_that_the_text_of_a_plan_cannot_tell_apart_are_left_to_spark() -> None:
    items = project(call("max", attribute("ORDERS", "seq")))
    assert found(items, relation(), text="select max(`ORDERS, seq`) from ORDERS") is None
    assert found(project(STAR), relation("a", "b")) is None


def test_first_rows() -> None:
    alias = [node(EXPRESSIONS + "Alias", 1, name="s"), attribute("seq")]
    for items in ([STAR], [STAR, alias], [[attribute("a", "b")]]):
        assert found(project(*items), relation()) == FirstRowsPlan("ORDERS", None)
        assert found(*limits(literal(7)), project(*items), relation()) == FirstRowsPlan("ORDERS", 7)
    assert found(*limits(literal(7)), relation("RAW-1")) == FirstRowsPlan("RAW-1", 7)
    assert found(*limits(node(EXPRESSIONS + "Add", 2)), relation()) is None
    explode = call("explode", attribute("x"))
    assert found(*limits(literal(7)), project(explode), relation()) is None


# -------------------------------------------------------------------------- sequences


@given(st.sets(st.integers(1, 40)), st.integers(1, 40))
def test_the_last_sequence_that_is_left(deleted: set[int], last_seq: int) -> None:
    left = [seq for seq in range(1, last_seq + 1) if seq not in deleted]
    assert last_left(1, last_seq, sorted(deleted)) == (left[-1] if left else None)


@given(st.sets(st.integers(5, 40), min_size=1), st.integers(1, 40))
def test_so_many_messages_do_not_go_beyond_the_ending_sequence(
    present: set[int], count: int
) -> None:
    figures = Figures(len(present), min(present), None)
    ending = figures.ending_seq(count, 45)
    assert len([seq for seq in present if seq <= ending]) >= min(count, len(present))


def test_an_empty_stream_ends_where_it_ends() -> None:
    assert Figures(0, None, None).ending_seq(5, 12) == 12
    assert Figures(0, None, None).has_last
    assert not Figures(2, 1, None).has_last
