"""The lag of a query, in messages and in seconds.

Owns the requests. The lag in seconds is the age of the first unread message, so a query that has
read everything has a lag of 0, however quiet the stream is. Deleted messages count as read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tradewind.client.api_errors import JetStreamApiError, NoMessageFoundError
from tradewind.client.errors import ClientError
from tradewind.errors import TradewindError
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.spark.errors import OptionError
from tradewind.spark.progress.stream_lag import StreamLag

if TYPE_CHECKING:
    from tradewind.spark.contract.provider_contract import GrowingProvider
    from tradewind.sync import Connection

AGAIN_SECONDS: Final = 30.0


class ServerLag:
    """Asks a server, over a connection that is kept."""

    def __init__(self, address: PipelineAddress) -> None:
        self._address = address
        self._connection: Connection | None = None
        self.problem = ""  # why the last measurement got no answer

    def measure(self, offsets: Mapping[str, int]) -> list[StreamLag]:
        """The lag of each stream that was read up to a sequence; unknown if no server answers."""
        found = [StreamLag(name, seq) for name, seq in sorted(offsets.items())]
        try:
            if self._connection is None:
                self._connection = self._address.connect()
            streams = self._connection.jetstream_manager().streams
            for lag in found:
                with suppress(JetStreamApiError):
                    state = streams.info(lag.stream).state
                    lag.last_seq, lag.gaps = state.last_seq, state.num_deleted
                    self._next(streams, lag)
                    assert lag.messages is not None
                    lag.bytes = state.bytes * lag.messages // max(state.messages, 1)
            self.problem = ""
        except (ClientError, OptionError, OSError) as error:
            self.problem = f"the server does not answer ({error}); the queries wait for it"
            self.close()
        return found

    def _next(self, streams: Any, lag: StreamLag) -> None:
        assert lag.last_seq is not None
        lag.messages, lag.seconds = max(lag.last_seq - lag.seq, 0), 0.0
        if not lag.messages:
            return
        try:
            message = streams.get_message(lag.stream, seq=lag.seq + 1, next_by_subject=">")
        except NoMessageFoundError:
            lag.messages = 0
            return
        lag.messages = lag.last_seq - message.seq + 1
        lag.seconds = _age(message.time_ns)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(ClientError, OSError):
                self._connection.close()
            self._connection = None


class TargetSeq:
    """Asks for the last sequence of a stream that is written, over a connection that stays open.

    After a failure it asks again only after `AGAIN_SECONDS`, so that the query is not held up.
    """

    def __init__(self, address: PipelineAddress, stream: str) -> None:
        self._address = address
        self._stream = stream
        self._connection: Connection | None = None
        self._due = 0.0

    def measure(self) -> int | None:
        """The last sequence; None if the server does not answer, or did not a short time ago."""
        if time.monotonic() < self._due:
            return None
        try:
            if self._connection is None:
                self._connection = self._address.connect()
            return self._connection.jetstream_manager().streams.info(self._stream).state.last_seq
        except (ClientError, OptionError, OSError):
            self._due = time.monotonic() + AGAIN_SECONDS
            self.close()
            return None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(ClientError, OSError):
                self._connection.close()
            self._connection = None


class StoreLag:
    """Looks into the files of a store."""

    problem = ""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def measure(self, offsets: Mapping[str, int]) -> list[StreamLag]:
        """See `ServerLag`."""
        from tradewind.spark.options.source_options import parse_options
        from tradewind.spark.providers.provider_choice import open_growing

        found = [StreamLag(name, seq) for name, seq in sorted(offsets.items())]
        try:
            provider: GrowingProvider = open_growing(parse_options(self._options))
            states = {state.name: state for state in provider.states()}
            for lag in found:
                if lag.stream not in states:
                    continue
                state = states[lag.stream]
                lag.last_seq = state.last_seq
                lag.messages, lag.seconds, lag.bytes = max(state.last_seq - lag.seq, 0), 0.0, 0
                if state.messages is not None:
                    lag.gaps = max(state.last_seq - state.first_seq + 1 - state.messages, 0)
                if lag.messages:
                    lag.bytes = provider.bytes_behind(lag.stream, lag.seq)
                    waiting_ns = provider.time_behind(lag.stream, lag.seq)
                    lag.seconds = 0.0 if waiting_ns is None else _age(waiting_ns)
            provider.close()
        except (TradewindError, OSError):
            return [StreamLag(name, seq) for name, seq in sorted(offsets.items())]
        return found

    def close(self) -> None:
        """Nothing is open between two calls."""


def _age(time_ns: int) -> float:
    return max((time.time_ns() - time_ns) / 1e9, 0.0)
