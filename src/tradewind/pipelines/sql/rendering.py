"""Formats query results: a table, CSV, JSON lines or a bar chart.

Owns the output formats of `tradewind sql`, and one for programs. Lines are produced one by one, so
that a long result is shown while it is produced; only a table and a chart need all rows first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.row_text import (
    cell_text,
    is_number,
    number_of,
    plain,
    table_lines,
)
from tradewind.pipelines.notation.text_charts import bars

if TYPE_CHECKING:
    from tradewind.pipelines.relations.queries import QueryResult

FORMATS: Final = ("table", "csv", "json", "chart")
# For programs: the names of the columns and which are numbers, then a list for each row.
ROWS: Final = "rows"
WIDTH_DEFAULT: Final = 100


class RenderStyle(msgspec.Struct, frozen=True):
    """How an answer is shown: one of FORMATS, and how wide a chart may be."""

    format: str = "table"
    width: int = WIDTH_DEFAULT


def lines(result: QueryResult, look: RenderStyle) -> Iterator[str]:
    """The lines of an answer, without their ends."""
    if look.format == "json":
        for row in result.rows:
            values = dict(zip(result.columns, map(plain, row), strict=True))
            yield msgspec.json.encode(values, enc_hook=str).decode()
    elif look.format == "csv":
        yield _csv_line(result.columns)
        for row in result.rows:
            yield _csv_line([cell_text(value) for value in row])
    elif look.format == ROWS:
        found = _numbers(result)
        numbers = [index in found for index in range(len(result.columns))]
        yield msgspec.json.encode({"columns": result.columns, "numbers": numbers}).decode()
        for row in result.rows:
            yield msgspec.json.encode([cell_text(value) for value in row]).decode()
    elif look.format == "chart":
        yield from _chart(result, look.width)
    else:
        yield from table_lines(result.columns, result.rows)


def _csv_line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def _chart(result: QueryResult, width: int) -> list[str]:
    if not result.rows:
        return ["(no rows)"]
    numbers = _numbers(result)
    if not numbers:
        raise PipelineError("a chart needs a column of numbers; for example: count(*) as orders")
    shown = numbers[-1]
    labels = [index for index in range(len(result.columns)) if index not in numbers] or [
        index for index in numbers if index != shown
    ]
    points = [
        (" ".join(cell_text(row[index]) for index in labels), number_of(row[shown]))
        for row in result.rows
    ]
    return bars(points, width)


def _numbers(result: QueryResult) -> list[int]:
    """The columns that hold numbers, and at least one."""
    return [
        index
        for index in range(len(result.columns))
        if all(value is None or is_number(value) for value in _column(result, index))
        and any(value is not None for value in _column(result, index))
    ]


def _column(result: QueryResult, index: int) -> list[Any]:
    return [row[index] for row in result.rows]
