"""Help: commands in groups, examples that the parser accepts, global flags last."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from cli_outcome import Cli
from tradewind._version import __version__
from tradewind.cli.commands import COMMANDS, GROUPS
from tradewind.cli.frame.examples import EXAMPLES, examples_of
from tradewind.cli.frame.failures import EXIT_USAGE
from tradewind.cli.frame.settings import begin
from tradewind.cli.main import make_root


def test_every_command_is_in_one_group_and_has_two_examples() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(entry.name for entry in COMMANDS)
    for entry in COMMANDS:
        assert len(examples_of([entry.name])) == 2, entry.name


def test_global_flags_come_after_the_commands(offline: Cli) -> None:
    shown = offline("--help").ok().out
    titles = [shown.index(f"\n{title}:\n") for title in GROUPS]
    assert titles == sorted(titles)
    assert shown.index("\nGlobal flags") > titles[-1]
    assert shown.index("--server") > shown.index("\nGlobal flags")


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_valid_command_lines(example: str) -> None:
    begin()
    words = [word for word in shlex.split(example) if word != "--help"]
    command: Any = make_root()
    context = command.make_context("tradewind", words)
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        if not rest and hasattr(command, "resolve_command"):
            return  # a noun, which shows its help
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("words", [[], ["stream"], ["stream", "add"], ["str", "add"]])
def test_help_is_the_same_as_the_flag(offline: Cli, words: list[str]) -> None:
    assert offline("help", *words).ok().out == offline(*words, "--help").ok().out


def test_help_of_an_unknown_command_is_an_error(offline: Cli) -> None:
    outcome = offline("help", "strem")
    assert outcome.code == EXIT_USAGE
    assert "did you mean 'stream'?" in outcome.err


def test_version_is_the_same_as_the_flag(offline: Cli) -> None:
    assert offline("version").ok().out == f"tradewind {__version__}\n"
    assert offline("--version").ok().out == f"tradewind {__version__}\n"


def test_examples_end_the_help_of_a_command(offline: Cli) -> None:
    shown = offline("consumer", "why", "--help").ok().out
    assert "Examples:\n  tradewind consumer why ORDERS packer\n" in shown
