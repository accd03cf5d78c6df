"""Verification that a table has what its stream has, message by message.

Owns the comparison of a range of sequences: the rows are read back from the files of the table, the
messages are read again from the stream, and both are compared in every column that a message has
(sequence, subject, time, headers and payload). The comparison relies on nothing that the writer of
the table noted. A row whose message is no longer in the stream cannot be compared, and is counted.
Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tradewind.api.names import KV_STREAM
from tradewind.decoding.decoder_contract import RESCUED_COLUMN
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_files import Storage, read_batches
from tradewind.pipelines.tables.pinned_streams import StreamPlace
from tradewind.pipelines.tables.table_columns import own_columns
from tradewind.pipelines.tables.table_points import TablePoint
from tradewind.pipelines.tables.table_spec import (
    DAY,
    HOUR,
    TableSpec,
    is_bucket,
)
from tradewind.pipelines.tables.tail_rows import TailRows, TailStep
from tradewind.pipelines.tables.tier_tasks import may_hold, point_storage, stored_files
from tradewind.spark.contract.bucket_tables import table_tasks
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.provider_contract import GrowingProvider, ReadState
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import SourceOptions, parse_options
from tradewind.spark.providers.provider_choice import open_growing

# How much is compared at once.
CHUNK_BYTES: Final = 16 << 20
CHUNK_MESSAGES: Final = 100_000
# Where sequences are sparse, a chunk has few messages however many sequences it spans.
CHUNK_SEQUENCES_MAX: Final = 100_000_000
_NOT_OF_MESSAGES: Final = frozenset({RESCUED_COLUMN, DAY, HOUR})


class TableMismatchError(PipelineError):
    """The table does not have what its stream has."""


@dataclass
class ProofCounts:
    """The counts of a comparison.

    `compared` messages are the same in both. `gone` rows have no message in the stream any more.
    `absent` sequences are in neither: deleted, or removed before the table had them.
    """

    compared: int = 0
    gone: int = 0
    absent: int = 0

    def add(self, other: ProofCounts) -> None:
        """Count what another comparison has seen."""
        self.compared += other.compared
        self.gone += other.gone
        self.absent += other.absent


@dataclass
class ComparedStream:
    """A stream that is compared with its table; `state` is what it was at the last look."""

    stream: str
    spec: TableSpec
    options: SourceOptions
    provider: GrowingProvider
    state: ReadState
    rows: TailRows = field(init=False)

    def __post_init__(self) -> None:
        names = [
            name for name in own_columns(self.stream, self.spec) if name not in _NOT_OF_MESSAGES
        ]
        step = TailStep(self.stream, self.spec, None)
        self.rows = TailRows(step, pa.schema([step.schema.field(name) for name in names]))

    def look(self) -> ReadState:
        """Look at the stream again."""
        (self.state,) = self.provider.states()
        return self.state

    def messages(self, first_seq: int, last_seq: int) -> pa.Table:
        """The messages of a range as rows of the table, in order."""
        wanted = RowFilter().between(max(first_seq, 1), last_seq)
        options = replace(self.options, history=bool(self.options.bucket))
        tasks = table_tasks(options, self.provider, self.state, wanted)
        batches = (batch for task in tasks for batch in task.batches(self.rows.input_columns))
        return in_order(self.rows.table(batches))

    def chunk_sequences(self) -> int:
        """How many sequences are compared at once, by the average size of a message."""
        state = self.state
        if not state.messages or state.bytes is None:
            return CHUNK_MESSAGES
        each = max(state.bytes // state.messages, 1)
        count = max(min(CHUNK_BYTES // each, CHUNK_MESSAGES), 1)
        span = state.last_seq - state.first_seq + 1
        return min(count * max(span // state.messages, 1), CHUNK_SEQUENCES_MAX)


@contextmanager
def compared_stream(stream: str, spec: TableSpec, where: StreamPlace) -> Iterator[ComparedStream]:
    """The stream as it is now; PipelineError if it is not there, or if its table has no payloads.

    Reading does not fail because limits remove messages meanwhile: these are counted as gone.
    """
    if not spec.has_data or spec.rows == "latest":
        raise PipelineError(
            f"stream {stream}: only a table that keeps each message with its payload can be"
            " verified (--tier, --keep-data or --schema raw)"
        )
    is_kv = is_bucket(stream)
    named = {"bucket": stream.removeprefix(KV_STREAM)} if is_kv else {"stream": stream}
    options = parse_options({**where.options, **named, "failOnDataLoss": "false"})
    provider = open_growing(options)
    try:
        try:
            (state,) = provider.states()
        except OptionError as error:
            raise PipelineError(str(error).removeprefix("option ")) from None
        yield ComparedStream(stream, spec, options, provider, state)
    finally:
        provider.close()


def in_order(rows: pa.Table) -> pa.Table:
    """Rows by their sequences."""
    return rows.take(pc.sort_indices(rows["seq"]))


def table_range(
    storage: Storage, point: TablePoint, schema: pa.Schema, seqs: tuple[int, int]
) -> pa.Table:
    """The rows of a range as the files of a pinned table have them, in order."""
    first, last = seqs
    batches: list[pa.RecordBatch] = []
    for file in stored_files(point):
        if not may_hold(file, first, last):
            continue
        try:
            for batch in read_batches(storage, file, point.schema, schema.names, seqs):
                column = batch.column("seq")
                inside = pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last))
                batches.append(batch.filter(inside).cast(schema))
        except (pa.ArrowException, OSError, EOFError) as error:
            reason = str(error).splitlines()[0]
            raise TableMismatchError(
                f"table {point.name}: the file {file.path} cannot be read: {reason}"
            ) from None
    return in_order(pa.Table.from_batches(batches, schema))


def compare(name: str, table: pa.Table, messages: pa.Table, seqs: tuple[int, int]) -> ProofCounts:
    """Compare rows with messages, both in order; TableMismatchError names the first difference."""
    seq_rows, seq_messages = table["seq"], messages["seq"]
    if pc.count_distinct(seq_rows).as_py() != len(seq_rows):
        counts = pc.value_counts(seq_rows)
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        raise TableMismatchError(f"table {name}: sequence {pc.min(twice)} is there more than once")
    is_missing = pc.invert(pc.is_in(seq_messages, value_set=seq_rows.combine_chunks()))
    if missing := pc.sum(is_missing).as_py():
        first = pc.min(seq_messages.filter(is_missing))
        raise TableMismatchError(
            f"table {name}: {missing} messages of its stream are missing, the first has sequence"
            f" {first}"
        )
    is_present = pc.is_in(seq_rows, value_set=seq_messages.combine_chunks())
    present = table.filter(is_present)
    for column in messages.column_names:
        left, right = present[column].combine_chunks(), messages[column].combine_chunks()
        if not left.equals(right):
            seq = next(
                seq
                for seq, one, other in zip(seq_messages, left, right, strict=True)
                if not one.equals(other)
            )
            raise TableMismatchError(
                f"table {name}: the column {column} of sequence {seq} is not what the stream has"
            )
    gone = len(seq_rows) - present.num_rows
    whole = seqs[1] - seqs[0] + 1
    return ProofCounts(present.num_rows, gone, whole - len(seq_rows))


def prove(
    side: ComparedStream,
    point: TablePoint,
    seqs: tuple[int, int],
    on_chunk: Callable[[int, ProofCounts], bool] = lambda _last_seq, _counts: True,
) -> ProofCounts:
    """Compare a range, chunk by chunk; `on_chunk` may end it early by returning False."""
    counts = ProofCounts()
    storage = point_storage(side.stream, side.spec, point)
    for first, last in chunks(*seqs, side.chunk_sequences()):
        # The table comes first: a message that goes meanwhile is then a row without a message.
        table = table_range(storage, point, side.rows.schema, (first, last))
        counts.add(compare(point.name, table, side.messages(first, last), (first, last)))
        if not on_chunk(last, counts):
            break
    return counts


def chunks(first_seq: int, last_seq: int, count: int) -> Iterable[tuple[int, int]]:
    """A range as parts of so many sequences."""
    for first in range(first_seq, last_seq + 1, count):
        yield first, min(first + count - 1, last_seq)
