"""The lake tables of streams: which streams have one, and the state of each.

Owns finding them, by the metadata of the streams, and their status, by the file that the runner
leaves in a folder of this machine. Every user who may change a stream can choose that folder, so
only a small regular file of the known form is read there, and nothing in other file systems.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.errors import TradewindError
from tradewind.pipelines.tables.stream_tables import StreamTable, table_in
from tradewind.pipelines.tables.table_spec import state_folder
from tradewind.pipelines.tables.table_status import STATUS_FILE, TableStatus, read_table_status

if TYPE_CHECKING:
    from tradewind.dashboard.data.workspace import Workspace

STREAMS_MAX: Final = 20_000
TABLES_MAX: Final = 200
STATUS_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True)
class TableLook:
    """The state of a stream's table; without a status if it never ran, or not on this machine."""

    table: StreamTable
    status: TableStatus | None = None
    problem: str = ""


async def look_at_tables(workspace: Workspace, *, reads_files: bool) -> list[TableLook]:
    """The tables of the account, by the names of their streams."""
    pages = workspace.jetstream.manager.streams.list()
    found: list[StreamTable] = []
    seen = 0
    while seen < STREAMS_MAX and len(found) < TABLES_MAX and (page := await pages.next_page()):
        seen += len(page)
        found += [table for info in page if (table := table_in(info.config)) is not None]
    found.sort(key=lambda table: table.stream)
    return await asyncio.to_thread(
        lambda: [_look(table, reads_files=reads_files) for table in found[:TABLES_MAX]]
    )


def _look(table: StreamTable, *, reads_files: bool) -> TableLook:
    if table.spec is None or table.problem or not reads_files:
        return TableLook(table, problem=table.problem)
    folder = Path(state_folder(table.stream, table.spec))
    file = folder / STATUS_FILE
    try:
        is_small = file.is_file() and file.stat().st_size <= STATUS_BYTES_MAX
        return TableLook(table, read_table_status(folder) if is_small else None)
    except (OSError, ValueError):
        return TableLook(table)
    except TradewindError as error:
        return TableLook(table, problem=str(error))
