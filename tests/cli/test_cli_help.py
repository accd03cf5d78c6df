"""Help: commands in groups, examples that the parser accepts, global flags last."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweeps import sweep
from typer._click import Context

from cli_outcome import Cli
from tradewind import client
from tradewind._version import __version__
from tradewind.cli.commands import COMMANDS, GROUPS
from tradewind.cli.frame.examples import EXAMPLES, examples_of
from tradewind.cli.frame.failures import EXIT_USAGE, METHODS, for_people
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


@sweep("example", EXAMPLES)
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


def _parameters(command: Any, context: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
    """All flags and arguments of a command and of those below it."""
    for parameter in command.params:
        yield f"{' '.join(words)} {parameter.opts[0]}", parameter
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        below = command.get_command(context, name)
        yield from _parameters(below, Context(below, parent=context), [*words, name])


def test_every_number_on_the_command_line_has_a_lower_limit() -> None:
    begin()
    root: Any = make_root()
    numbers = [
        (name, parameter.type)
        for name, parameter in _parameters(root, Context(root), [])
        if "Int" in type(parameter.type).__name__ or "Float" in type(parameter.type).__name__
    ]
    assert len(numbers) > 100
    assert [name for name, kind in numbers if getattr(kind, "min", None) is None] == []
    assert {kind.min for _, kind in numbers if kind.min < 0} == {-1}, "-1 stands for no limit"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pub x y --count -5", "--count must be at least -1, not -5"),
        ("sub x --count -5", "--count must be at least 0, not -5"),
        ("pub x y --count few", "--count must be a whole number of at least -1, not 'few'"),
        ("kv add A --history 90", "--history must be from 1 to 64, not 90"),
        ("demo --rate often", "--rate must be a number from 0.1 to 10,000, not 'often'"),
        ("rtt -- -5", "argument ITERATIONS must be at least 1, not -5"),
        ("pub x --sleep -4s", "--sleep must be a duration such as 30s"),
        ("pub x --count", "--count needs a value"),
        ("stream ls --json=5", "--json takes no value"),
        ("stream ls a b", "there are too many arguments: a b"),
        ("kv get", "argument BUCKET is missing"),
        ("server check stream", "--stream is missing"),
        ("stream add A --storage fil", "--storage must be one of file, memory, not 'fil'; did you"),
        ("pub x --schedule 1h", "flag '--schedule' does not exist; did you mean '--schedule-at'?"),
    ],
)
def test_a_wrong_command_line_is_explained(offline: Cli, line: str, said: str) -> None:
    refused = offline(*line.split())
    assert refused.code == EXIT_USAGE
    assert said in refused.err


def test_errors_of_the_client_name_commands_instead_of_methods() -> None:
    """Each method that an error or hint of the client names has a command."""
    folder = Path(client.__file__).parent
    method = re.compile(r"(?:(?<!async )with|use|see) ((?:consumers|streams|js)\.[a-z_]+)")
    named = {found for path in folder.rglob("*.py") for found in method.findall(path.read_text())}
    assert "streams.add" in named
    assert named <= set(METHODS)
    for text in METHODS:
        assert for_people(f"use {text}") == f"use `tradewind {METHODS[text]}`"


def test_help_of_an_unknown_command_is_an_error(offline: Cli) -> None:
    outcome = offline("help", "strem")
    assert outcome.code == EXIT_USAGE
    assert "did you mean 'stream'?" in outcome.err


def test_version_is_the_same_as_the_flag(offline: Cli) -> None:
    assert offline("version").ok().out == f"tradewind {__version__}\n"
    assert offline("--version").ok().out == f"tradewind {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        *("stream add", "stream edit", "stream purge", "stream report"),
        *("consumer add", "consumer next", "kv put", "kv get", "kv watch"),
        *("object put", "object get", "context add", "server check"),
    ],
)
def test_commands_that_are_used_most_have_two_examples(command: str) -> None:
    assert len(examples_of(command.split())) == 2


def test_examples_end_the_help_of_a_command(offline: Cli) -> None:
    shown = offline("consumer", "why", "--help").ok().out
    assert "Examples:\n  tradewind consumer why ORDERS packer\n" in shown
