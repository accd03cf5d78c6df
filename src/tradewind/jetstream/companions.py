"""Companions: objects that live beside a stream and run on their own schedule.

Owns the single extension point for them. A companion is attached with its stream, is called when
its time has come and when stored messages are safe, and is closed with the stream or when the
configuration no longer names it. `HostedStream` knows the list of companions and never their kinds,
which are all in `companion_kinds`.

Consumers are no companions: clients create and delete them by name, they have states on disk and a
share in each turn, and their `close` and `describe` take and give other things. Neither are
schedules and templates: a schedule is a message with a deadline, which `stream.upkeep` keeps, and a
template belongs to an account and is there before its streams are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from tradewind.consumer.taker import Taker

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.retention import Retention
    from tradewind.store.format.meta import StreamMeta


class Companion(Protocol):
    """Whatever works for a stream by itself."""

    def attach(self) -> None:
        """The stream takes part in turns from now on."""

    def changed(self) -> None:
        """The stream has another configuration, which still names this companion."""

    def kept(self) -> None:
        """More of what the stream has stored is as safe as it promises, or it has room again."""

    def tick(self) -> None:
        """Do what is due."""

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""

    def close(self, *, for_good: bool) -> None:
        """Stop. `for_good`: it is no longer wanted; else it continues at the next
        start.
        """

    def describe(self) -> Mapping[str, Any]:
        """Its part in the information about the stream; lists of several companions are joined."""


class StreamFollower(Taker):
    """A companion of one stream that takes the messages of another one, its origin, as consumers
    do.
    """

    # The origin, while messages are taken from it.
    upstream: HostedStream | None

    @property
    @abstractmethod
    def patterns(self) -> tuple[bytes, ...]:
        """The subjects of the messages that it takes; none: all."""

    @abstractmethod
    def origin_came(self, origin: HostedStream) -> None:
        """The origin is there from now on."""

    @abstractmethod
    def origin_left(self) -> None:
        """The origin is deleted or closed."""

    @abstractmethod
    def retention_changed(self, retention: Retention | None) -> None:
        """Who is told what it needs no more."""


class Shared(Protocol):
    """What several companions of a stream share, or what outlives them."""

    def save(self) -> None:
        """The files of the stream are complete: what belongs beside them is written down."""


# What a stream is to have: by a key that tells whether it is the same as before, in the order of
# the description.
Wanted = Mapping[Hashable, Callable[[], Companion]]
SharedT = TypeVar("SharedT", bound=Shared)


class ConsumerChanged(Protocol):
    """A consumer has come or has another configuration; not `is_there`: it is deleted."""

    def __call__(
        self, hosted: HostedStream, consumer: ServerConsumer, /, *, is_there: bool
    ) -> None:
        """For one stream."""


def _wants_nothing(_hosted: HostedStream) -> Wanted:
    return {}


class CompanionKind(NamedTuple):
    """What one kind of companions needs to know of all streams."""

    wanted: Callable[[HostedStream], Wanted] = _wants_nothing
    # The stream gets this configuration; called before the companions are told.
    configure: Callable[[HostedStream, StreamMeta], None] | None = None
    consumer_changed: ConsumerChanged | None = None


class Companions:
    """Those of one stream, from `attach` to `close`."""

    def __init__(self, hosted: HostedStream, kinds: tuple[CompanionKind, ...]) -> None:
        self._hosted = hosted
        self._kinds = kinds
        self._all: dict[Hashable, Companion] = {}
        self._shared: dict[type[Shared], Shared] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Companion]:
        return iter(list(self._all.values()))

    def set(self) -> None:
        """Have those that the configuration names, and no others."""
        wanted: dict[Hashable, Callable[[], Companion]] = {}
        if self._hosted.engine.is_read_only:
            return  # all of them change the stream
        for kind in self._kinds:
            wanted |= kind.wanted(self._hosted)
        kept = {key: self._all.pop(key) for key in wanted if key in self._all}
        self.close(for_good=True)
        fresh = {key: make() for key, make in wanted.items() if key not in kept}
        self._all = {key: kept[key] if key in kept else fresh[key] for key in wanted}
        for companion in kept.values():
            companion.changed()
        for companion in fresh.values():
            companion.attach()
            self.set_timer(companion)

    def configure(self, meta: StreamMeta) -> None:
        """The stream has another configuration; `set` follows."""
        for kind in self._kinds:
            if kind.configure is not None:
                kind.configure(self._hosted, meta)

    def consumer_changed(self, consumer: ServerConsumer, *, is_there: bool) -> None:
        """A consumer has come or has another configuration; not `is_there`: it is deleted."""
        for kind in self._kinds:
            if kind.consumer_changed is not None:
                kind.consumer_changed(self._hosted, consumer, is_there=is_there)

    def shared(self, kind: type[SharedT], make: Callable[[], SharedT]) -> SharedT:
        """The only one of its class beside this stream, made for whoever asks first."""
        if (known := self._shared.get(kind)) is None:
            known = self._shared[kind] = make()
        return cast("SharedT", known)

    def save(self) -> None:
        """The files of the stream are complete: write down what belongs beside them."""
        for shared in self._shared.values():
            shared.save()

    def kept(self) -> None:
        """More of what the stream has stored is safe."""
        for companion in self._all.values():
            companion.kept()

    def set_timer(self, companion: Companion) -> None:
        """Its next deadline may have moved."""
        self._hosted.engine.timers.set(companion, companion.next_deadline_ns)

    def set_timers(self) -> None:
        """The same for all of them."""
        for companion in self._all.values():
            self.set_timer(companion)

    def close(self, *, for_good: bool) -> None:
        """All of them end."""
        companions, self._all = self._all, {}
        engine = self._hosted.engine
        for companion in companions.values():
            engine.timers.forget(companion)
            companion.close(for_good=for_good)
            engine.broker.let_go(companion, self._hosted, self._hosted.tenant, engine)

    def describe(self) -> dict[str, Any]:
        """What they add to the information about the stream."""
        members: dict[str, Any] = {}
        for companion in self._all.values():
            for name, value in companion.describe().items():
                members[name] = members.get(name, []) + value if isinstance(value, list) else value
        return members
