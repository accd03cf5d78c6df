"""Batches of a stream as its messages come.

Owns an ordered consumer that never ends, and the check that the stream stays the same one: after
each interruption it is asked for when it was made, before any row is given.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.blocking import with_blocking
from tradewind.client.errors import OperationTimeoutError
from tradewind.decoding.decoder_contract import RESCUED_COLUMN
from tradewind.decoding.decoder_registry import INFER, NO_CONTEXT, open_decoder
from tradewind.frames.frame_columns import (
    REASON_COLUMN,
    ChosenColumns,
    DecodedColumns,
    FrameColumns,
    PlainColumns,
)
from tradewind.frames.schema_buckets import stream_context
from tradewind.spark.columnar.arrow import batches
from tradewind.spark.columnar.columns import MESSAGES
from tradewind.spark.connections.patience import patiently
from tradewind.spark.contract.data_loss import LossRule
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.errors import OptionError
from tradewind.spark.providers.proof import head_of

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.jetstream import JetStream
    from tradewind.client.streams.ordered import OrderedMessages
    from tradewind.client.streams.packed import PackedMessages
    from tradewind.spark.columnar.rows import RowDecoder

# After so long without a message the stream is looked at, if its consumer is another one.
LOOK_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 30.0


def follow(
    js: Any,
    name: str,
    *,
    start: str | int | datetime = "all",
    subjects: str | Iterable[str] = (),
    columns: Iterable[str] = (),
    decode: str = "",
    schema: str | Mapping[str, str] = INFER,
    fails_on_data_loss: bool = True,
    messages_max: int = 8192,
) -> Any:
    """Batches of Arrow with the messages of a stream, without end: those it has, then new ones.

    `start` is "all", "new", a sequence or a time. A batch has what has arrived, at most about
    `messages_max`. With `decode` the fields are those of `schema`, or else those of the first
    batch; what other payloads have is in `_rescued`. DataLossError if messages were removed before
    they were read, or the stream was recreated; with `fails_on_data_loss=False` that is logged. A
    blocking iterator if `js` is of `tradewind.sync`.

    >>> async for batch in frames.follow(js, "ORDERS", start="new"):
    ...     print(batch.num_rows)
    """
    wanted = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)
    follower = FrameFollower(name, start, wanted, chosen, decode, schema, fails_on_data_loss)
    return with_blocking(follower.batches, js, messages_max)


class FrameFollower:
    """One follower of a stream."""

    def __init__(
        self,
        stream: str,
        start: str | int | datetime,
        subjects: tuple[str, ...],
        columns: tuple[str, ...],
        decode: str,
        schema: str | Mapping[str, str],
        fails: bool,  # noqa: FBT001
    ) -> None:
        is_place = start in ("all", "new") or isinstance(start, datetime)
        if not is_place and (type(start) is not int or start < 1):
            raise OptionError("start", f"{start!r} is not all, new, a sequence or a time")
        self._stream = stream
        self._start = start
        self._subjects = subjects
        self._chosen = columns
        self._decode = decode
        self._schema = schema
        self._columns: FrameColumns | None = None if decode else self._chosen_of(None)
        self._rule = LossRule(
            stream,
            fails=fails,
            forgives_head=False,
            is_replaced=False,
            is_proved=True,
            used_by="frames",
            avoidance=("raise the limits of the stream",),
        )
        self._after_seq = 0
        self._context = NO_CONTEXT

    async def batches(self, js: JetStream, messages_max: int) -> AsyncIterator[pa.RecordBatch]:
        """The batches; the consumer is removed when they are no longer wanted."""
        info = await patiently(lambda: js.manager.streams.info(self._stream), TIMEOUT_SECONDS)
        self._check_stream(info)
        self._context = await stream_context(js, [self._stream], self._schema)
        patterns = tuple(subject.encode() for subject in self._subjects)
        decoder = RowFilter(patterns=(patterns,) if patterns else ()).decoder()
        messages = await self._consume(js, info, messages_max)
        try:
            async with aclosing(self._chunks(js, info, messages)) as chunks:
                async for chunk in chunks:
                    await self._check_gaps(js, chunk, decoder)
                    decoder.take_packed(chunk)
                    for batch in self._made(decoder):
                        yield batch
                    decoder.clear()
        finally:
            await messages.stop()

    def _check_stream(self, info: StreamInfo) -> None:
        if info.config.retention != "limits":
            raise OptionError(
                "name",
                f"{self._stream} has retention {info.config.retention}: a consumer would change"
                " what it keeps; follow a stream that sources it",
            )
        kept_per_subject = max(info.config.max_msgs_per_subject, 0)
        replaces = kept_per_subject > 0 and not info.config.discard_new_per_subject
        rule = self._rule
        self._rule = LossRule(
            rule.stream,
            rule.fails,
            rule.forgives_head,
            replaces,
            rule.is_proved,
            rule.used_by,
            rule.avoidance,
        )

    async def _consume(self, js: JetStream, info: StreamInfo, messages_max: int) -> OrderedMessages:
        state, start = info.state, self._start
        settings: dict[str, Any] = {"filter_subjects": self._subjects}
        if start == "new":
            settings["start_sequence"] = state.last_seq + 1
        elif isinstance(start, datetime):
            settings["start_time"] = start
        elif isinstance(start, int):
            settings["start_sequence"] = start
        consumer = js.consumers.ordered(self._stream, **settings)
        messages = await consumer.consume(messages_max)
        messages.pack()
        # The sequence that was named is expected; earlier ones are not wanted.
        begin = messages.info.delivered.stream_seq
        self._after_seq = start - 1 if isinstance(start, int) else begin
        return messages

    async def _chunks(
        self, js: JetStream, info: StreamInfo, messages: OrderedMessages
    ) -> AsyncGenerator[PackedMessages, None]:
        """The messages as they come, as long as the stream is the same one."""
        name = messages.consumer_name
        while True:
            chunk: PackedMessages | None = None
            try:
                chunk = await messages.next_packed(LOOK_SECONDS)
            except OperationTimeoutError:
                pass
            except StreamNotFoundError:
                self._rule.lost(f"stream {self._stream} was deleted while it was followed")
                return
            if messages.consumer_name != name:
                name = messages.consumer_name
                if not await self._is_same(js, info):
                    return
            if chunk is not None:
                yield chunk

    async def _is_same(self, js: JetStream, info: StreamInfo) -> bool:
        """Whether the stream is the one that was followed so far."""
        try:
            now = await patiently(lambda: js.manager.streams.info(self._stream), TIMEOUT_SECONDS)
        except StreamNotFoundError:
            self._rule.lost(f"stream {self._stream} was deleted while it was followed")
            return False
        if now.created != info.created:
            self._rule.lost(
                f"stream {self._stream} was deleted and recreated while it was followed"
            )
            return False
        return True

    async def _check_gaps(self, js: JetStream, chunk: PackedMessages, decoder: RowDecoder) -> None:
        """Check that what is missing was removed from the middle of the stream, not by its limits.

        A consumer with subjects leaves messages out, so that nothing is known of gaps.
        """
        after_seq, self._after_seq = self._after_seq, chunk.last_seq
        if self._subjects or not after_seq:
            return
        gaps, _ = decoder.gaps_in(chunk, after_seq)
        if gaps:
            info = await patiently(lambda: js.manager.streams.info(self._stream), TIMEOUT_SECONDS)
            first = min(head_of(info.state), gaps[0][1] + 1)
            self._rule.check_begin(gaps[0][0] - 1, first)

    def _made(self, decoder: RowDecoder) -> Iterable[pa.RecordBatch]:
        found = list(batches(decoder, self._stream, list(MESSAGES)))
        if self._columns is None and found:
            self._columns = self._chosen_of(found[0])
        for batch in found:
            assert self._columns is not None
            yield self._columns.made(batch, self._columns.schema.names)

    def _chosen_of(self, first: pa.RecordBatch | None) -> FrameColumns:
        """The columns that are given; those of payloads as the first batch has them."""
        made: FrameColumns = PlainColumns(MESSAGES)
        if first is not None:
            reserved = (*MESSAGES, RESCUED_COLUMN, REASON_COLUMN)
            decoder = open_decoder(
                self._decode, self._schema, reserved=reserved, widens=True, context=self._context
            )
            fields = decoder.fields(first.column("data"), pa.schema([]))
            made = DecodedColumns(MESSAGES, "data", decoder, fields)
        return ChosenColumns(made, self._chosen) if self._chosen else made
