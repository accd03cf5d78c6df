"""One stream at one server: who may write to it, and the positions of its consumers.

Owns taking subjects away and giving them back, pausing and resuming consumers, and placing a
consumer at a position. Every action first inspects the server, so it can be repeated. It never
decides when something is done, and it only deletes streams that are explicitly named.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo, DeliverPolicy
from tradewind.api.stream_types import StreamConfig, StreamInfo
from tradewind.client.api_errors import ConsumerInvalidResetError, StreamNotFoundError
from tradewind.client.streams.api_requests import to_time
from tradewind.recovery.contents import next_message
from tradewind.recovery.recovery_errors import POLL_SECONDS, RecoveryError

if TYPE_CHECKING:
    from tradewind.client.streams.manager import StoredMsg
    from tradewind.sync import Connection

PAUSE: Final = timedelta(days=3650)
# One request each; for a stream with more of them the server reports conflicts when it is promoted.
SUBJECTS_ASKED_MAX: Final = 100
# Fields of a configuration that belong to a server, or that a mirror may not have.
NOT_MIRRORED: Final = ("subjects", "mirror", "sources", "duplicate_window", "placement")
# Settings that a mirror cannot have, and that its successor gets from the stream it replaces.
GAINED: Final = (
    "duplicate_window",
    "allow_atomic",
    "allow_batched",
    "allow_msg_schedules",
    "subject_delete_marker_ttl",
)
_KEEPS_POLICY: Final = (
    DeliverPolicy.ALL,
    DeliverPolicy.BY_START_TIME,
    DeliverPolicy.BY_START_SEQUENCE,
)


class KnownConsumer(msgspec.Struct, kw_only=True):
    """A consumer and the sequence up to which it is done with the stream."""

    name: str
    floor: int
    config: dict[str, Any]


class StreamSide:
    """A stream on the server of a connection."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self.connection = connection
        self.stream = stream
        manager = connection.jetstream_manager()
        self.streams = manager.streams
        self.consumers = manager.consumers

    def find(self) -> StreamInfo | None:
        """Get configuration and state; None if there is no such stream."""
        try:
            return self.streams.info(self.stream)
        except StreamNotFoundError:
            return None

    def info(self) -> StreamInfo:
        """Get configuration and state of a stream that must exist."""
        return self.streams.info(self.stream)

    def rivals(self, subjects: Iterable[str]) -> dict[str, str]:
        """Other streams that store one of these subjects, so that this one cannot; by subject."""
        found = {}
        for subject in islice(subjects, SUBJECTS_ASKED_MAX):
            others = [name for name in self.streams.names(subject).all() if name != self.stream]
            if others:
                found[subject] = others[0]
        return found

    def next_message(self, seq: int) -> StoredMsg | None:
        """The first message at or after a sequence."""
        return next_message(self.connection, self.stream, seq)

    # ------------------------------------------------------------------ writers

    def set_subjects(
        self,
        subjects: Collection[str],
        metadata: Mapping[str, str] | None = None,
        origin_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the subjects that the stream stores; a mirror becomes an ordinary stream, and gets
        the settings that a mirror cannot have from the configuration of its origin. All in one
        update, or none if nothing changes.
        """
        config = self.info().config
        settings: dict[str, Any] = {}
        if config.mirror is not None:
            settings["mirror"] = None
            gained = origin_config or {}
            settings |= {name: gained[name] for name in GAINED if name in gained}
        if list(config.subjects) != list(subjects):
            settings["subjects"] = list(subjects)
        if metadata is not None and dict(metadata) != config.metadata:
            settings["metadata"] = dict(metadata)
        if settings:
            changed = msgspec.convert(msgspec.to_builtins(config) | settings, StreamConfig)
            self.streams.update(changed)

    # ------------------------------------------------------------------ consumers

    def consumer_infos(self) -> list[ConsumerInfo]:
        """All consumers, as they are now."""
        return self.consumers.list(self.stream).all()

    def durables(self) -> list[ConsumerInfo]:
        """The consumers that outlive their readers; readers recreate the others by themselves."""
        return [info for info in self.consumer_infos() if info.config.durable_name]

    def own_consumers(self, names: Collection[str], mark: str) -> list[str]:
        """The consumers with one of these names that no change-over has placed here."""
        return [
            info.name
            for info in self.consumer_infos()
            if info.name in names and mark not in info.config.metadata
        ]

    def pause(self, but_not: Collection[str]) -> None:
        """Pause deliveries, except of consumers that were paused otherwise."""
        for info in self.consumer_infos():
            if info.name not in but_not and not info.paused:
                self.consumers.pause(self.stream, info.name, PAUSE)

    def wait_for_acks(self, seconds: float) -> None:
        """Wait until clients have acknowledged their messages, but no longer than this."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not any(info.num_ack_pending for info in self.consumer_infos()):
                return
            time.sleep(POLL_SECONDS)

    def resume(self, but_not: Collection[str], only: Collection[str] | None = None) -> None:
        """Resume deliveries, except of consumers that were paused otherwise."""
        for info in self.consumer_infos():
            is_wanted = only is None or info.name in only
            if info.paused and is_wanted and info.name not in but_not:
                self.consumers.resume(self.stream, info.name)

    def place(self, known: KnownConsumer, last_seq: int, mark: Mapping[str, str]) -> None:
        """Create a consumer that is done up to its floor. `mark` is added to its metadata, and
        identifies a consumer of this name that was placed before. A stream that ends before the
        floor will reuse those sequences, so the floor is never after its end.
        """
        start = min(known.floor, last_seq) + 1
        there = {info.name: info for info in self.consumer_infos()}.get(known.name)
        if there is not None and not mark.items() <= there.config.metadata.items():
            if not mark.keys() <= there.config.metadata.keys():
                raise RecoveryError(
                    f"consumer {known.name} of stream {self.stream}: the standby has one of its "
                    "own by this name",
                    f"remove or rename it: tradewind consumer rm {self.stream} {known.name}",
                )
            # Left by an attempt that was given up.
            self.consumers.delete(self.stream, known.name)
            there = None
        config: dict[str, Any] = {**known.config, "name": known.name}
        config["metadata"] = {**own_metadata(config.get("metadata", {})), **mark}
        if DeliverPolicy(config.get("deliver_policy", "all")) in _KEEPS_POLICY:
            # Readers that make their consumer when they start find the policy that they ask for.
            if there is None:
                there = self.consumers.add(self.stream, msgspec.convert(config, ConsumerConfig))
            if there.delivered.stream_seq == there.ack_floor.stream_seq == start - 1:
                return
            try:
                self.consumers.reset(self.stream, known.name, seq=start)
            except ConsumerInvalidResetError:
                self.consumers.delete(self.stream, known.name)
            else:
                return
        elif there is not None:
            return
        config.pop("opt_start_time", None)
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
        self.consumers.add(self.stream, msgspec.convert(config, ConsumerConfig))


def own_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata without the keys that a server adds."""
    return {key: value for key, value in metadata.items() if not key.startswith("_nats.")}


def known_consumer(info: ConsumerInfo) -> KnownConsumer:
    """The data needed to place this consumer elsewhere."""
    config = msgspec.to_builtins(info.config)
    return KnownConsumer(name=info.name, floor=info.ack_floor.stream_seq, config=config)


def paused_config(config: Mapping[str, Any], *, is_paused: bool) -> dict[str, Any]:
    """The configuration of a consumer that delivers nothing yet, unless it is paused anyway."""
    until = config.get("pause_until") if is_paused else None
    return {**config, "pause_until": until or to_time(datetime.now(UTC) + PAUSE)}


def mirror_config(
    config: Mapping[str, Any], mirror: Mapping[str, Any], **settings: Any
) -> StreamConfig:
    """The configuration of a mirror with the settings of another stream, as far as a mirror may
    have them.
    """
    dropped = {*NOT_MIRRORED, *GAINED, "first_seq", "sealed"}
    kept = {key: value for key, value in config.items() if key not in dropped}
    return msgspec.convert({**kept, **settings, "mirror": dict(mirror)}, StreamConfig)
