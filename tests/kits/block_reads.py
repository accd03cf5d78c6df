"""Reads a stream as Spark does, without Spark."""

from __future__ import annotations

from pathlib import Path

from tradewind.spark.columnar.columns import MESSAGES
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.provider_contract import Provider
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers.blocks import BlocksProvider

Rows = dict[int, tuple[int, str, dict[str, list[str]] | None, bytes]]


def read(folder: Path, name: str) -> Rows:
    """All rows of a stream, from its files."""
    return rows_in(BlocksProvider(SourceOptions(stream=(name,), store_dir=str(folder))), name)


def rows_in(provider: Provider, name: str) -> Rows:
    """What the tasks give that Spark would run."""
    found: Rows = {}
    assert [state.name for state in provider.states()] == [name]
    for task in provider.tasks(name, RowFilter(), 3):
        for batch in task.batches(tuple(MESSAGES)):
            batch.validate(full=True)
            for row in batch.to_pylist():
                assert row["stream"] == name
                assert row["seq"] not in found
                headers = None if row["headers"] is None else dict(row["headers"])
                time_us = int(row["time"].timestamp() * 1_000_000 + 0.5)
                found[row["seq"]] = (time_us, row["subject"], headers, row["data"])
    assert list(found) == sorted(found)
    return found
