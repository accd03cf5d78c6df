"""Finds what distinguishes the rows of a query, in the plan that Spark has analysed.

Owns which plans are understood: a group by, with columns chosen or computed above it. A condition
above it is refused, because a row that no longer meets it would stay. The module never runs
anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AGGREGATE: Final = "Aggregate"
_PASSED: Final = ("Project", "SubqueryAlias", "View")
_COUNTED_OUT: Final = ("Distinct", "Deduplicate", "Expand")
NODES_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class Cover:
    """An expression that rows are grouped by, and the columns of the result that show it."""

    expression: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """All expressions that rows are grouped by; none if there is one row for everything."""

    covers: tuple[Cover, ...]


def grouping_of(frame: DataFrame) -> Grouping | None:
    """How the rows of a query are grouped; None if each comes from a row of a table."""
    root = frame._jdf.queryExecution().analyzed()
    node = root
    while _class(node) in _PASSED and node.children().size() == 1:
        node = node.children().apply(0)
    if _class(node) == _AGGREGATE:
        return Grouping(_covers(node, root))
    found = _first_inside(node)
    if found:
        if _class(node) == "WithCTE":
            raise PipelineError("write the tables of `with` as subqueries: from (select ...)")
        above = "a condition on its results" if _class(node) == "Filter" else _class(node)
        raise PipelineError(
            f"this query cannot be kept up to date: it has {found}, and {above}, so that rows would"
            " have to be taken back; keep all results, and choose among them when they are read"
        )
    return None


def _covers(aggregate: Any, root: Any) -> tuple[Cover, ...]:
    shown = {_number(one): str(one.name()) for one in _items(root.output())}
    results = _items(aggregate.aggregateExpressions())
    covers = []
    for expression in _items(aggregate.groupingExpressions()):
        exact, parts = [], []
        for result in results:
            value = result.child() if _class(result) == "Alias" else result
            name = shown.get(_number(result))
            if name is None:
                continue
            if value.semanticEquals(expression):
                exact.append(name)
            elif _class(value) == "GetStructField" and value.child().semanticEquals(expression):
                # The start or the end of a window: each determines the other.
                parts.append(name)
        if "session_window" in str(expression.sql()):
            raise PipelineError("sessions that grow would have to be taken back; use window")
        covers.append(Cover(str(expression.sql()), (*exact, *parts)))
    return tuple(covers)


def _first_inside(node: Any) -> str:
    """An aggregate, or what is one in effect, that is somewhere in a plan; empty if none is."""
    left = [node]
    for _ in range(NODES_MAX):
        if not left:
            return ""
        one = left.pop()
        kind = _class(one)
        if kind == _AGGREGATE:
            return "a group by"
        if kind in _COUNTED_OUT:
            return "distinct"
        left += _items(one.children())
    return f"more than {NODES_MAX} parts"


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _number(expression: Any) -> int:
    return int(expression.exprId().id())


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())
