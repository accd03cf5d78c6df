"""The journal of a failover or failback: what is done, and what it changes.

Owns the file and the order of the steps. It is written and synced before the next step begins, so
that an interrupted change can be resumed or rolled back. It never contains a secret: logins come
from contexts.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from tradewind.private_files import replace_private
from tradewind.recovery.recovery_errors import RecoveryError
from tradewind.recovery.sides import KnownConsumer


class RecoveryKind(StrEnum):
    """The kind of change that a journal is for."""

    FAILOVER = "failover"  # the origin is alive: nothing is lost
    LOST = "lost"  # the origin is gone: the standby continues with what it has
    FAILBACK = "failback"  # the old origin is back, and becomes the origin again


class RecoveryStep(StrEnum):
    """The steps; the journal names the next one."""

    FENCE = "fence"  # the old origin takes no more messages
    SAVE = "save"  # what only the old origin has is in a file
    REBUILD = "rebuild"  # the old origin is a mirror
    FOLLOW = "follow"  # the mirror catches up while all clients work
    FREEZE = "freeze"  # no side takes messages; the pause begins
    TRANSFER = "transfer"  # the mirror has everything
    VERIFY = "verify"  # both hold the same, message by message
    DETACH = "detach"  # the standby has left its lost origin; its last sequence is known
    CONSUMERS = "consumers"  # they stand where they stood, paused
    PROMOTE = "promote"  # the mirror takes messages; the pause ends
    REMIRROR = "remirror"  # the standby is a mirror again
    DONE = "done"


_CUT_OVER: Final = (
    RecoveryStep.FOLLOW,
    RecoveryStep.FREEZE,
    RecoveryStep.TRANSFER,
    RecoveryStep.VERIFY,
    RecoveryStep.CONSUMERS,
    RecoveryStep.PROMOTE,
)
RECOVERY_STEPS: Final = {
    RecoveryKind.FAILOVER: (*_CUT_OVER, RecoveryStep.DONE),
    RecoveryKind.LOST: (
        RecoveryStep.DETACH,
        RecoveryStep.CONSUMERS,
        RecoveryStep.PROMOTE,
        RecoveryStep.DONE,
    ),
    RecoveryKind.FAILBACK: (
        RecoveryStep.FENCE,
        RecoveryStep.SAVE,
        RecoveryStep.REBUILD,
        *_CUT_OVER,
        RecoveryStep.REMIRROR,
        RecoveryStep.DONE,
    ),
}


class RecoveryJournal(msgspec.Struct, kw_only=True):
    """The plan and the progress of a failover or failback.

    `giver` is the side that takes messages before the change, `taker` the one that does after it.
    """

    id: str
    stream: str
    kind: RecoveryKind
    origin: str = ""
    standby: str = ""
    step: RecoveryStep | None = None
    config: dict[str, Any] = {}  # of the giver, before it was changed
    subjects: list[str] = []
    consumers: list[KnownConsumer] = []
    paused: list[str] = []  # consumers that were paused before
    verified_seq: int = 0  # up to which both were compared before the pause
    frozen_seq: int = 0  # last sequence of the giver
    last_seq: int = 0  # that the taker had when it took over
    last_time: str = ""
    pause_began_ns: int = 0
    pause_ns: int = 0
    # Only of a lost origin: what it had when it was recorded last, and when that was.
    seen_seq: int = 0
    seen_ns: int = 0
    keeps_consumers: bool = False  # the standby has them already, as it was not a mirror yet
    # Only of a failback.
    standby_api: str = ""  # API of the standby as the origin sees it
    mirror: dict[str, Any] = {}  # how the standby mirrored the origin, and will again
    shared_seq: int = 0  # up to which both have one history
    origin_config: dict[str, Any] = {}
    fenced_seq: int = 0  # last sequence of the old origin
    saved_file: str = ""
    saved_messages: int = 0

    def __post_init__(self) -> None:
        if self.step is None:
            self.step = self.steps[0]
        elif self.step not in self.steps:
            raise ValueError(f"step {self.step} is not one of a {self.kind}")

    @property
    def steps(self) -> tuple[RecoveryStep, ...]:
        """The steps of this kind, in order."""
        return RECOVERY_STEPS[self.kind]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.step is RecoveryStep.DONE

    def next_step(self) -> None:
        """Mark the present step as done."""
        assert self.step is not None
        self.step = self.steps[self.steps.index(self.step) + 1]

    def has_begun(self, step: RecoveryStep) -> bool:
        """Whether a step was done or may have begun; never one that this kind does not have."""
        assert self.step is not None
        return step in self.steps and self.steps.index(self.step) >= self.steps.index(step)


AnyJournal = TypeVar("AnyJournal", bound=msgspec.Struct)


def save_journal(path: Path, journal: msgspec.Struct) -> None:
    """Replace the file; it is on disk when this returns."""
    replace_private(path, msgspec.json.format(msgspec.json.encode(journal)))


def load_journal(path: Path, kind: type[AnyJournal], what: str, hint: str) -> AnyJournal:
    """Read a journal; RecoveryError if there is no such file, or if it is not a journal."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise RecoveryError(f"{path}: no such file", hint) from None
    except msgspec.MsgspecError as error:
        raise RecoveryError(f"{path}: not the journal of {what}: {error}") from None


def may_begin(path: Path) -> bool:
    """Whether a journal can be written here: there is none, or one that is done."""
    return not path.exists() or load_recovery(path).is_done


def load_recovery(path: Path) -> RecoveryJournal:
    """Read the journal of a failover or failback."""
    return load_journal(
        path,
        RecoveryJournal,
        "a failover or failback",
        "a failover writes STREAM.failover.json where it was started, a failback "
        "STREAM.failback.json",
    )
