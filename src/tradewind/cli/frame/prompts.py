"""Prompts: only if the input is a terminal, otherwise an error that names the flag.

Owns the dialogs; `--force` and `--defaults` are handled by the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.output import is_terminal, note, styled, write_note

Value = TypeVar("Value")


def can_ask() -> bool:
    """Whether somebody is there to answer."""
    return is_terminal(sys.stdin)


def ask(question: str, default: str = "", *, flag: str, help_text: str = "") -> str:
    """A line of text; Enter takes the default. `flag` is named if nobody can answer."""
    _check_terminal(question, flag)
    if help_text:
        _say(styled(help_text, "dim", sys.stderr))
    shown = f" [{default}]" if default else ""
    return _read(f"? {question}{shown} ").strip() or default


def ask_value(
    question: str, convert: Callable[[str], Value], default: str = "", *, flag: str, help_text: str
) -> Value:
    """The same for anything but text; a wrong answer is explained and asked for again."""
    while True:
        answer = ask(question, default, flag=flag, help_text=help_text)
        try:
            return convert(answer)
        except CommandError as error:
            _say(str(error))


def choose(question: str, options: Sequence[str], default: str = "", *, flag: str) -> str:
    """One of several names, given by name, its beginning or its number."""
    _check_terminal(question, flag)
    default = default or options[0]
    for number, option in enumerate(options, 1):
        _say(f"  {number}) {option}")
    while True:
        answer = _read(f"? {question} [{default}] ").strip() or default
        if answer.isdigit() and 1 <= int(answer) <= len(options):
            return options[int(answer) - 1]
        found = [option for option in options if option.lower().startswith(answer.lower())]
        if answer in options or len(found) == 1:
            return answer if answer in options else found[0]
        _say(f"Please answer with one of: {', '.join(options)}")


def confirm(question: str, *, default: bool = False, flag: str = "--force") -> bool:
    """Yes or no; Enter takes the default."""
    _check_terminal(question, flag)
    while True:
        answer = _read(f"? {question} ({'Y/n' if default else 'y/N'}) ").strip().lower()
        if not answer:
            return default
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no"):
            return False
        _say("Please answer yes or no")


def confirm_or_stop(question: str, *, force: bool) -> None:
    """Ask before something is lost; CommandError if the answer is no. `force` asks nothing."""
    if not force and not confirm(question):
        raise CommandError("nothing was changed")


def _check_terminal(question: str, flag: str) -> None:
    if not can_ask():
        raise CommandError(
            f"{question}: cannot ask because the input is not a terminal; use {flag}",
            exit_code=EXIT_USAGE,
        )


def _read(text: str) -> str:
    write_note(text)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        write_note("\n")
        raise CommandError("the input ended; nothing was changed")
    return answer


def _say(text: str) -> None:
    note(text)
