"""One read of messages, up to an end that is fixed when it begins.

Owns the plan of a read: its streams as they are now, which of their rows are wanted, and the parts
in the order of their sequences. What is missing is decided by the rule of `data_loss`, as for
Spark. The module never makes columns other than those of `columns`.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tradewind.frames.batch_thread import read_ahead
from tradewind.spark.contract.data_loss import losses_into
from tradewind.spark.contract.filters import RowFilter, bounds_of, filter_of, push_filters
from tradewind.spark.contract.tiers import all_tasks
from tradewind.spark.errors import DataLossError
from tradewind.spark.providers.provider_choice import open_provider

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.frames.narrowing import Condition
    from tradewind.spark.contract.provider_contract import Provider, ReadState
    from tradewind.spark.options.source_options import SourceOptions


class FrameScan:
    """Streams with their ends; each call of `batches` reads the same messages again.

    `losses` says what reads have missed without failing, in the words of the rule.
    """

    def __init__(self, options: SourceOptions, losses: list[str] | None = None) -> None:
        self.options = options
        self.losses: list[str] = [] if losses is None else losses
        self._provider: Provider = open_provider(options)
        # A connection is open until nobody can read any more.
        self.close = weakref.finalize(self, self._provider.close)
        try:
            self.states = self._provider.states()
        except BaseException:
            self.close()
            raise

    @property
    def streams(self) -> list[str]:
        """The names of the streams that are read."""
        return [state.name for state in self.states]

    def narrowed(self, conditions: Sequence[Condition]) -> RowFilter:
        """The rows that are read for some conditions; at least those that fulfil all of them."""
        rows, _ = push_filters(filter_of(self.options), conditions, self.options)
        return rows

    def batches(
        self, columns: Sequence[str], rows: RowFilter | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows in the order of their sequences, stream by stream.

        What runs an event loop does so in a thread of its own.
        """
        wanted = filter_of(self.options) if rows is None else rows
        make = partial(self._batches, tuple(columns), wanted)
        has_server = not self.options.archive and not self.options.store_dir
        yield from read_ahead(make) if has_server else make()

    def _batches(
        self, columns: Sequence[str], rows: RowFilter
    ) -> Generator[pa.RecordBatch, None, None]:
        for state in self.states:
            wanted = self._bounded(state, rows)
            if wanted.is_empty or not wanted.has_stream(state.name):
                continue
            with losses_into(self.losses):
                tasks = all_tasks(self.options, self._provider, state, wanted)
            for task in tasks:
                yield from self._heard(task.batches(columns))
            self._check(state)

    def _bounded(self, state: ReadState, rows: RowFilter) -> RowFilter:
        """The wanted rows of one stream up to its end, which is not known of a backup.

        The latest values of a bucket go on to where nothing is left: a key that changes meanwhile
        has its value there.
        """
        wanted = bounds_of(self.options, state.name, rows)
        is_open = bool(self.options.archive) or (
            self.options.is_table and not self.options.history
        )
        return wanted if is_open else wanted.between(1, state.last_seq)

    def _heard(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; losses that are reported on the way are noted."""
        while True:
            with losses_into(self.losses):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _check(self, state: ReadState) -> None:
        """Check that a backup is the file that was planned; other sources check by themselves."""
        if not self.options.archive:
            return
        now = {one.name: one.created_ns for one in self._provider.states()}
        if now.get(state.name) != state.created_ns:
            raise DataLossError(
                f"backup {self.options.archive}: the file was replaced while it was read; read it"
                " again"
            )
