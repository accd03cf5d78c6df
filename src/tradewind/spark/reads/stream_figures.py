"""Figures of a stream that are known without reading it: message count, first and last sequence.

Owns deciding when these are exactly what a read would find, and never returns them otherwise. If
the message of the last sequence is deleted, the last existing one is looked up; messages are never
read one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tradewind.client.api_errors import NoMessageFoundError
from tradewind.spark.providers.blocks import BlocksProvider
from tradewind.spark.providers.proof import DELETED_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.api.stream_types import StreamInfo
    from tradewind.spark.options.source_options import SourceOptions
    from tradewind.sync import Connection


@dataclass(frozen=True, slots=True)
class Figures:
    """All messages of a stream at one moment; both sequences are None if there are none.

    `last_seq` is None too if it is not known: see `has_last`.
    """

    messages: int
    first_seq: int | None
    last_seq: int | None

    @property
    def has_last(self) -> bool:
        """Whether the last sequence is known, or known not to exist."""
        return self.last_seq is not None or not self.messages

    def ending_seq(self, count: int, span_end: int) -> int:
        """A sequence that this many messages do not go beyond; `span_end` is the stream's end."""
        if self.first_seq is None:
            return span_end
        holes = span_end - self.first_seq + 1 - self.messages
        return min(self.first_seq + count - 1 + holes, span_end)


def server_figures(info: StreamInfo) -> Figures:
    """The figures in an answer of the server; the last sequence only if none is missing inside."""
    state = info.state
    if not state.messages:
        return Figures(0, None, None)
    is_whole = state.messages == state.last_seq - state.first_seq + 1
    return Figures(state.messages, state.first_seq, state.last_seq if is_whole else None)


def ask_figures(connection: Connection, name: str) -> Figures:
    """The same with a last sequence whose message is there, if it can be found by asking."""
    streams = connection.jetstream_manager().streams
    info = streams.info(name)
    found = server_figures(info)
    if found.has_last:
        return found
    state = info.state
    try:
        streams.get_message(name, seq=state.last_seq)
    except NoMessageFoundError:
        pass
    else:
        # The message is there now, and so it was when the server counted.
        return Figures(state.messages, state.first_seq, state.last_seq)
    if state.num_deleted > DELETED_MAX:
        return found
    info = streams.info(name, deleted_details=True)
    state = info.state
    if not state.messages:
        return Figures(0, None, None)
    last_seq = last_left(state.first_seq, state.last_seq, state.deleted or ())
    return Figures(state.messages, state.first_seq, last_seq)


def last_left(first_seq: int, last_seq: int, deleted: Sequence[int]) -> int | None:
    """The highest sequence that is not among these, which are in order; None if all are."""
    while last_seq >= first_seq:
        place = bisect_left(deleted, last_seq)
        if place == len(deleted) or deleted[place] != last_seq:
            return last_seq
        # The run of deleted sequences that ends here.
        low, high = 0, place
        while low < high:
            middle = (low + high) // 2
            if deleted[middle] - middle == last_seq - place:
                high = middle
            else:
                low = middle + 1
        last_seq = deleted[low] - 1
    return None


def store_figures(options: SourceOptions) -> tuple[Figures, int] | None:
    """The figures of one stream in a store folder, with its end; None if only a read can show."""
    provider = BlocksProvider(options)
    (name,) = options.stream
    state = provider.counted(name)
    if state is None:
        return None
    messages, first_seq, last_seq, has_last = state
    if not messages:
        return Figures(0, None, None), last_seq
    return Figures(messages, first_seq, last_seq if has_last else None), last_seq
