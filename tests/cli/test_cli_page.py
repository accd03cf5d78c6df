"""The screens in docs/CLI.md are what the commands print."""

from __future__ import annotations

import pytest
from tools.cli_screens import read_page, run, surroundings


# Seventy commands, some of them as processes of their own.
@pytest.mark.timeout(600)
def test_the_screens_of_the_page_are_what_the_commands_print() -> None:
    screens = read_page()
    assert len(screens) > 20
    with surroundings() as environment:
        for screen in screens:
            assert run(screen.command, environment).masked() == screen.masked(), (
                f"$ {screen.command}: tools/cli_screens.py captures the page anew"
            )
