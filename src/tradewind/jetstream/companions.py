"""Companions: objects that live beside a stream and run on their own schedule.

Owns the single extension point for them. A companion is attached with its stream, is called when a
deadline is reached and when stored messages become durable, and is closed with the stream or when
the configuration no longer names it. `HostedStream` knows the list of companions and never their
kinds, which are all in `companion_kinds`.

Consumers are not companions: clients create and delete them by name, they have states on disk and a
share in each turn, and their `close` and `describe` have other signatures. Neither are schedules
and templates: a schedule is a message with a deadline, which `stream.upkeep` tracks, and a template
belongs to an account and exists before its streams do.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from tradewind.consumer.taker import Taker

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.retention import Retention
    from tradewind.store.format.meta import StreamMeta


class Companion(Protocol):
    """An object that works beside a stream on its own schedule."""

    def attach(self) -> None:
        """Called when the stream begins to take part in turns."""

    def changed(self) -> None:
        """Called when the stream has a new configuration that still names this companion."""

    def kept(self) -> None:
        """Called when more stored messages are durable as promised, or the stream has room
        again.
        """

    def tick(self) -> None:
        """Do the work that is due."""

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""

    def close(self, *, for_good: bool) -> None:
        """Stop, `for_good` if no longer wanted; otherwise it continues at the next start."""

    def describe(self) -> Mapping[str, Any]:
        """The members for the stream's information; lists of several companions are joined."""


class StreamFollower(Taker):
    """A companion that takes the messages of another stream, its origin, as consumers do."""

    # The origin, while messages are taken from it.
    upstream: HostedStream | None

    @property
    @abstractmethod
    def place(self) -> str:
        """The name of the follower in the log."""

    @property
    @abstractmethod
    def patterns(self) -> tuple[bytes, ...]:
        """The subjects of the messages to take; empty for all."""

    @abstractmethod
    def origin_came(self, origin: HostedStream) -> None:
        """Called when the origin becomes available."""

    @abstractmethod
    def origin_left(self) -> None:
        """Called when the origin is deleted or closed."""

    @abstractmethod
    def retention_changed(self, retention: Retention | None) -> None:
        """Set the retention to notify of messages that are no longer needed."""


class SharedState(Protocol):
    """State that several companions of a stream share, or that outlives them."""

    def save(self) -> None:
        """Write the state to disk; called when the files of the stream are complete."""


# The wanted companions: by a key that shows whether one is the same as before, in the order of
# the description.
Wanted = Mapping[Hashable, Callable[[], Companion]]
SharedT = TypeVar("SharedT", bound=SharedState)


class ConsumerChanged(Protocol):
    """The signature of a function that is called when a consumer of a stream changes."""

    def __call__(
        self, hosted: HostedStream, consumer: ServerConsumer, /, *, is_there: bool
    ) -> None:
        """Handle a consumer that was added or reconfigured, or deleted if not `is_there`."""


def _wants_nothing(_hosted: HostedStream) -> Wanted:
    return {}


class CompanionKind(msgspec.Struct, frozen=True):
    """The hooks of one kind of companion, which apply to all streams."""

    wanted: Callable[[HostedStream], Wanted] = _wants_nothing
    # The stream gets this configuration; called before the companions are notified.
    configure: Callable[[HostedStream, StreamMeta], None] | None = None
    consumer_changed: ConsumerChanged | None = None


class Companions:
    """The companions of one stream, from `attach` to `close`."""

    def __init__(self, hosted: HostedStream, kinds: tuple[CompanionKind, ...]) -> None:
        self._hosted = hosted
        self._kinds = kinds
        self._all: dict[Hashable, Companion] = {}
        self._shared: dict[type[SharedState], SharedState] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Companion]:
        return iter(list(self._all.values()))

    def set(self) -> None:
        """Add the companions that the configuration names, and close all others."""
        wanted: dict[Hashable, Callable[[], Companion]] = {}
        if self._hosted.engine.is_read_only:
            return  # all of them change the stream
        for kind in self._kinds:
            wanted |= kind.wanted(self._hosted)
        kept = {key: self._all.pop(key) for key in wanted if key in self._all}
        self.close(for_good=True)
        fresh = {key: make() for key, make in wanted.items() if key not in kept}
        self._all = {key: kept[key] if key in kept else fresh[key] for key in wanted}
        self._hosted.commits.has_companions = bool(self._all)
        for companion in kept.values():
            companion.changed()
        for companion in fresh.values():
            companion.attach()
            self.set_timer(companion)

    def configure(self, meta: StreamMeta) -> None:
        """Pass a new configuration to all kinds; `set` follows."""
        for kind in self._kinds:
            if kind.configure is not None:
                kind.configure(self._hosted, meta)

    def consumer_changed(self, consumer: ServerConsumer, *, is_there: bool) -> None:
        """Notify all kinds of a new or changed consumer, or a deleted one if not `is_there`."""
        for kind in self._kinds:
            if kind.consumer_changed is not None:
                kind.consumer_changed(self._hosted, consumer, is_there=is_there)

    def shared(self, kind: type[SharedT], make: Callable[[], SharedT]) -> SharedT:
        """The shared state of this class, which the first caller creates."""
        if (known := self._shared.get(kind)) is None:
            known = self._shared[kind] = make()
        return cast("SharedT", known)

    def save(self) -> None:
        """Write all shared state to disk; called when the files of the stream are complete."""
        for shared in self._shared.values():
            shared.save()

    def kept(self) -> None:
        """Notify companions that more messages have become durable."""
        for companion in self._all.values():
            companion.kept()

    def set_timer(self, companion: Companion) -> None:
        """Update the timer of a companion whose next deadline may have moved."""
        self._hosted.engine.timers.set(companion, companion.next_deadline_ns)

    def set_timers(self) -> None:
        """Update the timers of all companions."""
        for companion in self._all.values():
            self.set_timer(companion)

    def close(self, *, for_good: bool) -> None:
        """Close all companions."""
        companions, self._all = self._all, {}
        self._hosted.commits.has_companions = False
        engine = self._hosted.engine
        for companion in companions.values():
            engine.timers.forget(companion)
            companion.close(for_good=for_good)
            engine.broker.let_go(companion, self._hosted, self._hosted.tenant, engine)

    def describe(self) -> dict[str, Any]:
        """The members that companions add to the stream's information."""
        members: dict[str, Any] = {}
        for companion in self._all.values():
            for name, value in companion.describe().items():
                members[name] = members.get(name, []) + value if isinstance(value, list) else value
        return members
