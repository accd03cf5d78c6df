"""`audit`: verifies the hash of every record of a store folder, and its chains, in parallel.

Owns the division of blocks into Spark tasks, and the report; chains are in `audit_chains`. The
module never locks or changes anything, so the server may run. The additional checks of
`tradewind-server --check-store` (indexes, consumers, totals) need a store that is not in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.errors import CorruptRecord, StoreError
from tradewind.pipelines.errors import JobError
from tradewind.pipelines.jobs.audit_chains import audit_chain, has_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.chain.report import ChainReport
    from tradewind.spark.files.store_files import StreamFiles

TASK_BYTES: Final = 64 << 20
SEQUENCE_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class AuditBlock:
    """One block file to look at; `is_last`: its server may be writing to it."""

    account: str
    files: StreamFiles
    number: int
    size: int
    is_last: bool


@dataclass(frozen=True)
class BlockResult:
    """The finding in one block; `problem` is empty if every record is intact."""

    account: str
    stream: str
    path: str
    records: int
    bytes: int
    damaged_bytes: int = 0
    problem: str = ""
    is_gone: bool = False


@dataclass
class AuditReport:
    """All streams of a store."""

    folder: str
    streams: int = 0
    blocks: int = 0
    records: int = 0
    bytes: int = 0
    damaged: list[BlockResult] = field(default_factory=list)
    chains: list[ChainReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def audit(
    spark: SparkSession,
    folder: Path,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> AuditReport:
    """Verify everything below a store folder; JobError if there is no store."""
    report = AuditReport(str(folder))
    blocks = list(_find_blocks(folder, report))
    parts = _divided(blocks)
    done = 0
    found = spark.sparkContext.parallelize(parts, max(len(parts), 1)).map(_check_part)
    for results in found.toLocalIterator():
        done += 1
        on_progress(done, len(parts))
        for result in results:
            if result.is_gone:
                continue
            report.blocks += 1
            report.records += result.records
            report.bytes += result.bytes
            if result.problem:
                report.damaged.append(result)
    known = {(block.account, block.files.name): block.files for block in blocks}
    report.chains = [audit_chain(spark, files) for files in known.values() if has_chain(files)]
    return report


def _find_blocks(folder: Path, report: AuditReport) -> Iterator[AuditBlock]:
    from tradewind.spark.files.store_files import find_streams
    from tradewind.store.format.layout import JETSTREAM_FOLDER

    root = folder / JETSTREAM_FOLDER if (folder / JETSTREAM_FOLDER).is_dir() else folder
    if root.name != JETSTREAM_FOLDER or not root.is_dir():
        raise JobError(f"{folder}: not a store; a store has a folder jetstream")
    for account in sorted(path.name for path in root.iterdir() if (path / "streams").is_dir()):
        names = sorted(path.name for path in (root / account / "streams").iterdir())
        for name in names:
            try:
                (files,) = find_streams(str(root.parent), account, (name,))
                blocks = files.list_blocks()
            except (StoreError, ValueError) as error:
                report.notes.append(f"{account}/{name} was not checked: {error}")
                continue
            report.streams += 1
            for block in blocks:
                is_last = block.number == blocks[-1].number
                yield AuditBlock(account, files, block.number, block.size, is_last)


def _divided(blocks: list[AuditBlock]) -> list[list[AuditBlock]]:
    """Parts of about the same size, largest blocks first."""
    parts: list[list[AuditBlock]] = []
    size = TASK_BYTES
    for block in blocks:
        if size + block.size > TASK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(block)
        size += max(block.size, 1)
    return parts


def _check_part(blocks: list[AuditBlock]) -> list[BlockResult]:
    return [check_block(block) for block in blocks]


def check_block(block: AuditBlock) -> BlockResult:
    """Verify the records of one block, on an executor."""
    from tradewind.spark.columnar.rows import RowDecoder
    from tradewind.spark.files.store_files import VanishedFileError
    from tradewind.spark.files.stream_contents import key_of

    files = block.files
    path = files.block_path(block.number)
    try:
        data = files.read_block(block.number)
    except VanishedFileError:
        return BlockResult(block.account, files.name, path, 0, 0, is_gone=True)
    except CorruptRecord as error:
        text = f"byte {error.offset}: {error.reason}"
        return BlockResult(block.account, files.name, path, 0, block.size, block.size, text)
    problem = ""
    decoder = RowDecoder()
    for skips_damage in (False, True):
        decoder = RowDecoder()
        try:
            decoder.take_block(
                data,
                key_of(files.name, block.number),
                path,
                first_seq=1,
                last_seq=SEQUENCE_MAX,
                ends_torn=block.is_last,
                skips_damage=skips_damage,
            )
            break
        except CorruptRecord as error:
            problem = f"byte {error.offset}: {error.reason}"
    return BlockResult(
        block.account,
        files.name,
        path,
        decoder.row_count,
        len(data),
        decoder.damaged_bytes,
        problem,
    )
