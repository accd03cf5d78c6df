"""Verifies a stream through its server: pages of entries and the messages, side by side.

Owns reading both with bounded memory, and what happens while it reads: messages that are removed
meanwhile are not missing. A stream with limits is read by an ordered consumer. One whose messages
go when they are acknowledged is read message by message: a consumer would change what it keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tradewind.api.chain import ENTRIES_MAX
from tradewind.api.responses import MsgGetResponse
from tradewind.api.stream_types import RetentionPolicy
from tradewind.api.times import parse_time
from tradewind.chain import checkpoints as heads
from tradewind.chain.chain_entries import MESSAGE, ChainRecord, RecordError, read_records
from tradewind.chain.checkpoints import Checkpoint
from tradewind.chain.offline import COPIES_MAX
from tradewind.chain.passes import ChainPass
from tradewind.chain.proofs import hash_of
from tradewind.chain.signed_heads import SignedHead
from tradewind.chain.verifier import ChainedMessage, ChainVerifier
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.errors import BadAnswerError, OperationTimeoutError, OptionsError

if TYPE_CHECKING:
    from tradewind.chain.report import ChainReport
    from tradewind.client.jetstream import JetStream
    from tradewind.client.streams.ordered import OrderedMessages

BATCH_MESSAGES: Final = 1000
BATCH_BYTES: Final = 8 << 20
# Requests for single messages that are under way at a time.
GETS_MAX: Final = 64


async def verify_stream(
    js: JetStream,
    stream: str,
    *,
    checkpoints: Sequence[Checkpoint | SignedHead] = (),
    keys: Sequence[str] = (),
    origin: JetStream | None = None,
    origin_stream: str = "",
    last: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> ChainReport:
    """See `Chains.verify`."""
    if last < 0:
        raise OptionsError(f"last: 0 or more entries, not {last}")
    is_copy = origin is not None or bool(origin_stream)
    chain = _RemoteChain(origin or js, origin_stream or stream)
    await chain.open(last)
    verifier = ChainVerifier(
        chain.stream,
        chain.created,
        chain.algorithm,
        first_index=chain.first_index,
        before=chain.before,
        signed_heads=iter(chain.signed_heads),
        kept=[_signed_head(one) for one in checkpoints],
        keys=keys,
        is_copy=is_copy,
    )
    joined = ChainPass(verifier, covers_all=False)
    reader = await _open_reader(js, stream)
    if not chain.first_index:
        reader.next_sequence = 1  # what is stored before the first entry is none of the chain
    try:
        while needs := joined.needs:
            if needs == "entries":
                records = await chain.read(joined.next_index)
                if reader.next_sequence == 0:
                    first = next((one.sequence for one in records if one.kind == MESSAGE), 0)
                    reader.next_sequence = first
                joined.take_entries(records)
            else:
                messages, is_last = await reader.read()
                joined.take_messages(messages, is_last=is_last)
            if on_progress is not None:
                on_progress(verifier.size - chain.first_index, chain.size - chain.first_index)
    finally:
        await reader.close()
    for record in await chain.read_late():
        verifier.late(record)
    verifier.finish()
    copies: dict[int, ChainedMessage] = {}
    if is_copy:
        for sequence in verifier.suspicious[:COPIES_MAX]:
            found = await get_exact(chain.js, chain.stream, sequence)
            if found is not None:
                copies[sequence] = found
    report = verifier.conclude(copies)
    if chain.is_broken:
        report.notes.append(f"the server found the chain broken at entry {chain.broken_index}")
    return report


class _RemoteChain:
    """The entries of a chain as it was when the verification began."""

    def __init__(self, js: JetStream, stream: str) -> None:
        self.js = js
        self.stream = stream
        self.first_index = 0
        self.before: bytes | None = None
        self.signed_heads: list[SignedHead] = []

    async def open(self, last: int) -> None:
        """Ask for its head; begin this many entries before its end, 0 for all."""
        info = await self.js.chains.info(self.stream)
        self.created = (await self.js.manager.streams.info(self.stream)).created or ""
        self.algorithm, self.size = info.algorithm, info.size
        self.is_broken, self.broken_index = info.is_broken, info.broken_index
        if info.checkpoint is not None:
            line = heads.encode(info.checkpoint)
            self.signed_heads = [SignedHead("the last checkpoint of the server", line)]
        if last and last < self.size:
            self.first_index = self.size - last
            page = await self.js.chains.entries(self.stream, self.first_index, 1)
            self.before = hash_of(page.before, "before")

    async def read(self, index: int) -> list[ChainRecord]:
        """The entries from `index` on, as many as come; none at the end."""
        if index >= self.size:
            return []
        return (await self._page(index, self.size))[:ENTRIES_MAX]

    async def read_late(self) -> list[ChainRecord]:
        """The entries that were made since, those of messages left out."""
        end = (await self.js.chains.info(self.stream)).size
        index, found = self.size, []
        while index < end:
            page = await self._page(index, end)
            if not page:
                break
            found += [record for record in page if record.kind != MESSAGE]
            index += len(page)
        return found

    async def _page(self, index: int, end: int) -> list[ChainRecord]:
        count = min(end - index, ENTRIES_MAX)
        page = await self.js.chains.entries(self.stream, index, count)
        try:
            records, size = read_records(page.records)
        except RecordError as error:
            raise BadAnswerError(f"entries of {self.stream!r} from {index} on: {error}") from None
        if page.first_index != index or size != len(page.records) or len(records) > count:
            raise BadAnswerError(f"the server's entries are not those from {index} on")
        if not records:
            raise BadAnswerError(f"the server has {end} entries, and sends none from {index} on")
        return records


class _StreamReader:
    """Messages of a stream in order, from `next_sequence` on; set it before the first read."""

    def __init__(self, js: JetStream, stream: str, last_sequence: int) -> None:
        self.js = js
        self.stream = stream
        self.next_sequence = 0
        self._last_sequence = last_sequence

    async def read(self) -> tuple[list[ChainedMessage], bool]:
        """The next messages, and whether those were the last."""
        raise AssertionError("there are two kinds of readers")

    async def close(self) -> None:
        """Leave nothing on the server."""


class _ConsumerReader(_StreamReader):
    """Reads by an ordered consumer: many messages in one request."""

    _messages: OrderedMessages | None = None

    async def read(self) -> tuple[list[ChainedMessage], bool]:
        """See `_StreamReader`."""
        if self._last_sequence < self.next_sequence:
            return [], True
        if self._messages is None:
            consumer = self.js.consumers.ordered(
                self.stream, start_sequence=max(self.next_sequence, 1)
            )
            self._messages = await consumer.consume(BATCH_MESSAGES)
            if not self._messages.info.num_pending:
                return [], True
        found: list[ChainedMessage] = []
        size = 0
        while len(found) < BATCH_MESSAGES and size < BATCH_BYTES:
            try:
                message = await self._messages.next(self.js.api.timeout)
            except OperationTimeoutError:
                # What was still to come may have been removed meanwhile.
                if await self._messages.count_left():
                    raise
                return found, True
            data = message.metadata
            one = ChainedMessage(
                data.stream_sequence,
                data.timestamp_ns,
                message.subject.encode("utf-8", "surrogateescape"),
                message.header_block,
                message.data,
            )
            found.append(one)
            size += len(one.header) + len(one.payload)
            self.next_sequence = one.sequence + 1
            if not data.pending_count or one.sequence >= self._last_sequence:
                return found, True
        return found, False

    async def close(self) -> None:
        """See `_StreamReader`."""
        if self._messages is not None:
            await self._messages.stop()


class _GetReader(_StreamReader):
    """Reads message by message, some at a time, which changes nothing on the server."""

    async def read(self) -> tuple[list[ChainedMessage], bool]:
        """See `_StreamReader`."""
        first = max(self.next_sequence, 1)
        if first > self._last_sequence:
            return [], True
        end = min(first + GETS_MAX, self._last_sequence + 1)
        answers = await asyncio.gather(
            *(get_exact(self.js, self.stream, sequence) for sequence in range(first, end))
        )
        found = [message for message in answers if message is not None]
        self.next_sequence = end
        if not found and end <= self._last_sequence:
            nearest = await get_exact(self.js, self.stream, end, is_next=True)
            if nearest is None:
                return [], True
            found = [nearest]
            self.next_sequence = nearest.sequence + 1
        return found, self.next_sequence > self._last_sequence


async def _open_reader(js: JetStream, stream: str) -> _StreamReader:
    info = await js.manager.streams.info(stream)
    is_limits = info.config.retention is RetentionPolicy.LIMITS
    return (_ConsumerReader if is_limits else _GetReader)(js, stream, info.state.last_seq)


async def get_exact(
    js: JetStream, stream: str, sequence: int, *, is_next: bool = False
) -> ChainedMessage | None:
    """A message byte for byte as it is stored, or the next one from a sequence on; None if none."""
    body: dict[str, object] = {"seq": sequence}
    if is_next:
        body["next_by_subj"] = ">"
    try:
        answer = await js.api.call(MsgGetResponse, "stream_msg_get", stream, body=body)
    except NoMessageFoundError:
        return None
    found = answer.message
    if found is None:
        raise BadAnswerError(f"message {sequence} of {stream!r}: the response contains none")
    return ChainedMessage(
        found.seq,
        parse_time(found.time),
        found.subject.encode("utf-8", "surrogateescape"),
        found.hdrs or b"",
        found.data,
    )


def _signed_head(one: Checkpoint | SignedHead) -> SignedHead:
    if isinstance(one, Checkpoint):
        return SignedHead("the checkpoint that was kept", heads.encode(one))
    return one
