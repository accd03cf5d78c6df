"""Columns of subjects from rows, for index files that no store has written."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.store.format.index_file import SubjectTable


def subject_table(rows: Iterable[tuple[bytes, int, int, int]]) -> SubjectTable:
    """Columns of (name, messages, first block, last block)."""
    names = bytearray()
    table = SubjectTable()
    for name, total, first_block, last_block in rows:
        names += name
        table.ends.append(len(names))
        table.totals.append(total)
        table.first_blocks.append(first_block)
        table.last_blocks.append(last_block)
    table.names = bytes(names)
    return table
