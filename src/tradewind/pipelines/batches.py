"""The batches of a pipeline's queries, from its checkpoint.

Owns what `tradewind pipeline batches` shows; `tradewind.spark.batch_log` reads the files.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.spark.batch_log import OFFSETS_FOLDER, State, read_batches

if TYPE_CHECKING:
    from rich.table import Table

    from tradewind.pipelines.model import Pipeline


class QueryBatch(msgspec.Struct, frozen=True):
    """What one query has taken of one stream in one batch; `source` counts from 0."""

    query: str
    batch: int
    source: int
    stream: str
    first_seq: int
    last_seq: int
    planned_at: datetime
    state: State


def batches_of(pipeline: Pipeline) -> list[QueryBatch]:
    """All that is known of a pipeline's batches, by query; empty if it never ran."""
    folder = pipeline.query_checkpoint("")
    queries = sorted(path for path in folder.glob("*") if (path / OFFSETS_FOLDER).is_dir())
    return [QueryBatch(path.name, *batch) for path in queries for batch in read_batches(path)]


def batches_table(batches: list[QueryBatch]) -> Table:
    """The same for a terminal."""
    from rich.table import Table

    table = Table()
    for name in ("query", "batch", "stream", "first", "last", "planned", "state"):
        is_number = name in ("batch", "first", "last")
        table.add_column(name, justify="right" if is_number else "left")
    for one in batches:
        cells: list[Any] = [one.query, one.batch, one.stream, one.first_seq, one.last_seq]
        cells += [one.planned_at.strftime("%Y-%m-%d %H:%M:%S"), one.state]
        table.add_row(*map(str, cells))
    return table
