"""Reads streams from their block files.

Owns the `blocks` mode: the driver creates a view of each stream and divides its blocks, and
executors read and decode whole blocks. Both need access to the store folder. It never locks or
writes anything, so the server, Tradewind or nats-server, may be running.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tradewind.spark.arrow import batches
from tradewind.spark.block_summary import members_between
from tradewind.spark.errors import DataLossError
from tradewind.spark.filters import RowFilter
from tradewind.spark.planning import choose_blocks, divide, part_count
from tradewind.spark.provider_contract import ReadState
from tradewind.spark.rows import TIME_NS_MIN, RowDecoder
from tradewind.spark.store_files import StreamFiles, Vanished, find_streams
from tradewind.spark.stream_contents import TAIL, StreamContents, StreamContentsReader, key_of
from tradewind.store.folder.stream_folder import limits_of
from tradewind.store.format.sequence_set import SequenceSet

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.spark.planning import Part
    from tradewind.spark.source_options import SourceOptions

logger = logging.getLogger(__name__)
# Small blocks are collected until Spark gets a batch that is worth its while.
ROWS_PER_BATCH_MIN = 16_384
BYTES_HELD_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BlockTask:
    """Some blocks of a stream, each with the sequences that are wanted of it."""

    files: StreamFiles
    part: Part
    rows: RowFilter
    removed: bytes  # an encoded SequenceSet
    age_floor_ns: int
    ttl_now_ns: int
    torn_number: int  # of the block that may be written to at this moment
    fails_on_data_loss: bool

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Task`."""
        removed, _ = SequenceSet.decode(self.removed)
        decoder = self.rows.decoder(
            age_floor_ns=self.age_floor_ns, ttl_now_ns=self.ttl_now_ns, removed=removed
        )
        held_bytes = 0
        for number, first_seq, last_seq in self.part:
            held_bytes += self._take(decoder, number, first_seq, last_seq)
            if decoder.row_count >= ROWS_PER_BATCH_MIN or held_bytes >= BYTES_HELD_MAX:
                yield from batches(decoder, self.files.name, columns)
                decoder.clear()
                held_bytes = 0
        yield from batches(decoder, self.files.name, columns)

    def _take(self, decoder: RowDecoder, number: int, first_seq: int, last_seq: int) -> int:
        """Decode one block; returns its size."""
        try:
            data = self.files.read_block_into(number, decoder.memory)
        except Vanished:
            lost = (
                f"stream {self.files.name}: block {number} with the sequences {first_seq} to"
                f" {last_seq} was removed before it was read"
            )
            if self.fails_on_data_loss:
                raise DataLossError(
                    f"{lost}; set failOnDataLoss=false to continue without them"
                ) from None
            logger.warning("%s", lost)
            return 0
        damaged_before = decoder.damaged_bytes
        decoder.take_block(
            data,
            key_of(self.files.name, number),
            self.files.block_path(number),
            first_seq=first_seq,
            last_seq=last_seq,
            ends_torn=number >= self.torn_number,
            skips_damage=not self.fails_on_data_loss,
        )
        if damaged := decoder.damaged_bytes - damaged_before:
            logger.warning(
                "%s: %d bytes are damaged and were skipped",
                self.files.block_path(number),
                damaged,
            )
        return len(data)


class BlocksProvider:
    """The streams of a store folder that the options choose."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._viewers: dict[str, StreamContentsReader] = {}

    def _look(self) -> None:
        """Find the streams anew; what is known of those that are still the same is kept."""
        options = self._options
        keys = options.encryption_key, options.previous_encryption_key
        found = find_streams(options.store_dir, options.account, options.stream, keys)
        kept = self._viewers
        self._viewers = {}
        for files in found:
            viewer = kept.get(files.name)
            is_same = viewer is not None and viewer.files == files
            self._viewers[files.name] = (
                viewer if viewer and is_same else StreamContentsReader(files)
            )

    def _viewer(self, name: str) -> StreamContentsReader:
        if name not in self._viewers:
            self._look()
        return self._viewers[name]

    def states(self) -> list[ReadState]:
        """See `Provider`."""
        self._look()
        result = []
        for name, viewer in self._viewers.items():
            view = viewer.view(TAIL)
            first_seq = view.first_seq
            limits = limits_of(viewer.files.config)
            if limits.age_max_ns and not limits.message_ttl and first_seq <= view.last_seq:
                first_seq = max(first_seq, viewer.seq_at_time(time.time_ns() - limits.age_max_ns))
            # What age removes next is still in the files and their summary.
            is_exact = not limits.age_max_ns and not limits.message_ttl
            result.append(
                ReadState(
                    name,
                    viewer.files.created_ns,
                    first_seq,
                    view.last_seq,
                    limits.subject_msgs_max,
                    messages=view.messages if is_exact else None,
                    bytes=view.bytes if is_exact else None,
                )
            )
        return result

    def counted(self, name: str) -> tuple[int, int, int, bool] | None:
        """Messages, first and last sequence of a stream, and whether the last one is there.

        None if that is not written down, or if age decides what is there.
        """
        viewer = self._viewer(name)
        limits = limits_of(viewer.files.config)
        view = viewer.view()
        if view.messages is None or limits.age_max_ns or limits.message_ttl:
            return None
        has_last = bool(view.blocks) and (
            view.blocks[-1].last_seq == view.last_seq and view.last_seq not in view.removed
        )
        return view.messages, view.first_seq, view.last_seq, has_last

    def tasks(self, name: str, rows: RowFilter, partitions_min: int) -> list[BlockTask]:
        """See `Provider`."""
        viewer = self._viewer(name)
        view = viewer.view(rows.first_seq)
        now_ns = time.time_ns()
        limits = limits_of(viewer.files.config)
        age_floor_ns = now_ns - limits.age_max_ns if limits.age_max_ns else TIME_NS_MIN
        # A message may have been told to live for ever: its header decides.
        oldest_ns = TIME_NS_MIN if limits.message_ttl else age_floor_ns
        chosen = choose_blocks(
            view.blocks,
            max(rows.first_seq, view.floor),
            min(rows.last_seq, view.last_seq),
            max(rows.first_time_ns, oldest_ns),
            rows.last_time_ns,
        )
        total_bytes = sum(block.size for block in chosen)
        count = part_count(total_bytes, os.cpu_count() or 1, partitions_min)
        return [
            BlockTask(
                files=viewer.files,
                part=part,
                rows=rows,
                removed=members_between(view.removed, part[0][1], part[-1][2]).encode(),
                age_floor_ns=age_floor_ns,
                ttl_now_ns=now_ns if limits.message_ttl else 0,
                torn_number=view.last_number,
                fails_on_data_loss=self._options.fails_on_data_loss,
            )
            for part in divide(chosen, count)
        ]

    def expect(self, names: Iterable[str]) -> None:
        """See `GrowingProvider`. A folder is listed as a whole, so nothing is missed."""

    def seq_at_time(self, name: str, time_ns: int) -> int:
        """See `Provider`."""
        return self._viewer(name).seq_at_time(time_ns)

    def time_behind(self, name: str, after_seq: int) -> int | None:
        """See `GrowingProvider`."""
        view = self._viewer(name).view(after_seq + 1)
        reached, messages, _ = self._viewer(name).advance(view, after_seq, 1, 1)
        for task in (
            self.tasks(name, RowFilter().between(after_seq + 1, reached), 1) if messages else ()
        ):
            for batch in task.batches(("time",)):
                return int(batch.column(0).cast("int64")[0].as_py()) * 1000
        return None

    def bytes_behind(self, name: str, after_seq: int) -> int | None:
        """See `GrowingProvider`. It is the size of files: no block is read for it."""
        return self._viewer(name).bytes_behind(after_seq)

    def advance(
        self, name: str, after_seq: int, last_seq: int, msgs_max: int, bytes_max: int
    ) -> tuple[int, int, int]:
        """See `Provider`."""
        viewer = self._viewer(name)
        view: StreamContents = viewer.view(after_seq + 1)
        seq, messages, size = viewer.advance(view, after_seq, msgs_max, bytes_max)
        return min(seq, last_seq), messages, size

    def close(self) -> None:
        """Nothing is open between two calls."""
