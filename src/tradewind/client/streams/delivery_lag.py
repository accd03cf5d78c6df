"""How far a consumer is behind its stream, in messages and in seconds.

Owns the requests: at most one per filter for the oldest unacknowledged message, and one for
the next that is not delivered. It works with any server, and needs no consumer of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.client.streams.manager import StoredMsg, Streams

# The age of a consumer with more filters is not determined.
FILTERS_MAX: Final = 8
# Of many consumers, so many are asked about, so many at a time.
CONSUMERS_MAX: Final = 256
AT_ONCE: Final = 8


class DeliveryLag(msgspec.Struct, frozen=True):
    """The lag of a consumer: messages to deliver, messages that are not acknowledged, and the ages
    in seconds of the first of each. An age is None if no message waits, or if it is not known.
    """

    undelivered: int = 0
    unacknowledged: int = 0
    undelivered_seconds: float | None = None
    unacknowledged_seconds: float | None = None

    @property
    def messages(self) -> int:
        """The messages that the consumer is not done with."""
        return self.undelivered + self.unacknowledged

    @property
    def seconds(self) -> float | None:
        """The age of the oldest of them; 0 if there is none, None if it is not known."""
        ages = [self.undelivered_seconds, self.unacknowledged_seconds]
        known = [age for age in ages if age is not None]
        if known:
            return max(known)
        return None if self.messages else 0.0


async def lag_of(streams: Streams, info: ConsumerInfo) -> DeliveryLag:
    """The lag of a consumer; ages that cannot be asked for are None."""
    now_ns = _now_ns(info)
    oldest, following = await asyncio.gather(
        _first(streams, info, info.ack_floor.stream_seq + 1, wanted=info.num_ack_pending),
        _first(streams, info, info.delivered.stream_seq + 1, wanted=info.num_pending),
    )
    return DeliveryLag(
        info.num_pending, info.num_ack_pending, _age(following, now_ns), _age(oldest, now_ns)
    )


async def lags_of(streams: Streams, infos: Sequence[ConsumerInfo]) -> Mapping[str, DeliveryLag]:
    """The lags of consumers of one stream, by name; of the first ones if there are very many."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(info: ConsumerInfo) -> DeliveryLag:
        async with gate:
            return await lag_of(streams, info)

    asked = infos[:CONSUMERS_MAX]
    found = await asyncio.gather(*(one(info) for info in asked))
    return {info.name: lag for info, lag in zip(asked, found, strict=True)}


async def _first(
    streams: Streams, info: ConsumerInfo, start: int, *, wanted: int
) -> StoredMsg | None:
    """The first message of a consumer's filters from a sequence on."""
    config = info.config
    filters = [config.filter_subject] if config.filter_subject else config.filter_subjects or [">"]
    if not wanted or len(filters) > FILTERS_MAX:
        return None
    found = []
    for pattern in filters:
        try:
            found.append(
                await streams.get_message(info.stream_name, seq=start, next_by_subject=pattern)
            )
        except NoMessageFoundError:
            continue
        except TradewindError:
            return None  # without permission or leader the age is not known
    return min(found, key=lambda message: message.seq, default=None)


def _now_ns(info: ConsumerInfo) -> int:
    """The time of the server, with which it stamps messages, as far as it says so."""
    if not info.ts or info.ts == ZERO_TIME:
        return time.time_ns()
    try:
        return parse_time(info.ts)
    except ValueError:
        return time.time_ns()


def _age(message: StoredMsg | None, now_ns: int) -> float | None:
    return None if message is None else max((now_ns - message.time_ns) / SECOND_NS, 0.0)
