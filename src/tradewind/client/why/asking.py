"""Requests from a server what an explanation needs, and no more.

Owns the requests and their limits. It works with any server: facts that a server does not provide,
or that the login may not see, are left out of the explanation.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from tradewind.api.dead_letter_rules import dead_letters_of
from tradewind.api.order_rules import OrderError, order_of
from tradewind.api.stream_types import DiscardPolicy, RetentionPolicy
from tradewind.client.api_errors import NoMessageFoundError, StreamNotFoundError
from tradewind.client.errors import OptionsError
from tradewind.client.why.consumer_reasons import Knowledge, Oldest, explain, filter_subjects
from tradewind.client.why.stream_reasons import StreamKnowledge, explain_stream
from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.api.responses import AccountInfo
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.streams.manager import JetStreamManager, StoredMsg
    from tradewind.client.why.reasons import Reason

# A consumer with more filters is not looked at filter by filter.
FILTERS_ASKED: Final = 8
# Of the consumers of a stream this many are looked at.
CONSUMERS_ASKED: Final = 256
# How long is looked whether something moves.
LOOK_SECONDS: Final = 1.0


class Why:
    """Why something does not move, in one sentence. Made by `JetStream.why`.

    >>> reason = await js.why.consumer("ORDERS", "packer")
    >>> print(reason.text, reason.command)
    """

    def __init__(self, manager: JetStreamManager) -> None:
        self._manager = manager

    async def consumer(
        self, stream: str, consumer: str, *, seconds: float = LOOK_SECONDS
    ) -> Reason:
        """Explain why a consumer delivers nothing, or report that it does; observes it for some
        seconds.
        """
        _check_seconds(seconds)
        consumers = self._manager.consumers
        before = await consumers.info(stream, consumer)
        started = time.monotonic()
        await asyncio.sleep(seconds)
        info = await consumers.info(stream, consumer)
        passed = max(time.monotonic() - started, 1e-6)
        delivered = info.delivered.consumer_seq - before.delivered.consumer_seq
        acked = info.ack_floor.consumer_seq - before.ack_floor.consumer_seq
        messages = None
        with suppress(TradewindError):
            messages = (await self._manager.streams.info(stream)).state.messages
        rates = (max(delivered, 0) / passed, max(acked, 0) / passed)
        return explain(await consumer_knowledge(self._manager, info, rates, messages))

    async def stream(
        self, stream: str, *, subject: str = "", seconds: float = LOOK_SECONDS
    ) -> Reason:
        """Explain why a stream stores nothing or keeps everything; `subject` is the one published
        to.
        """
        _check_seconds(seconds)
        if subject and not is_valid_literal(subject):
            raise OptionsError(f"subject: one without wildcards, not {subject!r}")
        before = await self._manager.streams.info(stream)
        started = time.monotonic()
        await asyncio.sleep(seconds)
        info = await self._manager.streams.info(stream)
        passed = max(time.monotonic() - started, 1e-6)
        rate = max(info.state.last_seq - before.state.last_seq, 0) / passed
        return explain_stream(await stream_knowledge(self._manager, info, rate, subject))


def _check_seconds(seconds: float) -> None:
    if not 0 <= seconds <= 3600:
        raise OptionsError(f"seconds: from 0 to 3600, not {seconds}")


# ---------------------------------------------------------------------- consumers


async def consumer_knowledge(
    manager: JetStreamManager,
    info: ConsumerInfo,
    rates: tuple[float | None, float | None],
    stream_messages: int | None,
    clients: Sequence[str] | None = None,
) -> Knowledge:
    """The facts that the reason depends on; the server is asked only for those that matter."""
    oldest, matches = None, None
    # The sentence is still right without what cannot be asked.
    with suppress(TradewindError):
        if info.num_ack_pending:
            oldest = await _oldest(manager, info)
        elif not info.num_pending and filter_subjects(info) != [">"]:
            matches = await _matches(manager, info)
    problem, stream = "", ""
    with suppress(TradewindError):
        if info.num_ack_pending and (letters := dead_letters_of(info.config.metadata)) is not None:
            stream = letters.stream
            problem = await _target_problem(manager, stream)
    return Knowledge(info, *rates, oldest, matches, stream_messages, clients, problem, stream)


async def _target_problem(manager: JetStreamManager, stream: str) -> str:
    """Why a stream takes no dead letters, as far as it tells; empty: it does."""
    try:
        info = await manager.streams.info(stream)
    except StreamNotFoundError:
        return f"there is no stream {stream}"
    config, state = info.config, info.state
    if config.sealed:
        return f"stream {stream} is sealed"
    is_full = 0 < config.max_msgs <= state.messages or 0 < config.max_bytes <= state.bytes
    if config.discard is DiscardPolicy.NEW and is_full:
        return f"stream {stream} is full and discards new messages"
    return ""


async def _next(manager: JetStreamManager, info: ConsumerInfo, start: int) -> StoredMsg | None:
    """The first message from sequence `start` on that passes the consumer's filters."""
    found: list[StoredMsg] = []
    for pattern in filter_subjects(info)[:FILTERS_ASKED]:
        with suppress(NoMessageFoundError):
            message = await manager.streams.get_message(
                info.stream_name, seq=start, next_by_subject=pattern
            )
            found.append(message)
    return min(found, key=lambda message: message.seq, default=None)


async def _oldest(manager: JetStreamManager, info: ConsumerInfo) -> Oldest | None:
    message = await _next(manager, info, info.ack_floor.stream_seq + 1)
    if message is None:
        return None
    age = max((time.time_ns() - message.time_ns) / SECOND_NS, 0.0)
    try:
        order = order_of(info.config.metadata)
    except OrderError:  # nats-server keeps any text
        order = None
    key = order.key_of(message.subject, message.headers) if order is not None else ""
    return Oldest(message.seq, age, key, order.part if order is not None else "")


async def _matches(manager: JetStreamManager, info: ConsumerInfo) -> bool | None:
    if len(filter_subjects(info)) > FILTERS_ASKED:
        return None
    return await _next(manager, info, 1) is not None


# ---------------------------------------------------------------------- streams


async def stream_knowledge(
    manager: JetStreamManager, info: StreamInfo, stored_rate: float | None = None, subject: str = ""
) -> StreamKnowledge:
    """The facts that the reason for the state of a stream depends on."""
    config = info.config
    consumers: list[ConsumerInfo] = []
    account: AccountInfo | None = None
    stored_by: list[str] | None = None
    subject_messages: int | None = None
    if config.retention is not RetentionPolicy.LIMITS and info.state.consumer_count:
        with suppress(TradewindError):
            async for each in manager.consumers.list(config.name):
                consumers.append(each)
                if len(consumers) >= CONSUMERS_ASKED:
                    break
    with suppress(TradewindError):
        account = await manager.account_info()
    if subject:
        with suppress(TradewindError):
            stored_by = await manager.streams.names(subject).all()
        with suppress(TradewindError):
            known = await manager.streams.info(config.name, subjects_filter=subject)
            subject_messages = known.state.subjects.get(subject, 0)
    return StreamKnowledge(
        info,
        time.time_ns(),
        subject,
        stored_by,
        subject_messages,
        list(islice(consumers, CONSUMERS_ASKED)),
        info.state.consumer_count,
        account,
        stored_rate,
    )
