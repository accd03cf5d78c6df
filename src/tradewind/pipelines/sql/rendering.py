"""Answers as text: a table, CSV, JSON lines or bars.

Owns the formats of `tradewind sql`. Lines are made one by one, so that a long answer is shown while
it is made; only a table and a chart have to look at all rows first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.pipelines.charts import bars
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.tables import cell_text, is_number, number_of, plain, table_lines

if TYPE_CHECKING:
    from tradewind.pipelines.queries import QueryResult

FORMATS: Final = ("table", "csv", "json", "chart")
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
    numbers = [
        index
        for index in range(len(result.columns))
        if all(value is None or is_number(value) for value in _column(result, index))
        and any(value is not None for value in _column(result, index))
    ]
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


def _column(result: QueryResult, index: int) -> list[Any]:
    return [row[index] for row in result.rows]
