"""Formats Spark rows as text.

Owns the display of values: bytes as text if they are text, times without zero parts, and columns no
wider than needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.pipelines.notation.text_charts import bars, shortened
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tradewind.pipelines.definition.model import Sink

CELL_WIDTH_MAX: Final = 60


def batch_lines(name: str, sink: Sink, batch: DataFrame, number: int, width: int) -> Iterator[str]:
    """The rows of one batch of a console sink; nothing if there are none."""
    console = sink.console
    assert console is not None
    rows = batch.limit(console.rows + 1).collect()
    if not rows:
        return
    more = len(rows) > console.rows
    rows = rows[: console.rows]
    yield f"{name}, batch {number}"
    if console.chart:
        points = [(cell_text(row[console.label]), number_of(row[console.chart])) for row in rows]
        yield from bars(points, width)
    else:
        yield from table_lines(batch.columns, rows)
    if more:
        yield f"(the first {console.rows} rows)"


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A table with aligned columns; numbers to the right."""
    texts = [
        [shortened(visible(cell_text(value)), CELL_WIDTH_MAX) for value in row] for row in rows
    ]
    widths = [
        max([len(name), *(len(row[index]) for row in texts)]) for index, name in enumerate(columns)
    ]
    to_right = [
        bool(rows) and all(is_number(row[index]) or row[index] is None for row in rows)
        for index in range(len(columns))
    ]

    def joined(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, to_right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return [joined(list(columns)), rule, *(joined(row) for row in texts)]


def cell_text(value: Any) -> str:
    """A value as one line of text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        try:
            return " ".join(bytes(value).decode().splitlines())
        except UnicodeDecodeError:
            return f"0x{bytes(value).hex()}"
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, date | Decimal | int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 else str(value)
    if isinstance(value, str):
        return " ".join(value.splitlines())
    return msgspec.json.encode(plain(value), enc_hook=str).decode()


def time_text(moment: datetime) -> str:
    """A time of Spark, which gives it in the zone of this machine, in UTC."""
    text = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return text.rstrip("0").rstrip(".")


def plain(value: Any) -> Any:
    """A value of Spark as JSON can say it."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return f"0x{bytes(value).hex()}"
    if isinstance(value, datetime):
        moment = value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def number_of(value: Any) -> float:
    """A value as a number; 0 if it is none."""
    return float(value) if is_number(value) else 0.0


def is_number(value: Any) -> bool:
    """Whether a value is a number; true and false are not."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
