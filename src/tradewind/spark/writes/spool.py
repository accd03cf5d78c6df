"""Stores the rows of a partition on the local disk, to read them twice.

Owns an unnamed file, which disappears with the process. The spool is used only if an epoch is
repeated: then all rows must be known before the first one is sent.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from types import TracebackType


class Spool:
    """Batches of Arrow in the order in which they came."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tradewind-sink-")  # noqa: SIM115
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch at the end."""
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """All of them, from the first one on."""
        for batch in self.stored():
            yield batch

    def stored(self) -> Iterator[pa.RecordBatch]:
        """The same, for programs without an event loop."""
        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            yield from reader
