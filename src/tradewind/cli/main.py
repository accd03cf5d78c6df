"""`tradewind`: finds the command, runs it, and turns any failure into one line.

Owns the root command with lazily imported modules, and the exit codes. 0: done; 1: failed; 2: wrong
arguments; 130: interrupted. Checks have their own codes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import typer
from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError
from typer.core import TyperOption
from typer.main import get_command

from tradewind._version import __version__
from tradewind.cli.commands import COMMANDS, GROUPS
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE
from tradewind.cli.frame.frame import HELP_NAMES, SharedGroup, load_app
from tradewind.cli.frame.output import line
from tradewind.cli.frame.reporting import complain, report
from tradewind.cli.frame.settings import begin, current
from tradewind.cli.frame.usage_errors import usage_text

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

PROGRAM = "tradewind"
_ENTRIES = {entry.name: entry for entry in COMMANDS}


class RootGroup(SharedGroup):
    """All commands; each module is imported when its command is wanted."""

    aliases = {alias: entry.name for entry in COMMANDS for alias in entry.aliases}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if isinstance(parameter, TyperOption):
                parameter.hidden = False

    def list_commands(self, _ctx: Context) -> list[str]:
        """The names of all commands."""
        return sorted(_ENTRIES)

    def get_command(self, _ctx: Context, cmd_name: str) -> Command | None:
        """The command of a name or alias, imported now."""
        entry = _ENTRIES.get(self.aliases.get(cmd_name, cmd_name))
        return load_app(entry.place).make(entry.name) if entry else None

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The commands in groups, and the flags of all commands behind them."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, _ENTRIES[name].help + self.also_text(name)) for name in names]
                )
        records = [each.get_help_record(ctx) for each in self.get_params(ctx)]
        with formatter.section("Global flags, anywhere on the line"):
            formatter.write_dl([record for record in records if record is not None])

    def described_commands(self, _ctx: Context) -> list[tuple[str, str]]:
        """Names with one line of help each; nothing is imported for it."""
        return [(name, _ENTRIES[name].help) for name in sorted(_ENTRIES)]


def _show_version(value: bool) -> None:
    if value:
        line(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _start(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version"
    ),
) -> None:
    """Publish, subscribe and manage streams on any NATS server."""


def make_root() -> Command:
    """The root command."""
    root = typer.Typer(
        cls=RootGroup,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=HELP_NAMES,
        epilog="First steps: tradewind server run --jetstream, then tradewind stream add",
    )
    root.callback()(_start)
    return get_command(root)


def run(args: Sequence[str]) -> int:
    """Runs a command line (without the program's name); the exit code. Never raises."""
    begin()
    try:
        result = make_root().main(args=list(args), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    except BaseException as error:
        return _report(error)
    if troubles := current().troubles:
        return _report(troubles[0])
    return result if isinstance(result, int) else 0


def _report(error: BaseException) -> int:
    """Prints an error as one line with hints; the exit code."""
    if isinstance(error, NoArgsIsHelpError):
        line(error.format_message())
        return 0
    if isinstance(error, ClickException):
        return _report_usage(error)
    if isinstance(error, typer.Abort):
        complain(PROGRAM, "the input ended")
        return EXIT_FAILED
    return report(PROGRAM, error)


def _report_usage(error: ClickException) -> int:
    context = error.ctx if isinstance(error, UsageError) else None
    path = context.command_path if context is not None else PROGRAM
    complain(PROGRAM, usage_text(error), f"see: {path} --help")
    return EXIT_USAGE


def main() -> int:
    """The entry point of the executable."""
    if isinstance(sys.stdout, TextIOWrapper):
        # The lines of tables are no reason to fail where only ASCII can be shown.
        sys.stdout.reconfigure(errors="replace")
    return run(sys.argv[1:])
