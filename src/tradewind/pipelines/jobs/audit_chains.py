"""The part of `audit` that verifies hash chains: ranges of entries, each a Spark task.

Owns the division of a chain and reading the messages of a range from the blocks. The module never
locks or changes anything, so the server may run: what it removes meanwhile is not missing. The
rules are in `tradewind.chain`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import MESSAGE, ChainError, ChainRecord
from tradewind.chain.chain_folder import FOLDER, ChainFolder, IncompleteRecord
from tradewind.chain.report import FILE, ChainFault, ChainReport
from tradewind.chain.segments import SegmentFound, SegmentJoin, verify_segment
from tradewind.chain.signed_heads import signed_heads_in
from tradewind.chain.verifier import ChainedMessage
from tradewind.errors import CorruptRecord, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.spark.files.store_files import StreamFiles

# A power of two, so that the subtree of a task is one of the whole tree.
TASK_ENTRIES: Final = 1 << 16
_HEAD: Final = struct.Struct("<IQqH")
_HAS_HEADER: Final = 1 << 31
# Erased, skipped, or a tombstone.
_NO_MESSAGE: Final = 0b11 << 62
_HASH_BYTES: Final = 8


@dataclass(frozen=True)
class ChainRange:
    """The entries of one task: where they begin, and which messages belong to them.

    `blocks` are the numbers of the blocks that may have messages from `first_seq` to `last_seq`;
    `removed` is an encoded set of those that are gone, and so is all below `floor`.
    """

    files: StreamFiles
    algorithm: str
    first_index: int
    count: int
    before: bytes
    first_seq: int
    last_seq: int
    sizes: tuple[int, ...]
    blocks: tuple[int, ...]
    floor: int
    removed: bytes


@dataclass
class _Plan:
    """A chain before it is divided: its ranges, and what the driver has seen of it."""

    folder: ChainFolder
    report: ChainReport
    ranges: list[tuple[int, int, bytes, int, int]]
    size: int = 0


def has_chain(files: StreamFiles) -> bool:
    """Whether a stream has a chain."""
    return Path(files.folder, FOLDER).is_dir()


def audit_chain(
    spark: SparkSession,
    files: StreamFiles,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> ChainReport:
    """Verify the chain of a stream; what cannot be read is a fault of the report."""
    from tradewind.api.times import format_time

    created = format_time(files.created_ns) if files.created_ns else ""
    report = ChainReport(stream=files.name, created=created)
    try:
        folder = ChainFolder(Path(files.folder, FOLDER))
        plan = _scan(folder, report)
        path = str(folder.path / "checkpoints")
        join = SegmentJoin(
            files.name,
            created,
            folder.algorithm,
            folder.before,
            signed_heads_in(_whole_lines(folder, report), path),
        )
        tasks = _tasks(files, plan)
        found = spark.sparkContext.parallelize(tasks, max(len(tasks), 1)).map(verify_range)
        for done, part in enumerate(found.toLocalIterator(), 1):
            join.add(part)
            on_progress(done, len(tasks))
        for _, record in _until_torn(folder.records(plan.size)):
            join.late(record)
    except (CorruptRecord, ChainError, StoreError) as error:
        report.add(ChainFault(FILE, str(error)))
        return report
    made = join.finish()
    for fault in report.faults:  # of the files, found while they were divided
        made.add(fault)
    made.notes += report.notes
    return made


def _until_torn(records: Iterator[tuple[int, ChainRecord]]) -> Iterator[tuple[int, ChainRecord]]:
    """Entries up to the end of what is written; a server may be writing more."""
    try:
        yield from records
    except IncompleteRecord:
        return


def _scan(folder: ChainFolder, report: ChainReport) -> _Plan:
    """Where the tasks begin; a file that is damaged ends the chain there."""
    plan = _Plan(folder, report, [])
    link, last_seq, first_seq, start_link = folder.before, 0, 1, folder.before
    count = 0
    try:
        for _, record in _until_torn(folder.records()):
            if record.kind == MESSAGE:
                last_seq = max(last_seq, record.sequence)
            link = record.link
            count += 1
            if count == TASK_ENTRIES:
                plan.ranges.append((plan.size, count, start_link, first_seq, last_seq))
                plan.size, count, start_link, first_seq = plan.size + count, 0, link, last_seq + 1
    except CorruptRecord as error:
        report.add(ChainFault(FILE, str(error)))
    if count:
        plan.ranges.append((plan.size, count, start_link, first_seq, last_seq))
        plan.size += count
    return plan


def _whole_lines(folder: ChainFolder, report: ChainReport) -> Iterator[tuple[int, bytes]]:
    try:
        yield from folder.checkpoint_lines()
    except IncompleteRecord as error:
        report.notes.append(str(error))


def _tasks(files: StreamFiles, plan: _Plan) -> list[ChainRange]:
    from tradewind.spark.files.block_summary import members_between
    from tradewind.spark.files.stream_contents import StreamContentsReader

    view = StreamContentsReader(files).view()
    sizes = sorted(_sizes(plan.folder))
    return [
        ChainRange(
            files,
            plan.folder.algorithm,
            first_index,
            count,
            before,
            first_seq,
            last_seq,
            tuple(size for size in sizes if first_index < size <= first_index + count),
            tuple(
                block.number
                for block in view.blocks
                if block.first_seq <= last_seq and block.last_seq >= first_seq
            ),
            max(view.floor, view.first_seq),
            members_between(view.removed, first_seq, max(first_seq, last_seq)).encode(),
        )
        for first_index, count, before, first_seq, last_seq in plan.ranges
    ]


def _sizes(folder: ChainFolder) -> set[int]:
    """How many entries the checkpoints cover; what is none is said later."""
    sizes = set()
    try:
        for _, line in folder.checkpoint_lines():
            try:
                sizes.add(checkpoints.decode(line).size)
            except ChainError:
                continue
    except IncompleteRecord:
        pass
    return sizes


def verify_range(task: ChainRange) -> SegmentFound:
    """Verify some entries, on an executor."""
    folder = ChainFolder(Path(task.files.folder, FOLDER))
    entries = islice(folder.records(task.first_index), task.count)
    return verify_segment(
        task.files.name,
        task.algorithm,
        task.first_index,
        task.before,
        (record for _, record in entries),
        _messages(task),
        task.sizes,
    )


def _messages(task: ChainRange) -> Iterator[ChainedMessage]:
    """The messages of a task that are there, in order."""
    from tradewind.spark.files.store_files import VanishedFileError
    from tradewind.store.format.sequence_set import SequenceSet

    removed, _ = SequenceSet.decode(task.removed)
    first_seq = max(task.first_seq, task.floor)
    for number in task.blocks:
        try:
            data = task.files.read_block(number)
        except VanishedFileError:
            continue  # its messages were removed, which a later entry says
        for message in messages_in_block(data):
            if first_seq <= message.sequence <= task.last_seq and message.sequence not in removed:
                yield message


def messages_in_block(data: bytes) -> Iterator[ChainedMessage]:
    """The records of a block that are messages, up to where it is damaged; `audit` says where."""
    offset = 0
    while offset + _HEAD.size + _HASH_BYTES <= len(data):
        length, sequence, time_ns, subject_bytes = _HEAD.unpack_from(data, offset)
        has_header, length = bool(length & _HAS_HEADER), length & ~_HAS_HEADER
        end = offset + length
        at = offset + _HEAD.size + subject_bytes
        if length < _HEAD.size + _HASH_BYTES or end > len(data) or at > end - _HASH_BYTES:
            return
        subject, header = data[at - subject_bytes : at], b""
        if has_header:
            size = int.from_bytes(data[at : at + 4], "little")
            header = data[at + 4 : at + 4 + size]
            at += 4 + size
            if at > end - _HASH_BYTES:
                return
        if sequence and not sequence & _NO_MESSAGE:
            yield ChainedMessage(sequence, time_ns, subject, header, data[at : end - _HASH_BYTES])
        offset = end
