"""A mirror: a stream that copies another one with the same sequences and times.

Owns the position at which a mirror continues, which follows from its last sequence. It never mixes
two streams in one mirror: if the origin was deleted and created again, or restored from an older
backup, the mirror reports an error and stops copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tradewind.api import errors
from tradewind.api.stream_types import StreamSource
from tradewind.jetstream.replication.origins import OriginView
from tradewind.jetstream.replication.replica import Replica, time_of

if TYPE_CHECKING:
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.store.table.message_store import MessageStore


# A mirror that lags by at most this many messages answers direct gets for its origin, if allowed.
STAND_IN_LAG_MAX: Final = 10


class Mirror(Replica):
    """The companion of a mirror."""

    def __init__(self, hosted: HostedStream, source: StreamSource) -> None:
        super().__init__(hosted, source, keeps_place=True)

    def compared_seq(self, view: OriginView) -> int:
        """The last sequence of the mirror, if the origin has a message of that sequence."""
        own = self.hosted.stream.store
        if own.last_timestamp <= 0 or own.last_seq > view.last_seq:
            return 0
        return own.last_seq if time_of(own, own.last_seq) else 0

    def meet(self, view: OriginView) -> int:
        """The sequence after the mirror's last one; ApiError if the origin is not the stream that
        was mirrored.
        """
        own = self.hosted.stream.store
        if own.last_seq == 0:
            return 0
        if own.last_timestamp > 0:
            self._compare(own, view)
        return own.last_seq + 1

    def begin_at(self, first_seq: int) -> int:
        """Mark the sequences before `first_seq` as absent."""
        own = self.hosted.stream.store
        if first_seq > 1 and own.last_seq == 0:
            own.skip(first_seq - 1, 0)
            self.hosted.engine.turn.mark_dirty(self.copier.target)
        return first_seq

    def _compare(self, own: MessageStore, view: OriginView) -> None:
        seq = own.last_seq
        how = ""
        if view.mirrored_ns and view.mirrored_ns == time_of(own, seq):
            return  # whatever the clock was when the origin was created
        if view.created_ns > own.last_timestamp:
            how = "it was created after the last message of this mirror"
        elif view.last_seq < seq:
            how = f"its last sequence is {view.last_seq}, that of this mirror {seq}"
        elif view.mirrored_ns:
            how = f"its message {seq} has another time than that of this mirror"
        if how:
            raise errors.STREAM_INVALID_CONFIG(
                err=f"stream '{self.source.name}' is not the one that was mirrored: {how};"
                " turn this mirror into an ordinary stream, or recreate it"
            )

    def origin_came(self, origin: HostedStream) -> None:
        """Called when the origin becomes available; it answers requests that the mirror cannot
        answer yet.
        """
        super().origin_came(origin)
        if self.upstream is not None:
            self.hosted.stream.direct.stood_for = origin.stream.direct

    def _let_go(self, *, for_good: bool) -> None:
        super()._let_go(for_good=for_good)
        self.hosted.stream.direct.stood_for = None

    def fill(self, visible_seq: int) -> bool:
        """Copy the available messages. With nearly all of them, the mirror can answer for its
        origin.
        """
        wants_more = super().fill(visible_seq)
        if (
            self.upstream is not None
            and self.hosted.config.mirror_direct
            and self.copier.next_seq + STAND_IN_LAG_MAX > visible_seq
        ):
            self.hosted.stream.stand_in(self.source.name)
        return wants_more

    def changed(self) -> None:
        """Apply a new configuration of the stream."""
        super().changed()
        if not self.hosted.config.mirror_direct:
            self.hosted.stream.stand_in("")

    def close(self, *, for_good: bool) -> None:
        """Stop copying, and stop answering for the origin."""
        super().close(for_good=for_good)
        self.hosted.stream.stand_in("")

    def describe(self) -> Mapping[str, Any]:
        """The member `mirror`."""
        return {"mirror": self.info()}
