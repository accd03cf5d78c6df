"""The parts of an explanation.

Owns these types, and quoting names in commands for the shell.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

Mood = Literal["good", "idle", "waiting", "stuck"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence, how bad it is, what to do, and the command that does it if there is one.

    `stuck`: nothing moves until somebody does something; `waiting`: it may be as it should be;
    `idle`: there is nothing to do; `good`: all is well.
    """

    mood: Mood
    text: str
    advice: str = ""
    command: str = ""


def command(*words: str | int) -> str:
    """A command line of `tradewind`."""
    return shlex.join(["tradewind", *map(str, words)])
