"""A list on a terminal from which one line is selected with the arrow keys.

Owns the keys and the drawing of the list; `prompts` decides when there is one. It never changes how
the terminal works for longer than the list is open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Final

from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.output import clipped, is_terminal, redraw_notes, styled, width
from tradewind.visible_text import visible

# The line of the question, that of the help, and the one in which the cursor ends.
LINES_AROUND: Final = 4
# The rest of an escape sequence arrives at once, or it was the key Esc alone.
ESCAPE_SECONDS: Final = 0.05
_END: Final = b"\x04"
_ESCAPE: Final = b"\x1b"
_MOVES: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x10": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x0e": "down",
    b"\t": "down",
    b"\x1b[H": "first",
    b"\x1b[F": "last",
}


def can_select() -> bool:
    """Whether input and notes are a terminal that obeys cursor codes."""
    if os.environ.get("TERM", "dumb") == "dumb" or not is_terminal(sys.stderr):
        return False
    try:
        import termios

        termios.tcgetattr(sys.stdin.fileno())
    except (ImportError, OSError, ValueError, AttributeError):
        return False
    return True


class ListSelection:
    """The state of an open list: which option is marked, and what was typed to find one."""

    def __init__(self, question: str, options: Sequence[str], default: str, help_text: str) -> None:
        self.question = question
        self.options = options
        self.help_text = help_text
        self.marked = options.index(default) if default in options else 0
        self.typed = ""
        self._has_help = False
        self._drawn = 0

    def press(self, key: bytes) -> bool:
        """Apply a key; whether it was Enter."""
        if key in (b"\r", b"\n"):
            return True
        if key == b"?":
            self._has_help = not self._has_help
        elif move := _MOVES.get(key):
            last = len(self.options) - 1
            self.typed = ""
            self.marked = {
                "up": (self.marked or len(self.options)) - 1,
                "down": (self.marked + 1) % len(self.options),
                "first": 0,
                "last": last,
            }[move]
        elif key in (b"\x7f", b"\x08"):
            self._find(self.typed[:-1])
        elif (text := key.decode(errors="ignore")).isprintable() and text:
            self._find(self.typed + text)
        return False

    def _find(self, typed: str) -> None:
        """Mark the first option that begins with what was typed; other keys are ignored."""
        found = [
            place
            for place, option in enumerate(self.options)
            if option.lower().startswith(typed.lower())
        ]
        if found:
            self.typed = typed
            self.marked = found[0]
        elif typed.isdecimal() and 1 <= int(typed[:9]) <= len(self.options):
            self.typed = typed
            self.marked = int(typed) - 1

    def lines(self, columns: int, rows: int) -> list[str]:
        """The list as it is drawn: the marked option is always among those with room."""
        hint = "arrows, Enter; ? explains"
        count = len(self.options)
        room = max(rows - LINES_AROUND, 1)
        start = min(max(self.marked - room // 2, 0), max(count - room, 0))
        if count > room:
            hint = f"{self.marked + 1} of {count}; {hint}"
        head = f"? {self.question} {self.typed}".rstrip()
        found = [head + styled(f" ({hint})", "dim", sys.stderr)]
        if width(head) + len(hint) + 3 > columns:
            found = [clipped(head, columns)]
        if self._has_help:
            found += [styled(clipped(each, columns), "dim", sys.stderr) for each in self._help()]
        for place in range(start, min(start + room, count)):
            text = clipped(visible(self.options[place]), columns - 3)
            is_marked = place == self.marked
            found.append(styled(f"> {text}", "bold", sys.stderr) if is_marked else f"  {text}")
        return found

    def _help(self) -> list[str]:
        return [f"  {each}" for each in self.help_text.splitlines()]

    def draw(self) -> None:
        """Draw the list where it was drawn before."""
        size = get_terminal_size((80, 24))
        lines = self.lines(size.columns - 1, size.lines)
        self._replace(lines)

    def close(self) -> None:
        """Leave one line: the question with the option."""
        columns = get_terminal_size((80, 24)).columns - 1
        self._replace([clipped(f"? {self.question} {visible(self.options[self.marked])}", columns)])

    def _replace(self, lines: list[str]) -> None:
        redraw_notes(lines, self._drawn)
        self._drawn = len(lines)


def select(question: str, options: Sequence[str], default: str, help_text: str) -> str:
    """The option that is selected; CommandError if the input ends."""
    selection = ListSelection(question, options, default, help_text)
    with _single_keys():
        selection.draw()
        while not selection.press(_read_key()):
            selection.draw()
    selection.close()
    return options[selection.marked]


@contextmanager
def _single_keys() -> Iterator[None]:
    """Read keys without Enter and without their echo; Ctrl-C still interrupts."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    # DRAIN instead of FLUSH: what was typed ahead is an answer too.
    tty.setcbreak(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _read_key() -> bytes:
    """One key: a byte, a character, or the sequence of a special key."""
    from select import select as wait_readable

    terminal = sys.stdin.fileno()
    key = os.read(terminal, 1)
    if key in (b"", _END):
        raise CommandError("the input ended; nothing was changed")
    if key == _ESCAPE:
        while wait_readable([terminal], [], [], ESCAPE_SECONDS)[0]:
            key += os.read(terminal, 1)
            if len(key) > 2 and 0x40 <= key[-1] <= 0x7E:
                break
    else:
        # The first byte says how many belong to a character of UTF-8.
        first = key[0]
        for _ in range((first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)):
            key += os.read(terminal, 1)
    return key
