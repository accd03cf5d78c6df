"""Writes one partition of one epoch to a stream or bucket.

Owns the order of events that stores each row exactly once, however often Spark repeats it:

1. The mark of the partition says whether an earlier attempt worked on this epoch.
2. If not, the end of the target is recorded in the mark, then rows are published.
3. If so, the mark is taken over, and the target is searched from the recorded position for rows
   that are already stored; only the others are published.
4. When the target has acknowledged every row that came, the mark records their number and hashes.

A mark never says that the epoch is complete. A Spark process whose driver is killed sees the end of
its input, which looks like the end of the data; only Spark knows, because it commits only after the
same rows were acknowledged. An attempt that is given rows other than those in the mark therefore
searches for them in the target.

The ids of rows do not depend on their order (`outgoing`), so the target itself drops duplicates
that two concurrent attempts send. docs/how-to/SPARK.md has the complete reasoning.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.compute as pc

from tradewind.client.kv.entries import check_key
from tradewind.durations import SECOND_NS
from tradewind.spark.connections.lent import CONNECTIONS
from tradewind.spark.connections.patience import patiently
from tradewind.spark.errors import OptionError, RowError, UnknownOutcomeError
from tradewind.spark.writes.outgoing import OutgoingRows
from tradewind.spark.writes.spool import Spool
from tradewind.spark.writes.stored_ids import StoredRow, all_ordinals, find_stored, wait_readable
from tradewind.spark.writes.write_marks import (
    KeptMark,
    Mark,
    WriteRun,
    digest_text,
    join_run,
    open_marks,
)
from tradewind.subjects import is_subset, is_valid_literal

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.connection import Connection
    from tradewind.client.jetstream import JetStream
    from tradewind.client.streams.row_window import RowWindow
    from tradewind.spark.options.sink_options import SinkOptions
    from tradewind.spark.providers.network import ReadAddress
    from tradewind.spark.writes.outgoing_columns import ColumnPlan, OutgoingColumns

logger = logging.getLogger(__name__)
WINDOW_MESSAGES: Final = 8192
BURST_BYTES: Final = 131_072
# This many distinct subjects are remembered as right.
SUBJECTS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class PartitionEpoch:
    """Identifies the rows of one partition in one epoch of a query."""

    token: str
    epoch: int
    partition: int
    run: str = ""  # of a named write: which run of the program this is

    @property
    def mark_key(self) -> str:
        """Where the mark is."""
        return f"{self.token}.{self.partition}"

    @property
    def epoch_scope(self) -> str:
        """How the ids of all rows of the epoch begin."""
        return f"spark:{self.token}:{self.epoch}:"

    @property
    def scope(self) -> str:
        """How the ids of the rows begin."""
        return f"{self.epoch_scope}{self.partition}:"


def run_key(token: str) -> str:
    """Where the run of a named write is."""
    return f"{token}.run"


class PartitionWrite:
    """One attempt, which may fail at any point; another one then does the rest."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan, epoch: PartitionEpoch) -> None:
        self._options = options
        self._plan = plan
        self._epoch = epoch
        self._attempt = uuid.uuid4().hex
        self._scope = epoch.scope.encode()
        self._right_subjects: set[str] = set()
        self._js: JetStream
        self._info: StreamInfo
        self._mark: KeptMark[Mark]
        self._window_ns = 0
        self._timeout = 0.0
        self._lease_ends = 0.0
        # For a named write that was begun by another run: how many rows that has stored, and how
        # many of them came again here.
        self.earlier: int | None = None
        self.claimed = 0

    async def run(self, connection: Connection, batches: Iterator[pa.RecordBatch]) -> int:
        """Write all rows; how many there were."""
        options = self._options
        seconds = options.timeout_seconds
        self._js = self._opened(connection)
        await self._look()
        self._window_ns = self._info.config.duplicate_window
        # A message that is sent again after a reconnect must arrive while its id is remembered.
        self._timeout = min(seconds, self._window_ns / SECOND_NS / 2)
        bucket = await open_marks(self._js, options.marks_bucket, self._info, seconds)
        self._mark = KeptMark(bucket, self._epoch.mark_key, Mark, seconds)
        if not self._epoch.run:
            return await self._write(_arriving(batches))
        runs = KeptMark(bucket, run_key(self._epoch.token), WriteRun, seconds)
        return await self._write_named(_arriving(batches), runs)

    def _opened(self, connection: Connection) -> JetStream:
        return connection.jetstream(publish_window=WINDOW_MESSAGES)

    async def _look(self) -> None:
        """The target as it is now."""
        name, seconds = self._options.target, self._options.timeout_seconds
        streams = self._js.manager.streams
        info = await patiently(lambda: streams.info(name), seconds)
        if info.config.mirror is not None:
            raise OptionError("stream", f"{name} is a mirror: nothing can be published to it")
        await patiently(lambda: wait_readable(streams, info), seconds)
        self._info = info

    async def _write(self, arriving: AsyncIterator[pa.RecordBatch]) -> int:
        epoch = self._epoch.epoch
        mark = await self._mark.load()
        if mark is not None and mark.epoch != epoch and mark.created != self._info.created:
            mark = None  # of another stream of the same name
        if mark is not None and mark.epoch > epoch:
            # Spark begins an epoch when the one before is complete, and never goes back.
            self._unknown(
                f"epoch {epoch} comes after epoch {mark.epoch} was written: the checkpoint is older"
                " than what the query has written, or another program runs the same query"
            )
        if mark is not None and mark.epoch == epoch:
            with Spool() as spool:
                async for batch in arriving:
                    spool.add(batch)
                return await self._write_again(spool, mark)
        await self._store_mark(
            Mark(
                epoch,
                self._attempt,
                self._info.created,
                self._info.state.last_seq,
                time.time_ns(),
            )
        )
        return await self._publish(arriving, None)

    # ---------------------------------------------------------------- named writes

    async def _write_named(
        self, arriving: AsyncIterator[pa.RecordBatch], runs: KeptMark[WriteRun]
    ) -> int:
        epoch = self._epoch.epoch
        run = await join_run(runs, epoch, self._epoch.run, self._info)
        if run.epoch > epoch or run.is_done:
            logger.warning(
                "txnVersion %d of %s: version %d was written before; skipped",
                epoch,
                self._options.txn_app_id,
                run.epoch,
            )
            return sum([batch.num_rows async for batch in arriving])
        if run.until_seq == run.after_seq or self._options.bucket or self._options.id_column:
            # Nothing was stored before this run, or it does not matter which partition a row is of.
            return await self._write(arriving)
        with Spool() as spool:
            async for batch in arriving:
                spool.add(batch)
            return await self._write_rest(spool, run)

    async def _write_rest(self, spool: Spool, run: WriteRun) -> int:
        """Write what other runs have not stored, however they divided the rows.

        A row counts as stored if an equal one is, whatever its partition. Whether each of those was
        counted once is seen when all partitions are known; see `sink`.
        """
        ids = await self._ids(spool)
        await self._mark.load()
        await self._store_mark(
            Mark(run.epoch, self._attempt, run.created, run.after_seq, run.opened_ns)
        )
        await self._look()
        prefix = self._epoch.epoch_scope
        before = await self._search(run.after_seq, run.until_seq, prefix)
        since = await self._search(run.until_seq, self._info.state.last_seq, self._epoch.scope)
        self._check_missing(before.missing, run.after_seq, run.epoch, run.opened_ns)
        others = {
            one.partition(b":")[2]
            for stored in before.ids
            if not stored.startswith(self._scope)
            for one in (stored[len(prefix) :],)
        }
        own = ids & (before.ids | since.ids)
        elsewhere = {one for one in ids - own if one[len(self._scope) :] in others}
        self.earlier = len(before.ids)
        self.claimed = len(ids & before.ids) + len(elsewhere)
        return await self._publish(spool.batches(), own | elsewhere)

    # ---------------------------------------------------------------- a further attempt

    async def _ids(self, spool: Spool) -> set[bytes]:
        rows = self._new_rows()
        ids: set[bytes] = set()
        async for batch in spool.batches():
            self._load(rows, self._plan.outgoing(batch))
            ids.update(rows.ids())
        return ids

    async def _search(self, after_seq: int, last_seq: int, prefix: str) -> StoredRow:
        return await asyncio.to_thread(
            find_stored, self._options.address, self._info, after_seq, last_seq, prefix
        )

    async def _write_again(self, spool: Spool, mark: Mark) -> int:
        """Write what an earlier attempt has not stored."""
        ids: set[bytes] = set()
        rows = self._new_rows()
        async for batch in spool.batches():
            self._load(rows, self._plan.outgoing(batch))
            ids.update(rows.ids())
        is_same_target = mark.created == self._info.created
        if is_same_target and mark.is_of(rows.row_count, rows.digest):
            return rows.row_count
        if not is_same_target:
            # The stream was recreated: no row is of before, and all are after its begin.
            mark = Mark(mark.epoch, mark.attempt, self._info.created, 0, time.time_ns())
        elif self._options.bucket and mark.rows >= rows.row_count:
            # Other values of the same keys. To write them does no harm, if the target does not
            # take it for a repetition.
            self._scope = f"{self._epoch.scope}{self._attempt}:".encode()
        mark = msgspec.structs.replace(mark, attempt=self._attempt)
        await self._store_mark(mark)
        await self._look()
        return await self._publish(spool.batches(), await self._stored(mark, ids))

    async def _stored(self, mark: Mark, ids: set[bytes]) -> set[bytes]:
        """The ids of rows that the target has; UnknownOutcomeError if that is unknown."""
        options, info = self._options, self._info
        after_seq = mark.after_seq
        prefix = "" if options.id_column else self._scope.decode()
        found = await self._search(after_seq, info.state.last_seq, prefix)
        if options.bucket:
            return all_ordinals(found.ids)
        if not options.id_column and (strange := found.ids - ids):
            self._unknown(
                f"partition {self._epoch.partition} of epoch {mark.epoch} was repeated with"
                f" {len(ids)} rows, but without {len(strange)} of those in the target"
            )
        self._check_missing(found.missing, after_seq, mark.epoch, mark.opened_ns)
        return found.ids

    def _check_missing(self, missing: int, after_seq: int, epoch: int, opened_ns: int) -> None:
        """Messages that are gone may have been rows; the target knows their ids for a while."""
        if missing and time.time_ns() - opened_ns > self._window_ns // 2:
            self._unknown(
                f"stream {self._options.target}: {missing} messages behind sequence {after_seq} are"
                f" gone, and rows of epoch {epoch} may be among them; its duplicate window of"
                f" {self._window_ns // SECOND_NS} s is too short to tell"
            )

    def _unknown(self, what: str) -> None:
        report_unknown(self._options, what)

    # ---------------------------------------------------------------- publishing

    async def _publish(
        self, batches: AsyncIterator[pa.RecordBatch], stored: set[bytes] | None
    ) -> int:
        rows = self._new_rows()
        window = self._js.rows
        async for batch in batches:
            outgoing = self._plan.outgoing(batch)
            self._check_subjects(outgoing.subjects)
            self._load(rows, outgoing)
            chosen = _last_of_each(outgoing.subjects) if self._options.bucket else None
            row = 0
            while row < rows.count:
                if not window.has_room:
                    await window.wait_for_room()
                    _raise_failures(window)
                deadline = window.begin(self._timeout)
                row = rows.send(window.inbox, row, BURST_BYTES, deadline, stored or None, chosen)
            if self._options.bucket:
                # A value that is sent again after a reconnect must not pass a newer one.
                await window.wait_idle()
            _raise_failures(window)
            await self._keep_lease()
        await window.wait_idle()
        _raise_failures(window)
        mark = self._mark.current
        assert mark is not None
        if rows.row_count >= mark.rows:
            # Fewer are those of an input that was cut off: the other ones prove more.
            await self._mark.store(
                msgspec.structs.replace(mark, rows=rows.row_count, digest=digest_text(rows.digest))
            )
        return rows.row_count

    async def _store_mark(self, mark: Mark) -> None:
        await self._mark.store(mark)
        self._lease_ends = time.monotonic() + self._window_ns / SECOND_NS / 4

    async def _keep_lease(self) -> None:
        """Stop if another attempt has taken over, well before the target forgets our ids."""
        if time.monotonic() >= self._lease_ends:
            mark = self._mark.current
            assert mark is not None
            await self._store_mark(mark)

    def _new_rows(self) -> OutgoingRows:
        return OutgoingRows(self._scope, by_key=bool(self._options.bucket))

    def _load(self, rows: OutgoingRows, outgoing: OutgoingColumns) -> None:
        rows.load(
            outgoing.subjects,
            outgoing.payloads,
            outgoing.headers,
            outgoing.ids,
            outgoing.operations,
        )

    def _check_subjects(self, subjects: pa.Array) -> None:
        """RowError if a subject is invalid, or not of the target: another stream would store it."""
        right = self._right_subjects
        if len(right) > SUBJECTS_MAX:
            right.clear()
        config = self._info.config
        patterns = config.subjects or [config.name]
        for subject in pc.unique(subjects).to_pylist():
            if subject in right or subject is None:
                continue
            if self._options.bucket:
                check_key(subject.removeprefix(self._plan.prefix))
            elif not is_valid_literal(subject):
                raise RowError(f"subject {subject!r}: tokens joined by single dots, no wildcards")
            elif not any(is_subset(subject, pattern) for pattern in patterns):
                raise RowError(
                    f"subject {subject!r} is not one of stream {config.name}, which has"
                    f" {', '.join(patterns)}"
                )
            right.add(subject)


def report_unknown(options: SinkOptions, what: str) -> None:
    """Fail, or continue with a warning, as the options say."""
    if options.fails_on_unknown:
        raise UnknownOutcomeError(
            f"{what}; set failOnUnknown=false to continue; rows may then be missing or "
            "duplicated in the target"
        )
    logger.warning("%s", what)


def _raise_failures(window: RowWindow) -> None:
    if (error := window.take_failures()) is not None:
        raise error


def _last_of_each(subjects: pa.Array) -> list[bool]:
    """For each row whether no later one has the same key."""
    last = {subject: row for row, subject in enumerate(subjects.to_pylist())}
    chosen = [False] * len(subjects)
    for row in last.values():
        chosen[row] = True
    return chosen


async def _arriving(batches: Iterator[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    """The batches of Spark that have rows; the connection lives while we wait for one."""
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        if batch.num_rows:
            yield batch


def write_partition(
    write: PartitionWrite, address: ReadAddress, batches: Iterator[pa.RecordBatch], *, waits: bool
) -> int:
    """Make an attempt; how many rows there were. Without rows no server is asked."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0
    seconds = address.options.timeout_seconds if waits else 0
    with CONNECTIONS.lent(address, seconds) as lent:
        return lent.run(write.run(lent.connection, chain((first,), batches)))
