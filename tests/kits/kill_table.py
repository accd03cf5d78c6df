"""The fate of the rows while processes were killed: one line for each test, printed at the end."""

from __future__ import annotations

from collections import Counter
from typing import Any

HEAD = ("killed", "kills", "rows expected", "rows lost", "rows doubled")
_LINES: dict[str, list[int]] = {}


def note(kind: str, kills: int, expected: Counter[Any], found: Counter[Any]) -> None:
    """Count what is missing and what is there too often; tests of one kind are added up."""
    counts = (kills, expected.total(), (expected - found).total(), (found - expected).total())
    sums = _LINES.setdefault(kind, [0] * len(counts))
    _LINES[kind] = [one + other for one, other in zip(sums, counts, strict=True)]


def lines() -> list[str]:
    """The table in Markdown; nothing if nothing was killed."""
    if not _LINES:
        return []
    rows = [HEAD, ("---",) * len(HEAD)]
    rows += [(kind, *(f"{count:,}" for count in counts)) for kind, counts in _LINES.items()]
    return [f"| {' | '.join(row)} |" for row in rows]
