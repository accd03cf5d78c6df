"""Prints the explanations of the `why` commands.

Owns the layout; the explanations are in `tradewind.client.why`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.cli.frame.output import line, print_json, styled

if TYPE_CHECKING:
    from tradewind.client.why.reasons import Reason

_COLOURS: Final = {"stuck": "red", "waiting": "yellow", "idle": "", "good": "green"}


def show_reason(name: str, reason: Reason, *, json: bool) -> None:
    """One sentence, what to do, and the command; or all of it for machines."""
    if json:
        print_json(reason)
        return
    colour = _COLOURS[reason.mood]
    line(f"{styled(name, colour) if colour else name}: {reason.text}")
    if reason.advice:
        line(reason.advice)
    if reason.command:
        line(f"  {reason.command}")
