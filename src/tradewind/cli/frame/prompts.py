"""Prompts: only if the input is a terminal, otherwise an error that names the flag.

Owns single questions, plain or as a list to select from; `questions` has those that belong
together. `--force` and `--defaults` are handled by the commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.output import is_terminal, note, styled, write_note
from tradewind.cli.frame.selection import can_select, select

Value = TypeVar("Value")

HELP_KEY: Final = "?"


def can_ask() -> bool:
    """Whether questions can be asked: the input is a terminal."""
    return is_terminal(sys.stdin)


def ask(question: str, default: str = "", *, flag: str, help_text: str = "") -> str:
    """Ask for a line of text; Enter takes the default, `?` shows the help.

    The error names `flag` if the input is not a terminal.
    """
    shown = f" [{default}]" if default else ""
    return _read_answer(f"{question}{shown}", question, flag, help_text) or default


def ask_secret(question: str, *, flag: str, help_text: str = "") -> str:
    """A line of text that is not shown while it is typed."""
    with _no_echo():
        return _read_answer(question, question, flag, help_text)


def ask_value(
    question: str,
    convert: Callable[[str], Value],
    default: str = "",
    *,
    flag: str,
    help_text: str = "",
) -> Value:
    """The same for anything but text; a wrong answer is explained and asked for again."""
    while True:
        answer = ask(question, default, flag=flag, help_text=help_text)
        try:
            return convert(answer)
        except CommandError as error:
            say_wrong(error)


def choose(
    question: str, options: Sequence[str], default: str = "", *, flag: str, help_text: str = ""
) -> str:
    """One of several names: selected with the arrow keys, or given by name, beginning or number."""
    check_terminal(question, flag)
    default = default or options[0]
    if can_select():
        with _own_line_after_interrupt():
            return select(question, options, default, _help(help_text, flag))
    for number, option in enumerate(options, 1):
        note(f"  {number}) {option}")
    while True:
        answer = _read_answer(f"{question} [{default}]", question, flag, help_text) or default
        if answer.isdecimal() and 1 <= int(answer[:9]) <= len(options):
            return options[int(answer) - 1]
        found = [option for option in options if option.lower().startswith(answer.lower())]
        if answer in options or len(found) == 1:
            return answer if answer in options else found[0]
        note(f"must be one of {', '.join(options)}, not {answer!r}")


def confirm(
    question: str, *, default: bool = False, flag: str = "--force", help_text: str = ""
) -> bool:
    """Yes or no; Enter takes the default."""
    shown = f"{question} ({'Y/n' if default else 'y/N'})"
    while True:
        answer = _read_answer(shown, question, flag, help_text).lower()
        if not answer:
            return default
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no"):
            return False
        note("must be yes or no")


def confirm_or_stop(question: str, *, force: bool) -> None:
    """Ask before something is lost; CommandError if the answer is no. `force` asks nothing."""
    if not force and not confirm(question):
        raise CommandError("nothing was changed")


def check_terminal(question: str, flag: str) -> None:
    """Raise CommandError, which names the flag, if the input is not a terminal."""
    if not can_ask():
        raise CommandError(
            f"{question}: cannot ask because the input is not a terminal; use {flag}",
            exit_code=EXIT_USAGE,
        )


def say_wrong(error: CommandError) -> None:
    """Why an answer is asked for again."""
    for text in (str(error), *error.hints):
        note(text)


def _read_answer(shown: str, question: str, flag: str, help_text: str) -> str:
    """The text that was typed; after `?`, the help is shown and the question repeated."""
    check_terminal(question, flag)
    while True:
        with _own_line_after_interrupt():
            write_note(f"? {shown} ")
            sys.stderr.flush()
            answer = _read_line().strip()
        if answer != HELP_KEY:
            return answer
        note(styled(_help(help_text, flag), "dim", sys.stderr))


def _help(help_text: str, flag: str) -> str:
    in_scripts = f"In scripts: {flag}"
    return f"{help_text}\n{in_scripts}" if help_text else in_scripts


@contextmanager
def _own_line_after_interrupt() -> Iterator[None]:
    """Ctrl-C ends the line of the question, so that the shell's prompt has its own."""
    try:
        yield
    except KeyboardInterrupt:
        write_note("\n")
        raise


@contextmanager
def _no_echo() -> Iterator[None]:
    """Show no more than the end of what is typed, if the input is a real terminal."""
    try:
        import termios

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (ImportError, OSError, ValueError, AttributeError):
        yield
        return
    silent = termios.tcgetattr(terminal)
    silent[3] = (silent[3] & ~termios.ECHO) | termios.ECHONL
    termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _read_line() -> str:
    """A line; from a terminal byte by byte, so that nothing typed ahead is lost to a list."""
    try:
        terminal = sys.stdin.fileno()
    except (OSError, AttributeError, ValueError):
        answer = sys.stdin.readline()
    else:
        data = b""
        while not data.endswith(b"\n") and (byte := os.read(terminal, 1)):
            data += byte
        answer = data.decode(sys.stdin.encoding or "utf-8", errors="replace")
    if not answer:
        write_note("\n")
        raise CommandError("the input ended; nothing was changed")
    return answer
