"""The screens in docs/reference/CLI.md are what the commands print."""

from __future__ import annotations

import pytest
from tools.cli_screens import Screen, read_page, run, surroundings

from tradewind.cli.servers import check_rules

QUICK = 0.001


def masked(screen: Screen) -> str:
    """Without what differs from run to run; a busy machine may need seconds for milliseconds."""
    return screen.masked().replace("<rtt>", "<duration>")


@pytest.fixture
def _in_good_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check finds a server slow: that depends on what else the machine does."""
    time, text = check_rules._time, check_rules._text
    monkeypatch.setattr(check_rules, "_time", lambda name, _took, *more: time(name, QUICK, *more))
    monkeypatch.setattr(check_rules, "_text", lambda _took: text(QUICK))


# Seventy commands, some of them as processes of their own.
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("_in_good_time")
def test_the_screens_of_the_page_are_what_the_commands_print() -> None:
    screens = read_page()
    assert len(screens) > 20
    with surroundings() as environment:
        for screen in screens:
            assert masked(run(screen.command, environment)) == masked(screen), (
                f"$ {screen.command}: tools/cli_screens.py captures the page anew"
            )
