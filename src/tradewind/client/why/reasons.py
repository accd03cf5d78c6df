"""The parts of an explanation.

Owns these types, and quoting names in commands for the shell.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final, Literal

# Words that no advised command may have: messages or settings would be lost.
DESTRUCTIVE: Final = frozenset(("purge", "truncate", "rm", "rmm", "del", "delete", "remove"))
Mood = Literal["good", "idle", "waiting", "stuck"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence, how bad it is, what to do, and the command that does it if there is one.

    `stuck`: nothing moves until it is repaired; `waiting`: this may be as it should be; `idle`:
    there is nothing to do; `good`: all is well. No command destroys anything, and there is none if
    all is well.
    """

    mood: Mood
    text: str
    advice: str = ""
    command: str = ""


def command(*words: str | int) -> str:
    """A command line of `tradewind`, which destroys nothing."""
    assert DESTRUCTIVE.isdisjoint(words[:2]), words
    return shlex.join(["tradewind", *map(str, words)])
