"""Questions that belong together: the dialog of `add` without a name, and of `--ask`.

Owns the order of the questions and their answers, which survive a refusal: a question whose answer
the server refused is asked again, with the earlier answers as defaults. The use of the answers is
left to the caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError, explain
from tradewind.cli.frame.output import note, styled
from tradewind.cli.frame.prompts import (
    HELP_KEY,
    ask,
    ask_secret,
    check_terminal,
    choose,
    confirm,
    say_wrong,
)

Made = TypeVar("Made")
Answers = Mapping[str, Any]
HINT: Final = f"Enter takes the value in brackets, {HELP_KEY} explains a question, Ctrl-C leaves."


@dataclass(frozen=True)
class DialogQuestion:
    """A question; `key` names the member of the configuration that its answer is.

    `options` makes it a list to select from, `is_switch` yes or no; an answer that `is_secret` is
    not shown. `convert` gets the text, or the
    bool of a switch, and raises CommandError if it is wrong. `words` occur in the errors of servers
    about it. It is only asked if `when` agrees, which sees the answers before it.
    """

    key: str
    text: str
    flag: str
    help: str
    default: str = ""
    convert: Callable[[Any], Any] = str
    options: tuple[str, ...] = ()
    is_switch: bool = False
    is_secret: bool = False
    words: tuple[str, ...] = ()
    when: Callable[[Answers], bool] = lambda _answers: True

    def put(self, default: str) -> tuple[str, Any]:
        """The answer as it was given, and what it means; a wrong one is asked for again."""
        while True:
            given = self._given(default)
            try:
                return ("yes" if given else "no") if self.is_switch else given, self.convert(given)
            except CommandError as error:
                say_wrong(error)

    def _given(self, default: str) -> Any:
        if self.is_switch:
            is_yes = default == "yes"
            return confirm(self.text, default=is_yes, flag=self.flag, help_text=self.help)
        if self.is_secret:
            return ask_secret(self.text, flag=self.flag, help_text=self.help) or default
        if self.options:
            options = list(self.options)
            return choose(self.text, options, default, flag=self.flag, help_text=self.help)
        return ask(self.text, default, flag=self.flag, help_text=self.help)


class Dialog:
    """Asks questions, and again those whose answers are refused.

    `given` are the settings of flags: they are asked for only after a refusal.
    """

    def __init__(self, questions: Sequence[DialogQuestion], given: Answers) -> None:
        self._questions = questions
        self._settled = set(given)
        self._given = dict(given)
        # The answers as they were typed, by key: the defaults when they are asked for again.
        self._typed: dict[str, str] = {}
        self._answers: dict[str, Any] = {}

    def check(self) -> None:
        """Raise CommandError, which names a flag, if a question is open and cannot be asked."""
        for question in filter(self._is_open, self._questions):
            check_terminal(question.text, question.flag)

    def _is_open(self, question: DialogQuestion) -> bool:
        if question.key in self._settled:
            return False
        return question.when({**self._given, **self._answers})

    def ask(self) -> dict[str, Any]:
        """The answers to all questions that are not settled, with those before them."""
        for question in filter(self._is_open, self._questions):
            if not self._typed:
                note(styled(HINT, "dim", sys.stderr))
            default = self._typed.get(question.key, question.default)
            typed, answer = question.put(default)
            self._typed[question.key] = typed
            self._answers[question.key] = answer
            self._settled.add(question.key)
        return dict(self._answers)

    def until_accepted(self, make: Callable[[dict[str, Any]], Made]) -> Made:
        """Ask and call `make` with the answers until the server accepts them; its result."""
        from tradewind.client.api_errors import JetStreamApiError
        from tradewind.client.errors import BucketExistsError, OptionsError

        while True:
            answers = self.ask()
            try:
                return make(answers)
            except (JetStreamApiError, BucketExistsError, OptionsError) as error:
                text, _ = explain(error)
                if not self._typed or not self._reopen(text):
                    raise
                note(f"{styled('refused', 'red', sys.stderr)}: {text}")

    def _reopen(self, reason: str) -> bool:
        """Ask again for what a refusal is about, or for everything if that is not clear.

        Whether there is anything to ask.
        """
        said = reason.lower()
        about = [
            question.key
            for question in self._questions
            if any(word in said for word in question.words)
        ]
        self._settled -= set(about) or set(self._typed)
        return any(map(self._is_open, self._questions))


# ------------------------------------------------------------------ answers


def count_answer(flag: str, least: int = -1) -> Callable[[str], int]:
    """Converts an answer to a whole number that is not less than `least`."""

    def convert(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18 or int(text) < least:
            meaning = "; -1 for no limit" if least == -1 else ""
            raise CommandError(
                f"{flag} must be a whole number from {least} on, not {text!r}{meaning}",
                exit_code=EXIT_USAGE,
            )
        return int(text)

    return convert


def replicas_answer(text: str) -> int:
    """Converts an answer to a number of replicas."""
    if text not in ("1", "2", "3", "4", "5"):
        raise CommandError(f"--replicas must be from 1 to 5, not {text!r}", exit_code=EXIT_USAGE)
    return int(text)


def name_answer(kind: str) -> Callable[[str], str]:
    """Converts an answer to the name of a stream or consumer."""
    from tradewind.api.names import NAME_BYTES_MAX, is_valid_name

    def convert(text: str) -> str:
        if not is_valid_name(text) or len(text.encode()) > NAME_BYTES_MAX:
            raise CommandError(
                f"the name of a {kind} must have 1 to {NAME_BYTES_MAX} bytes and none of blanks, "
                f"'.', '*', '>', '/' and '\\', not {text!r}",
                exit_code=EXIT_USAGE,
            )
        return text

    return convert
