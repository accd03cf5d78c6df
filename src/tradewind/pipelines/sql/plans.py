"""Recognises queries that the state of a stream answers, and queries for its first rows only.

Owns recognising them in the plan of Spark's own parser, before any table is accessed, or for DuckDB
in the text itself. Every query that does not match exactly is left to the engine. The module is
pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_FUNCTIONS: Final = ("count", "min", "max")
_SEQUENCE: Final = "seq"
_NAME: Final = re.compile(r"[\w$-]+")
# The parser's text does not tell such a name from two.
_NAME_WITH_COMMA: Final = re.compile(r"`[^`]*,[^`]*`")
_NAMES: Final = re.compile(r"\[(.*)\]", re.DOTALL)
_FIGURES_TEXT: Final = re.compile(
    r"select\s+(?P<items>[^`'\"]+?)\s+from\s+(?:`(?P<quoted>[\w$-]+)`|(?P<table>\w+))",
    re.IGNORECASE,
)
_FIGURE_TEXT: Final = re.compile(
    r"(?:(?P<counted>count)\s*\(\s*\*\s*\)|(?P<bound>min|max)\s*\(\s*seq\s*\))"
    r"(?:\s+(?:as\s+)?(?P<name>[a-z_]\w*))?",
    re.IGNORECASE,
)
Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanFigure:
    """A column of an answer: what of the stream, and what it is called."""

    function: str
    name: str


@dataclass(frozen=True, slots=True)
class FiguresPlan:
    """Counts and ends of one whole table."""

    table: str
    figures: tuple[PlanFigure, ...]


@dataclass(frozen=True, slots=True)
class FirstRowsPlan:
    """Columns of one table as they are; `limit` is None if the query has none."""

    table: str
    limit: int | None


def figures_in(text: str) -> FiguresPlan | None:
    """The counts and ends that a text asks for, with the names that DuckDB gives them."""
    found = _FIGURES_TEXT.fullmatch(text.strip())
    if found is None:
        return None
    figures = []
    for item in found["items"].split(","):
        call = _FIGURE_TEXT.fullmatch(item.strip())
        if call is None:
            return None
        function = (call["counted"] or call["bound"]).lower()
        name = "count_star()" if function == "count" else f"{function}({_SEQUENCE})"
        figures.append(PlanFigure(function, call["name"] or name))
    return FiguresPlan(found["quoted"] or found["table"], tuple(figures))


def recognise(text: str, plan_json: str) -> FiguresPlan | FirstRowsPlan | None:
    """The kind of a query, given as text and as the JSON of its parsed plan."""
    if _NAME_WITH_COMMA.search(text):
        return None
    nodes: list[Node] = msgspec.json.decode(plan_json)
    kinds = [_kind(node) for node in nodes]
    if kinds[-1:] != ["UnresolvedRelation"] or any(
        node["num-children"] != 1 for node in nodes[:-1]
    ):
        return None
    table = _names(nodes[-1].get("multipartIdentifier"))
    if len(table) != 1 or nodes[-1].get("isStreaming"):
        return None
    if kinds == ["Project", "UnresolvedRelation"]:
        figures = [_figure(item, table[0]) for item in nodes[0]["projectList"]]
        if figures and all(figures):
            return FiguresPlan(table[0], tuple(one for one in figures if one))
    return _first_rows(nodes, kinds, table[0])


def _first_rows(nodes: Sequence[Node], kinds: list[str], table: str) -> FirstRowsPlan | None:
    limit: int | None = None
    if kinds[:2] == ["GlobalLimit", "LocalLimit"]:
        limit = _literal(nodes[0]["limitExpr"])
        if limit is None:
            return None
        nodes, kinds = nodes[2:], kinds[2:]
    if kinds == ["Project", "UnresolvedRelation"]:
        if not all(_is_column(item) for item in nodes[0]["projectList"]):
            return None
    elif kinds != ["UnresolvedRelation"]:
        return None
    return FirstRowsPlan(table, limit)


def _kind(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2]


def _names(text: object) -> list[str]:
    """The parts of a name as the parser writes them: [a, b]. Empty if they are unusual."""
    found = _NAMES.fullmatch(text) if isinstance(text, str) else None
    parts = found[1].split(", ") if found else []
    return parts if all(_NAME.fullmatch(part) for part in parts) else []


def _literal(item: Sequence[Node]) -> int | None:
    """A whole number that stands there as such."""
    if len(item) != 1 or _kind(item[0]) != "Literal" or item[0].get("dataType") != "integer":
        return None
    value = item[0].get("value")
    return int(value) if isinstance(value, str) and value.isdigit() else None


def _is_column(item: Sequence[Node]) -> bool:
    kinds = [_kind(node) for node in item]
    return kinds in (["UnresolvedStar"], ["UnresolvedAttribute"], ["Alias", "UnresolvedAttribute"])


def _figure(item: Sequence[Node], table: str) -> PlanFigure | None:
    """One of the columns of a projection; None if it is anything else."""
    if len(item) != 3 or _kind(item[1]) != "UnresolvedFunction":
        return None
    named, call, argument = item
    function = _names(call.get("nameParts"))
    is_plain = (
        len(function) == 1
        and call["num-children"] == 1
        and call.get("isDistinct") is False
        and not any(call.get(key) for key in ("filter", "ignoreNulls", "orderingWithinGroup"))
    )
    if not is_plain or function[0].lower() not in _FUNCTIONS:
        return None
    what = function[0].lower()
    shown = _argument(what, argument, table)
    if not shown:
        return None
    if _kind(named) == "Alias":
        return PlanFigure(what, str(named["name"]))
    if _kind(named) == "UnresolvedAlias":
        return PlanFigure(what, f"{what}({shown})")
    return None


def _argument(function: str, argument: Node, table: str) -> str:
    """How an argument is shown in the name of its column; empty if it is another one."""
    if _kind(argument) == "Literal":
        number = _literal([argument])
        return str(number) if function == "count" and number is not None else ""
    if _kind(argument) != "UnresolvedAttribute":
        return ""
    parts = _names(argument.get("nameParts"))
    if parts and parts[-1].lower() == _SEQUENCE:
        qualifier = [part.lower() for part in parts[:-1]]
        if qualifier in ([], [table.lower()]):
            return parts[-1]
    return ""
