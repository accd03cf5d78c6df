"""Compares the rows of a table with those that a test expects.

Owns the rules. Columns that no expected row names are not compared. A column that only some of the
expected rows name is null in the others, and so is a field of an object that is not named. Numbers
are compared by value, times as moments, and binary values as text. The module never uses Spark:
types are those of a schema as JSON.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from tradewind.pipelines.definition.case_messages import parse_moment

# That many rows are shown of each kind.
SHOWN_MAX: Final = 10
FLOAT_DIGITS: Final = 12
_WHOLE: Final = ("byte", "short", "integer", "long")
Fields = Mapping[str, Any]  # name of a column -> its type as Spark writes it in JSON


def fields_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a schema, which is JSON as Spark writes it."""
    return {field["name"]: field["type"] for field in schema["fields"]}


def differences(
    expected: Sequence[Mapping[str, Any]],
    actual: Sequence[Mapping[str, Any]],
    fields: Fields,
    *,
    ordered: bool,
) -> list[str]:
    """The differences from what is expected, one line each; ValueError if a test expects what
    cannot be.
    """
    columns = _columns(expected, fields)
    wanted = [_row(row, columns, fields, f"row {index + 1}") for index, row in enumerate(expected)]
    found = [_row(row, columns, fields, "") for row in actual]
    if ordered:
        return _in_order(wanted, found)
    left = Counter(map(_text, wanted))
    left.subtract(Counter(map(_text, found)))
    missing = [row for row in _each(wanted) if left[_text(row)] > 0]
    extra = [row for row in _each(found) if left[_text(row)] < 0]
    lines: list[str] = []
    for row in missing:
        near = _nearest(row, extra)
        for _ in range(left[_text(row)]):
            lines.append(f"missing: {_text(row)}")
            if near is not None:
                lines.append(f"  nearest: {_changes(row, near)}")
    lines += [f"not expected: {_text(row)}" for row in extra for _ in range(-left[_text(row)])]
    if len(wanted) != len(found):
        lines.insert(0, f"{len(wanted)} rows were expected, there are {len(found)}")
    return _cut(lines)


def _columns(expected: Sequence[Mapping[str, Any]], fields: Fields) -> list[str]:
    from tradewind.pipelines.definition.loading import near

    named = list(dict.fromkeys(name for row in expected for name in row))
    for name in named:
        if name not in fields:
            raise ValueError(f"there is no column {name!r}{near(name, fields)}")
    return named


def _row(
    row: Mapping[str, Any], columns: Sequence[str], fields: Fields, place: str
) -> dict[str, Any]:
    result = {}
    for name in columns:
        try:
            result[name] = plain(row.get(name), fields[name])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place}: column {name}: {error}" if place else str(error)) from None
    return result


def plain(value: Any, kind: Any) -> Any:
    """A value of a test or of Spark as JSON has it, so that equal ones are the same."""
    if value is None:
        return None
    if isinstance(kind, Mapping):
        return _nested(value, kind)
    if kind in _WHOLE or kind in ("float", "double") or kind.startswith("decimal"):
        return _number(value, kind)
    if kind == "boolean":
        return _checked(value, bool, "true or false")
    if kind in ("timestamp", "timestamp_ntz"):
        moment = value if isinstance(value, datetime) else parse_moment(_string(value))
        zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return zoned.isoformat().replace("+00:00", "Z")
    if kind == "date":
        return (
            value.isoformat() if isinstance(value, date) else date.fromisoformat(value).isoformat()
        )
    if kind == "binary":
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return raw.decode(errors="backslashreplace")
    return value if isinstance(value, str) else str(value)


def _nested(value: Any, kind: Mapping[str, Any]) -> Any:
    if kind["type"] == "array":
        items = _checked(value, list, "a list")
        return [plain(item, kind["elementType"]) for item in items]
    if hasattr(value, "asDict"):
        value = value.asDict()
    mapping = _checked(value, dict, "a mapping")
    if kind["type"] == "map":
        pairs = {str(key): plain(one, kind["valueType"]) for key, one in mapping.items()}
        return dict(sorted(pairs.items()))
    inner = fields_of(kind) if kind["type"] == "struct" else {}
    if strange := [name for name in mapping if name not in inner]:
        raise ValueError(f"it has no field {strange[0]!r}")
    return {name: plain(mapping.get(name), inner[name]) for name in inner}


def _number(value: Any, kind: str) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a {kind}")  # noqa: TRY004 - as for all other values
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a {kind}") from None
    if kind in ("float", "double"):
        digits = FLOAT_DIGITS if kind == "double" else 6
        return float(f"{float(number):.{digits}g}")
    if number == number.to_integral_value():
        return int(number)
    if kind in _WHOLE:
        raise ValueError(f"{value!r} is not a whole number")
    return float(number) if Decimal(str(float(number))) == number else str(number.normalize())


def _checked(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not {what}")  # noqa: TRY004 - one kind of error for a file
    return value


def _string(value: Any) -> str:
    found: str = _checked(value, str, "a time such as 2026-11-16T08:00:00Z")
    return found


# -------------------------------------------------------------------------- what is shown


def _text(row: Mapping[str, Any]) -> str:
    return msgspec.json.encode(row).decode()


def _each(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({_text(row): row for row in rows}.values())


def _nearest(
    row: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The row that differs in the fewest columns, if not in all."""
    scored = [(sum(one[name] == row[name] for name in row), one) for one in others[:1000]]
    best = max((score for score, _ in scored), default=0)
    return next((one for score, one in scored if score == best), None) if best else None


def _changes(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} is {msgspec.json.encode(other[name]).decode()}"
        f" instead of {msgspec.json.encode(row[name]).decode()}"
        for name in row
        if row[name] != other[name]
    )


def _in_order(wanted: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    if len(wanted) != len(found):
        lines.append(f"{len(wanted)} rows were expected, there are {len(found)}")
    for index in range(max(len(wanted), len(found))):
        if index >= len(found):
            lines.append(f"row {index + 1} is missing: {_text(wanted[index])}")
        elif index >= len(wanted):
            lines.append(f"row {index + 1} is not expected: {_text(found[index])}")
        elif wanted[index] != found[index]:
            lines.append(f"row {index + 1}: {_changes(wanted[index], found[index])}")
    return _cut(lines)


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= 2 * SHOWN_MAX:
        return lines
    return [*lines[: 2 * SHOWN_MAX], f"and {len(lines) - 2 * SHOWN_MAX} more lines"]
