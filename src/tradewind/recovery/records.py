"""The records at the standby about an origin that may be lost: its configuration and consumers.

Owns the stream `TRADEWIND_RECOVERY` at the standby, one message per stream and one per consumer,
written only when they have changed. A record is as old as the last `record`: messages that a
consumer has acknowledged since are delivered again after the loss of the origin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tradewind.client.api_errors import NoMessageFoundError, StreamNotFoundError
from tradewind.recovery.recovery_errors import RecoveryError
from tradewind.recovery.sides import KnownConsumer, StreamSide, known_consumer

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.sync import Connection, Streams

RECORDS: Final = "TRADEWIND_RECOVERY"
_STREAM: Final = "tradewind.recovery.record.stream.{}"
_CONSUMER: Final = "tradewind.recovery.record.consumer.{}.{}"
_ALL: Final = "tradewind.recovery.record.>"


AnyRecord = TypeVar("AnyRecord", bound=msgspec.Struct)


class StreamRecord(msgspec.Struct, kw_only=True):
    """An origin as it was last seen. `seen_ns` is by the clock of the observer."""

    stream: str
    origin: str
    seen_ns: int
    last_seq: int
    config: dict[str, Any]


class Records:
    """The records at a standby."""

    def __init__(self, standby: Connection) -> None:
        self._standby = standby
        # The records last written or read, so that unchanged ones are not written again.
        self._consumers: dict[str, dict[str, KnownConsumer]] = {}

    @property
    def _streams(self) -> Streams:
        return self._standby.jetstream_manager().streams

    def record(self, origin: StreamSide, info: StreamInfo, place: str, now_ns: int) -> None:
        """Record the configuration of a stream and the positions of its consumers."""
        stream = origin.stream
        if stream not in self._consumers:
            self._make()
            self._consumers[stream] = self.consumers(stream)
        known = self._consumers[stream]
        js = self._standby.jetstream()
        found = {each.name: known_consumer(each) for each in origin.durables()}
        for name, each in found.items():
            if known.get(name) != each:
                js.publish(_CONSUMER.format(stream, name), msgspec.json.encode(each))
                known[name] = each
        for name in known.keys() - found.keys():
            # The origin no longer has the consumer, so it is not created again.
            self._streams.purge(RECORDS, filter=_CONSUMER.format(stream, name))
            del known[name]
        record = StreamRecord(
            stream=stream,
            origin=place,
            seen_ns=now_ns,
            last_seq=info.state.last_seq,
            config=msgspec.to_builtins(info.config),
        )
        js.publish(_STREAM.format(stream), msgspec.json.encode(record))

    def stream(self, stream: str) -> StreamRecord | None:
        """The record of a stream; None if there is none."""
        try:
            found = self._streams.get_message(RECORDS, last_by_subject=_STREAM.format(stream))
        except (StreamNotFoundError, NoMessageFoundError):
            return None
        return _decode(found.data, StreamRecord)

    def consumers(self, stream: str) -> dict[str, KnownConsumer]:
        """The records of a stream's consumers, by name."""
        return {each.name: each for each in self._consumer_records(stream)}

    def _consumer_records(self, stream: str) -> Iterator[KnownConsumer]:
        seq = 1
        while True:
            try:
                found = self._streams.get_message(
                    RECORDS, seq=seq, next_by_subject=_CONSUMER.format(stream, "*")
                )
            except (StreamNotFoundError, NoMessageFoundError):
                return
            yield _decode(found.data, KnownConsumer)
            seq = found.seq + 1

    def _make(self) -> None:
        try:
            self._streams.info(RECORDS)
        except StreamNotFoundError:
            self._streams.add(
                name=RECORDS,
                description="Origins and consumers, for tradewind dr",
                subjects=[_ALL],
                max_msgs_per_subject=1,
                allow_direct=True,
            )


def _decode(data: bytes, kind: type[AnyRecord]) -> AnyRecord:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise RecoveryError(f"stream {RECORDS}: a record is damaged: {error}") from None
