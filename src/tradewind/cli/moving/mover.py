"""The steps of a move, forward and back.

Owns their order and actions. Every step first inspects the servers and does what is missing, so it
can be repeated after an interruption at any point. Until RELEASE the origin has everything and the
target can be discarded; after that the origin is frozen and unchanged until `finish`.

    COPY, FOLLOW     publishers and consumers work as before
    FREEZE           the origin's subjects are parked and its consumers paused: publishers are
                     refused (no responders) and retry; nothing is ever stored on both servers
    TRANSFER, VERIFY the target receives the rest, and both are compared
    RELEASE          the target takes over the subjects; publishers and consumers continue there
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.cli.frame.account_catalog import AccountCatalog
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.moving.move_journal import Journal, Method, MoveStep, save
from tradewind.cli.streams.backup_folders import load_stream, read_backup, save_stream
from tradewind.client.api_errors import JetStreamApiError, StreamNotFoundError
from tradewind.recovery.change import NEAR_MESSAGES
from tradewind.recovery.contents import compare
from tradewind.recovery.recovery_errors import patiently, wait_until
from tradewind.recovery.sides import NOT_MIRRORED, StreamSide, known_consumer, mirror_config

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.sync import Connection

# Marks what a move has made, in the metadata of the stream at the target.
MARK: Final = "tradewind.move"
PARKED: Final = "tradewind.moved.{}.{}"


class Mover:
    """Moves one stream; `say` is called with a line about each step."""

    def __init__(
        self,
        journal: Journal,
        path: Path,
        origin: Connection,
        target: Connection,
        *,
        say: Callable[[str], None],
        wait_seconds: float = 600.0,
        ack_seconds: float = 30.0,
    ) -> None:
        self.journal = journal
        self.path = path
        self._origin, self._target = origin, target
        self._old = StreamSide(origin, journal.stream)
        self._new = StreamSide(target, journal.stream)
        self._say = say
        self._wait_seconds = wait_seconds
        self._ack_seconds = ack_seconds
        self._problem = ""  # what the mirror says of its origin

    def run(self) -> None:
        """Do what is left."""
        steps = {
            MoveStep.COPY: self._copy,
            MoveStep.FOLLOW: self._follow,
            MoveStep.FREEZE: self._freeze,
            MoveStep.TRANSFER: self._transfer,
            MoveStep.VERIFY: self._verify,
            MoveStep.CONSUMERS: self._place_consumers,
            MoveStep.RELEASE: self._release,
        }
        while self.journal.step is not MoveStep.DONE:
            self._say(f"{self.journal.stream}: {self.journal.step}")
            patiently(
                steps[self.journal.step], lambda text: self._say(f"{self.journal.stream}: {text}")
            )
            self.journal.next_step()
            self._save()

    def roll_back(self) -> None:
        """As if the move had never begun; refused when the target has something of its own."""
        journal = self.journal
        made = self._made()
        # Checked even if the release has begun, but the journal does not record its end.
        if journal.is_past(MoveStep.CONSUMERS) and made is not None:
            if made.state.last_seq != journal.last_seq:
                raise CommandError(
                    f"stream {journal.stream}: the target has accepted "
                    f"{made.state.last_seq - journal.last_seq} messages since the move",
                    "move it back instead: tradewind move start STREAM --from TARGET --to ORIGIN",
                )
            if made.config.mirror is None:
                # With parked subjects, no further message arrives while this is decided.
                self._new.set_subjects([self._parked])
            if self._new.info().state.last_seq != journal.last_seq:
                self._give_subjects(self._new)
                raise CommandError(
                    f"stream {journal.stream}: the target has just accepted messages"
                )
        if made is not None:
            self._new.streams.delete(journal.stream)
        if journal.is_past(MoveStep.COPY):
            self._give_subjects(self._old)
            self._old.resume(journal.paused)
        self._say(f"{journal.stream} is at {journal.origin} as before")

    def finish(self) -> None:
        """Delete the old copy, if it is still what was moved."""
        journal = self.journal
        if journal.step is not MoveStep.DONE:
            raise CommandError(
                f"the move of {journal.stream} is not done: its next step is {journal.step}"
            )
        state = self._old.info().state
        if state.last_seq != journal.last_seq:
            raise CommandError(
                f"stream {journal.stream}: the origin has accepted messages after the move "
                f"({journal.last_seq} was the last), so it is not deleted"
            )
        if self._made() is None:
            raise CommandError(f"stream {journal.stream} is no longer at the target")
        self._old.streams.delete(journal.stream)
        self._say(f"Deleted {journal.stream} at {journal.origin}")

    # ------------------------------------------------------------------ steps

    def _copy(self) -> None:
        """Nothing of this touches the origin."""
        journal = self.journal
        if not journal.config:
            info = self._old.info()
            journal.config = msgspec.to_builtins(info.config)
            journal.subjects = list(info.config.subjects)
            self._save()
        if journal.method is Method.BACKUP or self._made() is not None:
            return
        mirror: dict[str, Any] = {"name": journal.stream}
        mirror["external"] = {"api": journal.origin_api, "deliver": ""}
        self._new.streams.add(mirror_config(self._target_config(), mirror))

    def _follow(self) -> None:
        if self.journal.method is Method.BACKUP:
            return

        def is_near() -> bool:
            origin = self._old.info().state.last_seq
            made = self._mirror()
            return origin - made.state.last_seq <= NEAR_MESSAGES

        self._wait_until(is_near, "the mirror did not catch up")

    def _freeze(self) -> None:
        journal, old = self.journal, self._old
        if not journal.pause_began_ns:
            journal.paused = [info.name for info in old.consumer_infos() if info.paused]
            journal.pause_began_ns = time.time_ns()
            self._save()
        old.set_subjects([self._parked])
        old.pause(journal.paused)
        old.wait_for_acks(self._ack_seconds)
        journal.consumers = [
            {"name": info.name, "floor": info.ack_floor.stream_seq} for info in old.consumer_infos()
        ]
        journal.last_seq = old.info().state.last_seq

    def _transfer(self) -> None:
        journal = self.journal
        if journal.method is Method.MIRROR:
            self._wait_until(
                lambda: self._mirror().state.last_seq == journal.last_seq,
                "the mirror did not receive the last messages",
            )
            return
        made = self._made()
        if made is not None and made.state.last_seq == journal.last_seq:
            return
        if made is not None:
            self._new.streams.delete(journal.stream)
        with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            info = self._old.info()
            save_stream(AccountCatalog(self._origin), info, Path(folder), {}, progress=True)
            config, state = read_backup(Path(folder))
            wanted = {**config, **self._target_config(), "subjects": [self._parked]}
            wanted["duplicate_window"] = journal.config.get("duplicate_window", 0)
            load_stream(AccountCatalog(self._target), Path(folder), wanted, state, progress=True)

    def _verify(self) -> None:
        journal = self.journal
        found = compare(self._origin, self._target, journal.stream, journal.last_seq)
        if not found.is_same:
            raise CommandError(
                f"stream {journal.stream}: origin and target differ: "
                + "; ".join(found.describe()),
                f"roll it back: tradewind move rollback {self.path}",
            )
        self._say(
            f"{journal.stream}: {found.messages} messages in {found.ranges} ranges are the same"
        )

    def _place_consumers(self) -> None:
        """With a backup they came along, paused; a mirror has none. They stay paused until the
        target takes messages: before that the move may be rolled back.
        """
        journal = self.journal
        if journal.method is Method.BACKUP:
            return
        floors = {each["name"]: each["floor"] for each in journal.consumers}
        for info in self._old.consumer_infos():
            known = known_consumer(info)
            known.floor = floors.get(info.name, known.floor)
            self._new.place(known, journal.last_seq, {MARK: journal.id})

    def _release(self) -> None:
        journal = self.journal
        self._give_subjects(self._new)
        self._new.resume(journal.paused)
        if not journal.pause_ns:
            journal.pause_ns = time.time_ns() - journal.pause_began_ns

    # ------------------------------------------------------------------ details

    @property
    def _parked(self) -> str:
        return PARKED.format(self.journal.stream, self.journal.id)

    def _save(self) -> None:
        save(self.path, self.journal)

    def _target_config(self) -> dict[str, Any]:
        journal = self.journal
        config = {k: v for k, v in journal.config.items() if k not in NOT_MIRRORED}
        config["metadata"] = {**config.get("metadata", {}), MARK: journal.id}
        if journal.replicas:
            config["num_replicas"] = journal.replicas
        return config

    def _made(self) -> StreamInfo | None:
        """The stream at the target, if any; CommandError if this move has not made it."""
        info = self._new.find()
        if info is None:
            return None
        if info.config.metadata.get(MARK) != self.journal.id:
            raise CommandError(
                f"the target already has a stream {self.journal.stream!r} that does not belong to "
                "this move; it is left unchanged"
            )
        return info

    def _mirror(self) -> StreamInfo:
        made = self._made()
        if made is None:
            raise CommandError(f"stream {self.journal.stream} was removed from the target")
        error = getattr(made.mirror, "error", None)
        # It may pass, as while the target connects to the origin; said if the time is over.
        self._problem = "" if error is None else getattr(error, "description", str(error))
        return made

    def _give_subjects(self, side: StreamSide) -> None:
        """The stream takes the messages of its subjects again, or now; a mirror is one no more."""
        side.set_subjects(self.journal.subjects, origin_config=self.journal.config)

    def _wait_until(self, holds: Callable[[], bool], text: str) -> None:
        if wait_until(holds, self._wait_seconds):
            return
        problem = f" ({self._problem})" if self._problem else ""
        raise CommandError(
            f"stream {self.journal.stream}: {text} within {self._wait_seconds:g} s" + problem,
            f"continue later:  tradewind move resume {self.path}",
            f"or roll it back: tradewind move rollback {self.path}",
        )


def check(origin: Connection, target: Connection, journal: Journal) -> StreamInfo:
    """Whether a move can begin; CommandError with what stands in its way."""
    try:
        info = origin.jetstream_manager().streams.info(journal.stream)
    except StreamNotFoundError:
        raise CommandError(f"the origin has no stream {journal.stream!r}") from None
    config = info.config
    for what, value in (("a mirror", config.mirror), ("sealed", config.sealed)):
        if value:
            raise CommandError(f"stream {journal.stream} is {what}: it cannot be moved")
    if config.sources:
        raise CommandError(f"stream {journal.stream} has sources: it cannot be moved")
    if journal.method is Method.MIRROR and config.retention != "limits":
        raise CommandError(
            f"stream {journal.stream} keeps messages by {config.retention}: a mirror would keep "
            "more than its origin",
            "move it with --via backup",
        )
    try:
        target.jetstream_manager().streams.info(journal.stream)
    except StreamNotFoundError:
        return info
    except JetStreamApiError as error:
        raise CommandError(f"the target does not answer JetStream requests: {error}") from None
    raise CommandError(f"the target already has a stream {journal.stream!r}")
