"""Reads a stream through its server as one backup, which has the lowest cost for a server.

Owns the mode `backup`: the server creates a backup and sends it directly into the decoder; it is
never stored on either side. A backup contains the whole stream in order, so one task reads all of
it and skips unwanted messages. The module needs no consumer, so it never changes what a stream
keeps, whatever its retention. Completeness is proven as for all reads through a server.

A server aborts a backup if its chunks are not answered for five seconds, for example if Spark does
not take rows for that long, and a backup cannot be resumed. The rest is then read as in the mode
`network`, from where the backup stopped.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tradewind.api.request_types import StreamSnapshotRequest
from tradewind.api.responses import StreamSnapshotResponse
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.errors import ClientError, OperationTimeoutError
from tradewind.errors import CorruptRecord
from tradewind.spark.columnar.arrow import batches
from tradewind.spark.connections.lent import CONNECTIONS
from tradewind.spark.connections.patience import patiently
from tradewind.spark.errors import DataLossError
from tradewind.spark.providers.backup_reading import MAGIC, PLAIN_BYTES_MAX
from tradewind.spark.providers.network import NetworkProvider, RangeTask
from tradewind.spark.providers.proof import RangeProof
from tradewind.status_codes import NO_CONTENT
from tradewind.store.format.s2 import Decompressor, S2Error

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg
    from tradewind.client.core.subscription import Subscription
    from tradewind.spark.columnar.rows import RowDecoder
    from tradewind.spark.contract.filters import RowFilter

logger = logging.getLogger(__name__)
ROWS_PER_BATCH: Final = 16_384
CHUNK_BYTES: Final = 512 * 1024
# The bytes that the server sends before it has an answer, and so those that may wait here.
WINDOW_BYTES: Final = 8 * 1024 * 1024
# The server itself gives up after five.
SILENCE_SECONDS: Final = 15.0
# How often a connection that brings nothing is looked at.
LOOK_SECONDS: Final = 0.5
# A stream that grows has more in its backup than was planned. Up to this many bytes of the rest are
# received and discarded, so that the server does not report a failed backup to its operator.
REST_BYTES_MAX: Final = 4 * WINDOW_BYTES


class BackupStoppedError(Exception):
    """The backup has come to its end too early, or there is none."""


@dataclass(frozen=True, slots=True)
class BackupTask:
    """The messages of a stream within the bounds of `rest`, which reads what a backup leaves."""

    rest: RangeTask
    goes_on: bool  # whether the stream can be read in another way

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `ReadTask`."""
        rest, address = self.rest, self.rest.address
        decoder = rest.rows.decoder()
        assert rest.planned is not None
        proof = RangeProof(rest.stream, rest.rows.first_seq, rest.rows.last_seq, rest.planned)
        seconds = rest.timeout_seconds
        with CONNECTIONS.lent(address, seconds) as lent:
            backup = StreamBackup(lent.connection, rest.stream, rest.rows.last_seq, decoder, proof)
            pieces = backup.pieces()
            why = ""
            try:
                if not lent.run(rest.may_begin(lent.connection)):
                    return
                while lent.run(backup.collect(pieces)):
                    yield from batches(decoder, rest.stream, columns)
                    decoder.clear()
            except BackupStoppedError as stopped:
                why = str(stopped)
            finally:
                lent.run(pieces.aclose())
            yield from batches(decoder, rest.stream, columns)
            judge = proof.pause if why else proof.finish
            try:
                lent.run(patiently(lambda: judge(lent.connection), seconds))
            except StreamNotFoundError:
                if not lent.run(rest.is_lost(lent.connection)):
                    raise
                return
        if why:
            yield from self._rest(proof, why).batches(columns)

    def _rest(self, proof: RangeProof, why: str) -> RangeTask:
        """The messages that follow a backup that has stopped."""
        stream, after_seq = self.rest.stream, proof.after_seq
        text = f"stream {stream}: its backup stopped after sequence {after_seq}: {why}"
        if not self.goes_on:
            raise DataLossError(f"{text}; set allow_direct on the stream to continue without it")
        logger.warning("%s; the rest is read as in the mode network", text)
        rest, planned = self.rest, self.rest.planned
        assert planned is not None
        first_seq, last_seq = max(after_seq + 1, rest.rows.first_seq), rest.rows.last_seq
        rows = rest.rows.between(first_seq, last_seq)
        count = planned.count
        if count is not None:
            # A consumer leaves subjects out, which were counted here.
            count = None if rows.patterns else count - proof.seen
        return replace(rest, rows=rows, planned=planned.between(first_seq, last_seq, count))


class StreamBackup:
    """One backup on its way into a decoder."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        last_seq: int,
        decoder: RowDecoder,
        proof: RangeProof,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._decoder = decoder
        self._proof = proof
        self._last_seq = last_seq
        self._held = b""
        self._reconnects = connection.stats.reconnects
        self._is_ended = False  # nothing more is wanted of it

    async def collect(self, pieces: AsyncIterator[bytes]) -> bool:
        """Messages for one batch; whether there may be more."""
        while self._decoder.row_count < ROWS_PER_BATCH:
            try:
                piece = await anext(pieces, None)
            except BackupStoppedError:
                if self._is_ended:
                    return False
                raise
            if piece is None:
                if not self._is_ended:
                    raise BackupStoppedError("it has no end mark")
                return False
            self._take(self._held + piece)
            if self._proof.is_due:
                await self._proof.check(self._connection)
        return True

    def _take(self, data: bytes) -> None:
        gaps, after_seq, count = self._decoder.gaps_in_archive(data, self._proof.after_seq)
        try:
            used, is_last = self._decoder.take_archive(data)
        except CorruptRecord as error:
            raise BackupStoppedError(str(error)) from error
        self._held = data[used:]
        self._proof.saw(gaps, after_seq, count)
        self._is_ended = is_last or after_seq >= self._last_seq

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The content of the backup, as it was before it was compressed, without its first word."""
        decompressor = Decompressor(PLAIN_BYTES_MAX)
        head = b""
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                if self._is_ended:
                    continue  # it is longer than the read
                try:
                    plain = decompressor.feed(chunk)
                    while decompressor.pending:
                        plain += decompressor.feed(b"")
                except S2Error as error:
                    raise BackupStoppedError(f"it cannot be unpacked: {error.reason}") from error
                if len(head) < len(MAGIC):
                    head += plain
                    if len(head) < len(MAGIC):
                        continue
                    if not head.startswith(MAGIC):
                        raise BackupStoppedError("this server makes them of block files")
                    plain = head[len(MAGIC) :]
                yield plain

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        """The chunks that the server sends; each is answered when the next one is wanted."""
        connection = self._connection
        inbox = connection.new_inbox()
        request = StreamSnapshotRequest(
            deliver_subject=inbox,
            no_consumers=True,
            chunk_size=CHUNK_BYTES,
            window_size=WINDOW_BYTES,
        )
        ask = connection.jetstream_manager().api.call
        index = 0
        rest_bytes = 0
        try:
            async with connection.subscribe(inbox) as subscription:
                await ask(StreamSnapshotResponse, "stream_snapshot", self._stream, body=request)
                while (message := await self._next(subscription)).data:
                    index += 1
                    _check_place(message, index)
                    yield message.data
                    if message.reply:
                        await connection.publish(message.reply)
                    rest_bytes += len(message.data) if self._is_ended else 0
                    if rest_bytes > REST_BYTES_MAX:
                        return
        except ClientError as error:
            raise BackupStoppedError(str(error)) from error
        if message.status and message.status != NO_CONTENT:
            raise BackupStoppedError(f"{message.status} {message.description}")

    async def _next(self, subscription: Subscription) -> Msg:
        """The next message; who has lost the connection is sent nothing more."""
        connection = self._connection
        for _ in range(round(SILENCE_SECONDS / LOOK_SECONDS)):
            try:
                return await subscription.next(LOOK_SECONDS)
            except OperationTimeoutError:
                if not connection.is_connected or connection.stats.reconnects != self._reconnects:
                    raise BackupStoppedError("the connection was lost") from None
        raise BackupStoppedError(f"no data for {SILENCE_SECONDS:g} s")


def _check_place(message: Msg, index: int) -> None:
    """A chunk that is lost on the way, as when a connection breaks, is missed at the next one."""
    place = message.reply.rpartition(".")[2]
    if message.reply and place != str(index):
        raise BackupStoppedError(f"received chunk {place} instead of {index}")


class BackupProvider(NetworkProvider):
    """The streams of a server that the options choose, each read as one backup."""

    def _filters_of(self, info: StreamInfo, rows: RowFilter) -> tuple[str, ...]:
        """None: a backup has all subjects."""
        del info, rows
        return ()

    def tasks(self, name: str, rows: RowFilter, partitions_min: int) -> list[BackupTask]:
        """See `Provider`."""
        del partitions_min
        info = self._infos[name]
        whole = self._whole(name, rows)
        if whole is None:
            return []
        return [BackupTask(whole, not whole.by_direct or info.config.allow_direct)]
