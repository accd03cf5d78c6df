"""Questions to the user, and what happens if nobody can answer."""

from __future__ import annotations

import pytest

from cli_outcome import Types
from tradewind.cli.frame import prompts
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.text_formats import parse_size


def test_enter_takes_the_default(types: Types) -> None:
    types("", "disk")
    assert prompts.ask("Storage", "file", flag="--storage") == "file"
    assert prompts.ask("Storage", "file", flag="--storage") == "disk"


def test_a_wrong_value_is_explained_and_asked_for_again(
    types: Types, capsys: pytest.CaptureFixture[str]
) -> None:
    types("many", "10KB")
    size = prompts.ask_value(
        "Total Stream Size",
        lambda text: parse_size(text, "size"),
        "-1",
        flag="--max-bytes",
        help_text="",
    )
    assert size == 10240
    assert "must be a size such as" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "chosen"), [("", "old"), ("2", "new"), ("ne", "new"), ("old", "old"), ("OLD", "old")]
)
def test_a_choice_is_taken_by_name_beginning_or_number(
    types: Types, typed: str, chosen: str
) -> None:
    types("nonsense", typed)
    assert prompts.choose("Discard Policy", ["old", "new"], flag="--discard") == chosen


@pytest.mark.parametrize(
    ("typed", "answer"), [("", False), ("y", True), ("YES", True), ("no", False)]
)
def test_confirmation_is_no_unless_somebody_says_yes(
    types: Types, typed: str, answer: bool
) -> None:
    types("maybe", typed)
    assert prompts.confirm("Really delete Stream ORDERS") is answer


def test_without_a_terminal_the_flag_is_named() -> None:
    with pytest.raises(CommandError, match="use --subjects") as caught:
        prompts.ask("Subjects", flag="--subjects")
    assert caught.value.exit_code == EXIT_USAGE


def test_the_end_of_the_input_changes_nothing(types: Types) -> None:
    types()
    with pytest.raises(CommandError, match="nothing was changed"):
        prompts.confirm_or_stop("Really purge Stream ORDERS", force=False)


def test_force_asks_nothing() -> None:
    prompts.confirm_or_stop("Really purge Stream ORDERS", force=True)
