"""Companions: objects that live beside a stream and run on their own schedule.

Owns the single extension point for them. A companion is attached with its stream, is called when
its time has come and when stored messages are safe, and is closed with the stream or when the
configuration no longer names it. A stream knows the list of companions, never their kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tradewind.jetstream.hosted import HostedStream


class Companion(Protocol):
    """A mirror, a source: whatever works for a stream by itself."""

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
        """Do nothing any more. `for_good`: it is not wanted any more; else it goes on at the next
        start.
        """

    def describe(self) -> Mapping[str, Any]:
        """Its part in the information about the stream; lists of several companions are joined."""


# What the configuration of a stream asks for: by a key that tells whether it is the same as before,
# in the order of the description.
Kind = Callable[["HostedStream"], Mapping[Hashable, Callable[[], Companion]]]


class Companions:
    """Those of one stream, from `attach` to `close`."""

    def __init__(self, hosted: HostedStream, kinds: tuple[Kind, ...]) -> None:
        self._hosted = hosted
        self._kinds = kinds
        self._all: dict[Hashable, Companion] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Companion]:
        return iter(list(self._all.values()))

    def set(self) -> None:
        """Have those that the configuration names, and no others."""
        wanted: dict[Hashable, Callable[[], Companion]] = {}
        for kind in self._kinds:
            wanted |= kind(self._hosted)
        kept = {key: self._all.pop(key) for key in wanted if key in self._all}
        self.close(for_good=True)
        fresh = {key: make() for key, make in wanted.items() if key not in kept}
        self._all = {key: kept[key] if key in kept else fresh[key] for key in wanted}
        for companion in kept.values():
            companion.changed()
        for companion in fresh.values():
            companion.attach()
            self.set_timer(companion)

    def kept(self) -> None:
        """More of what the stream has stored is safe."""
        for companion in self._all.values():
            companion.kept()

    def set_timer(self, companion: Companion) -> None:
        """Its next deadline may have moved."""
        self._hosted.engine.timers.set(companion, companion.next_deadline_ns)

    def close(self, *, for_good: bool) -> None:
        """All of them end."""
        companions, self._all = self._all, {}
        for companion in companions.values():
            self._hosted.engine.timers.forget(companion)
            companion.close(for_good=for_good)

    def describe(self) -> dict[str, Any]:
        """What they add to the information about the stream."""
        members: dict[str, Any] = {}
        for companion in self._all.values():
            for name, value in companion.describe().items():
                members[name] = members.get(name, []) + value if isinstance(value, list) else value
        return members
