"""A stream with its table at one moment: the table's files, and the tail after them.

Owns the point at which both fit together. The stream is asked for its end, then the table is
pinned; what lies between the end of the table and the end of the stream is the tail. A small tail
is read at once, so that nothing that happens to the stream later can change the answer. If limits
remove a part of the tail meanwhile, the table has grown by it, and all is done again. The module
uses Arrow, never Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tradewind.api.names import KV_STREAM
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.tables.table_columns import fields_of
from tradewind.pipelines.tables.table_decoders import table_decoder
from tradewind.pipelines.tables.table_points import TablePoint, check_stream, pin_table
from tradewind.pipelines.tables.table_spec import (
    TABLE_KEY,
    TableRows,
    TableSpec,
    is_bucket,
    table_of,
)
from tradewind.pipelines.tables.tail_rows import TailRows, TailStep
from tradewind.spark.contract.bucket_tables import KvTask, table_tasks
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.provider_contract import Provider, ReadState
from tradewind.spark.errors import DataLossError, OptionError
from tradewind.spark.options.source_options import SourceOptions, parse_options
from tradewind.spark.providers.provider_choice import open_provider

if TYPE_CHECKING:
    from tradewind.spark.contract.provider_contract import ReadTask

logger = logging.getLogger(__name__)
# A tail up to this size is read by the process that pins it; a larger one by Spark's executors.
TAIL_BYTES_MAX: Final = 16 << 20
# How often a tail is looked for that limits keep removing.
ATTEMPTS_MAX: Final = 10
_KEY: Final = "key"
_PUT: Final = "PUT"
_Opened = tuple[SourceOptions, Provider, ReadState]


@dataclass(frozen=True)
class StreamPlace:
    """Where streams are: on a server, or in a store folder beside it."""

    address: PipelineAddress = field(default_factory=PipelineAddress)
    store: str = ""

    @property
    def options(self) -> dict[str, str]:
        """The same for the format `jetstream`; a server that is named is asked beside its files."""
        if self.store and self.address == PipelineAddress():
            return {"storeDir": self.store}
        options = self.address.spark_options()
        return options | {"storeDir": self.store} if self.store else options


@dataclass(frozen=True)
class PinnedStream:
    """A table, and the tail that belongs to it.

    `rows` is the tail as the table's columns, if it is small; all changes of a bucket, not only the
    latest. Else `options` are those of the format `jetstream` that read it, or the whole bucket if
    the table has one row per key; `tail` makes the rows. `missing` is the number of sequences after
    the table that the stream no longer has.
    """

    stream: str
    spec: TableSpec
    point: TablePoint
    last_seq: int
    rows: pa.Table | None
    options: Mapping[str, str]
    tail: TailRows
    missing: int = 0

    @property
    def has_tail(self) -> bool:
        """Whether the stream has anything that the table does not have."""
        return self.rows is None or self.rows.num_rows > 0


def table_spec_of(stream: str, where: StreamPlace) -> TableSpec | None:
    """The table that a stream asks for, on a server or in a store folder; None if it has none."""
    with _opened(_tail_options(stream, where)) as (_, _, state):
        return _spec_in(state)


def pin_stream(
    stream: str, where: StreamPlace, *, tail_bytes_max: int | None = None
) -> PinnedStream | None:
    """The stream with its table as they are now; None if the stream has none, or none yet.

    PipelineError if the two do not belong together.
    """
    bytes_max = TAIL_BYTES_MAX if tail_bytes_max is None else tail_bytes_max
    reason: DataLossError | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            with _opened(_tail_options(stream, where)) as opened:
                found = _pinned(stream, where, opened, bytes_max)
        except DataLossError as error:
            logger.info("%s is looked at again: %s", stream, error)
            reason = error
        else:
            if found is not None and found.missing:
                _note_hole(found)
            return found
    raise PipelineError(
        f"stream {stream}: in {ATTEMPTS_MAX} attempts, messages were removed that its table did not"
        f" have yet: {reason}"
    )


def _pinned(
    stream: str, where: StreamPlace, opened: _Opened, bytes_max: int
) -> PinnedStream | None:
    """The table is looked at after the stream: what the stream has lost by then is in it."""
    options, provider, state = opened
    spec = _spec_in(state)
    point = pin_table(stream, spec) if spec is not None else None
    if spec is None or point is None:
        return None
    if point.until_seq > state.last_seq:
        (state,) = provider.states()  # the table has grown since
        if state.first_seq > point.until_seq + 1:
            raise DataLossError(f"sequences behind {point.until_seq} are gone already")
    check_stream(point, stream, state.created_ns, state.last_seq)
    has_tail = state.last_seq > point.until_seq
    decoder = table_decoder(stream, spec, where.address) if has_tail else None
    fields = fields_of(stream, spec, point.schema) if decoder is not None else pa.schema([])
    tail = TailRows(TailStep(stream, spec, decoder, fields), point.schema)
    rows: pa.Table | None = None if has_tail else tail.table([])
    if has_tail and _tail_bytes(point, state) <= bytes_max:
        tasks = _tail_tasks(options, provider, state, point.until_seq + 1, spec.rows)
        rows = tail.table([batch for task in tasks for batch in task.batches(tail.input_columns)])
    # An empty stream begins after its end.
    missing = max(state.first_seq - point.until_seq - 1, 0) if point.mark is not None else 0
    lazy = _lazy_options(stream, where, spec, point.until_seq + 1, state.last_seq)
    return PinnedStream(stream, spec, point, state.last_seq, rows, lazy, tail, missing)


def _spec_in(state: ReadState) -> TableSpec | None:
    return table_of(state.name, {TABLE_KEY: state.table})


def _tail_options(stream: str, where: StreamPlace) -> dict[str, str]:
    """The options of the format `jetstream` for the stream or bucket."""
    is_kv = is_bucket(stream)
    named = {"bucket": stream.removeprefix(KV_STREAM)} if is_kv else {"stream": stream}
    # Without this, rows of missing messages would silently be missing in the answer.
    return {**where.options, **named, "failOnDataLoss": "true"}


def _lazy_options(
    stream: str, where: StreamPlace, spec: TableSpec, first_seq: int, last_seq: int
) -> dict[str, str]:
    """The options by which executors read a tail.

    Without its table a bucket has the same rows, which is simpler than many changes.
    """
    options = _tail_options(stream, where)
    if spec.rows == "latest":
        return options
    bounds = {"startingSeq": str(first_seq), "endingSeq": str(max(last_seq, first_seq))}
    return options | bounds | ({"history": "true"} if "bucket" in options else {})


def _tail_tasks(
    options: SourceOptions, provider: Provider, state: ReadState, first_seq: int, rows: TableRows
) -> Sequence[ReadTask]:
    """The parts of a tail, up to the end of the stream that was seen.

    Only the latest changes of a bucket may go further: a key that changes meanwhile has its value
    after that end and no longer before it.
    """
    wanted = RowFilter(first_seq=first_seq)
    if rows != "latest":
        wanted = wanted.between(first_seq, state.last_seq)
        options = replace(options, history=bool(options.bucket))
        return table_tasks(options, provider, state, wanted)
    return [KvTask(options.bucket, tuple(provider.tasks(state.name, wanted, 0)), False)]


@contextmanager
def _opened(given: Mapping[str, str]) -> Iterator[_Opened]:
    """A stream as it is now; PipelineError if it is not there."""
    options = parse_options(given)
    provider = open_provider(options)
    try:
        try:
            (state,) = provider.states()
        except OptionError as error:
            raise PipelineError(str(error).removeprefix("option ")) from None
        yield options, provider, state
    finally:
        provider.close()


def _tail_bytes(point: TablePoint, state: ReadState) -> int:
    """The size of the tail, by the average of the stream; all of it if that is not known."""
    count = state.last_seq - max(point.until_seq, state.first_seq - 1)
    if not state.messages or state.bytes is None:
        return count * 1024
    return count * state.bytes // state.messages


def latest_puts(changes: pa.Table) -> pa.Table:
    """The last change of each key, unless that removed it."""
    import pyarrow.compute as pc

    newest = changes.group_by(_KEY).aggregate([("seq", "max")])
    is_newest = pc.is_in(changes["seq"], newest["seq_max"])
    return changes.filter(pc.and_(is_newest, pc.equal(changes["operation"], _PUT)))


def _note_hole(found: PinnedStream) -> None:
    """Say what neither the table nor the stream has: limits were faster than the table."""
    logger.warning(
        "stream %s: %d sequences behind the end of its table (%d) were removed before the table had"
        " them",
        found.stream,
        found.missing,
        found.point.until_seq,
    )
