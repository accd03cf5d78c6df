"""A source: adds the messages of another stream to a stream, with new sequences and times.

Owns the origin information in the copies, the position at which a source continues, and starting
over when the origin is another stream of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.stream_types import StreamSource
from tradewind.jetstream.replication.inbox import Inbox
from tradewind.jetstream.replication.ledger import CopiedPosition, Ledger
from tradewind.jetstream.replication.origins import OriginView
from tradewind.jetstream.replication.replica import Replica
from tradewind.jetstream.replication.source_names import index_name

if TYPE_CHECKING:
    from tradewind.jetstream.hosted import HostedStream


# Positions are written down so long after they have changed.
SAVE_NS: Final = 5_000_000_000


class SourceReplica(Replica):
    """The companion for one source of a stream; `ledger` is shared by all its sources."""

    def __init__(self, hosted: HostedStream, source: StreamSource, ledger: Ledger) -> None:
        super().__init__(hosted, source, keeps_place=False)
        self.index_name = index_name(source)
        self._ledger = ledger
        self._identity = ""
        self._is_seeking = True
        self._saved_seq = 0
        self._save_due_ns = 0

    def attach(self) -> None:
        """Find the position in steps, then copy."""
        self._ledger.seek(self.index_name)
        self._look_back()

    def _look_back(self) -> None:
        if not self._ledger.step():
            return
        self._is_seeking = False
        position = self._ledger.position(self.index_name)
        self.copier.forget_copied(position.seq if position is not None else 0)
        super().attach()

    def tick(self) -> None:
        """Look at more messages, write the position, or try again."""
        if self._is_seeking:
            self._look_back()
            return
        if 0 < self._save_due_ns <= self.hosted.engine.turn.monotonic_ns:
            self._save_due_ns = 0
            self._saved_seq = self.copier.confirmed_seq
            self._ledger.save_beside(self.hosted.engine.workers)
        due_ns = super().next_deadline_ns
        if 0 < due_ns <= self.hosted.engine.turn.monotonic_ns:
            super().tick()

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do; 0: never."""
        if self._is_seeking:
            return max(self.hosted.engine.turn.monotonic_ns, 1)
        times = (super().next_deadline_ns, self._save_due_ns)
        return min(filter(None, times), default=0)

    def kept(self) -> None:
        """Have the position written soon; called when more copies have become durable."""
        super().kept()
        has_moved = self.is_copying and self.copier.confirmed_seq > self._saved_seq
        if has_moved and self._save_due_ns == 0:
            self._save_due_ns = self.hosted.engine.turn.monotonic_ns + SAVE_NS
            self.hosted.companions.set_timer(self)

    def _safe_position(self) -> CopiedPosition:
        return CopiedPosition(self.copier.confirmed_seq, self._identity)

    @property
    def key(self) -> str:
        """The key that distinguishes it from the other replicas of its stream."""
        return self.index_name.text

    def origin_came(self, origin: HostedStream) -> None:
        """Continue after the last copy; called when the origin becomes available."""
        super().origin_came(origin)
        self._follow()

    def feed_started(self, inbox: Inbox, next_seq: int, first_seq: int) -> None:
        """Called when a consumer begins to deliver."""
        super().feed_started(inbox, next_seq, first_seq)
        self._follow()

    def _follow(self) -> None:
        if self.is_copying:
            self._saved_seq = self.copier.confirmed_seq
            self._ledger.follow(self.index_name, self._safe_position)

    def feed_stopped(self) -> None:
        """Called when the feed delivers nothing for now."""
        self._note_position()
        super().feed_stopped()

    def expected(self) -> OriginView:
        """The stream that was copied before."""
        position = self._ledger.position(self.index_name)
        view = super().expected()
        return (
            view if position is None else msgspec.structs.replace(view, identity=position.identity)
        )

    def meet(self, view: OriginView) -> int:
        """The sequence after the last copy, or the configured one if the origin is another stream.
        The copies record which one it is.
        """
        self._identity = view.identity
        encoded = [part.encode("utf-8", "surrogateescape") for part in self.index_name]
        self.copier.head = b"Nats-Stream-Source: %s " % encoded[0]
        self.copier.middle = b" %s %s " % (encoded[1], encoded[2])
        self.copier.tail = (f" {self._identity}" if self._identity else "").encode() + b"\r\n"
        position = self._ledger.position(self.index_name)
        if position is not None and position.identity not in ("", self._identity):
            self.hosted.engine.log.notice(
                f'JetStream source stream "{self.source.name}" for stream {self.hosted.place}'
                " was recreated, resetting source state"
            )
            self._ledger.note(self.index_name, None)
            position = None
        self.copier.forget_copied(position.seq if position is not None else 0)
        if position is None:
            return 0
        if position.seq > view.last_seq:
            # All that it holds was copied before; what comes is new.
            self.hosted.engine.log.warn(
                f"JetStream {self.place}: it went back to sequence {view.last_seq},"
                f" {position.seq} was copied before"
            )
            self._ledger.note(self.index_name, CopiedPosition(view.last_seq, self._identity))
            return view.last_seq + 1
        return position.seq + 1

    def _let_go(self, *, for_good: bool) -> None:
        self._note_position()
        super()._let_go(for_good=for_good)

    def _note_position(self) -> None:
        if self.is_copying and self.copier.copied_seq:
            self._ledger.note(
                self.index_name, CopiedPosition(self.copier.copied_seq, self._identity)
            )
        self._ledger.unfollow(self.index_name)

    def describe(self) -> Mapping[str, Any]:
        """The part of this source in the member `sources`."""
        return {"sources": [msgspec.structs.replace(self.info(), seq=self.copier.copied_seq)]}
