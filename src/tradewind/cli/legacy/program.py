"""The common parts of the preview tools: flags as in Go, prompts, sizes.

Owns running a command line to its exit code. A flag has one dash or two, its value is the next
argument or follows `=`, and flags end at the first other argument. The connection is determined by
`cli/frame/settings.py`, as for all commands.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError, near
from tradewind.cli.frame.output import flush, is_terminal, line, write_text
from tradewind.cli.frame.reporting import report
from tradewind.cli.frame.settings import begin, current

# The flags of all tools, and the settings that they are.
CONNECT_FLAGS: Final = ("s", "creds", "context", "timeout")
_SETTINGS: Final = {"s": "server"}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_BASE: Final = 1000

Arguments = Sequence[str]


@dataclass(frozen=True, slots=True)
class ProgramFlags:
    """The flags of a tool that were given; switches have the value "true"."""

    values: dict[str, str] = field(default_factory=dict)
    is_help: bool = False

    def number(self, name: str, default: int) -> int:
        """The value of a flag that is a number."""
        text = self.values.get(name, "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 19):
            raise CommandError(f"-{name} {text!r}: a number", exit_code=EXIT_USAGE)
        return int(text) if text else default


def take_flags(
    arguments: Arguments, known: Sequence[str], switches: Sequence[str] = ()
) -> tuple[ProgramFlags, list[str]]:
    """The flags before the other words, and those words."""
    values: dict[str, str] = {}
    rest = list(arguments)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, has_value, value = word.lstrip("-").partition("=")
        name = {"server": "s", "help": "h"}.get(name, name)
        if name == "h":
            return ProgramFlags(is_help=True), rest
        if name in switches:
            value = "true"
        elif name not in known:
            hint = near(name, [*known, *switches])
            raise CommandError(f"flag {word!r} does not exist{hint}", exit_code=EXIT_USAGE)
        elif not has_value:
            if not rest:
                raise CommandError(f"flag {word!r} needs a value", exit_code=EXIT_USAGE)
            value = rest.pop(0)
        values[name] = value
        if name in CONNECT_FLAGS:
            current().given[_SETTINGS.get(name, name)] = value
    return ProgramFlags(values), rest


def say(text: str) -> None:
    """Print one line and flush it, so that the reader of a pipe sees it at once."""
    line(text)
    flush()


def ask(prompt: str) -> str:
    """The answer to a prompt, from a terminal or a pipe."""
    write_text(prompt)
    flush()
    answer = sys.stdin.readline()
    if not answer:
        say("")
        raise CommandError(f"no answer to {prompt.strip()!r}: the input has ended")
    if not is_terminal(sys.stdin):  # a terminal has shown the answer already
        say(answer.rstrip("\n"))
    return answer.strip()


def si_bytes(size_bytes: int) -> str:
    """A size in powers of 1000: 76 B, 1.1 TB, 161 MB. One digit behind the point below 10."""
    if size_bytes < 10:
        return f"{size_bytes} B"
    unit = min(int(math.log(size_bytes) / math.log(_BASE)), len(_UNITS) - 1)
    value = math.floor(size_bytes / _BASE**unit * 10 + 0.5) / 10
    digits = 1 if value < 10 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def run_program(name: str, body: Callable[[list[str]], int]) -> int:
    """Run a tool with the words of the command line to its exit code; it never raises."""
    begin()
    current().given["connection_name"] = name
    try:
        return body(sys.argv[1:])
    except SystemExit as end:  # of argparse, which has printed its help
        return end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        return report(name, error)
