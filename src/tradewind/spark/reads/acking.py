"""Acknowledges what a streaming query has committed, through a durable consumer.

Owns the option `ackConsumer`: a consumer in each stream whose ack floor follows the offsets that
Spark has committed. Every tool can therefore show the lag of the query, and streams that keep
messages until they are acknowledged can remove them. Nothing is read through the consumer, and the
query never depends on it: the checkpoint alone determines where the query continues. After a crash
the consumer may be behind the checkpoint, but is never ahead of it.

Offsets that were planned with a consumer are marked (`mark`). An offset without the mark is where
the consumer joins the query: at its start, or because the option was added to an existing
checkpoint. It is unknown what was read before, so nothing before that offset is acknowledged.

- In a stream with limits the floor is set, by one request (CONSUMER.RESET, from 2.14 on).
- A work queue or an interest stream frees only messages that were delivered and acknowledged. They
  are pulled, without their payload, and acknowledged up to the committed sequence.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from tradewind.api.times import parse_time
from tradewind.client.api_errors import (
    ConsumerNotFoundError,
    JetStreamApiError,
    NoMessageFoundError,
    StreamNotFoundError,
)
from tradewind.client.errors import PermissionsError
from tradewind.spark.connections.kept_connections import KeptConnection
from tradewind.spark.connections.patience import passes
from tradewind.spark.errors import OptionError
from tradewind.spark.providers.network import ReadAddress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg
    from tradewind.client.streams.consumers import Consumer
    from tradewind.spark.options.source_options import SourceOptions

OPTION: Final = "ackConsumer"
# This many messages are on their way at most.
FETCH_MAX: Final = 5000
FETCH_SECONDS: Final = 10.0
# How long a consumer may take to count what its stream has stored.
COUNT_SECONDS: Final = 2.0
# Messages that a consumer holds back are asked for again after this.
AGAIN_SECONDS: Final = 10.0
RESET_VERSION: Final = (2, 14)
LIMITS: Final = "limits"
WORK_QUEUE: Final = "workqueue"
EXPLICIT: Final = "explicit"
ACK_POLICIES: Final = ("all", EXPLICIT)


@dataclass(slots=True)
class _Floor:
    """How far the consumer of one stream has come, as far as this query knows."""

    created_ns: int
    seq: int
    is_limits: bool
    # The last attempt, and when it may be tried again if the consumer has not come so far.
    tried_seq: int = 0
    again_at: float = 0.0

    def is_done(self, seq: int) -> bool:
        """Whether there is nothing to do for a sequence, at least for now."""
        if self.seq >= seq:
            return True
        return self.tried_seq >= seq and time.monotonic() < self.again_at


class Acknowledger:
    """The consumers of one query, one of the same name in each stream."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._name = options.ack_consumer
        self._kept = KeptConnection(ReadAddress(options))
        self._floors: dict[str, _Floor] = {}

    @property
    def mark(self) -> dict[str, int]:
        """The mark in an offset; another consumer has another one."""
        return {"acks": crc32(self._name.encode())}

    def has_mark(self, point: Mapping[str, int]) -> bool:
        """Whether this consumer was there when the offset was planned."""
        return self.mark.items() <= point.items()

    def begin(self, stream: str, point: Mapping[str, int]) -> None:
        """The consumer comes to a query that reads a stream after this offset: make sure of it.

        Messages before it that the consumer has still to acknowledge are an error, because they
        would be acknowledged without having been read.
        """
        created_ns = point["created_ns"]
        if not self._is_known(stream, created_ns):

            async def work(connection: Connection) -> None:
                await self._find(connection, stream, created_ns, point["seq"], is_begin=True)

            self._run(stream, work)

    def move(self, offset: Mapping[str, Mapping[str, int]]) -> None:
        """Acknowledge what Spark has committed; what was acknowledged before costs nothing.

        Messages that a consumer holds back are tried again some time later, when Spark asks for
        more. Nothing of an offset without the mark is acknowledged: the consumer was not there.
        """
        for stream, point in offset.items():
            created_ns, seq = point["created_ns"], point["seq"]
            is_done = self._is_known(stream, created_ns) and self._floors[stream].is_done(seq)
            if self.has_mark(point) and not is_done:
                self._move(stream, created_ns, seq)

    def _is_known(self, stream: str, created_ns: int) -> bool:
        return stream in self._floors and self._floors[stream].created_ns == created_ns

    def _move(self, stream: str, created_ns: int, seq: int) -> None:
        async def work(connection: Connection) -> None:
            floor = await self._find(connection, stream, created_ns, seq, is_begin=False)
            if floor is None or floor.seq >= seq:
                return
            if floor.is_limits and _can_reset(connection):
                consumers = connection.jetstream_manager().consumers
                await consumers.reset(stream, self._name, seq=seq + 1)
                floor.seq = seq
            else:
                consumer = await connection.jetstream().consumers.get(stream, self._name)
                floor.seq = await acknowledge(connection, consumer, seq)
                floor.tried_seq, floor.again_at = seq, time.monotonic() + AGAIN_SECONDS

        self._run(stream, work)

    def _run(self, stream: str, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Do it over the kept connection; of a stream that is gone there is nothing to do."""
        try:
            self._kept.run(work)
        except StreamNotFoundError:
            return
        except JetStreamApiError as error:
            if passes(error):
                raise
            raise OptionError(OPTION, f"{self._name!r} of stream {stream}: {error}") from error

    async def _find(
        self,
        connection: Connection,
        stream: str,
        created_ns: int,
        after_seq: int,
        *,
        is_begin: bool,
    ) -> _Floor | None:
        """The answer of the server about a consumer, which is made if it is not there.

        None if the stream is another one of the same name: nothing of that was read.
        """
        manager = connection.jetstream_manager()
        place = await manager.streams.info(stream)
        if parse_time(place.created) != created_ns:
            return None
        try:
            info = await manager.consumers.info(stream, self._name)
        except ConsumerNotFoundError:
            config = self._config(place, after_seq, is_begin=is_begin)
            info = await manager.consumers.add(stream, **config)
        self._check(place, info)
        if is_begin:
            self._check_begin(place, info.ack_floor.stream_seq, after_seq)
        is_limits = place.config.retention == LIMITS
        floor = _Floor(created_ns, info.ack_floor.stream_seq, is_limits)
        self._floors[stream] = floor
        return floor

    def _config(self, place: StreamInfo, after_seq: int, *, is_begin: bool) -> dict[str, Any]:
        """The consumer of a stream that has none yet."""
        retention = place.config.retention
        subjects = list(self._options.filter_subjects)
        config: dict[str, Any] = {
            "durable_name": self._name,
            "description": "acknowledges what a query of Spark has committed",
            "ack_policy": EXPLICIT if retention == WORK_QUEUE else "all",
            "max_ack_pending": -1,
            "headers_only": retention != LIMITS,
        }
        if len(subjects) == 1:
            config["filter_subject"] = subjects[0]
        elif subjects:
            config["filter_subjects"] = subjects
        if retention == WORK_QUEUE:
            # The consumer has to deliver all, so it has to be in order from the begin on.
            if is_begin:
                self._check_begin(place, 0, after_seq)
        elif after_seq >= place.state.first_seq:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": after_seq + 1}
        return config

    def _check(self, place: StreamInfo, info: ConsumerInfo) -> None:
        """Whether a consumer can stand for this query."""
        config, stream = info.config, place.config.name
        given = {*config.filter_subjects, config.filter_subject} - {""}
        if given != set(self._options.filter_subjects):
            raise OptionError(
                OPTION,
                f"{self._name!r} of stream {stream} has the subjects {_listed(given)}, but"
                f" filterSubjects is {_listed(self._options.filter_subjects)}",
            )
        if config.deliver_subject:
            raise OptionError(
                OPTION,
                f"{self._name!r} of stream {stream} pushes its messages to"
                f" {config.deliver_subject!r}; use a pull consumer",
            )
        if config.ack_policy not in ACK_POLICIES:
            raise OptionError(
                OPTION,
                f"{self._name!r} of stream {stream} has the ack policy {config.ack_policy}; use"
                f" {' or '.join(ACK_POLICIES)}",
            )

    def _check_begin(self, place: StreamInfo, floor_seq: int, after_seq: int) -> None:
        """Whether everything before the beginning is acknowledged, or gone."""
        first = max(floor_seq + 1, place.state.first_seq)
        if place.state.messages and first <= after_seq:
            raise OptionError(
                OPTION,
                f"{self._name!r} of stream {place.config.name} has unacknowledged messages from"
                f" sequence {first} on, but the query starts after {after_seq}; they would be"
                " acknowledged unread. Start earlier, use another"
                f" consumer, or purge the stream up to sequence {after_seq}",
            )

    def close(self) -> None:
        """Close the connection."""
        self._kept.close()


def _listed(subjects: Any) -> str:
    return ", ".join(sorted(subjects)) or "not given"


def _can_reset(connection: Connection) -> bool:
    parts = connection.info.version.split(".")[:2]
    return all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= RESET_VERSION


async def acknowledge(connection: Connection, consumer: Consumer, seq: int) -> int:
    """Pull what the consumer has up to a sequence, and acknowledge exactly that.

    Returns the sequence that was reached. It is less than `seq` if the consumer is paused, or if
    some of its messages were delivered to another client.
    """
    info = await consumer.info()
    if info.num_ack_pending and _can_reset(connection):
        # A process was killed before it acknowledged; its messages are delivered again at once.
        info = await connection.jetstream_manager().consumers.reset(consumer.stream, consumer.name)
    reached = info.ack_floor.stream_seq
    fetch_max = min(
        FETCH_MAX, info.config.max_ack_pending if info.config.max_ack_pending > 0 else FETCH_MAX
    )
    while reached < seq:
        # No more than there can be, so that none after `seq` is asked for without need.
        batch = await consumer.fetch(
            min(seq - reached, fetch_max), expires=FETCH_SECONDS, no_wait=True
        )
        messages = [message async for message in batch]
        if not messages:
            if not await _is_stored(connection, info, reached, seq):
                return seq
            # nats-server counts a message for its consumers some time after it is stored.
            batch = await consumer.fetch(1, expires=COUNT_SECONDS)
            messages = [message async for message in batch]
        if not messages:
            left = await consumer.info()
            return reached if left.num_pending or left.num_ack_pending else seq
        reached = max(message.metadata.stream_sequence for message in messages)
        await _acknowledge_up_to(messages, seq, each=info.config.ack_policy == EXPLICIT)
    return seq


async def _is_stored(
    connection: Connection, info: ConsumerInfo, after_seq: int, last_seq: int
) -> bool:
    """Whether the stream has messages of the consumer's subjects between two sequences.

    The stream knows, whatever its consumer has counted. A login that may not ask it has to wait.
    """
    streams = connection.jetstream_manager().streams
    for subject in {*info.config.filter_subjects, info.config.filter_subject} - {""} or {">"}:
        try:
            found = await streams.get_message(
                info.stream_name, seq=after_seq + 1, next_by_subject=subject
            )
        except NoMessageFoundError:
            continue
        except PermissionsError:
            return True
        if found.seq <= last_seq:
            return True
    return False


async def _acknowledge_up_to(messages: list[Msg], seq: int, *, each: bool) -> None:
    """Acknowledge messages up to a sequence and give the others back.

    The server has done all of it when it answers the last acknowledgement.
    """
    done = [message for message in messages if message.metadata.stream_sequence <= seq]
    for message in messages:
        if message.metadata.stream_sequence > seq:
            message.nak()
    if done:
        for message in done[:-1] if each else ():
            message.ack()
        await done[-1].ack_sync()
