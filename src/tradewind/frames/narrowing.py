"""The conditions of a query, as far as reading can be narrowed by them.

Owns the translation of the conditions that Arrow and polars hand to a source. Only conditions that
are joined by `and` are taken, and only those whose meaning is certain; the caller applies the whole
condition to what was read, so that one that is left out costs time and never changes an answer.
The class names are those of Spark's filters, because `push_filters` takes both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISON: Final = re.compile(r"(\w+) (==|>=|<=|>|<) (.+)", re.DOTALL)
_NAME: Final = re.compile(r"\w+")
_IS_IN: Final = "is_in("
_VALUES: Final = ", {value_set=string:[\n"
_UNLESS_NULL: Final = re.compile(r"if_else\(is_valid\(\w+\), (.*), null\[bool\]\)", re.DOTALL)
_PREFIX: Final = re.compile(r'starts_with\((\w+), \{pattern="([^"\\]*)", ignore_case=false\}\)')
_INTEGER: Final = re.compile(r"-?\d{1,18}")
_TEXT: Final = re.compile(r'"([^"\\]*)"')
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?Z")
_MICROSECONDS: Final = {"Nanoseconds": 0.001, "Microseconds": 1, "Milliseconds": 1000}


@dataclass(frozen=True, slots=True)
class Condition:
    """A demand on one column, in all rows that a query wants."""

    attribute: tuple[str, ...]
    value: Any


class EqualTo(Condition):
    """The column has this value."""


class GreaterThan(Condition):
    """The column is above this value."""


class GreaterThanOrEqual(Condition):
    """The column is this value or above."""


class LessThan(Condition):
    """The column is below this value."""


class LessThanOrEqual(Condition):
    """The column is this value or below."""


class In(Condition):
    """The column has one of these values."""


class StringStartsWith(Condition):
    """The text begins with this one."""


_BY_SIGN: Final[dict[str, type[Condition]]] = {
    "==": EqualTo,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<": LessThan,
    "<=": LessThanOrEqual,
}
_BY_WORD: Final = {"Eq": "==", "Gt": ">", "GtEq": ">=", "Lt": "<", "LtEq": "<="}
_MIRRORED: Final = {"==": "==", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


# -------------------------------------------------------------------------- Arrow


def arrow_conditions(expression: object) -> list[Condition]:
    """The conditions that an expression of Arrow has for every row."""
    return list(_of_text(str(expression)))


def _of_text(text: str) -> Iterator[Condition]:
    text = _bare(text)
    parts = _parts(text)
    if len(parts) > 1:
        for part in parts:
            yield from _of_text(part)
        return
    if found := _UNLESS_NULL.fullmatch(text):
        text = found[1]
    if found := _COMPARISON.fullmatch(text):
        value = _value(found[3])
        if value is not None:
            yield _BY_SIGN[found[2]]((found[1],), value)
    elif text.startswith(_IS_IN):
        yield from _is_in(text.removeprefix(_IS_IN))
    elif found := _PREFIX.fullmatch(text):
        yield StringStartsWith((found[1],), found[2])


def _is_in(text: str) -> Iterator[Condition]:
    """The condition of `is_in`, from its arguments; none if its list is shown shortened."""
    name, found, rest = text.partition(_VALUES)
    values, end, _options = rest.rpartition("\n]")
    if not found or not end or not text.endswith("})") or not _NAME.fullmatch(name):
        return
    lines = [_TEXT.fullmatch(line.strip().rstrip(",")) for line in values.split("\n")]
    if all(lines):
        yield In((name,), tuple(line[1] for line in lines if line))


def _value(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        return int(text)
    if found := _TEXT.fullmatch(text):
        return found[1]
    return datetime.fromisoformat(text) if _TIME.fullmatch(text) else None


def _bare(text: str) -> str:
    """The text without brackets around all of it."""
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """Each place outside of quoted texts, and how many brackets are open after it."""
    depth, is_quoted, is_escaped = 0, False, False
    for place, sign in enumerate(text):
        if is_quoted:
            is_quoted = is_escaped or sign != '"'
            is_escaped = sign == "\\" and not is_escaped
            continue
        is_quoted = sign == '"'
        depth += (sign in "([{") - (sign in ")]}")
        yield place, depth


def _closing(text: str) -> int:
    """Where the bracket closes that the text begins with."""
    return next((place for place, depth in _depths(text) if depth == 0), -1)


def _parts(text: str) -> list[str]:
    """The conditions that are joined by `and`; the text itself if none are."""
    parts, begin = [], 0
    for place, depth in _depths(text):
        if depth == 0 and text.startswith(" and ", place):
            parts.append(text[begin:place])
            begin = place + len(" and ")
    return [*parts, text[begin:]]


# -------------------------------------------------------------------------- polars


def polars_conditions(predicate: Any) -> list[Condition]:
    """The conditions that an expression of polars has for every row."""
    try:
        tree = msgspec.json.decode(predicate.meta.serialize(format="json"))
        return list(_of_tree(tree))
    except Exception:  # another version of polars may write another tree; it filters by itself
        return []


def _of_tree(tree: Any) -> Iterator[Condition]:
    if not isinstance(tree, dict):
        return
    if (binary := tree.get("BinaryExpr")) is not None:
        if binary["op"] == "And":
            yield from _of_tree(binary["left"])
            yield from _of_tree(binary["right"])
        elif (sign := _BY_WORD.get(binary["op"])) is not None:
            yield from _comparison(binary["left"], sign, binary["right"])
            yield from _comparison(binary["right"], _MIRRORED[sign], binary["left"])
    elif (call := tree.get("Function")) is not None:
        yield from _of_call(call["input"], call["function"])


def _comparison(column: Any, sign: str, literal: Any) -> Iterator[Condition]:
    name, value = column.get("Column"), _literal(literal)
    if isinstance(name, str) and value is not None:
        yield _BY_SIGN[sign]((name,), value)


def _of_call(inputs: list[Any], function: Any) -> Iterator[Condition]:
    name = inputs[0].get("Column")
    if not isinstance(name, str):
        return
    if function == {"StringExpr": "StartsWith"}:
        value = _literal(inputs[1])
        if isinstance(value, str):
            yield StringStartsWith((name,), value)
    elif "Boolean" in function and "IsBetween" in function["Boolean"]:
        # Whether the ends count is left to polars.
        low, high = _literal(inputs[1]), _literal(inputs[2])
        if low is not None:
            yield GreaterThanOrEqual((name,), low)
        if high is not None:
            yield LessThanOrEqual((name,), high)
    elif "Boolean" in function and "IsIn" in function["Boolean"]:
        values = list(_listed(inputs[1]))
        if values and all(isinstance(value, str) for value in values):
            yield In((name,), tuple(values))


def _listed(literal: Any) -> Iterable[Any]:
    """The values of a list, which polars writes as Arrow."""
    import pyarrow as pa

    data = bytes(literal["Literal"]["Scalar"]["List"])
    with pa.ipc.open_stream(data) as reader:
        return list(reader.read_all().column(0).to_pylist())


def _literal(literal: Any) -> Any:
    if not isinstance(literal, dict) or "Literal" not in literal:
        return None
    scalar = literal["Literal"].get("Scalar", {})
    kind, value = next(iter(scalar.items()), ("", None))
    if kind.startswith(("Int", "UInt")) and type(value) is int:
        return value
    if kind == "String" and isinstance(value, str):
        return value
    if (
        kind == "Datetime"
        and isinstance(value, list)
        and value[1] in _MICROSECONDS
        and value[2] is not None
    ):
        unit = _MICROSECONDS[value[1]]
        is_whole = unit >= 1 or value[0] % 1000 == 0
        elapsed = value[0] // 1000 if unit < 1 else value[0] * int(unit)
        return _EPOCH + timedelta(microseconds=elapsed) if is_whole else None
    return None
