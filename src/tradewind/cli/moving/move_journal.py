"""The journal of a move: the stream, the progress, and the original state of the origin.

Owns the file. It is written and synced before the next step begins, so that an interrupted move can
be resumed or rolled back. It never contains a secret: logins come from contexts.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from tradewind.recovery.recovery_journal import load_journal, save_journal

SUFFIX: Final = ".move.json"


class MoveStep(StrEnum):
    """In this order; the journal names the next one."""

    COPY = "copy"  # a mirror is there, or nothing yet that the origin feels
    FOLLOW = "follow"  # the mirror catches up while everybody works
    FREEZE = "freeze"  # the origin takes no more messages; the pause begins
    TRANSFER = "transfer"  # all that the origin has is at the target
    VERIFY = "verify"  # both hold the same, message by message
    CONSUMERS = "consumers"  # they stand at the target where they stood
    RELEASE = "release"  # the target takes messages; the pause ends
    DONE = "done"


STEPS: Final = tuple(MoveStep)


class Method(StrEnum):
    """How messages get to the target."""

    MIRROR = "mirror"  # the target copies while everybody works; the pause is short
    BACKUP = "backup"  # for servers that do not reach each other; the pause is the whole copy


class Journal(msgspec.Struct, kw_only=True):
    """All that a move needs to know. `subjects` are those of the origin before it was frozen."""

    id: str
    stream: str
    origin: str
    target: str
    method: Method
    origin_api: str = ""
    replicas: int = 0
    step: MoveStep = MoveStep.COPY
    config: dict[str, Any] = {}
    subjects: list[str] = []
    consumers: list[dict[str, Any]] = []
    paused: list[str] = []  # consumers that were paused before the move
    last_seq: int = 0
    pause_began_ns: int = 0
    pause_ns: int = 0

    def next_step(self) -> None:
        """This step is done."""
        self.step = STEPS[STEPS.index(self.step) + 1]

    def is_past(self, step: MoveStep) -> bool:
        """Whether a step was done."""
        return STEPS.index(self.step) > STEPS.index(step)


def save(path: Path, journal: Journal) -> None:
    """Replace the file; it is on disk when this returns."""
    save_journal(path, journal)


def load(path: Path) -> Journal:
    """RecoveryError if there is no such file, or if it is not a journal."""
    return load_journal(
        path, Journal, "a move", "a move writes STREAM.move.json where it was started"
    )
