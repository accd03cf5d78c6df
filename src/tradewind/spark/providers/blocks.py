"""Reads streams from their block files.

Owns the `blocks` mode: the driver creates a view of each stream and divides its blocks, and
executors read and decode whole blocks. Both need access to the store folder. The module never locks
or writes anything, so the server, Tradewind or nats-server, may be running.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tradewind.spark.columnar.arrow import batches
from tradewind.spark.columnar.rows import TIME_NS_MIN, RowDecoder
from tradewind.spark.contract.data_loss import promised_from, rule_of
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.planning import choose_blocks, divide, part_count
from tradewind.spark.contract.provider_contract import ReadState
from tradewind.spark.contract.tiers import TABLE_KEY
from tradewind.spark.files.block_summary import members_between
from tradewind.spark.files.store_files import StreamFiles, VanishedFileError, find_streams
from tradewind.spark.files.stream_contents import TAIL, StreamContents, StreamContentsReader, key_of
from tradewind.spark.providers.block_proof import BlockPlan, BlockProof
from tradewind.spark.providers.live_removals import removals_on_server
from tradewind.store.contract import limits_of
from tradewind.store.format.sequence_set import SequenceSet

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.spark.contract.planning import Part
    from tradewind.spark.options.source_options import SourceOptions

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
    plan: BlockPlan

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `ReadTask`. Rows are given only of the stream that the task was planned for."""
        if not self._is_same_stream():
            return
        removed, _ = SequenceSet.decode(self.removed)
        decoder = self.rows.decoder(
            age_floor_ns=self.age_floor_ns, ttl_now_ns=self.ttl_now_ns, removed=removed
        )
        proof = BlockProof(self.files, self.plan, removed)
        held_bytes = 0
        for place in range(len(self.part)):
            held_bytes += self._take(decoder, proof, place)
            if decoder.row_count >= ROWS_PER_BATCH_MIN or held_bytes >= BYTES_HELD_MAX:
                if not self._is_same_stream():
                    return
                yield from batches(decoder, self.files.name, columns)
                decoder.clear()
                held_bytes = 0
        if self._is_same_stream():
            yield from batches(decoder, self.files.name, columns)
            proof.finish()

    def _is_same_stream(self) -> bool:
        """Whether what was read so far is of the stream that was planned with."""
        if self.files.is_still_there():
            return True
        first_seq, last_seq = self.part[0][1], self.part[-1][2]
        self.plan.rule.lost(
            f"stream {self.files.name} was deleted, or deleted and recreated, after the read of its"
            f" sequences {first_seq} to {last_seq} was planned"
        )
        return False

    def _take(self, decoder: RowDecoder, proof: BlockProof, place: int) -> int:
        """Decode one block; returns its size."""
        number, first_seq, last_seq = self.part[place]
        try:
            data = self.files.read_block_into(number, decoder.memory)
        except VanishedFileError:
            proof.vanished(first_seq, last_seq)
            return 0
        rows_before, damaged_before = decoder.row_count, decoder.damaged_bytes
        decoder.take_block(
            data,
            key_of(self.files.name, number),
            self.files.block_path(number),
            first_seq=first_seq,
            last_seq=last_seq,
            ends_torn=number >= self.torn_number,
            skips_damage=not self.plan.rule.fails,
        )
        if damaged := decoder.damaged_bytes - damaged_before:
            logger.warning(
                "%s: %d bytes are damaged and were skipped",
                self.files.block_path(number),
                damaged,
            )
        rows = decoder.row_count - rows_before
        proof.took(place, number, data, first_seq, last_seq, rows if self.rows.is_by_seq else None)
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
                viewer
                if viewer and is_same
                else StreamContentsReader(files, partial(removals_on_server, options))
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
            limits = limits_of(viewer.files.config)
            first_seq = max(view.first_seq, _unaged_from(viewer, view, time.time_ns()))
            # A message that age removes next is still in the files and their summary.
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
                    replaces=_replaces(viewer.files),
                    table=(viewer.files.config.get("metadata") or {}).get(TABLE_KEY, ""),
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
        # The header of a message may exempt it from the age limit.
        oldest_ns = TIME_NS_MIN if limits.message_ttl else age_floor_ns
        chosen = choose_blocks(
            view.blocks,
            max(rows.first_seq, view.floor, _unaged_from(viewer, view, now_ns)),
            min(rows.last_seq, view.last_seq),
            max(rows.first_time_ns, oldest_ns),
            rows.last_time_ns,
        )
        total_bytes = sum(block.size for block in chosen)
        count = part_count(total_bytes, os.cpu_count() or 1, partitions_min)
        rule = rule_of(self._options, name, replaces=_replaces(viewer.files), from_files=True)
        from_seq = promised_from(self._options, name, self.seq_at_time)
        return [
            BlockTask(
                files=viewer.files,
                part=part,
                rows=rows,
                removed=members_between(view.removed, part[0][1], part[-1][2]).encode(),
                age_floor_ns=age_floor_ns,
                ttl_now_ns=now_ns if limits.message_ttl else 0,
                torn_number=view.last_number,
                plan=BlockPlan(
                    rule,
                    tuple(view.identities[number] for number, _, _ in part),
                    now_ns,
                    from_seq,
                ),
            )
            for part in divide(chosen, count)
        ]

    def expect(self, names: Iterable[str]) -> None:
        """See `GrowingProvider`. A folder is listed as a whole, so nothing is missed."""

    def begin(self, name: str, after_seq: int) -> int:
        """See `GrowingProvider`. Only if the next message is gone, all blocks may be looked at."""
        viewer = self._viewer(name)
        view = viewer.view(after_seq + 1)
        if after_seq >= view.last_seq or _has(view, after_seq + 1):
            return min(view.first_seq, after_seq + 1)
        whole = viewer.view()
        return max(viewer.first_message(whole), _unaged_from(viewer, whole, time.time_ns()))

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
        """See `GrowingProvider`. The size is that of files: no block is read for it."""
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


def _replaces(files: StreamFiles) -> bool:
    """Whether messages go when newer ones of their subject come."""
    is_limited = limits_of(files.config).subject_msgs_max > 0
    return is_limited and not files.config.get("discard_new_per_subject")


def _unaged_from(viewer: StreamContentsReader, view: StreamContents, now_ns: int) -> int:
    """The first sequence that is not too old; messages with a time of their own have another."""
    limits = limits_of(viewer.files.config)
    if not limits.age_max_ns or limits.message_ttl or view.first_seq > view.last_seq:
        return 0
    return viewer.seq_at_time(now_ns - limits.age_max_ns)


def _has(view: StreamContents, seq: int) -> bool:
    """Whether nothing says that this message is gone."""
    if seq < view.floor or seq in view.removed:
        return False
    return any(block.first_seq <= seq <= block.last_seq for block in view.blocks)
