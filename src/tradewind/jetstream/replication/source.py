"""A stream that takes the messages of others beside its own: they get new sequences and times.

Owns what the copies say of their origin, where a source goes on, and what happens when its origin
is another stream of the same name: then it starts over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.stream_types import StreamSource
from tradewind.jetstream.replication.ledger import Ledger, Position
from tradewind.jetstream.replication.names import identity_of, index_name
from tradewind.jetstream.replication.replica import Replica

if TYPE_CHECKING:
    from tradewind.jetstream.hosted import HostedStream


# Positions are written down so long after they have changed.
SAVE_NS: Final = 5_000_000_000


class Source(Replica):
    """The companion of a stream with sources; `ledger` is that of all of them."""

    def __init__(self, hosted: HostedStream, source: StreamSource, ledger: Ledger) -> None:
        super().__init__(hosted, source, keeps_place=False)
        self.index_name = index_name(source)
        self._ledger = ledger
        self._identity = ""
        self._is_seeking = True
        self._saved_seq = 0
        self._save_due_ns = 0

    def attach(self) -> None:
        """Find out where to go on, in steps, then copy."""
        self._ledger.seek(self.index_name)
        if not self._is_found():
            self.hosted.tenant.replicas.setdefault(self.source.name, {})[self] = None

    def _is_found(self) -> bool:
        if not self._ledger.step():
            return False
        self._is_seeking = False
        position = self._ledger.position(self.index_name)
        self.copier.forget_copied(position.seq if position is not None else 0)
        super().attach()
        return True

    def tick(self) -> None:
        """Look at more messages, write down how far it has come, or try again."""
        if self._is_seeking:
            self._is_found()
            return
        if 0 < self._save_due_ns <= self.hosted.engine.turn.monotonic_ns:
            self._save_due_ns = 0
            self._saved_seq = self.copier.confirmed_seq
            self._ledger.save_beside(self.hosted.engine.workers)
        if 0 < self.copier.due_ns <= self.hosted.engine.turn.monotonic_ns:
            super().tick()

    @property
    def next_deadline_ns(self) -> int:
        """When there is something to do."""
        if self._is_seeking:
            return max(self.hosted.engine.turn.monotonic_ns, 1)
        times = (super().next_deadline_ns, self._save_due_ns)
        return min(filter(None, times), default=0)

    def kept(self) -> None:
        """More of what was copied is safe; that is written down soon."""
        super().kept()
        has_moved = self.upstream is not None and self.copier.confirmed_seq > self._saved_seq
        if has_moved and self._save_due_ns == 0:
            self._save_due_ns = self.hosted.engine.turn.monotonic_ns + SAVE_NS
            self.hosted.companions.set_timer(self)

    def _safe_position(self) -> Position:
        return Position(self.copier.confirmed_seq, self._identity)

    def origin_came(self, origin: HostedStream) -> None:
        """The origin is there: its copies say who it is."""
        if self._is_seeking:
            return
        self._identity = identity_of(origin.stream)
        name = self.index_name
        encoded = [part.encode("utf-8", "surrogateescape") for part in name]
        self.copier.head = b"Nats-Stream-Source: %s " % encoded[0]
        self.copier.middle = b" %s %s " % (encoded[1], encoded[2])
        self.copier.tail = b" %s\r\n" % self._identity.encode()
        super().origin_came(origin)
        if self.upstream is not None:
            self._saved_seq = self.copier.confirmed_seq
            self._ledger.follow(name, self._safe_position)

    def next_of(self, origin: HostedStream) -> int:
        """Behind the last copy; from the beginning if the origin is another stream."""
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
            return self.first_of(origin)
        last_seq = origin.stream.store.last_seq
        if position.seq > last_seq:
            # All that it holds was copied before; what comes is new.
            self.hosted.engine.log.warn(
                f"JetStream {self.place}: it went back to sequence {last_seq}, {position.seq} was"
                " copied before"
            )
            self._ledger.note(self.index_name, Position(last_seq, self._identity))
            return last_seq + 1
        return position.seq + 1

    def _let_go(self, *, for_good: bool) -> None:
        if self.upstream is not None and self.copier.copied_seq:
            self._ledger.note(self.index_name, Position(self.copier.copied_seq, self._identity))
        self._ledger.unfollow(self.index_name)
        super()._let_go(for_good=for_good)

    def describe(self) -> Mapping[str, Any]:
        """A part of the member `sources`."""
        return {"sources": [msgspec.structs.replace(self.info(), seq=self.copier.copied_seq)]}
