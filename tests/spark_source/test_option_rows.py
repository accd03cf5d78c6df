"""The rows of the options: names, errors and documentation come from one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tradewind.spark.connections.logins import JobLogin
from tradewind.spark.errors import OptionError
from tradewind.spark.options.option_rows import (
    markdown_table,
    option,
    parse_given,
    rows_of,
    whole_number,
)
from tradewind.spark.options.sink_options import SinkOptions, parse_sink_options
from tradewind.spark.options.source_options import SourceOptions, parse_options

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "SPARK.md"
KINDS = [SourceOptions, SinkOptions]


@dataclass(frozen=True)
class Example:
    """A class of options with one more row; nothing else has to know it."""

    size_max: int = option(
        "maxSize", whole_number(9), 3, "how much", also=("limit",), instead_of=("maxlength",)
    )
    login: JobLogin = field(default_factory=JobLogin)
    is_open: bool = False


def read(**given: str) -> Any:
    return parse_given(Example, given)["size_max"]


def test_a_row_is_all_that_an_option_needs() -> None:
    assert read(maxSize="7") == read(MAXSIZE=" 7 ") == read(limit="7") == 7
    assert "size_max" not in parse_given(Example, {})
    assert markdown_table(Example) == "| option | meaning |\n|---|---|\n| `maxSize` | how much |\n"
    with pytest.raises(OptionError, match="option maxSize: '10' is not a whole number"):
        read(limit="10")
    with pytest.raises(OptionError, match="option maxLength: unknown option; use maxSize"):
        read(maxLength="1")
    with pytest.raises(
        OptionError, match="option is_open: unknown option; valid options: maxSize,"
    ):
        read(is_open="true")


@pytest.mark.parametrize("kind", KINDS)
def test_the_documentation_has_the_rows(kind: type) -> None:
    assert markdown_table(kind) in PAGE.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_options_share_a_name(kind: type) -> None:
    names = [name.lower() for row in rows_of(kind).values() for name in (row.name, *row.also)]
    assert len(names) == len(set(names))
    others = [name for row in rows_of(kind).values() for name in row.instead_of]
    assert all(name == name.lower() for name in others)
    assert not set(others) & set(names)


def test_an_error_lists_every_option() -> None:
    for kind, parse in ((SourceOptions, parse_options), (SinkOptions, parse_sink_options)):
        with pytest.raises(OptionError) as error:
            parse({"nothing": "1"})
        for row in rows_of(kind).values():
            assert f" {row.name}," in str(error.value)
        assert "tlsCaFile" in str(error.value)
