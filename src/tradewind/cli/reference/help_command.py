"""`tradewind help` and `tradewind version`: the same as the flags --help and --version.

Owns both words, which people try first.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tradewind.cli.frame.frame import Argument, CommandApp

help_app = CommandApp("Show help")
version_app = CommandApp("Show the version")


@help_app.command()
def show_help(
    context: typer.Context,
    words: Annotated[list[str] | None, Argument(metavar="[COMMAND]...", show_default=False)] = None,
) -> None:
    """Show the help of a command, or the list of all commands."""
    _run_root(context, [*(words or []), "--help"])


@version_app.command()
def show_version(context: typer.Context) -> None:
    """Show the version."""
    _run_root(context, ["--version"])


def _run_root(context: typer.Context, words: list[str]) -> None:
    root = context.find_root()
    root.command.main(args=words, prog_name=root.info_name, standalone_mode=False)
