"""Flags that take one of a few words.

Owns the type of such flags: a wrong word is an error that lists the right ones, and ends the
command with the exit code for wrong arguments. Dialogs choose among the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from typer._click.types import ParamType

from tradewind.cli.frame.failures import near

if TYPE_CHECKING:
    from typer._click import Context, Parameter


class OneOf(ParamType):
    """One of some words; `also` has other names for them, as other programs spell them."""

    name = "choice"

    def __init__(self, *words: str, also: Mapping[str, str] | None = None) -> None:
        self.words = words
        self.also = dict(also or {})

    def get_metavar(self, param: Parameter, ctx: Context) -> str:  # noqa: ARG002 - click's
        """The words as the help shows them."""
        return "|".join(self.words)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """The word itself; any other is an error."""
        word = self.also.get(value, value)
        if word not in self.words:
            hint = near(str(value), self.words)
            self.fail(f"must be one of {', '.join(self.words)}, not {value!r}{hint}", param, ctx)
        return word
