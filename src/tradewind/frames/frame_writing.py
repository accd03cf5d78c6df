"""Publishes the rows of a frame to a stream or bucket, each exactly once.

Owns the id of a frame, from which the message ids of its rows follow: a repeated write of the same
frame stores only what is missing, whatever became of the first one. The order of events that makes
this hold is that of Spark's sink, `partition_write`; a frame is one partition of one epoch there.
All rows are checked before the first one is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tradewind.client.blocking import with_blocking
from tradewind.frames.frame_source import named_here
from tradewind.frames.incoming_frames import column_kinds, frame_batches
from tradewind.spark.errors import OptionError, RowError, UnknownOutcomeError
from tradewind.spark.options.sink_options import SinkOptions, Template, parse_template
from tradewind.spark.writes.outgoing_columns import ColumnPlan, plan_kinds
from tradewind.spark.writes.partition_write import (
    WINDOW_MESSAGES,
    PartitionEpoch,
    PartitionWrite,
)
from tradewind.spark.writes.spool import Spool
from tradewind.spark.writes.stored_ids import StoredRow, find_stored_on
from tradewind.spark.writes.write_marks import Mark, digest_text, query_token

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.jetstream import JetStream
    from tradewind.spark.writes.outgoing import OutgoingRows

# Which frames were written, one key for each.
MARKS_BUCKET: Final = "frame_writes"
BATCH_ID_CHARACTERS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class WrittenFrame:
    """The outcome of a write: `stored` of its `rows` were not in the stream before."""

    stream: str
    batch_id: str
    rows: int
    stored: int


def write(
    js: Any,
    frame: Any,
    *,
    subject: str = "",
    stream: str = "",
    bucket: str = "",
    key: str = "",
    batch_id: str = "",
    id_column: str = "",
    timeout: int = 30,
    fails_on_unknown: bool = True,
) -> Any:
    """Publish each row of a frame once: of Arrow, pandas or polars, or a relation of DuckDB.

    To be awaited, unless `js` is of `tradewind.sync`; the result is a `WrittenFrame`. `subject` may
    have columns in braces; without it the frame has a column `subject`. The stream is the one that
    has the subject. The payload is the column `data`, or else all others as JSON; a bucket has
    `key` and `value` instead. `batch_id` names the frame; by default it is made of its rows, so
    that equal frames are one frame.

    >>> await frames.write(js, frame, subject="orders.{region}")
    """
    request = _WriteRequest(
        stream=stream,
        bucket=bucket,
        subject=parse_template("subject", subject) if subject else (),
        key=parse_template("key", key) if key else (),
        batch_id=batch_id,
        id_column=id_column,
        timeout_seconds=timeout,
        fails_on_unknown=fails_on_unknown,
    )
    request.check()
    return with_blocking(_written, js, frame, request)


@dataclass(frozen=True, slots=True)
class _WriteRequest:
    """The arguments of a write."""

    stream: str
    bucket: str
    subject: Template
    key: Template
    batch_id: str
    id_column: str
    timeout_seconds: int
    fails_on_unknown: bool

    def check(self) -> None:
        """OptionError if some of them do not fit together."""
        if self.bucket and (self.stream or self.subject):
            raise OptionError("bucket", "use bucket, or stream and subject, not both")
        if self.key and not self.bucket:
            raise OptionError("key", "a stream has subjects; use subject")
        if self.bucket and self.id_column:
            raise OptionError("id_column", "in a bucket the key tells rows apart")
        if len(self.batch_id) > BATCH_ID_CHARACTERS_MAX:
            raise OptionError(
                "batch_id",
                f"{len(self.batch_id)} characters; at most {BATCH_ID_CHARACTERS_MAX}",
            )

    def options(self, stream: str) -> SinkOptions:
        """The same in the words of Spark's sink."""
        return SinkOptions(
            stream="" if self.bucket else stream,
            bucket=self.bucket,
            subject=self.subject,
            key=self.key,
            id_column=self.id_column,
            marks_bucket=MARKS_BUCKET,
            timeout_seconds=self.timeout_seconds,
            fails_on_unknown=self.fails_on_unknown,
        )


async def _written(js: JetStream, frame: Any, request: _WriteRequest) -> WrittenFrame:
    with Spool() as spool:
        schema = await asyncio.to_thread(_spooled, frame, spool)
        if schema is None:
            return WrittenFrame(request.stream or request.bucket, request.batch_id, 0, 0)
        stream = request.stream or await _stream_of(js, request, spool)
        options = request.options(stream)
        plan = _plan(schema, options)
        write = FrameWrite(js, options, plan, request.batch_id)
        try:
            rows, batch_id = await write.all_of(spool)
        except UnknownOutcomeError as error:
            text = str(error).replace("failOnUnknown=false", "fails_on_unknown=False")
            raise UnknownOutcomeError(text) from None
    return WrittenFrame(options.target, batch_id, rows, rows - write.known)


def _spooled(frame: Any, spool: Spool) -> pa.Schema | None:
    """Put the rows of a frame on the disk, to read them more than once; None if it has none."""
    schema: pa.Schema | None = None
    for batch in frame_batches(frame):
        schema = batch.schema
        spool.add(batch)
    return schema


@named_here
def _plan(schema: pa.Schema, options: SinkOptions) -> ColumnPlan:
    return plan_kinds(column_kinds(schema), options)


async def _stream_of(js: JetStream, request: _WriteRequest, spool: Spool) -> str:
    """The one stream that stores the subjects."""
    if request.bucket:
        return ""
    subject = "".join(text + ("" if column is None else "*") for text, column in request.subject)
    if "*" in subject and any("*" in token and token != "*" for token in subject.split(".")):
        subject = ""  # a part of a token: no pattern says that
    if not subject:
        first = next(spool.stored())
        names = first.schema.names
        if not request.subject and "subject" not in names:
            raise OptionError("subject", "give a subject, or a frame with a column subject")
        plan = _plan(first.schema, request.options("-"))
        subject = str(plan.outgoing(first.slice(0, 1)).subjects[0].as_py())
    found = [name async for name in js.manager.streams.names(subject)]
    if len(found) != 1:
        count = "no stream stores" if not found else f"{', '.join(found)} store"
        raise OptionError("stream", f"{count} subject {subject!r}; name the stream")
    return found[0]


class FrameWrite(PartitionWrite):
    """The write of one frame over a connection that there is already.

    `known` is how many of its rows were stored before.
    """

    def __init__(self, js: JetStream, options: SinkOptions, plan: ColumnPlan, batch_id: str):
        self._own_js = js
        self._place = 0
        self.known = 0
        super().__init__(options, plan, _epoch(batch_id, options))
        self._batch_id = batch_id

    async def all_of(self, spool: Spool) -> tuple[int, str]:
        """Check and write all rows; how many there are, and the id of the frame."""
        self._js = self._opened(self._own_js.connection)
        await self._look()
        checked = await asyncio.to_thread(self._checked, spool.stored())
        batch_id = self._batch_id
        if not batch_id:
            batch_id = f"{checked.row_count}-{digest_text(checked.digest)}"
            self._epoch = _epoch(batch_id, self._options)
            self._scope = self._epoch.scope.encode()
        rows = await self.run(self._own_js.connection, spool.stored())
        return rows, batch_id

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> OutgoingRows:
        """Encode all rows without sending any; RowError names the first that cannot be sent."""
        rows = self._new_rows()
        place = 0
        for batch in batches:
            outgoing = self._plan.outgoing(batch)
            self._check_rows(outgoing.subjects, place)
            self._load(rows, outgoing)
            rows.ids()
            place += batch.num_rows
        return rows

    def _check_rows(self, subjects: pa.Array, place: int) -> None:
        """RowError names the row and the columns of a subject that is none, or not of the stream."""
        try:
            self._check_subjects(subjects)
        except Exception as error:
            columns = [column for _, column in self._options.template if column is not None]
            named = ", ".join(columns or ["key" if self._options.bucket else "subject"])
            for row in range(len(subjects)):
                try:
                    self._check_subjects(subjects.slice(row, 1))
                except Exception:
                    raise RowError(f"row {place + row}, column {named}: {error}") from None
            raise

    # ---------------------------------------------------------------- as a partition

    def _opened(self, connection: Connection) -> JetStream:
        prefix = self._own_js.api.prefix.removesuffix(".")
        return connection.jetstream(api_prefix=prefix, publish_window=WINDOW_MESSAGES)

    async def _search(self, after_seq: int, last_seq: int, prefix: str) -> StoredRow:
        connection = self._own_js.connection
        return await find_stored_on(connection, self._info, after_seq, last_seq, prefix)

    async def _write_again(self, spool: Spool, mark: Mark) -> int:
        self.known = -1
        rows = await super()._write_again(spool, mark)
        self.known = rows if self.known < 0 else self.known
        return rows

    async def _publish(
        self, batches: AsyncIterator[pa.RecordBatch], stored: set[bytes] | None
    ) -> int:
        self.known = len(stored or ())
        return await super()._publish(batches, stored)


def _epoch(batch_id: str, options: SinkOptions) -> PartitionEpoch:
    return PartitionEpoch(query_token(f"frame\0{batch_id}", options.target), 0, 0)
