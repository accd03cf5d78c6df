"""How many messages a server has in ranges of sequences.

Owns the counts that a read is planned with if a stream has too many gaps to name them. A server
counts what is pending from a sequence on, in its own index: a consumer that is made there knows it,
and so does the first message of a direct batch, where a consumer would change what the stream
keeps. Never reads more than one message for it.

Counts from several answers fit together only if nothing was removed between them, so that is asked
too. Messages that are published meanwhile make a count too low, never too high.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import OperationTimeoutError
from tradewind.spark.connections.patience import passes
from tradewind.spark.providers.proof import removed_count

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg

# Each takes a request.
SEQUENCES_MAX: Final = 1000
ATTEMPTS_MAX: Final = 5
ANSWER_SECONDS: Final = 5.0
PENDING_HEADER: Final = "Nats-Num-Pending"
_Run = Callable[[Callable[["Connection"], Awaitable[Any]]], Any]
_Question = Callable[["Connection", int], Awaitable["int | None"]]


class RangeCounts:
    """Counts messages, and remembers the counts of the last answer about each stream."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._known: dict[str, tuple[StreamInfo, dict[tuple[str, ...], dict[int, int | None]]]] = {}

    def of(
        self,
        info: StreamInfo,
        filters: tuple[str, ...],
        bounds: Sequence[tuple[int, int]],
        from_seq: int,
    ) -> list[int | None]:
        """The messages of some subjects in each range from `from_seq` on; None: not known."""
        seqs = sorted({seq for first, last in bounds for seq in (first, last + 1)})
        if len(seqs) > SEQUENCES_MAX:
            return [None] * len(bounds)
        name = info.config.name
        known = self._known.get(name)
        if known is None or known[0] is not info:
            known = self._known[name] = (info, {})
        pending = known[1].setdefault(filters, {})
        if not pending.keys() >= set(seqs):
            asked = [max(seq, from_seq) for seq in seqs]
            answers = self._run(lambda connection: _pending(connection, info, filters, asked))
            pending.update(zip(seqs, answers, strict=True))
        result: list[int | None] = []
        for first, last in bounds:
            low, high = pending[first], pending[last + 1]
            result.append(None if low is None or high is None else max(low - high, 0))
        return result


async def _pending(
    connection: Connection, info: StreamInfo, filters: tuple[str, ...], seqs: Sequence[int]
) -> list[int | None]:
    """How many messages there are from each sequence on; the lower ones are asked for first."""
    ask = _question(info, filters)
    streams = connection.jetstream_manager().streams
    for _ in range(ATTEMPTS_MAX):
        before = removed_count((await streams.info(info.config.name)).state)
        found = [await ask(connection, seq) for seq in seqs]
        if removed_count((await streams.info(info.config.name)).state) == before:
            return found
    return [None] * len(seqs)


def _question(info: StreamInfo, filters: tuple[str, ...]) -> _Question:
    name = info.config.name
    if info.config.retention == "limits":
        return lambda connection, seq: _by_consumer(connection, name, filters, seq)
    if info.config.allow_direct:
        return lambda connection, seq: _by_direct(connection, name, seq)
    return _unknown


async def _unknown(connection: Connection, seq: int) -> int | None:
    del connection, seq
    return None


async def _by_consumer(
    connection: Connection, stream: str, filters: tuple[str, ...], seq: int
) -> int | None:
    consumer = connection.jetstream().consumers.ordered(
        stream, start_sequence=seq, filter_subjects=filters, headers_only=True
    )
    try:
        messages = await consumer.consume(1)
    except JetStreamApiError as error:
        if passes(error):
            raise
        return None  # a task will do without the filter, and so has another count
    pending: int = messages.info.num_pending
    await messages.stop()
    return pending


async def _by_direct(connection: Connection, stream: str, seq: int) -> int | None:
    statuses: list[int] = []

    def is_end(message: Msg) -> bool:
        if message.status:
            statuses.append(message.status)
        return bool(statuses)

    body = msgspec.json.encode({"seq": seq, "batch": 1, "next_by_subj": ">"})
    subject = f"{connection.jetstream_manager().api.prefix}DIRECT.GET.{stream}"
    found = [
        message
        async for message in connection.request_many(
            subject, body, timeout=ANSWER_SECONDS, stall=ANSWER_SECONDS, sentinel=is_end
        )
        if not message.status
    ]
    if not found and not statuses:
        raise OperationTimeoutError(f"stream {stream}: no answer to a direct request from {seq} on")
    if not found:
        return 0
    left = found[0].headers.get_all(PENDING_HEADER)
    return int(left[-1]) + 1 if left else None
