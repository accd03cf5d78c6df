"""The batches of a pipeline's queries, from its checkpoint.

Owns the output of `tradewind pipeline batches`; `tradewind.spark.progress.batch_log` reads the
files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tradewind.pipelines.machine.places import RemoteFolder, names_in, replace_file
from tradewind.spark.progress.batch_log import (
    COMMITS_FOLDER,
    OFFSETS_FOLDER,
    BatchRange,
    read_batches,
)
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from tradewind.pipelines.definition.model import Pipeline


def batches_of(pipeline: Pipeline) -> dict[str, list[BatchRange]]:
    """All that is known of a pipeline's batches, by query; empty if none has read from a stream."""
    folder = pipeline.query_checkpoint("")
    if not isinstance(folder, Path):
        with TemporaryDirectory(prefix="tradewind-batches-") as scratch:
            copy_logs(folder, Path(scratch))
            return _batches_in(Path(scratch))
    return _batches_in(folder)


def copy_logs(folder: RemoteFolder, target: Path) -> None:
    """Have the logs of queries in a folder of this machine; they are small, and few are kept.

    Commits come first: a batch that is committed in between has its offsets among the others.
    """
    for query in names_in(folder):
        for log in (COMMITS_FOLDER, OFFSETS_FOLDER):
            for name in names_in(folder / query / log):
                if name.isascii() and name.isdigit():
                    with suppress(FileNotFoundError):  # Spark has removed it meanwhile
                        data = (folder / query / log / name).read_bytes()
                        replace_file(target / query / log / name, data)


def _batches_in(folder: Path) -> dict[str, list[BatchRange]]:
    queries = sorted(path for path in folder.glob("*") if (path / OFFSETS_FOLDER).is_dir())
    found = {path.name: read_batches(path) for path in queries}
    return {query: batches for query, batches in found.items() if batches}


def batch_documents(batches: Mapping[str, Sequence[BatchRange]]) -> list[dict[str, Any]]:
    """One document for each batch, for JSON."""
    return [{"query": query, **one._asdict()} for query, ours in batches.items() for one in ours]


def batches_table(batches: Mapping[str, Sequence[BatchRange]]) -> Table:
    """The same for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in ("query", "batch", "stream", "first", "last", "planned", "state"):
        is_number = name in ("batch", "first", "last")
        table.add_column(name, justify="right" if is_number else "left")
    for query, ours in batches.items():
        for one in ours:
            cells: list[Any] = [query, one.batch, one.stream, one.first_seq, one.last_seq]
            cells += [one.planned_at.strftime("%Y-%m-%d %H:%M:%S"), one.state]
            table.add_row(*(Text(visible(str(cell))) for cell in cells))
    return table
