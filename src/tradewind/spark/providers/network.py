"""Reads streams through their server, which can be any NATS server.

Owns the `network` mode. Ranges of sequences are read in parallel, each over its own connection: by
an ordered consumer, which lives in the server's memory and ends with the task, or, where a consumer
would change what the stream keeps (work queues, interest), by direct batches, which never leave
state on the server. The event loop of a task runs only while Spark waits for rows.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.responses import MsgGetResponse
from tradewind.api.times import parse_time
from tradewind.client.api_errors import (
    JetStreamApiError,
    NoMessageFoundError,
    StreamNotFoundError,
)
from tradewind.client.connection import Connection, connect
from tradewind.client.errors import (
    ClientError,
    JetStreamUnavailableError,
    OperationTimeoutError,
)
from tradewind.client.streams.ordered import OrderedMessages
from tradewind.client.streams.packed import PackedMessages
from tradewind.spark.columnar.arrow import batches
from tradewind.spark.columnar.rows import RowDecoder
from tradewind.spark.connections.kept_connections import KeptConnection
from tradewind.spark.connections.lent import CONNECTIONS
from tradewind.spark.connections.logins import resolve_servers, spark_name
from tradewind.spark.connections.patience import Patience, passes, patiently
from tradewind.spark.contract.data_loss import FILES, promised_from, rule_of
from tradewind.spark.contract.filters import RowFilter, filter_of
from tradewind.spark.contract.planning import MESSAGES_AHEAD_MAX, messages_ahead, part_count, ranges
from tradewind.spark.contract.provider_contract import ReadState
from tradewind.spark.contract.tiers import TABLE_KEY
from tradewind.spark.errors import DataLossError, OptionError
from tradewind.spark.files.store_files import is_pattern
from tradewind.spark.providers.proof import (
    DELETED_MAX,
    Gap,
    PlannedRead,
    RangeProof,
    head_of,
    is_gone,
    removed_count,
)
from tradewind.spark.providers.range_counts import RangeCounts
from tradewind.status_codes import NO_CONTENT, NOT_FOUND
from tradewind.subjects import collide

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.api.responses import StoredMessage
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.core.message import Msg
    from tradewind.spark.contract.provider_contract import ReadTask
    from tradewind.spark.options.source_options import SourceOptions

ROWS_PER_BATCH: Final = 16_384
BYTES_PER_BATCH: Final = 16 * 1024 * 1024
# A consumer is asked again after this; the server has deleted what it would have sent.
SILENCE_SECONDS: Final = 5.0
EMPTY_WAITS_MAX: Final = 12
EXPIRES_SECONDS: Final = 60.0
HEARTBEAT_SECONDS: Final = 30.0
DIRECT_BATCH: Final = 1000
SEQUENCE_HEADER: Final = "Nats-Sequence"
_STREAM_HEADER: Final = b"\r\nNats-Stream: "
# Spark asks a hundred times a second whether there is anything new. The server is asked less often,
# and the less the longer nothing comes.
ASK_SECONDS: Final = 0.05
# While nothing changes, at most one part in this many of the time is spent on asking.
ASK_SHARE: Final = 10
# Slow growth: after a silence of some seconds the next message waits for a small part of that.
ASK_GROWTH: Final = 1.05
ASK_IDLE_SECONDS: Final = 0.5
ASK_SECONDS_MAX: Final = 1.0
# More streams by name than this are found in a list, which has up to 256 of them on a page.
NAMES_PER_PAGE: Final = 4
LISTS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class ReadAddress:
    """How to reach the server; it travels to the executors and is shown nowhere."""

    options: SourceOptions

    @asynccontextmanager
    async def connected(self, waits_seconds: float = 0, **more: Any) -> AsyncIterator[Connection]:
        """A connection for one piece of work; a server that is away is waited for."""
        options = self.options
        settings = {**options.login.settings(spark_name), "name": "tradewind-spark", **more}
        servers = resolve_servers(options.servers)
        if waits_seconds:
            settings["wait_for_server"] = True
        try:
            async with asyncio.timeout(waits_seconds or None):
                connection = await connect(
                    servers or None, context=options.context or None, **settings
                )
        except TimeoutError as error:
            text = f"no server responded within {waits_seconds:g} s"
            raise OptionError("servers", text) from error
        except (ClientError, OSError, ssl.SSLError) as error:
            raise OptionError("servers", f"cannot connect: {error}") from error
        try:
            yield connection
        finally:
            await connection.close()


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The messages of one range of sequences."""

    address: ReadAddress
    stream: str
    rows: RowFilter
    by_direct: bool
    ahead: int  # how many messages are asked for before the first of them is read
    planned: PlannedRead | None = None  # None: the caller checks for missing messages

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Task`."""
        decoder = self.rows.decoder()
        with CONNECTIONS.lent(self.address, self.address.options.timeout_seconds) as lent:
            connection = lent.connection
            chunks = (
                self._direct(connection) if self.by_direct else self._ordered(connection, decoder)
            )
            try:
                if not lent.run(self.may_begin(connection)):
                    return
                while lent.run(self._collect(chunks, decoder)):
                    yield from batches(decoder, self.stream, columns)
                    decoder.clear()
                yield from batches(decoder, self.stream, columns)
            except StreamNotFoundError:
                if not lent.run(self.is_lost(connection)):
                    raise
                yield from batches(decoder, self.stream, columns)
            finally:
                lent.run(_finish(chunks))

    async def batches_on(
        self, connection: Connection, columns: Sequence[str]
    ) -> AsyncIterator[pa.RecordBatch]:
        """The same over a connection that the caller's event loop has."""
        decoder = self.rows.decoder()
        chunks = self._direct(connection) if self.by_direct else self._ordered(connection, decoder)
        try:
            has_more = True
            while has_more:
                has_more = await self._collect(chunks, decoder)
                for batch in batches(decoder, self.stream, columns):
                    yield batch
                decoder.clear()
        finally:
            await _finish(chunks)

    async def may_begin(self, connection: Connection) -> bool:
        """Whether rows can be given before the stream is known to be the planned one.

        They can if the task fails otherwise, because the rows of a failed task are not used.
        """
        if self.planned is None or self.planned.rule.fails:
            return True
        streams = connection.jetstream_manager().streams
        info = await patiently(lambda: streams.info(self.stream), self.timeout_seconds)
        if info.created == self.planned.created:
            return True
        self.planned.rule.lost(f"stream {self.stream} was deleted and recreated while it was read")
        return False

    async def is_lost(self, connection: Connection) -> bool:
        """Whether the stream is gone, which is reported, and not only missing for a moment."""
        if self.planned is None or not await is_gone(connection, self.stream):
            return False
        self.planned.rule.lost(f"stream {self.stream} was deleted while it was read")
        return True

    @property
    def timeout_seconds(self) -> float:
        """How long a server that is away is waited for."""
        return self.address.options.timeout_seconds

    async def _collect(
        self, chunks: AsyncIterator[PackedMessages | list[Msg]], decoder: RowDecoder
    ) -> bool:
        """Messages for one batch; whether there may be more."""
        size = 0
        while decoder.row_count < ROWS_PER_BATCH and size < BYTES_PER_BATCH:
            chunk = await anext(chunks, None)
            if chunk is None:
                return False
            if isinstance(chunk, PackedMessages):
                size += chunk.size
                decoder.take_packed(chunk)
            else:
                for message in chunk:
                    size += len(message.data)
                    decoder.take_row(*_direct_row(message))
        return True

    # ---------------------------------------------------------------- ordered consumer

    def _proof(self) -> RangeProof | None:
        if self.planned is None:
            return None
        return RangeProof(self.stream, self.rows.first_seq, self.rows.last_seq, self.planned)

    async def _ordered(
        self, connection: Connection, decoder: RowDecoder
    ) -> AsyncIterator[PackedMessages]:
        seconds = self.timeout_seconds
        proof = self._proof()
        patience = Patience(seconds)
        position = self.rows.first_seq - 1
        while position < self.rows.last_seq:
            try:
                messages = await self._consume(connection, position + 1, proof)
                async for chunk in self._delivered(connection, messages):
                    if proof is not None:
                        proof.saw(*decoder.gaps_in(chunk, proof.after_seq), len(chunk))
                        if proof.is_due:
                            await proof.check(connection)
                    position = chunk.last_seq
                    patience.renew()
                    yield chunk
                await self._check_end(connection, position)
                break
            except ClientError as error:
                await patience.wait_after(error)
        if proof is not None:
            await patiently(lambda: proof.finish(connection), seconds)

    async def _delivered(
        self, connection: Connection, messages: OrderedMessages
    ) -> AsyncIterator[PackedMessages]:
        """The messages that an ordered consumer brings, up to the last sequence or until nothing is
        left.
        """
        try:
            left = messages.info.num_pending
            empty_waits = 0
            while left:
                try:
                    chunk = await messages.next_packed(SILENCE_SECONDS)
                except OperationTimeoutError:
                    empty_waits += 1
                    left = await self._left(connection, messages)
                    if empty_waits == EMPTY_WAITS_MAX:
                        raise DataLossError(
                            f"stream {self.stream}: the server sent nothing for"
                            f" {SILENCE_SECONDS * EMPTY_WAITS_MAX:g} s, though {left} messages"
                            f" follow sequence {messages.last_sequence}"
                        ) from None
                    continue
                empty_waits = 0
                yield chunk
                left = 0 if chunk.last_seq >= self.rows.last_seq else chunk.pending_count
        finally:
            await messages.stop()

    async def _consume(
        self, connection: Connection, first_seq: int, proof: RangeProof | None
    ) -> OrderedMessages:
        """An ordered consumer from a sequence on; the proof has to know if it leaves some out."""
        js = connection.jetstream()
        for filters in dict.fromkeys((_server_filters(self.rows), ())):
            consumer = js.consumers.ordered(
                self.stream, start_sequence=first_seq, filter_subjects=filters
            )
            try:
                messages = await consumer.consume(
                    self.ahead, expires=EXPIRES_SECONDS, idle_heartbeat=HEARTBEAT_SECONDS
                )
            except JetStreamApiError as error:
                # Perhaps the stream has no such subjects: then we look at each message ourselves.
                if not filters or passes(error):
                    raise
            else:
                messages.pack()
                if proof is not None and filters:
                    proof.is_filtered = True
                return messages
        raise AssertionError("the last attempt has no filter")

    async def _left(self, connection: Connection, messages: OrderedMessages) -> int:
        """How many messages are still to come: they may have been deleted."""
        after = max(messages.last_sequence, self.rows.first_seq - 1)
        found = await _next_message(connection, self.stream, after + 1)
        return 1 if found and found <= self.rows.last_seq else 0

    async def _check_end(self, connection: Connection, after_seq: int) -> None:
        """Raise what passes if wanted messages follow `after_seq` after all.

        Consumers and direct gets may be served by a replica that is behind its leader, and has
        nothing more for now. The leader, which answers here, has all that was planned.
        """
        for subject in _server_filters(self.rows) or (">",):
            wanted = {"seq": after_seq + 1, "next_by_subj": subject}
            found = await _found_seq(connection, self.stream, wanted)
            if 0 < found <= self.rows.last_seq:
                raise JetStreamUnavailableError(
                    f"stream {self.stream}: message {found} is stored, but the replica that was"
                    f" read ends at {after_seq}"
                )

    # ---------------------------------------------------------------- direct batches

    async def _direct(self, connection: Connection) -> AsyncIterator[list[Msg]]:
        """The same without a consumer; the stream has to allow direct access."""
        seconds = self.timeout_seconds
        proof = self._proof()
        next_seq = self.rows.first_seq
        while next_seq <= self.rows.last_seq:
            chunk = await patiently(partial(self._direct_chunk, connection, next_seq), seconds)
            if not chunk:
                break
            found = [int(message.headers.get_all(SEQUENCE_HEADER)[-1]) for message in chunk]
            if proof is not None:
                proof.saw(*_gaps(found, next_seq - 1, self.rows.last_seq), len(chunk))
            yield chunk
            next_seq = found[-1] + 1
        if proof is not None:
            await patiently(lambda: proof.finish(connection), seconds)

    async def _direct_chunk(self, connection: Connection, next_seq: int) -> list[Msg]:
        """Messages from a sequence on; none if the leader has none either."""
        chunk = await self._direct_batch(connection, next_seq)
        if not chunk:
            await self._check_end(connection, next_seq - 1)
        return chunk

    async def _direct_batch(self, connection: Connection, next_seq: int) -> list[Msg]:
        """Messages from a sequence on; none if there are none. They come in order.

        A part that came before the connection broke is as good as a whole batch.
        """
        count = min(DIRECT_BATCH, self.ahead, self.rows.last_seq - next_seq + 1)
        body = {"seq": next_seq, "batch": count, "next_by_subj": ">"}
        statuses: list[int] = []

        def is_end(message: Msg) -> bool:
            if message.status:
                statuses.append(message.status)
            return bool(statuses)

        chunk = [
            message
            async for message in connection.request_many(
                f"{connection.jetstream_manager().api.prefix}DIRECT.GET.{self.stream}",
                msgspec.json.encode(body),
                timeout=SILENCE_SECONDS,
                stall=SILENCE_SECONDS,
                sentinel=is_end,
            )
        ]
        if statuses == [NOT_FOUND]:
            return []
        if not statuses and not chunk:
            raise OperationTimeoutError(
                f"stream {self.stream}: no message arrived from {next_seq} on"
            )
        if statuses not in ([NO_CONTENT], []):
            raise DataLossError(
                f"stream {self.stream}: a direct batch from sequence {next_seq} ended with"
                f" {statuses[0]} instead of its end mark"
            )
        return chunk


class NetworkProvider:
    """The streams of a server that the options choose."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._address = ReadAddress(options)
        self._kept = KeptConnection(self._address)
        self._asked_at = 0.0
        self._pace_seconds = ASK_SECONDS
        self._pages = 1  # of a list of all streams
        self._expected: set[str] = set()
        self._infos: dict[str, StreamInfo] = {}
        self._states: list[ReadState] = []
        # Each with what the server had said when it was planned.
        self._planned: dict[str, tuple[StreamInfo, PlannedRead]] = {}
        self._counts = RangeCounts(self._kept.run)

    def expect(self, names: Iterable[str]) -> None:
        """See `GrowingProvider`."""
        self._expected.update(names)

    def states(self) -> list[ReadState]:
        """See `Provider`. Spark asks all the time; the server is not asked quite as often."""
        time.sleep(max(self._asked_at + self._pace_seconds - time.monotonic(), 0))
        before, began = self._states, time.monotonic()
        self._infos = self._kept.run(self._find)
        self._states = [_state(info) for info in self._infos.values()]
        self._expected |= self._infos.keys()
        self._asked_at = time.monotonic()
        took = self._asked_at - began
        self._pace_seconds = next_pace(self._pace_seconds, took, is_idle=before == self._states)
        return self._states

    async def _find(self, connection: Connection) -> dict[str, StreamInfo]:
        """All streams of the query, by as few requests as it takes."""
        names = {wanted for wanted in self._options.stream if not is_pattern(wanted)}
        patterns = [wanted for wanted in self._options.stream if is_pattern(wanted)]
        found: dict[str, StreamInfo] = {}
        if patterns or len(names) > self._pages * NAMES_PER_PAGE:
            for info in await self._list(connection):
                name = info.config.name
                if name in names or any(fnmatchcase(name, pattern) for pattern in patterns):
                    found[name] = info
        # A list that is read in pages may leave out what is there.
        for name in sorted((names | self._expected) - found.keys()):
            one = await self._look_for(connection, name, is_named=name in names)
            if one is not None:
                found[name] = one
        return dict(sorted(found.items()))

    async def _list(self, connection: Connection) -> list[StreamInfo]:
        """All streams of the account."""
        for _ in range(LISTS_MAX):
            pages = connection.jetstream_manager().streams.list()
            found: dict[str, StreamInfo] = {}
            count = self._pages = 0
            while page := await pages.next_page():
                self._pages += 1
                count += len(page)
                found |= {info.config.name: info for info in page}
            if count == len(found) == pages.total:
                break  # else streams came or went in between, and the pages do not fit together
        self._pages = max(self._pages, 1)
        return list(found.values())

    async def _look_for(
        self, connection: Connection, name: str, *, is_named: bool
    ) -> StreamInfo | None:
        """One stream; None if it is gone, which is an error if it was named itself."""
        try:
            return await connection.jetstream_manager().streams.info(name)
        except JetStreamApiError as error:
            is_known = name in self._infos
            if passes(error) or (is_known and self._kept.is_just_back):
                raise JetStreamUnavailableError(f"stream {name}: {error}") from error
            if is_named and name not in self._expected:
                raise OptionError("stream", f"{name!r}: {error}") from error
            if not isinstance(error, StreamNotFoundError):
                raise
        if not is_named:
            self._expected.discard(name)
        return None

    def _whole(self, name: str, rows: RowFilter) -> RangeTask | None:
        """One task for all that is there of these rows; None if nothing is."""
        info = self._infos[name]
        state = _state(info)
        first = max(rows.first_seq, state.first_seq)
        last = min(rows.last_seq, state.last_seq)
        if first > last:
            return None
        return RangeTask(
            self._address,
            name,
            rows.between(first, last),
            info.config.retention != "limits",
            messages_ahead(info.state.bytes, info.state.messages),
            self._plan_of(info, rows, [(first, last)])[0],
        )

    def tasks(self, name: str, rows: RowFilter, partitions_min: int) -> Sequence[ReadTask]:
        """See `Provider`."""
        whole = self._whole(name, rows)
        if whole is None:
            return []
        info = self._infos[name]
        state = _state(info)
        first, last = whole.rows.first_seq, whole.rows.last_seq
        if whole.by_direct and not info.config.allow_direct:
            files = f", or {how}" if (how := FILES.get(self._options.used_by)) else ""
            raise OptionError(
                "stream",
                f"{name} has retention {info.config.retention}: a consumer would change what it"
                f" keeps; set allow_direct on the stream{files}",
            )
        share = (last - first + 1) / max(state.last_seq - state.first_seq + 1, 1)
        count = part_count(int(info.state.bytes * share), os.cpu_count() or 1, partitions_min)
        if self._options.bucket and not self._options.history and last == state.last_seq:
            # A key that changes now has its value behind the end: one task continues to where
            # nothing is left, and so has a value of each key.
            return [replace(whole, rows=rows)]
        bounds = ranges(first, last, count)
        return [
            replace(whole, rows=rows.between(*bound), planned=planned)
            for bound, planned in zip(bounds, self._plan_of(info, rows, bounds), strict=True)
        ]

    def _plan_of(
        self, info: StreamInfo, rows: RowFilter, bounds: Sequence[Gap]
    ) -> list[PlannedRead]:
        """The plan for each of these ranges: what is gone already."""
        planned = self._plan(info)
        counts: Sequence[int | None] = [None] * len(bounds)
        if planned.deleted is None:
            counts = self._counts.of(info, self._filters_of(info, rows), bounds, planned.from_seq)
        return [planned.between(*bound, count) for bound, count in zip(bounds, counts, strict=True)]

    def _filters_of(self, info: StreamInfo, rows: RowFilter) -> tuple[str, ...]:
        """The subjects that tasks let the server choose by."""
        return _server_filters(rows) if info.config.retention == "limits" else ()

    def _plan(self, info: StreamInfo) -> PlannedRead:
        """The plan: what is gone already; the same as before, if nothing was removed since."""
        name, state = info.config.name, info.state
        known = self._planned.get(name)
        removed = removed_count(state)
        if known and known[0] is info:
            return known[1]
        rule = rule_of(self._options, name, replaces=_state(info).replaces)
        if known and known[1].is_of(info.created, removed, rule):
            self._planned[name] = (info, known[1])
            return known[1]
        deleted: array[int] | None = array("Q")
        if state.num_deleted and rule.is_proved:
            deleted = None
            if state.num_deleted <= DELETED_MAX:
                detailed = self._kept.run(
                    lambda connection: connection.jetstream_manager().streams.info(
                        name, deleted_details=True
                    )
                )
                deleted, removed = array("Q", detailed.state.deleted), removed_count(detailed.state)
        from_seq = promised_from(self._options, name, self.seq_at_time)
        planned = PlannedRead(info.created, removed, deleted, rule, from_seq)
        self._planned[name] = (info, planned)
        return planned

    def begin(self, name: str, after_seq: int) -> int:
        """See `GrowingProvider`."""
        del after_seq
        return head_of(self._infos[name].state)

    def seq_at_time(self, name: str, time_ns: int) -> int:
        """See `Provider`. A consumer that starts at the time knows it; nothing is read from it.

        Where a consumer would change what the stream keeps, the message itself is asked for, which
        servers before 2.11 do not offer.
        """
        seconds, nanoseconds = divmod(max(time_ns, 0), 1_000_000_000)
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanoseconds // 1000)
        info = self._infos[name]

        async def ask(connection: Connection) -> int:
            if info.config.retention != "limits":
                body = {"start_time": moment.isoformat(), "next_by_subj": ">"}
                return await _found_seq(connection, name, body) or info.state.last_seq + 1
            consumer = connection.jetstream().consumers.ordered(name, start_time=moment)
            messages = await consumer.consume(1)
            await messages.stop()
            return messages.info.delivered.stream_seq + 1

        return self._kept.run(ask)

    def time_behind(self, name: str, after_seq: int) -> int | None:
        """See `GrowingProvider`."""
        wanted = {"seq": after_seq + 1, "next_by_subj": ">"}

        async def ask(connection: Connection) -> int | None:
            found = await _found(connection, name, wanted)
            return None if found is None else parse_time(found.time)

        return self._kept.run(ask)

    def bytes_behind(self, name: str, after_seq: int) -> int | None:  # noqa: ARG002
        """See `GrowingProvider`. None, as the server only knows the size of the whole stream."""
        return None

    def advance(
        self, name: str, after_seq: int, last_seq: int, msgs_max: int, bytes_max: int
    ) -> tuple[int, int, int]:
        """See `Provider`. Sizes are taken to be those of the average message of the stream."""
        state = self._infos[name].state
        average = max(state.bytes // max(state.messages, 1), 1)
        count = max(min(msgs_max, bytes_max // average), 1)
        reached = after_seq + count
        if state.num_deleted and reached < last_seq:
            # A gap may be longer than a batch.
            found = self._kept.run(
                lambda connection: _next_message(connection, name, after_seq + 1)
            )
            reached = (found or after_seq + 1) + count - 1
        filters = _server_filters(filter_of(self._options))
        if filters and reached < last_seq:
            reached = self._kept.run(
                lambda connection: _nth_message(
                    connection, name, filters, after_seq + 1, last_seq, count
                )
            )
        reached = min(reached, last_seq)
        return reached, min(count, reached - after_seq), count * average

    def close(self) -> None:
        """See `Provider`."""
        self._kept.close()


def next_pace(seconds: float, took_seconds: float, *, is_idle: bool) -> float:
    """How long to wait before the server is asked again; a stream that is busy is asked often."""
    if not is_idle:
        return ASK_SECONDS
    grown = min(seconds * ASK_GROWTH, ASK_IDLE_SECONDS)
    return min(max(grown, took_seconds * ASK_SHARE), ASK_SECONDS_MAX)


def _state(info: StreamInfo) -> ReadState:
    state, config = info.state, info.config
    kept_per_subject = max(config.max_msgs_per_subject, 0)
    return ReadState(
        config.name,
        parse_time(info.created),
        head_of(state),
        state.last_seq,
        kept_per_subject,
        state.messages,
        state.bytes,
        replaces=kept_per_subject > 0 and not config.discard_new_per_subject,
        table=(config.metadata or {}).get(TABLE_KEY, ""),
    )


async def _next_message(connection: Connection, stream: str, seq: int) -> int:
    """The sequence of the first message at or after `seq`; 0 if there is none."""
    return await _found_seq(connection, stream, {"seq": seq, "next_by_subj": ">"})


async def _found_seq(connection: Connection, stream: str, wanted: dict[str, Any]) -> int:
    """The sequence of the message that a request for one finds; 0 if there is none."""
    found = await _found(connection, stream, wanted)
    return 0 if found is None else found.seq


async def _found(
    connection: Connection, stream: str, wanted: dict[str, Any]
) -> StoredMessage | None:
    api = connection.jetstream_manager().api
    try:
        answer = await api.call(MsgGetResponse, "stream_msg_get", stream, body=wanted)
    except NoMessageFoundError:
        return None
    return answer.message


async def _nth_message(
    connection: Connection,
    stream: str,
    filters: Sequence[str],
    first_seq: int,
    last_seq: int,
    count: int,
) -> int:
    """The sequence of the `count`-th message of some subjects; `last_seq` if there are fewer."""
    consumer = connection.jetstream().consumers.ordered(
        stream, start_sequence=first_seq, filter_subjects=filters, headers_only=True
    )
    messages = await consumer.consume(min(count, MESSAGES_AHEAD_MAX))
    try:
        left = count
        if messages.info.num_pending <= count:
            return last_seq
        while chunk := await _some(messages):
            if len(chunk) >= left:
                return min(chunk[left - 1].metadata.stream_sequence, last_seq)
            left -= len(chunk)
    finally:
        await messages.stop()
    raise OperationTimeoutError(f"stream {stream}: no message arrived, though there are some")


async def _some(messages: OrderedMessages) -> list[Msg]:
    """Messages that have arrived, or the first that comes; empty after some silence."""
    try:
        chunk = [await messages.next(SILENCE_SECONDS)]
    except OperationTimeoutError:
        return []
    while len(chunk) < MESSAGES_AHEAD_MAX and (message := messages.take()) is not None:
        chunk.append(message)
    return chunk


async def _finish(chunks: AsyncIterator[Any]) -> None:
    await chunks.aclose()  # type: ignore[attr-defined]


def _server_filters(rows: RowFilter) -> tuple[str, ...]:
    """The subjects that the server can choose by: one list, none of which overlaps another."""
    if len(rows.patterns) != 1:
        return ()
    patterns = [pattern.decode() for pattern in rows.patterns[0]]
    for index, one in enumerate(patterns):
        if any(collide(one, other) for other in patterns[index + 1 :]):
            return ()
    return tuple(patterns)


def _gaps(found: Sequence[int], after_seq: int, last_seq: int) -> tuple[list[Gap], int]:
    """The sequences that are missing before each of these sequences; see `RowDecoder.gaps_in`."""
    gaps = []
    for seq in found:
        end = min(seq - 1, last_seq)
        if end > after_seq:
            gaps.append((after_seq + 1, end))
        after_seq = min(seq, last_seq)
    return gaps, after_seq


def _direct_row(message: Msg) -> tuple[int, int, bytes, bytes | None, bytes]:
    """A message of a direct batch; what the server put after its own headers is taken off."""
    headers = message.headers
    block = message.header_block
    own = block[: block.rindex(_STREAM_HEADER)]
    return (
        int(headers.get_all(SEQUENCE_HEADER)[-1]),
        parse_time(headers.get_all("Nats-Time-Stamp")[-1]),
        headers.get_all("Nats-Subject")[-1].encode(errors="surrogateescape"),
        own + b"\r\n\r\n" if b"\r\n" in own else None,
        message.data,
    )
