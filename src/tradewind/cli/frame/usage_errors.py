"""The errors of the parser of command lines, in the words of all other errors.

Owns their texts: each names the flag or argument, and what would be right.
"""

from __future__ import annotations

import re
from typing import Any, Final

from typer._click.exceptions import (
    BadOptionUsage,
    BadParameter,
    ClickException,
    MissingParameter,
    NoSuchOption,
)

from tradewind.cli.frame.failures import near

_KINDS: Final = {"integer": "a whole number", "int": "a whole number", "float": "a number"}
_TOO_MANY: Final = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)\Z", re.DOTALL)
_OUTSIDE: Final = re.compile(r"(\S+) is not in the range ")
_NO_NUMBER: Final = re.compile(r"(.+) is not a valid (integer|int|float)( range)?\.\Z", re.DOTALL)


def usage_text(error: ClickException) -> str:
    """A description of the error in a command line, in one line."""
    if isinstance(error, MissingParameter):
        return f"{_name(error)} is missing" if error.param else error.format_message()
    if isinstance(error, BadParameter) and error.param is not None:
        return f"{_name(error)} {_demand(error.message, error.param.type)}"
    if isinstance(error, NoSuchOption):
        hint = near(error.option_name, error.possibilities or ())
        return f"flag {error.option_name!r} does not exist{hint}"
    if isinstance(error, BadOptionUsage):
        value = "needs a value" if "requires" in error.message else "takes no value"
        return f"{error.option_name} {value}"
    if found := _TOO_MANY.match(error.format_message()):
        return f"there are too many arguments: {found[1]}"
    return error.format_message().rstrip(".")


def _name(error: BadParameter) -> str:
    parameter: Any = error.param
    if parameter.param_type_name == "argument":
        return f"argument {parameter.make_metavar(error.ctx).strip('[]').upper()}"
    return str(max(parameter.opts, key=len))


def _demand(message: str, kind: Any) -> str:
    """`must be ..., not VALUE` of what the parser says."""
    if found := _OUTSIDE.match(message):
        return f"must be {_range_text(kind)}, not {found[1]}"
    if found := _NO_NUMBER.match(message):
        range_text = _range_text(kind) if found[3] else ""
        of_range = f" {range_text}".replace(" at ", " of at ") if range_text else ""
        return f"must be {_KINDS[found[2]]}{of_range}, not {found[1]}"
    text = message.rstrip(".")
    return text if text.startswith("must ") else f"must have another value: {text}"


def _range_text(kind: Any) -> str:
    if kind.max is None:
        return f"at least {kind.min:g}"
    if kind.min is None:
        return f"at most {kind.max:g}"
    return f"from {kind.min:,} to {kind.max:,}"
