"""Rows of options: the one place that says how an option is written, read and explained.

Owns the description of an option and everything that follows from it: finding it by its name in any
case, parsing, the errors of unknown options, and the tables of the documentation. A field of a
class of options is its row: `option(...)` gives the name in Spark, the parser, the default and a
sentence for the documentation. Fields without a row are no options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final, TypeAlias

from tradewind.spark.connections.logins import LOGIN_FIELDS, spark_name, split_login
from tradewind.spark.errors import OptionError

# The value of an option, of its name for errors and its text.
Parser: TypeAlias = Callable[[str, str], object]
_ROW: Final = "option"


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option: its name in Spark, its parser, what it means, and other names for it.

    `instead_of` are names for the same in the source for Kafka, for errors only.
    """

    name: str
    parse: Parser
    help: str
    also: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()


def option(
    name: str,
    parse: Parser,
    default: Any,
    help_text: str,
    *,
    also: tuple[str, ...] = (),
    instead_of: tuple[str, ...] = (),
    is_shown: bool = True,
) -> Any:
    """A field of a class of options. `is_shown`: its value may appear in representations."""
    row = OptionRow(name, parse, help_text, also, instead_of)
    return field(default=default, repr=is_shown, metadata={_ROW: row})


@cache
def rows_of(kind: type) -> Mapping[str, OptionRow]:
    """The rows of a class of options, by their fields."""
    return {one.name: one.metadata[_ROW] for one in fields(kind) if _ROW in one.metadata}


@cache
def _fields_by_name(kind: type) -> Mapping[str, str]:
    """The field of each name, in lower case."""
    return {
        name.lower(): target
        for target, row in rows_of(kind).items()
        for name in (row.name, *row.also)
    }


def parse_given(
    kind: type, given: Mapping[str, str], ignored: Collection[str] = (), what: str = ""
) -> dict[str, object]:
    """The fields that options set, with the login; OptionError names the one that is wrong.

    `ignored` are names, in lower case, that Spark passes for itself.
    """
    login, others = split_login(given)
    found: dict[str, object] = {"login": login}
    rows, names = rows_of(kind), _fields_by_name(kind)
    for name, text in others.items():
        if name.lower() in ignored:
            continue
        target = names.get(name.lower())
        if target is None:
            raise _unknown(kind, name, what)
        found[target] = rows[target].parse(rows[target].name, str(text).strip())
    return found


def _unknown(kind: type, name: str, what: str) -> OptionError:
    rows = rows_of(kind).values()
    for row in rows:
        if name.lower() in row.instead_of:
            return OptionError(name, f"unknown option; use {row.name}")
    known = ", ".join([*(row.name for row in rows), *map(spark_name, LOGIN_FIELDS)])
    return OptionError(name, f"unknown option{what}; valid options: {known}")


def markdown_table(kind: type) -> str:
    """The table of the options in the documentation."""
    rows = "".join(f"| `{row.name}` | {row.help} |\n" for row in rows_of(kind).values())
    return f"| option | meaning |\n|---|---|\n{rows}"


# -------------------------------------------------------------------------- parsers


def any_text(_name: str, text: str) -> str:
    """The text as it is."""
    return text


def some_text(name: str, text: str) -> str:
    """A text that is not empty."""
    if not text:
        raise OptionError(name, "it is empty")
    return text


def text_list(name: str, text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        # An address may hold a password.
        shown = "it" if name == "servers" else repr(text)
        raise OptionError(name, f"{shown} has an empty part; separate names by commas")
    return parts


def one_of(*allowed: str) -> Parser:
    """One of some words, in any case."""

    def parse(name: str, text: str) -> str:
        if text.lower() not in allowed:
            raise OptionError(name, f"{text!r} is not one of {', '.join(allowed)}")
        return text.lower()

    return parse


def yes_or_no(name: str, text: str) -> bool:
    """`true` or `false`, in any case."""
    return one_of("true", "false")(name, text) == "true"


def whole_number(largest: int, *, least: int = 1) -> Parser:
    """A whole number in some bounds."""

    def parse(name: str, text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= largest):
            raise OptionError(name, f"{text!r} is not a whole number from {least} to {largest}")
        return int(text)

    return parse
